"""Fixtures of the httpbin tests: httpbin under gunicorn, and a client of our chain."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.httpbin.client import Client

PATIENCE = 30.0  # seconds for gunicorn to come up on a busy machine


@pytest.fixture(scope="session")
def httpbin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve httpbin on a free port; give its address."""
    folder = tmp_path_factory.mktemp("httpbin")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = _start(listener, folder)
    try:
        _wait_for(port, server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(5)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _start(listener: socket.socket, folder: Path) -> subprocess.Popen[bytes]:
    # The socket is handed over open, so nobody can take the port in between.
    fd = listener.fileno()
    words = ["--bind", f"fd://{fd}", "--workers", "2", "--threads", "8", "--graceful-timeout", "1"]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "httpbin:app", *words],
            pass_fds=[fd],
            cwd=folder,
            env={**os.environ, "HOME": str(folder)},  # it writes there too
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    """Return once it answers; the listening socket alone says nothing."""
    deadline = time.monotonic() + PATIENCE
    while True:
        assert server.poll() is None, "gunicorn has ended"
        assert time.monotonic() < deadline, "gunicorn does not answer"
        with socket.create_connection(("127.0.0.1", port)) as probe:
            probe.settimeout(PATIENCE)
            probe.sendall(b"GET /uuid HTTP/1.0\r\n\r\n")
            if probe.recv(12).endswith(b" 200"):  # waits for the answer
                return


@pytest.fixture
async def client(httpbin: str) -> AsyncIterator[Client]:
    async with Client(httpbin) as client:
        yield client
