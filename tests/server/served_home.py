"""A home with a server process, and a source that a test steers with files."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil

from longline.config.settings import Settings, prepare_home
from longline.core.model import Job
from longline.storage.query import RecordQuery
from longline.storage.scheduling.launches import Launch, LaunchState, NewLaunch
from longline.storage.store import Store, open_store
from tests.servers import until

T = TypeVar("T")
COMMAND = (sys.executable, "-c", "from longline.cli.main import main; main()")
STEERED = '''
"""Items that kill their process, or wait, as the test asks for."""

import asyncio
import os
import signal
from pathlib import Path

from longline import Item, Options, Source, layer

FOLDER = Path(__file__).parent


class SteeredOptions(Options):
    items: int = 12
    deadly: int = -1
    deaths: int = 0
    waits: int = -1


class Steered(Source):
    """Things without a web."""

    name = "steered"
    Options = SteeredOptions

    async def discover(self, visit):
        for number in range(self.options.items):
            yield Item(str(number), f"https://steered.test/{number}")

    @layer()
    async def page(self, visit):
        number = int(visit.item.key)
        if number == self.options.deadly:
            for death in range(self.options.deaths):
                if not (mark := FOLDER / f"death{death}").exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
        if number == self.options.waits:
            (FOLDER / f"waits{os.getpid()}").touch()
            while not (FOLDER / "go").exists():
                await asyncio.sleep(0.05)
        return {"title": f"Thing {number}"}
'''


class ServedHome:
    """A home in a folder; its database is read between the steps of a test."""

    def __init__(self, folder: Path, database_url: str | None = None) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.settings = Settings(home=self.home, database_url=database_url)
        self.source = folder / "steered.py"
        self.source.write_text(STEERED)
        prepare_home(self.settings)

    def read(self, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        async def read() -> T:
            store = open_store(self.settings.database)
            try:
                return await work(store)
            finally:
                store.close()

        return asyncio.run(read())

    def place(self, **options: Any) -> int:
        spec = {"source": str(self.source), "set": options, "concurrency": 2}
        new = NewLaunch("source", "steered", spec, "test", time.time())
        return self.read(lambda store: store.launches.place(new))

    def launch(self, launch: int) -> Launch:
        found = self.read(lambda store: store.launches.get(launch))
        assert found is not None
        return found

    def job(self, launch: int) -> Job:
        target = self.launch(launch).target
        assert target is not None
        return self.read(lambda store: store.jobs.get(str(target)))

    def ended(self, launch: int) -> Launch:
        """Wait for the end of a launch."""
        until(lambda: self.launch(launch).state is LaunchState.ENDED, "the end of the launch")
        return self.launch(launch)

    def versions(self) -> dict[str, int]:
        """Return how often each record was stored with other data."""
        rows = self.read(lambda store: store.records.list(RecordQuery()))
        return {row["key"]: row["version"] for row in rows}

    def waiting(self) -> list[int]:
        """Return the processes that have waited for the file `go`."""
        return [int(one.name.removeprefix("waits")) for one in self.folder.glob("waits*")]

    def go(self) -> None:
        (self.folder / "go").touch()

    @contextmanager
    def serving(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Run `longline serve --no-web` in a process, ready."""
        env = {**os.environ, "LONGLINE_HOME": str(self.home)}
        if self.settings.database_url is not None:
            env["LONGLINE_DATABASE_URL"] = self.settings.database_url
        with (self.folder / "serve.log").open("a") as log:
            process = subprocess.Popen(
                [*COMMAND, "serve", "--no-web", *words],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=env,
                cwd=self.folder,
            )
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("ready")
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.communicate()


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
