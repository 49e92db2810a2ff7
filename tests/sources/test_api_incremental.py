"""Only what changed: where a run begins, and when its bookmark moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from longline.core.errors import DiscoveryFailed
from longline.core.model import Item
from longline.limits.backends.sqlite import SqliteStateFile
from longline.limits.backends.state import MemoryStateBackend, StateBackend
from longline.sources.api.source import Bookmark
from tests.sources.api_bench import ApiSite, Bench
from tests.virtual import VirtualClock


@pytest.fixture
def bookmarks(clock: VirtualClock) -> StateBackend[Bookmark]:
    return MemoryStateBackend(clock)


@pytest.fixture(params=["memory", "cells"])
async def any_bookmarks(
    request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock
) -> AsyncIterator[StateBackend[Bookmark]]:
    if request.param == "memory":
        yield MemoryStateBackend(clock)
        return
    file = SqliteStateFile(tmp_path / "keepers.db", clock)
    yield file.backend("bookmarks", Bookmark)
    await file.close()


def manifest(rule: str = "start: 2020-01-01, look_back: 1d") -> str:
    return f"""
parameters: {{kind: boat}}
endpoints:
  products:
    path: /products
    records: items
    key: id
    pagination: {{kind: page, has_more: more}}
    incremental: {{field: at, parameter: since, {rule}}}
