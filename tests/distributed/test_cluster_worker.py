"""`longline worker`: how it ends, what it leaves behind, and what it says when it cannot work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from longline.cli.commands.cluster import worker_command
from longline.core.model import JobState
from longline.storage.events.events import EventFilter
from longline.storage.monitoring.logs import LogFilter
from tests.distributed.cluster_home import GatedSite, Home, home_running, until
from tests.servers import RedisServer


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with home_running(tmp_path) as home:
        yield home


@pytest.fixture
def guarded_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A redis-server that wants a password."""
    server = RedisServer(tmp_path, options=("--requirepass", "right"))
    server.start()
    yield server
    server.kill()


@pytest.mark.real_time
async def test_a_worker_waits_for_a_redis_that_is_away_and_reports_it(
    home: Home, gated_site: GatedSite
) -> None:
    gated_site.gate.set()
    job = await home.start_job(gated_site.url, 20)
    home.redis.kill()

    home.start_worker(processes=1)
    await until(lambda: _has_said(home, f":{home.redis.port}"), "what is wrong")
    home.redis.start()

    assert await home.ended(job) is JobState.COMPLETE


@pytest.mark.real_time
async def test_workers_that_start_stop_and_are_killed_are_events(home: Home) -> None:
    async def changes() -> dict[str, list[str]]:
        events, _ = await home.store.events.read(0, EventFilter(types=("worker.*",)))
        found: dict[str, list[str]] = {}
        for event in events:
            found.setdefault(event.subject, []).append(event.type)
        return found

    async def are(**expected: list[str]) -> None:
        wanted = {f"worker/{name}": types for name, types in expected.items()}

        async def is_so() -> bool:
            return await changes() == wanted

        await until(is_so, f"{wanted}")

    first = home.start_worker(1, "--name", "first")
    second = home.start_worker(1, "--name", "second")
    await are(first=["worker.started"], second=["worker.started"])
    second.kill()
    await are(first=["worker.started"], second=["worker.started", "worker.lost"])

    assert first.end() == 0

    await are(first=["worker.started", "worker.stopped"], second=["worker.started", "worker.lost"])
    lines, _ = await home.store.logs.search(LogFilter(text="second"))
    assert {(line.worker, line.logger) for line in lines} == {
        ("first", "longline.distributed.supervisor")
    }


@pytest.mark.real_time
async def test_request_lines_of_a_worker_have_the_whole_context(
    home: Home, gated_site: GatedSite
) -> None:
    gated_site.gate.set()
    job = await home.start_job(gated_site.url, 5)

    home.start_worker(1, "--name", "host-7", "-v", "--log-format", "json")

    assert await home.ended(job) is JobState.COMPLETE
    log = (home.folder / "worker.log").read_text("utf-8").splitlines()
    entries = [json.loads(line) for line in log if line.startswith("{")]
    requests = [one for one in entries if "status" in one and "item" in one]
    assert len({one["item"] for one in requests}) == 5
    contexts = {(one["job"], one["source"], one["domain"], one["worker"]) for one in requests}
    assert contexts == {(job.id, "pages", urlsplit(gated_site.url).netloc, "host-7")}


def test_a_worker_without_a_redis_says_what_to_do(tmp_path: Path) -> None:
    result = CliRunner().invoke(worker_command, ["--home", str(tmp_path)])

    assert "longline up" in str(result.exception)


def test_a_worker_with_a_wrong_password_ends_with_an_error_that_hides_it(
    guarded_redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGLINE_REDIS_URL", guarded_redis.url.replace("//", "//:wrong@"))

    result = CliRunner().invoke(worker_command, ["--home", str(tmp_path)])

    assert "password" in str(result.exception)
    assert "wrong" not in str(result.exception)


def test_an_unknown_queue_is_refused_with_those_there_are(tmp_path: Path) -> None:
    result = CliRunner().invoke(worker_command, ["--home", str(tmp_path), "--queues", "fetch,mail"])

    assert result.exit_code == 2
    assert "'mail'" in result.output
    assert "fetch, process, output" in result.output


async def _has_said(home: Home, words: str) -> bool:
    return words in (home.folder / "worker.log").read_text("utf-8")
