"""`longline serve` and `longline demo --serve` as processes, with a home in a folder."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers import free_port

COMMAND = (sys.executable, "-c", "from longline.cli.main import main; main()")
_PRACTICE = re.compile(r"The practice web at (\S+)")
_LINK = re.compile(r"http://127\.0\.0\.1:\d+/login\?link=\S+")
_READY_SECONDS = 90.0


@dataclass
class Served:
    """A running dashboard; it can be killed and started again at the same address."""

    folder: Path
    words: tuple[str, ...]
    home: Path
    settings: Mapping[str, str] = field(default_factory=dict)  # as environment variables
    url: str = ""
    link: str = ""
    practice: str = ""
    cookies: list[object] = field(default_factory=list)  # of the session that the link opened
    process: Process | None = None

    async def start(self) -> None:
        """Start it, and wait for the link that it prints."""
        port = self.url.rpartition(":")[2] or str(free_port())
        env = {
            **os.environ,
            "LONGLINE_HOME": str(self.folder / "home"),
            "LONGLINE_WEB_ADDRESS": f"127.0.0.1:{port}",
            **self.settings,
        }
        with (self.folder / "serve.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *COMMAND, *self.words, stdout=PIPE, stderr=log, env=env, cwd=self.folder
            )
        async with asyncio.timeout(_READY_SECONDS):
            await self._read_output(self.process)
        self.url = self.link.partition("/login")[0]
        found = _PRACTICE.search((self.folder / "serve.log").read_text())
        self.practice = found[1] if found else ""

    async def _read_output(self, process: Process) -> None:
        assert process.stdout is not None
        self.link = ""
        async for line in process.stdout:
            if found := _LINK.search(line.decode()):
                self.link = found[0]
                return
        raise AssertionError((self.folder / "serve.log").read_text())

    async def kill(self) -> None:
        """End it as `kill -9` does."""
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> int:
        """End it as Ctrl-C does; return its exit code."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGINT)
        await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode


@asynccontextmanager
async def server_running(folder: Path, **settings: str) -> AsyncIterator[Served]:
    """Run `longline serve` with an empty home."""
    async with _running(Served(folder, ("serve",), folder / "home", settings)) as served:
        yield served


@asynccontextmanager
async def demo_running(folder: Path) -> AsyncIterator[Served]:
    """Run a small `longline demo --serve`."""
    words = ("demo", "--items", "10", "--faults", "0", "--serve")
    async with _running(Served(folder, words, folder / "home" / "demo")) as served:
        yield served


@asynccontextmanager
async def _running(served: Served) -> AsyncIterator[Served]:
    await served.start()
    try:
        yield served
    finally:
        code = await served.stop()
    assert code == 0, (served.folder / "serve.log").read_text()
