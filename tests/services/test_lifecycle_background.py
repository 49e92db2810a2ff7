"""The executor, an Ollama server and a proxy rotator: `down` stops only what `up` started."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from longline.services.processes import StartFailed, find_process
from tests.servers import free_port, until
from tests.services.homes import Home, is_listening

OLLAMA = f"""#!{sys.executable}
import os
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/api/version" else 404)
        self.end_headers()
        self.wfile.write(b'{{"version": "0.9.1"}}')

host, _, port = os.environ["OLLAMA_HOST"].rpartition(":")
HTTPServer((host, int(port)), Handler).serve_forever()
"""


@pytest.fixture
def ollama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the program."""
    program = tmp_path / "bin" / "ollama"
    program.parent.mkdir()
    program.write_text(OLLAMA)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return program


@contextmanager
def running(program: Path, address: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the stand-in as another user of the machine would."""
    process = subprocess.Popen([str(program)], env={"OLLAMA_HOST": address})
    until(lambda: is_listening(int(address.rpartition(":")[2])), "ollama")
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_the_executor_is_started_last_and_stopped_first(home: Home) -> None:
    home.up(with_executor=True)
    first = home.entry("executor")
    home.kill("executor")
    died = home.status()["executor"]
    home.up(with_executor=True)
    status = home.status()["executor"]
    names = home.names
    home.steps.clear()
    home.down()

    assert (died.is_healthy, status.is_healthy) == (False, True)
    assert status.pid != first.pid
    assert names == ["redis", "executor"]
    assert [service for service, _ in home.steps] == ["executor", "redis"]


def test_a_healthy_executor_is_not_started_again(home: Home) -> None:
    home.up(with_executor=True)
    before = home.entry("executor")

    home.up(with_executor=True)

    assert home.entry("executor") == before


def test_a_home_without_an_executor_has_none_in_its_status(home: Home) -> None:
    home.up()

    assert "executor" not in home.status()


@pytest.mark.usefixtures("ollama")
def test_ollama_is_started_and_stopped_where_it_is_configured(home: Home) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"

    home.up(ollama_url=url)
    status = home.status(ollama_url=url)["ollama"]
    home.down()

    assert (status.is_healthy, status.is_ours, status.version) == (True, True, "0.9.1")
    assert not is_listening(port)


def test_a_running_ollama_is_used_and_not_stopped(home: Home, ollama: Path) -> None:
    address = f"127.0.0.1:{free_port()}"

    with running(ollama, address) as process:
        home.up(ollama_url=f"http://{address}")
        status = home.status(ollama_url=f"http://{address}")["ollama"]
        names = home.names
        home.down()
        code = process.poll()

    assert (status.is_healthy, status.is_ours) == (True, False)
    assert (names, code) == (["redis"], None)


def test_a_missing_ollama_stops_what_was_started(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _name: None)

    with pytest.raises(StartFailed) as raised:
        home.up(ollama_url=f"http://127.0.0.1:{free_port()}")

    assert raised.value.service == "ollama"
    assert home.names == []


def test_a_proxy_rotator_is_started_by_its_command(home: Home) -> None:
    port = free_port()
    command = f"{sys.executable} -m http.server {port} --bind 127.0.0.1"
    given: dict[str, Any] = {"proxy_command": command, "proxy_address": f"127.0.0.1:{port}"}

    home.up(**given)
    entry = home.entry("proxies")
    status = home.status(**given)["proxies"]
    home.down()

    assert (status.is_healthy, status.is_ours) == (True, True)
    assert find_process(entry) is None
