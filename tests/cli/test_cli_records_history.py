"""History of records on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest

from longline.core.errors import BadOption, UnknownJob, UnknownRecord
from tests.cli.terminal import SHOP, Terminal


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

    first, *_, last = answer.out.splitlines()
    assert first.startswith("shop/1 ")
    assert {"1", "2"} <= set(re.findall(r"\d+", first.removeprefix("shop/1")))
    assert last.split() == ["price", "5", "8"]
    assert (step["from"], step["to"]) == (1, 2)
    assert step["differences"] == [{"field": "price", "old": 5, "new": 8}]
    assert twice("records", "diff", "0").out.count("\n") == 1
    assert twice("records", "diff", "0", "--json").last == []
    assert twice("records", "diff", "1", "--from", "2", "--to", "2", "--json").last[0]["to"] == 2


def test_a_record_that_is_gone_can_be_selected_and_shown(twice: Terminal) -> None:
    listed = twice("records", "list", "--where", "@gone_at?", "--json")
    shown = twice("records", "show", "shop/0")
    there = twice("records", "show", "shop/1", "--json").last

    assert (listed.out.count("\n"), listed.last["key"]) == (1, "0")
    gone_at = twice("records", "show", "shop/0", "--json").last["gone_at"]
    assert gone_at[:10] in shown.out
    assert there["gone_at"] is None


def test_history_shows_values_and_changes(twice: Terminal) -> None:
    lines = twice("records", "history", "1", "price").out.splitlines()
    points = twice("records", "history", "1", "price", "--json").last

    assert "price" in lines[0].split()
    assert lines[1].split()[3:] == ["5"]
    assert lines[2].split()[3:] == ["8", "+60.0%"]
    assert [point["value"] for point in points] == [5, 8]
    assert points[-1]["until"] is None


def test_a_field_that_is_text_or_missing_is_listed(twice: Terminal) -> None:
    assert "Thing [/b] 1" in twice("records", "history", "1", "title").out
    assert "—" in twice("records", "history", "1", "nothing").out


def test_a_field_that_a_record_never_had_is_noted_on_stderr(twice: Terminal) -> None:
    answer = twice("records", "history", "1", "prize", "--json")

    assert (answer.code, answer.err.count("\n")) == (0, 1)
    assert "prize" in answer.err
    assert [point["value"] for point in answer.last] == [None]
    assert twice("records", "history", "1", "price").err == ""


@pytest.mark.parametrize("words", [["changes"], ["diff", "1"]])
def test_long_texts_show_the_differing_part(
    longline: Terminal, shop: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    same = "the same words again and again " * 9
    shop.write_text(SHOP.replace("=1+1", f"{same}was RED {same}"))
    longline("run", shop)
    shop.write_text(SHOP.replace("=1+1", f"{same}was BLUE {same}"))
    longline("run", shop)

    answer = longline("records", *words)

    assert "RED" in answer.out
    assert "BLUE" in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80


def test_two_runs_are_compared(twice: Terminal) -> None:
    answer = twice("records", "changes", "shop")
    result = twice("records", "changes", "--json").last

    counts = {"appeared": 0, "changed": 2, "disappeared": 1, "unchanged": 0, "unknown": 0}
    assert result["counts"] == counts
    assert all(f"{count} {fate}" in answer.out for fate, count in counts.items())
    assert "\ndisappeared\n  0\n" in answer.out
    assert result["disappeared"] == ["0"]
    assert result["changed"]["2"] == [{"field": "price", "old": 5, "new": 8}]


def test_the_first_run_is_compared_with_nothing(longline: Terminal, shop: Path) -> None:
    longline("run", shop, "--set", "things=30")

    answer = longline("records", "changes")
    result = longline("records", "changes", "--json").last

    assert result["from"] is None
    assert len(result["appeared"]) == 30
    assert "30 appeared" in answer.out
    last = answer.out.splitlines()[-1]
    assert "10" in re.findall(r"\d+", last)  # those that are not listed
    assert "--limit" in last


def test_a_run_with_a_limit_leaves_other_records_unknown(twice: Terminal, shop: Path) -> None:
    twice("run", shop, "--limit", "1")

    answer = twice("records", "changes")
    result = twice("records", "changes", "--json").last

    assert (result["disappeared"], list(result["unknown"])) == ([], ["2"])
    about = [caveat for caveat in result["caveats"] if result["to"] in caveat]
    assert any(re.search(r"\b1\b", caveat) for caveat in about)  # the limit
    assert all(caveat in answer.out for caveat in result["caveats"])
    assert f"2  {result['unknown']['2']}" in answer.out


def test_changes_since_a_time_are_one_step_a_record(twice: Terminal) -> None:
    words = ("records", "changes", "--since")
    steps = [json.loads(line) for line in twice(*words, "1h", "--json").out.splitlines()]

    assert [step["key"] for step in steps] == ["0", "1", "2"]
    assert steps[0]["from"] is None
    assert "shop/0 " in twice("records", "changes", "shop", "--since", "1h").out
    assert twice(*words, "2999-01-01", "--json").out == ""
    assert twice(*words, "2999-01-01").out.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "error", "option", "named"),
    [
        (["diff", "1", "--to", "9"], BadOption, "version", ("9", "1", "2")),
        (["diff", "nothing"], UnknownRecord, None, ("nothing",)),
        (["history", "1", "a..b"], BadOption, "field", ("a..b",)),
        (["changes", "market"], BadOption, "changes", ("market",)),
        (["changes", "--from", "nothing"], UnknownJob, None, ("nothing",)),
        (
            ["changes", "--since", "1d", "--from", "x"],
            click.UsageError,
            None,
            ("--since", "--from", "--to"),
        ),
        (["changes", "--since", "soon"], BadOption, "--since", ("soon",)),
        (["changes", "shops", "--since", "1d"], BadOption, "source", ("shops", "shop")),
    ],
)
def test_invalid_comparisons_are_refused(
    twice: Terminal,
    words: list[str],
    error: type[Exception],
    option: str | None,
    named: tuple[str, ...],
) -> None:
    answer = twice("records", *words)

    assert (answer.code, answer.out) == (2, "")
    assert isinstance(answer.error, error)
    assert getattr(answer.error, "option", None) == option
    assert set(named) <= set(re.findall(r"[\w-]+(?:\.+\w+)?", answer.err))
