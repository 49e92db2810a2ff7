"""Statistics of fields and quality, for people and programs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cli.terminal import Terminal
from longline.stores.store import open_store
from stores.given import record
from virtual import EPOCH


async def fill(home: Path) -> None:
    with open_store(f"sqlite:///{home / 'longline.sqlite'}") as store:
        for number in range(20):
            data = {"price": number or None, "[b]\x1btitle": "hat", "n": number}
            hat = record(str(number), data, source="hats", score=number * 5.0)
            await store.records.create(hat, at=EPOCH)
        await store.records.create(record("1", {"title": "x"}, source="shoes"), at=EPOCH)


@pytest.fixture
def hats(longline: Terminal, home: Path) -> Terminal:
    home.mkdir()
    asyncio.run(fill(home))
    return longline


def test_of_a_source_every_field_is_told(hats: Terminal) -> None:
    answer = hats("records", "stats", "hats")
    told = hats("records", "stats", "hats", "--json").last

    assert answer.out.startswith("20 records\n")
    assert "95.0%" in answer.out
    assert "[b]�title" in answer.out
    assert "█" in answer.out
    assert (told["source"], told["records"], told["is_cut"]) == ("hats", 20, False)
    assert [one["field"] for one in told["fields"]] == ["price", "[b]\x1btitle", "n"]
    assert told["fields"][0]["numbers"]["largest"] == 19


def test_figures_are_of_what_matches(hats: Terminal) -> None:
    told = hats("records", "stats", "--where", "price>10", "--json").last

    assert (told["source"], told["records"]) == (None, 9)
    assert hats("records", "stats", "--where", "price>99").out == "no records match\n"
    assert hats("records", "quality", "--where", "price>99").out == "no records match\n"


@pytest.mark.parametrize("name", ["stats", "quality"])
def test_a_source_of_which_there_is_nothing_is_refused(hats: Terminal, name: str) -> None:
    answer = hats("records", name, "hat")

    assert (answer.code, answer.out) == (2, "")
    assert "nothing of 'hat' was collected here; did you mean 'hats'?" in answer.err
    assert "there are hats, shoes" in answer.err


def test_without_a_source_each_one_is_counted(hats: Terminal) -> None:
    rows = hats("records", "stats", "--json").last

    assert [(row["source"], row["records"]) for row in rows] == [("hats", 20), ("shoes", 1)]
    assert "shoes" in hats("records", "stats").out


def test_quality_says_what_points_are_lost_for(hats: Terminal) -> None:
    answer = hats("records", "quality", "hats")
    told = hats("records", "quality", "hats", "--json").last

    assert answer.out.startswith("20 records, mean score 47.5\n")
    assert "90 to 100" in answer.out
    assert "no price" in answer.out
    assert told["histogram"] == [2] * 10
    assert told["grades"] == {"Poor": 14, "Good": 6}
    assert told["reasons"] == [{"part": "fields", "reason": "no price", "records": 20}]


def test_records_without_a_score_are_said_to_have_none(hats: Terminal) -> None:
    assert hats("records", "quality", "shoes").out.startswith("1 records, none has a score\n")


@pytest.mark.parametrize("name", ["stats", "quality"])
def test_the_tables_fit(hats: Terminal, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("COLUMNS", "72")

    lines = hats("records", name, "hats").out.splitlines()

    assert max(map(len, lines)) <= 72
