"""`up` starts what is missing, `down` stops only what `up` started."""

from __future__ import annotations

import re
import socket
import stat
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import psutil
import pytest
from redis import Redis

from longline.core.errors import BadOption, HomeUnwritable, StoreUnreachable
from longline.distributed.registry import BrokerUnusable
from longline.services.processes import (
    ProcessEntry,
    ServicesBusy,
    ServicesState,
    ServiceUnreachable,
    find_process,
    lifecycle_lock,
)
from longline.services.redis import redis_problem
from tests.servers import PostgresServer, RedisServer
from tests.services.homes import Home, is_listening, working_for

MB = 1_048_576


@pytest.fixture
def stranger() -> Iterator[psutil.Process]:
    """A process that longline did not start."""
    process = subprocess.Popen(["sleep", "60"])
    yield psutil.Process(process.pid)
    process.kill()
    process.wait()


def test_after_down_there_is_no_process_and_no_port(home: Home) -> None:
    home.up()
    entry = home.entry("redis")
    was_there = (home.answers(), is_listening(entry.port))

    stopped = home.down()

    assert was_there == (True, True)
    assert [one.name for one in stopped] == ["redis"]
    assert not is_listening(entry.port)
    assert working_for(home.path) == []
    assert home.record == ServicesState()


def test_up_after_down_is_a_new_server_with_a_new_password(home: Home) -> None:
    first = home.up()
    home.down()

    second = home.up()

    assert home.answers()
    assert first.redis_url != second.redis_url


def test_a_second_up_changes_nothing(home: Home) -> None:
    home.up()
    before = home.record

    again = home.up()

    assert again.processes == ()
    assert home.record == before


def test_a_second_down_changes_nothing(home: Home) -> None:
    home.up()
    home.down()

    assert home.down() == ()


def test_a_killed_redis_restarts_at_the_same_address(home: Home) -> None:
    before = home.up()
    home.kill("redis")
    was_healthy = home.status()["redis"].is_healthy

    after = home.up()

    assert not was_healthy
    assert home.answers()
    assert after.redis_url == before.redis_url


def test_a_port_used_by_another_process_is_not_reused(home: Home) -> None:
    home.up()
    port = home.kill("redis").port or 0

    with socket.create_server(("127.0.0.1", port)):
        home.up()

        assert home.answers()
        assert home.entry("redis").port != port


def test_down_does_not_stop_other_servers(
    home: Home, redis_server: RedisServer, postgres_server: PostgresServer
) -> None:
    home.up()

    home.down()

    with Redis.from_url(redis_server.url) as redis:
        assert redis.ping()
    postgres_server.execute("SELECT 1")


def test_an_external_server_is_used_and_never_stopped(
    home: Home, redis_server: RedisServer
) -> None:
    started = home.up(redis_url=redis_server.url)

    home.down()

    assert started.redis_url == redis_server.url
    assert started.processes == ()
    with Redis.from_url(redis_server.url) as redis:
        assert redis.ping()


def test_an_unreachable_external_server_is_an_error(home: Home) -> None:
    with pytest.raises(ServiceUnreachable) as failed:
        home.up(redis_url="redis://:secret@127.0.0.1:1/0")

    assert failed.value.address == "redis://:***@127.0.0.1:1/0"
    assert "secret" not in str(failed.value)


def test_a_failed_up_stops_what_it_started(home: Home) -> None:
    with pytest.raises(StoreUnreachable):
        home.up(database_url="postgresql+psycopg://somebody@127.0.0.1:1/nowhere")

    assert [part for part, _ in home.steps] == ["redis", "redis"]  # started and stopped
    assert home.record == ServicesState()
    assert working_for(home.path) == []


def test_a_failed_up_does_not_stop_earlier_services(home: Home) -> None:
    home.up()
    before = home.record

    with pytest.raises(StoreUnreachable):
        home.up(database_url="postgresql+psycopg://somebody@127.0.0.1:1/nowhere")

    assert home.record == before
    assert home.answers()


def test_a_process_that_reused_a_pid_is_not_stopped(home: Home, stranger: psutil.Process) -> None:
    home.up()
    entry = home.kill("redis")
    old = replace(entry, pid=stranger.pid, start_time=stranger.create_time() - 60)
    home.file.write(ServicesState(None, None, (old,)))

    home.down()

    assert stranger.is_running()
    assert stranger.status() != psutil.STATUS_ZOMBIE
    assert home.record == ServicesState()


def test_a_process_that_reused_a_worker_pid_is_not_stopped(
    home: Home, stranger: psutil.Process
) -> None:
    home.path.mkdir()
    log = str(home.path / "logs" / "worker-1.log")
    old = ProcessEntry(
        "worker-1", stranger.pid, stranger.create_time() - 60, ("python",), None, log
    )
    home.file.write(ServicesState(None, None, (old,)))

    home.down()

    assert stranger.is_running()
    assert stranger.status() != psutil.STATUS_ZOMBIE


def test_only_the_owner_can_read_the_password(home: Home) -> None:
    started = home.up()

    private = [home.path / "services.json", home.path / "redis" / "redis.conf"]
    private += [*(home.path / "logs").iterdir()]
    process = find_process(home.entry("redis"))
    password = started.redis_url.partition("@")[0].rpartition(":")[2]

    assert {stat.S_IMODE(one.stat().st_mode) for one in private} == {0o600}
    assert process is not None
    assert password not in " ".join(process.cmdline())


