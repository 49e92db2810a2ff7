"""Workers of a home: started, registered, restarted after a kill, drained at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.config.settings import Settings
from longline.services.cluster import environment_of
from longline.services.processes import StartFailed
from tests.servers import RedisServer, free_port
from tests.services.homes import Home, working_for


@pytest.mark.timeout(180)  # each is three processes, which all import Celery
def test_workers_are_started_restarted_and_stopped(home: Home) -> None:
    home.up(workers=1)
    first = home.entry("worker-1")
    part = home.status()["worker-1"]
    home.kill("worker-1")

    home.up(workers=2)
    healthy = {name: part.is_healthy for name, part in home.status().items()}
    second = home.entry("worker-1")
    stopped = home.down()

    assert (part.is_healthy, part.pid, part.doing is None) == (True, first.pid, False)
    assert healthy == {"redis": True, "sqlite": True, "worker-1": True, "worker-2": True}
    assert second.pid != first.pid
    assert second.command == first.command
    assert {one.name for one in stopped} == {"redis", "worker-1", "worker-2"}
    assert working_for(home.path) == []


@pytest.mark.timeout(180)
def test_the_note_of_an_unregistered_worker_has_the_cause(
    home: Home, redis_server: RedisServer
) -> None:
    home.up(workers=1)
    no_database = f"postgresql://127.0.0.1:{free_port()}/longline"
    strange = home.status(redis_url=redis_server.url)["worker-1"]
    waiting = home.status(redis_url=redis_server.url, database_url=no_database)["worker-1"]
    home.kill("redis")
    silent = home.status()["worker-1"]
    home.kill("worker-1")
    dead = home.status()["worker-1"]

    assert "Redis" in (strange.note or "")
    assert "database" in (waiting.note or "")
    assert "Redis" in (silent.note or "")
    assert len({strange.note, waiting.note, silent.note}) == 3
    assert not dead.is_healthy
    assert "`longline up`" in (dead.note or "")


def test_a_worker_that_fails_to_start_names_its_log(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGLINE_PROFILE", "nowhere")  # settings made in Python do not look at it

    with pytest.raises(StartFailed) as failed:
        home.up(workers=1)

    assert failed.value.service == "worker-1"
    assert failed.value.log == str(home.path / "logs" / "worker-1.log")
    assert failed.value.lines
    assert home.names == []
    assert working_for(home.path) == []


def test_a_worker_inherits_the_settings(tmp_path: Path) -> None:
    settings = Settings(
        home=tmp_path,
        concurrency=3,
        parallel=False,
        sources=(Path("a"), Path("b")),
        event_stream_types=("job.*", "drift.*"),
    )

    assert environment_of(settings) == {
        "LONGLINE_CONCURRENCY": "3",
        "LONGLINE_EVENT_STREAM_TYPES": "job.*,drift.*",
        "LONGLINE_PARALLEL": "false",
        "LONGLINE_SOURCES": "a:b",
    }
