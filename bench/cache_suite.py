"""http-cache-tests: fetched with npm, run by its own client against a contestant."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aiohttp import web

from cache_contestants import Contestant, Question
from children import BENCH

PACKAGE = "http-cache-tests@0.4.5"
_PASSED = frozenset({"pass", "yes"})
_PATIENCE = 300.0

Part = Literal["role", "beyond"]


@dataclass(frozen=True, slots=True)
class Case:
    """The result of a contestant in one case; `verdict` is the term of the suite."""

    id: str
    suite: str
    name: str
    kind: str
    part: Part
    verdict: str
    message: str

    @property
    def is_passed(self) -> bool:
        """Whether the suite counts it as passed."""
        return self.verdict in _PASSED


def fetch_suite(folder: Path) -> Path:
    """Put a copy of the suite below `folder` and return where it is; needs npm."""
    command = ["npm", "pack", PACKAGE, "--silent", "--pack-destination", str(folder)]
    name = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]
    subprocess.run(["tar", "-xzf", str(folder / name), "-C", str(folder)], check=True)
    return folder / "package"


@contextlib.asynccontextmanager
async def origin(package: Path, folder: Path) -> AsyncIterator[str]:
    """Run the server of the suite and yield its address."""
    port = _free_port()
    settings = {"protocol": "http", "port": str(port), "pidfile": str(folder / "origin.pid")}
    names = {f"npm_config_{name}": value for name, value in settings.items()}
    server = await asyncio.create_subprocess_exec(
        "node",
        "server/server.mjs",
        cwd=package,
        env={**os.environ, **names},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await _listening(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        await server.wait()


async def run_suite(package: Path, site: str, contestant: Contestant, part: Part) -> list[Case]:
    """Run one part of the suite.

    Raises:
        RuntimeError: the client of the suite did not finish.
    """
    async with _bridge(contestant) as address:
        command = ("node", "--no-warnings", str(BENCH / "cache_runner.mjs"))
        client = await asyncio.create_subprocess_exec(
            *command,
            *(str(package), address, site, part),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(_PATIENCE):
            output, errors = await client.communicate()
    if client.returncode != 0:
        raise RuntimeError(errors.decode()[-2000:])
    return [Case(**one) for one in json.loads(output.splitlines()[-1])["cases"]]


@contextlib.asynccontextmanager
async def _bridge(contestant: Contestant) -> AsyncIterator[str]:
    """Pass each request of the client to the contestant.

    Question and reply are JSON, so that no header between client and bridge is taken for one of
    the test.
    """

    async def answer(request: web.Request) -> web.Response:
        asked = json.loads(await request.read())
        headers = [(name, str(value)) for name, value in asked["headers"]]
        body = asked.get("body")
        question = Question(asked["url"], asked["method"], headers, body and body.encode())
        try:
            reply = await contestant(question)
        except ConnectionError as error:
            return web.json_response({"error": str(error)})
        text = reply.body.decode("utf-8", "replace")
        return web.json_response({"status": reply.status, "headers": reply.headers, "body": text})

    app = web.Application()
    app.router.add_post("/", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def _listening(port: int) -> None:
    async with asyncio.timeout(_PATIENCE):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.05)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
