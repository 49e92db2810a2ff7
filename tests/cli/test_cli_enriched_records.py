"""What machines said about records, as `records show` and `export` pass it on."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.terminal import Terminal
from exports.answers_of import answered
from longline.config.settings import Settings, prepare_home
from longline.stores.store import Store, open_store
from stores.given import record
from virtual import EPOCH

TOLD = ("state", "model", "prompt_version", "answered_at")
MOOD = {"mood": "eager \x1b[31m[/b]"}


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    settings = Settings(home=home)
    prepare_home(settings)
    with open_store(settings.database) as store:
        yield store


@pytest.fixture
def collected(longline: Terminal, store: Store) -> Terminal:
    """A home with three records."""
    for key in "012":
        asyncio.run(store.records.create(record(key), at=EPOCH))
    return longline


@pytest.fixture
def enriched(collected: Terminal, store: Store) -> Terminal:
    """A home with three records; about the second one a machine was asked twice."""
    asyncio.run(answered(store, "1", MOOD))
    asyncio.run(answered(store, "1", [7], task="counts"))
    return collected


@pytest.fixture
def outdated(enriched: Terminal, store: Store) -> Terminal:
    """The same, after that record changed."""
    changed = record("1", {"title": "other"}, fingerprint="second")
    asyncio.run(store.records.create(changed, at=EPOCH + 9))
    return enriched


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def header(path: Path) -> list[str]:
    with path.open(newline="") as text:
        return next(csv.reader(text))


def test_show_says_what_a_machine_made_and_which(enriched: Terminal) -> None:
    shown = enriched("records", "show", "1")

    assert "\nmachine-made, not collected\n" in shown.out
    assert "  moods: answered (practice, prompt version v3, 2027-01-15 08:00)\n" in shown.out
    assert "    mood: eager �[31m[/b]\n" in shown.out
    assert "    answer: [7]\n" in shown.out


def test_show_says_nothing_of_machines_where_they_said_nothing(enriched: Terminal) -> None:
    assert "machine" not in enriched("records", "show", "0").out
    assert enriched("records", "show", "0", "--json").last["enrichments"] == []


def test_a_program_is_shown_the_same_apart_from_the_data(enriched: Terminal) -> None:
    told = enriched("records", "show", "1", "--json").last

    counts, moods = told["enrichments"]
    assert "mood" not in told["data"]
    assert (counts["task"], counts["answer"]) == ("counts", [7])
    assert (moods["made_by"], moods["model"], moods["prompt_version"], moods["is_current"]) == (
        "machine",
        "practice",
        "v3",
        True,
    )


def test_show_says_that_an_answer_is_about_another_version(outdated: Terminal) -> None:
    shown = outdated("records", "show", "1")
    told = outdated("records", "show", "1", "--json").last

    assert "  moods: answered, of version 1, not this one (practice, " in shown.out
    assert [one["is_current"] for one in told["enrichments"]] == [False, False]


def test_an_export_adds_all_tasks_or_those_that_are_named(
    enriched: Terminal, tmp_path: Path
) -> None:
    enriched("export", "--with-enrichments", "-o", "all.jsonl")
    enriched("export", "-o", "one.jsonl", "--with-enrichments", "moods")
    enriched("export", "-o", "none.jsonl")

    assert lines(tmp_path / "all.jsonl")[1]["enrichments"]["counts"]["answer"] == {"answer": [7]}
    assert lines(tmp_path / "one.jsonl")[1]["enrichments"]["moods"]["answer"] == MOOD
    assert list(lines(tmp_path / "one.jsonl")[0]["enrichments"]) == ["moods"]
    assert "enrichments" not in lines(tmp_path / "none.jsonl")[0]


def test_a_table_has_the_columns_last(enriched: Terminal, tmp_path: Path) -> None:
    enriched("export", "-o", "a.csv", "--with-enrichments")

    assert header(tmp_path / "a.csv")[9:] == [
        "enrichments.counts.answer",
        *(f"enrichments.counts.@{name}" for name in TOLD),
        "enrichments.moods.mood",
        *(f"enrichments.moods.@{name}" for name in TOLD),
    ]


def test_an_increment_holds_the_record_that_was_answered_since(
    collected: Terminal, store: Store, tmp_path: Path
) -> None:
    options = ("export", "-o", "a.jsonl", "--incremental", "daily", "--with-enrichments")
    collected(*options)
    asyncio.run(answered(store, "1", MOOD))

    second = collected(*options)
    third = collected(*options)

    assert second.out.startswith("1 records written to a-0002.jsonl")
    assert lines(tmp_path / "a-0002.jsonl")[0]["enrichments"]["moods"]["answer"] == MOOD
    assert third.out == "nothing is new since the last export 'daily'\n"


def test_where_no_machine_was_asked_it_is_noted(collected: Terminal, tmp_path: Path) -> None:
    answer = collected("export", "-o", "a.jsonl", "--with-enrichments")

    assert "note: no enrichment task was run in this home yet" in answer.out
    assert "enrichments" not in lines(tmp_path / "a.jsonl")[0]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--with-enrichments", "mods"), "no task 'mods' was run here; did you mean 'moods'?"),
        (("--with-enrichments", "moods,"), "no task '' was run here"),
        (("--with-enrichments", "--columns", "key"), "--columns names nothing of it"),
        (
            ("--with-enrichments", "--columns", "enrichments.mods.x"),
            "'enrichments.mods.x' is none of enrichments.counts.FIELD, enrichments.moods.FIELD",
        ),
    ],
)
def test_what_does_not_fit_is_one_sentence_and_replaces_nothing(
    enriched: Terminal, tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    (tmp_path / "a.csv").write_text("the old one")

    answer = enriched("export", "-o", "a.csv", *options)

    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert told in answer.err
    assert (tmp_path / "a.csv").read_text() == "the old one"
