"""HttpCache: what is stored, found, evicted and cleared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from longline.http.cache import HttpCache
from tests.http.cache_given import entry
from tests.virtual import EPOCH

LIMIT = 100_000
BODY = b"x" * 9_000


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[HttpCache]:
    cache = HttpCache(tmp_path / "cache.sqlite", LIMIT)
    yield cache
    cache.close()


def test_a_stored_response_is_found_immediately(cache: HttpCache) -> None:
    stored = entry({"A": "1", "a": "2"}, vary=(("accept", "digest"), ("cookie", None)))

    cache.put(stored, b"\x00body")

    assert cache.find(stored.url) == [stored]
    assert cache.read(stored, EPOCH) == b"\x00body"
    assert cache.find("http://site.test/other") == []


def test_counting_does_not_change_what_is_found(cache: HttpCache) -> None:
    stored = entry({"A": "1"})
    cache.put(stored, b"body")

    stats = cache.stats()

    assert (stats.entries, stats.limit_bytes) == (1, LIMIT)
    assert (stats.oldest, stats.newest) == (EPOCH, EPOCH)
    assert stats.size_bytes >= len(b"body")
    assert cache.find(stored.url) == [stored]
    assert cache.read(stored, EPOCH) == b"body"


def test_an_answer_takes_the_place_of_the_one_before(cache: HttpCache) -> None:
    old, new = entry({"A": "1"}), entry({"A": "2"}, at=EPOCH + 1)
    cache.put(old, b"old")

    cache.put(new, b"new")

    assert cache.find(new.url) == [new]
    assert cache.read(old, EPOCH) is None
    assert cache.stats().entries == 1


def test_refreshing_keeps_the_body(cache: HttpCache) -> None:
    old = entry({"A": "1"})
    new = replace(entry({"A": "2"}, at=EPOCH + 9), saved_at=old.saved_at)
    cache.put(old, b"body")
    cache.stats()  # the first is in the file, the second is on its way

    cache.put(new, None)

    assert cache.find(new.url) == [new]
    assert cache.read(new, EPOCH) == b"body"


def test_refreshing_a_version_that_was_replaced_changes_nothing(cache: HttpCache) -> None:
    old, new = entry({"A": "1"}), entry({"A": "2"}, at=EPOCH + 1)
    cache.put(old, b"old")
    cache.put(new, b"new")

    cache.put(replace(old, responded_at=EPOCH + 2), None)
    cache.stats()

    assert cache.find(new.url) == [new]


@pytest.mark.parametrize("other", [{"owner": "b"}, {"vary": (("x", "1"),)}])
def test_owners_and_variants_are_separate(cache: HttpCache, other: dict[str, str]) -> None:
    one, two = entry(), entry(**other)  # type: ignore[arg-type]  # a test's shorthand
    cache.put(one, b"one")
    cache.put(two, b"two")

    assert [cache.read(one, EPOCH), cache.read(two, EPOCH)] == [b"one", b"two"]

    cache.drop(one)

    assert cache.find(one.url) == [two]
    assert cache.read(one, EPOCH) is None


def test_the_least_recently_used_is_given_up_first(cache: HttpCache) -> None:
    entries = [entry(url=f"http://site.test/{number}", at=EPOCH + number) for number in range(20)]
    for number, one in enumerate(entries):
        cache.put(one, BODY)
        cache.stats()
        cache.read(entries[0], EPOCH + 100 * (number + 1))
    cache.stats()

    found = [number for number, one in enumerate(entries) if cache.find(one.url)]

    assert 0 in found
    assert 1 not in found
    assert 19 in found
    assert len(found) >= 8
    assert cache.stats().size_bytes <= LIMIT


def test_an_answer_of_more_than_a_tenth_is_not_kept(cache: HttpCache) -> None:
    cache.put(entry(), b"small")

    cache.put(entry(at=EPOCH + 1), b"x" * (LIMIT // 10))

    assert cache.find(entry().url) == []


def test_clearing_a_host_leaves_the_others(cache: HttpCache) -> None:
    urls = ["http://a.test/1", "https://a.test:8443/1", "http://www.a.test/1", "http://b.test/1"]
    for url in urls:
        cache.put(entry(url=url), b"x" * 100)

    removed = cache.clear("A.test")

    assert removed.entries == 2
    assert removed.size_bytes > 200
    assert [bool(cache.find(url)) for url in urls] == [False, False, True, True]
    assert cache.clear("b.test:80").entries == 0
    assert cache.clear().entries == 2
    assert cache.stats().size_bytes == 0