"""


def page(*times: Any, more: bool = False) -> dict[str, Any]:
    return {"items": [{"id": n, "at": at} for n, at in enumerate(times)], "more": more}


async def run(
    bench: Bench, text: str, bookmarks: StateBackend[Bookmark], **options: Any
) -> list[Item]:
    """Run a job to its complete end, as an engine would."""
    source, collector = bench.open(text, bookmarks, **options)
    items = await bench.discover(collector)
    await source.finished(collector.visit(cursor=bench.cursors[-1].value))
    return items


async def test_the_next_run_begins_where_the_last_one_ended(
    api: ApiSite, bench: Bench, any_bookmarks: StateBackend[Bookmark]
) -> None:
    api.says(
        "/products",
        page("2024-05-03T10:00:00.750+02:00", "2024-05-02T00:00:00Z", more=True),
        page("2024-05-01"),
        page(),
    )

    await run(bench, manifest(), any_bookmarks)
    await run(bench, manifest(), any_bookmarks)
    await run(bench, manifest(), any_bookmarks)

    first, later = "2020-01-01T00:00:00Z", "2024-05-02T08:00:00Z"
    assert [query["since"] for query in api.queries] == [first, first, later, later]


async def test_the_bookmark_stays_until_the_records_are_committed(
    api: ApiSite, bench: Bench, bookmarks: StateBackend[Bookmark]
) -> None:
    api.says("/products", page("2024-05-03"))

    await bench.discover(bench.open(manifest(), bookmarks)[1])
    await bench.discover(bench.open(manifest(), bookmarks)[1])

    assert {query["since"] for query in api.queries} == {"2020-01-01T00:00:00Z"}


async def test_a_list_read_in_part_moves_nothing(
    api: ApiSite, bench: Bench, bookmarks: StateBackend[Bookmark]
) -> None:
    api.says("/products", page("2024-05-03", more=True), page("2024-05-01"))
    source, collector = bench.open(manifest(), bookmarks)
    await bench.discover(collector)

    await source.finished(collector.visit(cursor=bench.cursors[0].value))
    await run(bench, manifest(), bookmarks)

    assert api.queries[-1]["since"] == "2020-01-01T00:00:00Z"


async def test_a_resumed_run_keeps_its_beginning_and_what_it_had_seen(
    api: ApiSite, bench: Bench, bookmarks: StateBackend[Bookmark]
) -> None:
    api.says("/products", page("2024-05-03", more=True), page("2024-05-01"), page())
    _, before = bench.open(manifest(), bookmarks)
    await bench.discover(before)
    after_first_page = bench.cursors[0].value

    source, collector = bench.open(manifest("start: 2021-01-01"), bookmarks)
    await bench.discover(collector, after_first_page)
    await source.finished(collector.visit(cursor=bench.cursors[-1].value))
    await run(bench, manifest("start: 2021-01-01"), bookmarks)

    assert [query["since"] for query in api.queries[2:]] == [
        "2020-01-01T00:00:00Z",
        "2024-05-03T00:00:00Z",
    ]


async def test_a_change_while_the_list_was_read_is_seen_next_time(
    api: ApiSite, bench: Bench, bookmarks: StateBackend[Bookmark], clock: VirtualClock
) -> None:
    api.says("/products", page("2099-01-01"))

    await run(bench, manifest("type: datetime"), bookmarks)
    await run(bench, manifest("type: datetime"), bookmarks)

    assert clock.now() < 1_800_001_000
    assert api.queries[-1]["since"] == "2027-01-15T08:00:00Z"


async def test_jobs_with_other_parameters_have_bookmarks_of_their_own(
    api: ApiSite, bench: Bench, bookmarks: StateBackend[Bookmark]
) -> None:
    api.says("/products", page("2024-05-03"))

    await run(bench, manifest(), bookmarks)
    await run(bench, manifest(), bookmarks, kind="car")

    assert api.queries[-1]["since"] == "2020-01-01T00:00:00Z"


async def test_a_user_may_say_since_when(
    api: ApiSite, bench: Bench, bookmarks: StateBackend[Bookmark]
) -> None:
    api.says("/products", page("2024-05-03"))

    await run(bench, manifest(), bookmarks)
    await run(bench, manifest(), bookmarks, since="2022-02-02")

    assert api.queries[-1]["since"] == "2022-02-02T00:00:00Z"


async def test_numbers_and_days_are_sent_as_such(
    api: ApiSite, bench: Bench, bookmarks: StateBackend[Bookmark], clock: VirtualClock
) -> None:
    api.says("/products", page(41, 907), page(), page("2024-05-03T12:00:00Z"), page())

    await run(bench, manifest("type: integer, look_back: 7"), bookmarks)
    await run(bench, manifest("type: integer, look_back: 7"), bookmarks)
    await run(bench, manifest("type: date, start: 2020-01-01"), MemoryStateBackend(clock))

    assert [query.get("since") for query in api.queries] == [None, "900", "2020-01-01"]


async def test_the_first_run_without_a_start_requests_everything(
    api: ApiSite, bench: Bench, bookmarks: StateBackend[Bookmark]
) -> None:
    api.says("/products", page("2024-05-03"))

    await run(bench, manifest("type: datetime"), bookmarks)

    assert api.queries == [{"page": "1"}]


async def test_an_unreadable_time_does_not_advance_the_bookmark(
    api: ApiSite, bench: Bench, bookmarks: StateBackend[Bookmark]
) -> None:
    api.says("/products", page("2024-05-03", "yesterday", None))

    items = await run(bench, manifest(), bookmarks)
    notes = bench.notes
    await run(bench, manifest(), bookmarks)

    assert len(items) == 3
    assert len(notes) == 1
    assert notes[0].startswith("products")
    assert "'at'" in notes[0]
    assert "'yesterday'" in notes[0]
    assert api.queries[-1]["since"] == "2024-05-02T00:00:00Z"


async def test_a_bookmark_never_moves_back(
    api: ApiSite, bench: Bench, any_bookmarks: StateBackend[Bookmark]
) -> None:
    api.says("/products", page("2024-05-03"), page("2024-05-01"), page())

    await run(bench, manifest(), any_bookmarks)
    await run(bench, manifest(), any_bookmarks)
    await run(bench, manifest(), any_bookmarks)

    assert [query["since"] for query in api.queries][1:] == ["2024-05-02T00:00:00Z"] * 2


async def test_since_may_be_used_in_a_body(
    api: ApiSite, bench: Bench, bookmarks: StateBackend[Bookmark]
) -> None:
    api.says("/products", page())
    text = """
may_be_empty: true
endpoints:
  products:
    path: /products
    body: {filter: {from: '{since}'}}
    records: items
    key: id
    incremental: {field: at, start: 2020-01-01}
"""
    await run(bench, text, bookmarks)

    assert api.sent == [b'{"filter":{"from":"2020-01-01T00:00:00Z"}}']


async def test_a_first_run_that_finds_nothing_fails_and_a_later_one_does_not(
    api: ApiSite, bench: Bench, bookmarks: StateBackend[Bookmark]
) -> None:
    api.says("/products", page())
    with pytest.raises(DiscoveryFailed, match="may_be_empty"):
        await run(bench, manifest(), bookmarks)
    api.says("/products", page("2024-05-01T00:00:00Z"))
    await run(bench, manifest(), bookmarks)
    api.says("/products", page())

    assert await run(bench, manifest(), bookmarks) == []
