"""Statistics of fields and quality, for people and programs."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from longline.core.errors import BadOption
from longline.storage.store import open_store
from tests.cli.terminal import Terminal
from tests.storage.given import record
from tests.virtual import EPOCH


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


def test_stats_show_every_field_of_a_source(hats: Terminal) -> None:
    answer = hats("records", "stats", "hats")
    result = hats("records", "stats", "hats", "--json").last

    assert "20" in re.findall(r"\d+", answer.out.splitlines()[0])
    assert "95.0%" in answer.out
    assert "[b]�title" in answer.out
    assert (result["source"], result["records"], result["is_cut"]) == ("hats", 20, False)
    assert [one["field"] for one in result["fields"]] == ["price", "[b]\x1btitle", "n"]
    assert result["fields"][0]["numbers"]["largest"] == 19


def test_statistics_are_of_what_matches(hats: Terminal) -> None:
    result = hats("records", "stats", "--where", "price>10", "--json").last

    assert (result["source"], result["records"]) == (None, 9)


@pytest.mark.parametrize("name", ["stats", "quality"])
def test_statistics_of_no_record_are_empty(hats: Terminal, name: str) -> None:
    answer = hats("records", name, "--where", "price>99")
    result = hats("records", name, "--where", "price>99", "--json").last

    assert (answer.code, answer.out.count("\n")) == (0, 1)
    assert result["records"] == 0


@pytest.mark.parametrize("name", ["stats", "quality"])
def test_statistics_of_an_unknown_source_are_refused(hats: Terminal, name: str) -> None:
    answer = hats("records", name, "hat")

    assert (answer.code, answer.out) == (2, "")
    assert isinstance(answer.error, BadOption)
    assert answer.error.option == "source"
    assert all(known in answer.error.problem for known in ("hats", "shoes"))


def test_without_a_source_each_one_is_counted(hats: Terminal) -> None:
    rows = hats("records", "stats", "--json").last

    assert [(row["source"], row["records"]) for row in rows] == [("hats", 20), ("shoes", 1)]
    assert "shoes" in hats("records", "stats").out


def test_quality_shows_reasons_for_lost_points(hats: Terminal) -> None:
    answer = hats("records", "quality", "hats")
    result = hats("records", "quality", "hats", "--json").last

    first, *lines = answer.out.splitlines()
    assert {"20", "47.5"} <= set(re.findall(r"[\d.]*\d", first))
    assert any({"90", "100"} <= set(re.findall(r"\d+", line)) for line in lines)
    assert "no price" in answer.out
    assert (result["records"], result["mean"]) == (20, 47.5)
    assert result["histogram"] == [2] * 10
    assert result["grades"] == {"Poor": 14, "Good": 6}
    assert result["reasons"] == [{"part": "fields", "reason": "no price", "records": 20}]


def test_records_without_a_score_have_no_mean(hats: Terminal) -> None:
    answer = hats("records", "quality", "shoes")
    result = hats("records", "quality", "shoes", "--json").last

    assert re.findall(r"\d+", answer.out.splitlines()[0]) == ["1"]
    assert (result["records"], result["mean"]) == (1, None)


@pytest.mark.parametrize("name", ["stats", "quality"])
def test_the_tables_fit(hats: Terminal, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("COLUMNS", "72")

    lines = hats("records", name, "hats").out.splitlines()

    assert max(map(len, lines)) <= 72
