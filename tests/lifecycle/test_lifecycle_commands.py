"""`longline up`, `down` and `status` as a person or a program uses them."""

from __future__ import annotations

import pytest

from cli.terminal import Terminal
from lifecycle.homes import Home


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
    assert up.out.splitlines()[0] == (
        f"redis      started on port {entry.port}, process {entry.pid}"
    )
    assert (down.code, down.out) == (0, "redis      stopped\n")


def test_programs_are_told_in_json(longline: Terminal, home: Home) -> None:
    up = longline("up", "--workers", "0", "--json").last
    status = longline("status", "--json")
    down = longline("down", "--json").last

    assert up["started"] == ["redis"]
    assert [one["name"] for one in up["parts"]] == ["redis", "sqlite"]
    assert status.code == 0
    assert [one["pid"] for one in status.last] == [one["pid"] for one in up["parts"]]
    assert down == {"stopped": ["redis"]}
    assert home.names == []


def test_the_state_of_what_is_down_is_no_success(longline: Terminal) -> None:
    longline("up", "--workers", "0")
    up = longline("status")
    longline("down")
    down = longline("status")

    assert (up.code, down.code) == (0, 1)
    assert "run `longline up`" in down.out


def test_no_password_is_shown(longline: Terminal, home: Home) -> None:
    up = longline("up", "--workers", "0")
    password = str(home.record.redis_url).partition("@")[0].rpartition(":")[2]
    seen = up.out + longline("status").out + longline("status", "--json").out

    assert password not in seen


def test_nothing_to_stop_is_said(longline: Terminal) -> None:
    assert longline("down").out == "nothing of ours was running\n"


def test_fewer_than_no_workers_are_refused(longline: Terminal) -> None:
    answer = longline("up", "--workers", "-1")

    assert answer.code == 2
    assert "--workers" in answer.err
