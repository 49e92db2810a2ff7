"""longline pause and cancel: what they do with jobs that are stopped, or over."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.orchestrator import NotResumable
from tests.cli.terminal import Terminal


@pytest.fixture
def complete(longline: Terminal, shop: Path) -> str:
    name: str = longline("run", shop, "--json").last["job"]
    return name


@pytest.fixture
def paused(longline: Terminal, shop: Path) -> str:
    """A job that a site has closed itself to."""
    name: str = longline("run", shop, "--set", "closed=true", "--json").last["job"]
    return name


def test_a_job_is_cancelled_once(longline: Terminal, paused: str) -> None:
    first = longline("cancel", paused)
    second = longline("cancel", paused)

    assert (first.code, second.code) == (0, 0)
    assert all(paused in one.out and "cancelled" in one.out for one in (first, second))
    assert first.out != second.out  # which says that it was cancelled before
    assert longline("cancel", paused, "--json").last["state"] == "cancelled"


def test_a_paused_job_is_paused_already(longline: Terminal, paused: str) -> None:
    answer = longline("pause", paused)

    assert answer.code == 0
    assert paused in answer.out
    assert longline("pause", paused, "--json").last["state"] == "paused"


@pytest.mark.parametrize("word", ["pause", "cancel"])
def test_nothing_is_left_to_stop_of_a_complete_job(
    longline: Terminal, complete: str, word: str
) -> None:
    answer = longline(word, complete)

    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert isinstance(answer.error, NotResumable)
    assert (answer.error.job, answer.error.state) == (complete, "complete")
    assert answer.error.action == word


def test_nothing_is_left_to_pause_of_a_cancelled_job(longline: Terminal, paused: str) -> None:
    longline("cancel", paused)

    answer = longline("pause", paused)

    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert isinstance(answer.error, NotResumable)
    assert (answer.error.job, answer.error.state) == (paused, "cancelled")
    assert answer.error.action == "pause"
