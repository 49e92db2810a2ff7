"""longline cache: what it reports, and what it removes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from multidict import CIMultiDict, CIMultiDictProxy

from longline.cli.commands.sites import cache_command
from longline.core.errors import HomeUnwritable
from longline.http.cache import CacheEntry, HttpCache
from tests.small_disk import read_only_view


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    cache = HttpCache(tmp_path / "cache.sqlite")
    headers = CIMultiDictProxy(CIMultiDict({"etag": '"1"'}))
    for number, host in enumerate(("a.test", "a.test", "b.test")):
        at = 1_800_000_000.0 + number
        stored = CacheEntry(f"http://{host}/{number}", "", (), 200, headers, at, at, at, at)
        cache.put(stored, b"x" * 1000)
    cache.close()
    return tmp_path


def run(home: Path, *words: str) -> str:
    result = CliRunner().invoke(
        cache_command, [*words, "--home", str(home)], catch_exceptions=False
    )
    assert result.exit_code == 0
    return result.output


def words(text: str) -> set[str]:
    return set(text.replace(",", " ").split())


def entries(home: Path) -> int:
    count: int = json.loads(run(home, "stats", "--json"))["entries"]
    return count


def test_stats_show_how_full_the_cache_is(filled: Path) -> None:
    shown = words(run(filled, "stats"))

    assert {"3", "3.7", "kB", "0%"} <= shown
    assert {"2027-01-15", "08:00:00", "08:00:02", "UTC"} <= shown


def test_cache_stats_are_available_as_json(filled: Path) -> None:
    stats = json.loads(run(filled, "stats", "--json"))

    assert (stats["entries"], stats["limit_bytes"]) == (3, 1_000_000_000)
    assert stats["newest"] - stats["oldest"] == 2


def test_a_home_without_a_cache_has_an_empty_one(tmp_path: Path) -> None:
    assert {"0", "0%"} <= words(run(tmp_path, "stats"))
    assert "0" in words(run(tmp_path, "clear"))
    assert entries(tmp_path) == 0
    assert json.loads(run(tmp_path, "clear", "--json"))["entries"] == 0
    assert list(tmp_path.iterdir()) == []


def test_clearing_reports_what_was_removed(filled: Path) -> None:
    assert {"2", "a.test", "2.4", "kB"} <= words(run(filled, "clear", "a.test"))
    assert json.loads(run(filled, "clear", "--json"))["entries"] == 1
    assert entries(filled) == 0


def test_a_read_only_cache_is_not_cleared(filled: Path) -> None:
    view = filled / "view"

    with read_only_view(filled, view), pytest.raises(HomeUnwritable) as error:
        run(view, "clear")

    assert error.value.path == str(view)
    assert entries(filled) == 3
