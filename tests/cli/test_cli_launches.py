"""longline run --detach without a cluster, serve, and launches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.terminal import Terminal

DETACH = ("--engine", "local", "--detach")


@pytest.fixture
def launch(longline: Terminal, shop: Path) -> str:
    answer = longline("run", shop, *DETACH, "--json")
    assert (answer.code, answer.last["source"], answer.last["state"]) == (0, "shop", "queued")
    return str(answer.last["launch"])


def test_a_detached_run_waits_for_a_server(longline: Terminal, launch: str) -> None:
    (row,) = longline("launches", "list", "--json").last

    assert (row["id"], row["state"], row["origin"]) == (int(launch), "queued", "command")
    assert longline("jobs", "--json").last == []


def test_the_file_of_a_submitted_source_has_an_absolute_path(
    longline: Terminal, shop: Path
) -> None:
    longline("run", shop.name, *DETACH)

    (row,) = longline("launches", "list", "--json").last
    assert row["spec"]["source"] == str(shop.resolve())


def test_a_cancelled_launch_is_not_run(longline: Terminal, launch: str) -> None:
    cancelled = longline("launches", "cancel", launch, "--json").last

    assert (cancelled["state"], cancelled["result"]) == ("ended", "cancelled")
    assert longline("launches", "list", "--open", "--json").last == []


def test_a_launch_is_shown_with_the_result_of_its_group(
    longline: Terminal, shop: Path, launch: str
) -> None:
    longline("run", shop, *DETACH)
    longline("launches", "cancel", launch)

    shown = longline("launches", "show", launch, "--json").last
    text = longline("launches", "show", launch)

    assert shown["group"]["state"] == "running"
    assert shown["group"]["results"] == {"queued": 1, "cancelled": 1}
    assert "cancelled" in text.out


def test_an_unknown_launch_is_an_error(longline: Terminal) -> None:
    assert longline("launches", "show", "77").code == 2


@pytest.mark.parametrize("words", [("--fresh",), ("--export", "a.csv")])
def test_a_submitted_run_refuses_what_a_server_cannot_do(
    longline: Terminal, shop: Path, words: tuple[str, ...]
) -> None:
    answer = longline("run", shop, *DETACH, *words)

    assert (answer.code, words[0] in answer.err) == (2, True)


def test_a_source_that_cannot_be_used_is_not_submitted(longline: Terminal, shop: Path) -> None:
    answer = longline("run", shop, *DETACH, "--set", "nonsense=1")

    assert answer.code == 2
    assert longline("launches", "list", "--json").last == []
