"""Records by conditions, in an order, as they were, with chosen columns."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from longline.core.errors import BadOption
from longline.storage.store import open_store
from tests.cli.terminal import Terminal
from tests.storage.given import record

DAY = 86_400.0
HATS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("straw", {"title": "Straw\x1b[2Jhat", "price": 20, "made": {"in": "Peru"}}),
    ("felt", {"title": "Felt [red]hat[/]", "price": 80.5, "made": {"in": None}}),
    ("wool", {"title": "Wool\nhat " * 50, "price": None}),
)


async def fill(home: Path) -> None:
    with open_store(f"sqlite:///{home / 'longline.sqlite'}") as store:
        now = time.time()
        for number, (key, data) in enumerate(HATS):
            hat = record(key, data, source="hats", score=50.0 + number)
            await store.records.create(hat, at=now - 10 * DAY + number)
        cheaper = record("felt", {"title": "Felt", "price": 60}, source="hats", fingerprint="new")
        await store.records.create(cheaper, at=now - DAY)


@pytest.fixture
def hats(longline: Terminal, home: Path) -> Terminal:
    """A home of three hats, of which one became cheaper a day ago."""
    home.mkdir()
    asyncio.run(fill(home))
    return longline


def keys(hats: Terminal, *words: str) -> list[str]:
    lines = hats("records", "list", "--json", *words).out.splitlines()
    return [json.loads(line)["key"] for line in lines]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--where", "price>=20"], ["straw", "felt"]),
        (["--where", "price>=20", "--where", "made.in?"], ["straw"]),
        (["--order", "-price"], ["felt", "straw", "wool"]),
        (["--order", "-@score", "--limit", "2"], ["wool", "straw"]),
        (["--where", "price>70"], []),
        (["--where", "price>70", "--as-of", "2d"], ["felt"]),
        (["--as-of", "30d"], []),
        (["--as-of", "2000-01-01"], []),
        (["--since", "2d"], ["felt"]),
        (["--since", "36h", "--where", "@version=2"], ["felt"]),
    ],
)
def test_records_are_filtered(hats: Terminal, words: list[str], expected: list[str]) -> None:
    assert keys(hats, *words) == expected
    assert hats("records", "count", *words).out == f"{len(expected)}\n"


def test_chosen_columns_are_shown_and_in_the_json(hats: Terminal) -> None:
    words = ("records", "list", "--columns", "price,made.in,@score", "--order", "price")

    table = hats(*words).out.splitlines()
    rows = [json.loads(line) for line in hats(*words, "--json").out.splitlines()]

    assert table[0].split() == ["key", "price", "made.in", "@score"]
    assert table[1].split() == ["hats/straw", "20", "Peru", "50.0"]
    assert table[3].split() == ["hats/wool", "—", "—", "52.0"]
    assert rows[0] == {
        "source": "hats",
        "key": "straw",
        "price": 20,
        "made.in": "Peru",
        "@score": 50.0,
    }


def test_a_table_fits_and_cannot_control_the_terminal(
    hats: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")

    answer = hats("records", "list", "--columns", "title,price", "--as-of", "2d")

    assert "\x1b" not in answer.out
    assert "[red]" in answer.out
    assert len(answer.out.splitlines()) == 6  # one title is folded
    assert max(map(len, answer.out.splitlines())) <= 50


def test_a_search_is_a_list_of_what_holds_the_text(hats: Terminal) -> None:
    (found,) = hats("records", "search", "PERU", "--json").out.splitlines()

    assert json.loads(found)["key"] == "straw"
    assert "hats/straw" in hats("records", "search", "peru", "--source", "hats").out
    assert hats("records", "search", "nowhere").out.count("\n") == 1
    assert hats("records", "search", "nowhere", "--json").out == ""


def test_a_record_is_shown_as_it_was(hats: Terminal) -> None:
    assert hats("records", "show", "felt", "--as-of", "2d", "--json").last["data"]["price"] == 80.5
    assert hats("records", "show", "felt", "--json").last["data"]["price"] == 60
    assert "Felt [red]hat[/]" in hats("records", "show", "hats/felt", "--as-of", "2d").out
    assert hats("records", "show", "felt", "--as-of", "11d").code == 2


@pytest.mark.parametrize(
    ("words", "option", "named"),
    [
        (["--where", "price"], "--where", ["'price'"]),
        (["--where", "@nothing=1"], "--where", ["@nothing", "@score"]),
        (["--where", "@score>much"], "where", ["@score", "much"]),
        (["--order", "-"], "--order", ["'-'"]),
        (["--order", "price,,x"], "--order", ["price,,x"]),
        (["--since", "yesterday"], "--since", ["yesterday"]),
        (["--as-of", "soon"], "--as-of", ["soon"]),
        (["--columns", "a,,b"], "field", ["''"]),
        (["--columns", "@nothing"], "--columns", ["@nothing", "@score"]),
        (["--where", "price>>3"], "--where", ["price>>3", "quotes"]),
        (["--source", "hat"], "source", ["hats"]),
    ],
)
def test_invalid_queries_are_refused_in_one_line(
    hats: Terminal, words: list[str], option: str, named: list[str]
) -> None:
    answer = hats("records", "list", *words)

    assert (answer.code, answer.out) == (2, "")
    assert isinstance(answer.error, BadOption)
    assert answer.error.option == option
    assert all(one in answer.error.problem for one in named)
    assert answer.err.count("\n") == 1


def test_a_grade_may_be_written_in_any_case(hats: Terminal) -> None:
    assert keys(hats, "--grade", "poor") == keys(hats, "--grade", "Poor") != []


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--where", "prize>3"], ["prize"]),
        (["--order", "price,x"], ["price,x", "--order"]),
        (["--columns", "prize", "--source", "hats"], ["prize", "hats"]),
        (["--where", "price>1000", "--order", "made.in", "--columns", "title,@score"], []),
        (["--where", "prize>3", "--as-of", "2000-01-01"], []),
    ],
)
def test_a_field_that_no_record_has_is_noted_on_stderr(
    hats: Terminal, words: list[str], named: list[str]
) -> None:
    answer = hats("records", "list", *words)

    assert (answer.code, answer.err.count("\n")) == (0, int(bool(named)))
    assert all(one in answer.err for one in named)
    assert answer.out


def test_the_help_says_which_commands_print_json_lines(longline: Terminal) -> None:
    assert "JSON Lines" in " ".join(longline("records", "--help").out.split())


@pytest.mark.parametrize("name", ["search", "quality", "diff", "changes", "history"])
def test_each_command_explains_itself(longline: Terminal, name: str) -> None:
    answer = longline("records", name, "--help")

    assert answer.code == 0
    assert f"longline records {name} " in answer.out.splitlines()[0]
