"""Detached runs with a reachable, unreachable or unusable Redis."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.servers import RedisServer, free_port

LEFT = ("--engine", "celery", "--detach")


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a Redis that is not there."""
    host = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("LONGLINE_REDIS_URL", f"redis://:word@{host}/0")
    return host


def test_a_submitted_job_starts_when_redis_returns(
    longline: Terminal, shop: Path, away: str
) -> None:
    answer = longline("run", shop, *LEFT)

    (job,) = longline("jobs", "--json").last
    assert (answer.code, job["state"]) == (0, "running")
    assert job["job"] in answer.out.splitlines()[0]
    assert answer.err.count("\n") == 1
    assert away in answer.err
    assert job["job"] in answer.err


@pytest.mark.usefixtures("away")
def test_the_job_is_printed_as_json_without_redis(longline: Terminal, shop: Path) -> None:
    answer = longline("run", shop, *LEFT, "--json")

    (job,) = longline("jobs", "--json").last
    assert answer.code == 0
    assert answer.last == {"job": job["job"], "source": "shop", "state": "running"}


def test_a_detached_export_waits_for_redis(longline: Terminal, shop: Path, away: str) -> None:
    job = longline("run", shop, *LEFT, "--json").last["job"]

    answer = longline("export", "--job", job, "-o", "a.csv", "--detach")

    (order,) = longline("jobs", job, "--json").last["tasks"]
    assert (answer.code, answer.err.count("\n")) == (0, 1)
    assert away in answer.err
    assert (order["kind"], Path(order["output"]).name) == ("export", "a.csv")


@pytest.mark.parametrize("setting", ["LONGLINE_REDIS_URL", "LONGLINE_BROKER_URL"])
def test_a_refused_password_is_reported_with_its_setting(
    longline: Terminal,
    shop: Path,
    closed_redis: RedisServer,
    setting: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(setting, closed_redis.url.replace("//", "//:wrong@"))

    answer = longline("run", shop, *LEFT)

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert setting in answer.err
    assert "password" in answer.err
    assert "wrong" not in answer.err
    assert longline("jobs", "--json").last == []


@pytest.mark.parametrize("address", ["nonsense", "http://127.0.0.1/", "redis://127.0.0.1:word/0"])
def test_an_invalid_redis_url_creates_no_job(
    longline: Terminal, shop: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGLINE_BROKER_URL", address)

    answer = longline("run", shop, *LEFT)

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert "LONGLINE_BROKER_URL" in answer.err
    assert longline("jobs", "--json").last == []
