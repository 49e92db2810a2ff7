"""What became of records, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.terminal import SHOP, Terminal


@pytest.fixture
def twice(longline: Terminal, shop: Path) -> Terminal:
    """Three things collected; then one of them is gone, and of the others the price is up."""
    longline("run", shop)
    shop.write_text(
        SHOP.replace('"price": 5', '"price": 8').replace("range(self.", "range(1, self.")
    )
    longline("run", shop)
    return longline


def test_a_record_is_compared_version_by_version(twice: Terminal) -> None:
    answer = twice("records", "diff", "shop/1")
    (step,) = twice("records", "diff", "1", "--json").last

    assert answer.out.startswith("shop/1  version 1 to 2  ")
    assert answer.out.splitlines()[-1].split() == ["price", "5", "8"]
    assert (step["from"], step["to"]) == (1, 2)
    assert step["differences"] == [{"field": "price", "old": 5, "new": 8}]
    assert twice("records", "diff", "0").out == "it has never changed\n"
    assert twice("records", "diff", "1", "--from", "2", "--to", "2", "--json").last[0]["to"] == 2


def test_the_values_of_a_field_are_drawn(twice: Terminal) -> None:
    lines = twice("records", "history", "1", "price").out.splitlines()
    points = twice("records", "history", "1", "price", "--json").last

    assert lines[0].split() == ["since", "version", "price", "change"]
    assert lines[1].split()[3:5] == ["5", "█" * 15]
    assert lines[2].split()[3:] == ["8", "+60.0%", "█" * 24]
    assert [point["value"] for point in points] == [5, 8]
    assert points[-1]["until"] is None


def test_a_field_that_is_text_or_missing_is_listed_without_bars(twice: Terminal) -> None:
    assert "Thing [/b] 1" in twice("records", "history", "1", "title").out
    assert "—" in twice("records", "history", "1", "nothing").out


def test_a_field_that_a_record_never_had_is_told_beside_the_answer(twice: Terminal) -> None:
    answer = twice("records", "history", "1", "prize", "--json")

    assert (answer.code, answer.err) == (0, "note: no version of 1 has anything in prize\n")
    assert [point["value"] for point in answer.last] == [None]
    assert twice("records", "history", "1", "price").err == ""


@pytest.mark.parametrize("words", [["changes"], ["diff", "1"]])
def test_of_long_texts_the_part_that_differs_is_shown(
    longline: Terminal, shop: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    same = "the same words again and again " * 9
    shop.write_text(SHOP.replace("=1+1", f"{same}was RED {same}"))
    longline("run", shop)
    shop.write_text(SHOP.replace("=1+1", f"{same}was BLUE {same}"))
    longline("run", shop)

    answer = longline("records", *words)

    (line, *_) = (line for line in answer.out.splitlines() if " tax " in line)
    assert "…ain was RED the" in line
    assert "…ain was BLUE the" in line
    assert len(line) <= 80


def test_two_runs_are_compared(twice: Terminal) -> None:
    answer = twice("records", "changes", "shop")
    told = twice("records", "changes", "--json").last

    assert "0 appeared, 2 changed, 1 disappeared, 0 unchanged, 0 unknown" in answer.out
    assert "\ndisappeared\n  0\n" in answer.out
    assert told["disappeared"] == ["0"]
    assert told["changed"]["2"] == [{"field": "price", "old": 5, "new": 8}]


def test_the_first_run_is_compared_with_nothing(longline: Terminal, shop: Path) -> None:
    longline("run", shop, "--set", "things=30")

    answer = longline("records", "changes")

    assert "this is its first run" in answer.out
    assert "30 appeared" in answer.out
    assert "… and 10 more" in answer.out
    assert len(longline("records", "changes", "--json").last["appeared"]) == 30


def test_a_run_with_a_limit_says_what_it_cannot_tell(twice: Terminal, shop: Path) -> None:
    twice("run", shop, "--limit", "1")

    answer = twice("records", "changes")

    assert "note: what disappeared cannot be told: " in answer.out
    assert "was limited to 1 items" in answer.out
    assert "2  the newer run did not reach it" in answer.out


def test_changes_since_a_moment_are_one_step_a_record(twice: Terminal) -> None:
    lines = twice("records", "changes", "--since", "1h", "--json").out.splitlines()

    assert [json.loads(line)["key"] for line in lines] == ["0", "1", "2"]
    assert "shop/0  is new" in twice("records", "changes", "shop", "--since", "1h").out
    assert twice("records", "changes", "--since", "2999-01-01").out == "nothing has changed since\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["diff", "1", "--to", "9"], "there is no 9; there are 1 to 2"),
        (["diff", "nothing"], "there is no record 'nothing'"),
        (["history", "1", "a..b"], "is no path of fields"),
        (["changes", "market"], "there is no finished run of market"),
        (["changes", "--from", "nothing"], "there is no job 'nothing'"),
        (["changes", "--since", "1d", "--from", "x"], "--since looks at no runs"),
        (["changes", "--since", "soon"], "is no moment"),
        (["changes", "shops", "--since", "1d"], "did you mean 'shop'?"),
    ],
)
def test_what_cannot_be_compared_is_answered_with_a_sentence(
    twice: Terminal, words: list[str], sentence: str
) -> None:
    answer = twice("records", *words)

    assert (answer.code, answer.out) == (2, "")
    assert sentence in answer.err
