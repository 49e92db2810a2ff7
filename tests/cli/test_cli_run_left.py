"""Runs that are left to workers, while Redis is there, away, or will not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.terminal import Terminal
from servers import RedisServer, free_port

LEFT = ("--engine", "celery", "--detach")


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a Redis that is not there."""
    host = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("LONGLINE_REDIS_URL", f"redis://:word@{host}/0")
    return host


def test_a_job_begins_later_when_redis_is_only_away(
    longline: Terminal, shop: Path, away: str
) -> None:
    answer = longline("run", shop, *LEFT)

    (job,) = longline("jobs", "--json").last
    assert answer.code == 0
    assert answer.out.startswith(f"{job['job']} is with the workers\n")
    assert answer.err.count("\n") == 1
    assert f"Redis at redis://***@{away}/0 cannot be used" in answer.err
    assert f"{job['job']} is in the database, and begins as soon as a worker finds it" in answer.err


@pytest.mark.usefixtures("away")
def test_a_program_reads_the_job_although_redis_is_away(longline: Terminal, shop: Path) -> None:
    answer = longline("run", shop, *LEFT, "--json")

    (job,) = longline("jobs", "--json").last
    assert answer.code == 0
    assert answer.last == {"job": job["job"], "source": "shop", "state": "running"}


@pytest.mark.usefixtures("away")
def test_an_export_is_written_later_when_redis_is_only_away(longline: Terminal, shop: Path) -> None:
    job = longline("run", shop, *LEFT, "--json").last["job"]

    answer = longline("export", "--job", job, "-o", "a.csv", "--detach")

    assert answer.code == 0
    assert answer.err.endswith("it is written as soon as a worker finds the order\n")


@pytest.mark.parametrize("setting", ["LONGLINE_REDIS_URL", "LONGLINE_BROKER_URL"])
def test_a_refused_password_is_told_with_the_setting_that_it_stands_in(
    longline: Terminal,
    shop: Path,
    closed_redis: RedisServer,
    setting: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(setting, closed_redis.url.replace("//", "//:wrong@"))

    answer = longline("run", shop, *LEFT)

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.endswith(f"it refuses the password; correct it in {setting}\n")
    assert longline("jobs", "--json").last == []


@pytest.mark.parametrize("address", ["nonsense", "http://127.0.0.1/", "redis://127.0.0.1:word/0"])
def test_an_address_that_makes_no_sense_leaves_no_job(
    longline: Terminal, shop: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGLINE_BROKER_URL", address)

    answer = longline("run", shop, *LEFT)

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("longline: LONGLINE_BROKER_URL: ")
    assert longline("jobs", "--json").last == []