def test_redis_requires_the_password(home: Home) -> None:
    home.up()

    problem = redis_problem(f"redis://127.0.0.1:{home.entry('redis').port}/0")

    assert problem is not None
    assert redis_problem(str(home.record.redis_url)) is None


def test_a_flood_without_a_password_cannot_fill_the_memory(home: Home) -> None:
    home.up()
    assert home.record.redis_url is not None
    sent = 0
    with socket.create_connection(("127.0.0.1", home.entry("redis").port or 0), 5) as flood:
        with suppress(OSError):  # the server closes the connection
            while sent < 80 * MB:  # about 200 MB of replies, none of which is read
                flood.sendall(b"*1\r\n$4\r\nPING\r\n" * 10_000)
                sent += 140_000

        with Redis.from_url(home.record.redis_url) as redis:
            peak = dict(redis.info("memory"))["used_memory_peak"]
            limits = redis.config_get("maxmemory*")

    assert sent < 80 * MB
    assert peak < 100 * MB
    assert 0 < int(limits["maxmemory"]) <= 1024 * MB


def test_redis_evicts_nothing_and_writes_nothing(home: Home) -> None:
    url = home.up().redis_url

    with Redis.from_url(url, decode_responses=True) as redis:
        settings = redis.config_get("*")

    assert settings["maxmemory-policy"] == "noeviction"
    assert (settings["save"], settings["appendonly"]) == ("", "no")
    assert settings["bind"] == "127.0.0.1"


def test_a_broken_state_file_is_renamed(home: Home) -> None:
    home.path.mkdir()
    home.file.path.write_text("{")

    home.up()

    assert home.answers()
    assert (home.path / "services.json.broken").read_text() == "{"


def test_the_lifecycle_lock_is_exclusive(home: Home) -> None:
    home.path.mkdir()

    with (
        lifecycle_lock(home.path),
        pytest.raises(ServicesBusy) as busy,
        lifecycle_lock(home.path, timeout=0.01),
    ):
        pytest.fail("both are in")

    assert (busy.value.home, busy.value.seconds) == (str(home.path), 0.01)


def test_two_concurrent_ups_start_one_server(home: Home) -> None:
    home.path.mkdir()

    with ThreadPoolExecutor(2) as threads:
        both = list(threads.map(lambda _: home.up(), range(2)))

    assert sorted(len(one.processes) for one in both) == [0, 1]
    assert both[0].redis_url == both[1].redis_url


def test_the_steps_are_reported_as_they_happen(home: Home) -> None:
    home.up()
    entry = home.entry("redis")
    home.up()
    home.down()

    started, healthy, stopped = (what for part, what in home.steps if part == "redis")
    assert {str(entry.port), str(entry.pid)} <= set(re.findall(r"\d+", started))
    assert len({started, healthy, stopped}) == 3


def test_status_has_pid_port_version_and_memory(home: Home) -> None:
    before = home.status()
    home.up()
    part = home.status()["redis"]

    assert "redis" not in before
    assert (part.is_healthy, part.pid, part.port) == (
        True,
        home.entry("redis").pid,
        home.entry("redis").port,
    )
    assert part.version
    assert part.memory_bytes
    assert part.since


def test_the_status_of_an_external_server_is_reported(
    home: Home, redis_server: RedisServer
) -> None:
    part = home.status(redis_url=redis_server.url)["redis"]

    assert (part.is_healthy, part.is_ours) == (True, False)


def test_a_dead_service_is_not_reported_as_stopped(home: Home) -> None:
    home.up()
    home.down()
    stopped = home.steps[-1]
    home.up()
    home.kill("redis")

    home.down()

    assert home.steps[-1][0] == stopped[0] == "redis"
    assert home.steps[-1] != stopped


def test_down_stops_services_without_a_writable_state_file(home: Home) -> None:
    home.up(workers=1)
    home.steps.clear()

    with patch.object(Path, "replace", side_effect=PermissionError), pytest.raises(HomeUnwritable):
        home.down()

    assert {part for part, _ in home.steps} == {"worker-1", "redis"}
    assert working_for(home.path) == []
    assert home.down() == ()


def test_a_refused_password_is_not_reported_as_no_response(home: Home, tmp_path: Path) -> None:
    server = RedisServer(tmp_path, options=("--requirepass", "right"))
    server.start()
    try:
        with pytest.raises(BrokerUnusable, match="password") as refused:
            home.up(broker_url=server.url.replace("redis://", "redis://:wrong@"))
    finally:
        server.kill()

    assert (refused.value.exit_code, refused.value.setting) == (2, "LONGLINE_BROKER_URL")
    assert "`longline up`" not in str(refused.value)
    assert "LONGLINE_BROKER_URL" in str(refused.value)


def test_an_invalid_redis_url_is_refused(home: Home) -> None:
    with pytest.raises(BadOption) as refused:
        home.up(redis_url="foo://127.0.0.1:1/0")

    assert refused.value.option == "LONGLINE_REDIS_URL"
