"""Enrichments in `records show` and `export`."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longline.config.settings import Settings, prepare_home
from longline.core.errors import BadOption
from longline.storage.store import Store, open_store
from tests.cli.terminal import Terminal
from tests.export.sample_answers import answered
from tests.storage.given import record
from tests.virtual import EPOCH

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


def heading(shown: str, task: str) -> str:
    """Return the line that introduces the answer of a task."""
    (line,) = [line for line in shown.splitlines() if line.strip().startswith(f"{task}:")]
    return line


def test_show_names_the_machine_that_made_an_answer(enriched: Terminal) -> None:
    shown = enriched("records", "show", "1")

    assert "machine" in shown.out
    moods = heading(shown.out, "moods")
    assert all(text in moods for text in ("answered", "practice", "v3", "2027-01-15 08:00"))
    assert "    mood: eager �[31m[/b]\n" in shown.out
    assert "    answer: [7]\n" in shown.out


def test_show_does_not_mention_machines_without_an_answer(enriched: Terminal) -> None:
    assert "machine" not in enriched("records", "show", "0").out
    assert enriched("records", "show", "0", "--json").last["enrichments"] == []


def test_json_of_a_listing_has_the_same_rows(enriched: Terminal) -> None:
    record = enriched("records", "show", "1", "--json").last

    counts, moods = record["enrichments"]
    assert "mood" not in record["data"]
    assert (counts["task"], counts["answer"]) == ("counts", [7])
    assert (moods["made_by"], moods["model"], moods["prompt_version"], moods["is_current"]) == (
        "machine",
        "practice",
        "v3",
        True,
    )


def test_show_says_that_an_answer_is_about_another_version(outdated: Terminal) -> None:
    shown = outdated("records", "show", "1")
    record = outdated("records", "show", "1", "--json").last

    moods = heading(shown.out, "moods")
    assert all(text in moods for text in ("answered", "version 1", "practice"))
    assert [one["is_current"] for one in record["enrichments"]] == [False, False]


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


def test_an_incremental_export_has_newly_enriched_records(
    collected: Terminal, store: Store, tmp_path: Path
) -> None:
    options = ("export", "-o", "a.jsonl", "--incremental", "daily", "--with-enrichments")
    collected(*options)
    asyncio.run(answered(store, "1", MOOD))

    second = collected(*options, "--json").last
    third = collected(*options, "--json").last

    assert (second["path"], second["records"]) == ("a-0002.jsonl", 1)
    assert lines(tmp_path / "a-0002.jsonl")[0]["enrichments"]["moods"]["answer"] == MOOD
    assert third == {"path": None, "records": 0}


def test_an_export_without_enrichment_tasks_has_a_note(collected: Terminal, tmp_path: Path) -> None:
    answer = collected("export", "-o", "a.jsonl", "--with-enrichments", "--json")

    (note,) = answer.last["notes"]
    assert "enrichment" in note
    assert "enrichments" not in lines(tmp_path / "a.jsonl")[0]


@pytest.mark.parametrize(
    ("options", "option", "mentioned"),
    [
        (("--with-enrichments", "mods"), "--with-enrichments", ("'mods'", "'moods'")),
        (("--with-enrichments", "moods,"), "--with-enrichments", ("''",)),
        (("--with-enrichments", "--columns", "key"), "--with-enrichments", ("--columns",)),
        (
            ("--with-enrichments", "--columns", "enrichments.mods.x"),
            "--columns",
            ("'enrichments.mods.x'", "enrichments.counts.FIELD", "enrichments.moods.FIELD"),
        ),
    ],
)
def test_options_that_do_not_fit_are_refused_and_replace_nothing(
    enriched: Terminal,
    tmp_path: Path,
    options: tuple[str, ...],
    option: str,
    mentioned: tuple[str, ...],
) -> None:
    (tmp_path / "a.csv").write_text("the old one")

    answer = enriched("export", "-o", "a.csv", *options)

    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert isinstance(answer.error, BadOption)
    assert answer.error.option == option
    assert [text for text in mentioned if text not in answer.error.problem] == []
    assert (tmp_path / "a.csv").read_text() == "the old one"
