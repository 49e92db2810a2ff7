"""longline pause and cancel: what they say of jobs that are stopped, or over."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.terminal import Terminal
from cli.test_cli_bad_input import sentence


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

    assert (first.code, first.out) == (0, f"{paused} is cancelled\n")
    assert (second.code, second.out) == (0, f"{paused} is cancelled already\n")


def test_a_paused_job_is_paused_already(longline: Terminal, paused: str) -> None:
    answer = longline("pause", paused)

    assert (answer.code, answer.out) == (0, f"{paused} is paused already\n")


@pytest.mark.parametrize("word", ["pause", "cancel"])
def test_nothing_is_left_to_stop_of_a_complete_job(
    longline: Terminal, complete: str, word: str
) -> None:
    assert sentence(longline(word, complete)) == (
        f"longline: job {complete} is complete: nothing is left to {word}"
    )


def test_nothing_is_left_to_pause_of_a_cancelled_job(longline: Terminal, paused: str) -> None:
    longline("cancel", paused)

    assert sentence(longline("pause", paused)) == (
        f"longline: job {paused} is cancelled: nothing is left to pause"
    )
