"""longline cache: what it tells, and what it removes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from multidict import CIMultiDict, CIMultiDictProxy

from longline.cli.cache import command
from longline.errors import HomeReadOnly
from longline.fetching.cache.base import Entry
from longline.fetching.cache.sqlite import SqliteCache
from small_disk import read_only_view


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    cache = SqliteCache(tmp_path / "cache.sqlite")
    headers = CIMultiDictProxy(CIMultiDict({"etag": '"1"'}))
    for number, host in enumerate(("a.test", "a.test", "b.test")):
        at = 1_800_000_000.0 + number
        stored = Entry(f"http://{host}/{number}", "", (), 200, headers, at, at, at, at)
        cache.put(stored, b"x" * 1000)
    cache.close()
    return tmp_path


def run(home: Path, *words: str) -> str:
    result = CliRunner().invoke(command, [*words, "--home", str(home)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_stats_tell_how_full_the_cache_is(filled: Path) -> None:
    assert run(filled, "stats").splitlines() == [
        "3 answers, 3.7 kB, 0% of the limit",
        "stored from 2027-01-15 08:00:00 to 2027-01-15 08:00:02 UTC",
    ]


def test_stats_are_there_for_programs(filled: Path) -> None:
    told = json.loads(run(filled, "stats", "--json"))

    assert (told["entries"], told["limit_bytes"]) == (3, 1_000_000_000)
    assert told["newest"] - told["oldest"] == 2


def test_a_home_without_a_cache_has_an_empty_one(tmp_path: Path) -> None:
    assert run(tmp_path, "stats") == "0 answers, 0 bytes, 0% of the limit\n"
    assert run(tmp_path, "clear") == "0 answers removed, 0 bytes\n"
    assert list(tmp_path.iterdir()) == []


def test_clearing_tells_what_was_removed(filled: Path) -> None:
    assert run(filled, "clear", "a.test") == "2 answers of a.test removed, 2.4 kB\n"
    assert json.loads(run(filled, "clear", "--json"))["entries"] == 1
    assert run(filled, "stats").startswith("0 answers")


def test_a_cache_that_may_only_be_read_is_not_said_to_be_cleared(filled: Path) -> None:
    view = filled / "view"

    with read_only_view(filled, view), pytest.raises(HomeReadOnly, match="mount it for writing"):
        run(view, "clear")

    assert run(filled, "stats").startswith("3 answers")
