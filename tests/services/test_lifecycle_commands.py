"""`longline up`, `down` and `status` on the command line."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.cli.terminal import Terminal
from tests.services.homes import COMMAND, Home


@pytest.fixture
def longline(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    monkeypatch.setenv("LONGLINE_HOME", str(home.path))
    monkeypatch.setenv("COLUMNS", "200")
    return Terminal(monkeypatch, capsys)


def test_each_step_is_a_line(longline: Terminal, home: Home) -> None:
    up = longline("up", "--workers", "0")
    entry = home.entry("redis")
    down = longline("down")

    assert up.code == 0
    part, step = up.out.splitlines()[0].split(maxsplit=1)
    assert part == "redis"
    assert {str(entry.port), str(entry.pid)} <= set(re.findall(r"\d+", step))
    assert down.code == 0
    assert [line.split()[0] for line in down.out.splitlines()] == ["redis"]


def test_status_is_available_as_json(longline: Terminal, home: Home) -> None:
    up = longline("up", "--workers", "0", "--json").last
    status = longline("status", "--json")
    down = longline("down", "--json").last

    assert up["started"] == ["redis"]
    assert [one["name"] for one in up["parts"]] == ["redis", "sqlite"]
    assert status.code == 0
    assert [one["pid"] for one in status.last] == [one["pid"] for one in up["parts"]]
    assert down == {"stopped": ["redis"]}
    assert home.names == []


def test_status_fails_when_a_service_is_down(longline: Terminal) -> None:
    longline("up", "--workers", "0")
    up = longline("status")
    longline("down")
    down = longline("status")

    assert (up.code, down.code) == (0, 1)
    assert "`longline up`" in down.out


def test_a_local_home_without_a_cluster_is_healthy(longline: Terminal) -> None:
    status = longline("status")
    result = longline("status", "--json")

    assert (status.code, result.code) == (0, 0)
    assert "sqlite" in status.out
    assert [(one["name"], one["is_healthy"]) for one in result.last] == [("sqlite", True)]


def test_a_database_file_that_cannot_be_read_is_not_healthy(longline: Terminal, home: Home) -> None:
    home.path.mkdir(parents=True, exist_ok=True)
    (home.path / "longline.sqlite").write_bytes(b"not a database" * 100)

    result = longline("status", "--json")

    assert result.code == 1
    assert [one["is_healthy"] for one in result.last] == [False]


@pytest.mark.parametrize(
    ("name", "value"),
    [("LONGLINE_ENGINE", "celery"), ("LONGLINE_REDIS_URL", "redis://127.0.0.1:1")],
)
def test_a_home_that_needs_a_redis_is_not_healthy_without_one(
    longline: Terminal, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)

    result = longline("status", "--json")

    assert result.code == 1
    assert result.last[0]["name"] == "redis"


def test_no_password_is_shown(longline: Terminal, home: Home) -> None:
    up = longline("up", "--workers", "0")
    password = str(home.record.redis_url).partition("@")[0].rpartition(":")[2]
    seen = up.out + longline("status").out + longline("status", "--json").out

    assert password not in seen


def test_nothing_to_stop_is_one_line_and_a_success(longline: Terminal) -> None:
    down = longline("down")

    assert (down.code, len(down.out.splitlines())) == (0, 1)
    assert longline("down", "--json").last == {"stopped": []}


def test_a_negative_number_of_workers_is_refused(longline: Terminal) -> None:
    answer = longline("up", "--workers", "-1")

    assert answer.code == 2
    assert "--workers" in answer.err


def unread(home: Home, *words: str) -> tuple[int, str]:
    """Run a command with a closed stdout; return its exit code and stderr."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [*COMMAND, *words, "--home", str(home.path)]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_up_continues_when_its_output_is_not_read(home: Home, words: tuple[str, ...]) -> None:
    assert unread(home, "up", "--workers", "0", *words) == (0, "")
    assert home.answers()


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_down_continues_when_its_output_is_not_read(home: Home, words: tuple[str, ...]) -> None:
    home.up()

    assert unread(home, "down", *words) == (0, "")
    assert home.names == []


def test_a_failed_up_reports_its_error_on_stderr(home: Home) -> None:
    home.path.mkdir(parents=True)
    (home.path / "longline.sqlite").write_text(
        "no database at all, but long enough to be looked at"
    )

    code, err = unread(home, "up", "--workers", "0")

    assert code != 0
    assert err.startswith("longline: ")
    assert home.names == []
