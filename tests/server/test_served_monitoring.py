"""A server with metrics and health: served where the settings say, and sent to a receiver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from longline.config.settings import load_settings
from longline.server.serve import Server
from tests.monitoring.otlp_receiver import Receiver, receiving
from tests.servers import free_port


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings file of a home; no job is run, so no process is prepared."""

    async def prepare_nothing(_jobs: object) -> None:
        return

    monkeypatch.setattr("longline.server.job_process.JobProcesses.prepare", prepare_nothing)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METRICS_TOKEN", "token-of-the-test")
    return tmp_path / "longline.yaml"


@asynccontextmanager
async def serving() -> AsyncIterator[None]:
    server = Server(load_settings(), load=load_settings)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run())
        try:
            yield
        finally:
            server.stop()


async def get(port: int, path: str, **headers: str) -> tuple[int, str]:
    """Return status and body, once the server listens."""
    url = f"http://127.0.0.1:{port}/{path}"
    async with aiohttp.ClientSession() as session, asyncio.timeout(3600):
        while True:
            try:
                async with session.get(url, headers=headers) as response:
                    return response.status, await response.text()
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.1)


async def test_a_server_answers_supervisors_and_prometheus(file: Path) -> None:
    port = free_port()
    file.write_text(f"monitoring_address: 127.0.0.1:{port}\n")

    async with serving():
        live, ready, metrics = [await get(port, one) for one in ("livez", "readyz", "metrics")]

    assert (live, ready[0], metrics[0]) == ((200, "ok\n"), 200, 200)
    assert '"check":"database"' in ready[1]
    assert 'longline_processes{component="server"} 1.0' in metrics[1]


async def test_a_changed_file_moves_the_endpoint(file: Path) -> None:
    before, after = free_port(), free_port()
    file.write_text(f"monitoring_address: 127.0.0.1:{before}\n")

    async with serving():
        first = await get(before, "metrics")
        file.write_text(
            f"monitoring_address: 127.0.0.1:{after}\nmonitoring_token: env:METRICS_TOKEN\n"
        )
        second = await get(after, "metrics")
        third = await get(after, "metrics", Authorization="Bearer token-of-the-test")

    assert [one[0] for one in (first, second, third)] == [200, 401, 200]


async def test_metrics_are_sent_again_and_again(file: Path) -> None:
    def has_received(receiver: Receiver, count: int) -> bool:
        return len(receiver.received) >= count

    with receiving() as receiver:
        file.write_text(f"otlp_url: {receiver.url}\notlp_interval: 60\n")
        async with serving(), asyncio.timeout(3600):
            while not has_received(receiver, 3):  # noqa: ASYNC110  # another thread receives
                await asyncio.sleep(0.1)

    # The first one may be sent before the processes of the server have their first heartbeat.
    names = {
        metric.name for metric in receiver.received[-1].resource_metrics[0].scope_metrics[0].metrics
    }
    assert {"longline_events", "longline_processes", "longline_database_size_bytes"} <= names
