"""The three sites for property, collected by their manifests: what is stored is their truth."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from longline.core.model import ItemState, JobState
from longline.engine.report import JobReport
from longline.orchestrator import Orchestrator
from longline.sandbox.sites.listings.ads import SITES
from longline.sandbox.web import PracticeWeb, WebOptions
from longline.storage.query import RecordQuery
from tests.virtual import VirtualClock

EXAMPLES = Path(__file__).parents[2] / "examples"
NOT_COLLECTED = {"site", "key", "path", "property"}
Rows = dict[str, dict[str, Any]]
Collect = Callable[[str], Awaitable[tuple[JobReport, list[dict[str, Any]]]]]


@pytest.fixture
async def web(clock: VirtualClock) -> AsyncIterator[PracticeWeb]:
    async with PracticeWeb(WebOptions(items=1), clock=clock) as web:
        web.sites.listings.board.begin(properties=120, ads=200)
        yield web


@pytest.fixture
def collect(web: PracticeWeb, clock: VirtualClock, tmp_path: Path) -> Collect:
    async def run(name: str) -> tuple[JobReport, list[dict[str, Any]]]:
        told = {"set": {"base_url": web.url}, "rate": "unlimited"}
        async with Orchestrator(home=tmp_path, clock=clock) as longline:
            report = await longline.execute(str(EXAMPLES / f"{name}.yaml"), told, fresh=True)
            rows = await longline.store.records.list(RecordQuery(source=name, limit=1000))
        return report, rows

    return run


def data_of(rows: list[dict[str, Any]]) -> Rows:
    return {row["key"]: row["data"] for row in rows}


def truth_of(web: PracticeWeb, site: str) -> Rows:
    rows = web.sites.listings.board.truth(site)
    return {row["key"]: {name: row[name] for name in row.keys() - NOT_COLLECTED} for row in rows}


@pytest.mark.parametrize("site", SITES)
async def test_what_is_collected_is_the_truth(
    web: PracticeWeb, collect: Collect, site: str
) -> None:
    report, rows = await collect(site)

    assert report.state is JobState.COMPLETE
    assert data_of(rows) == truth_of(web, site)
    assert len(rows) > 40


@pytest.mark.parametrize("site", SITES)
async def test_what_an_ad_does_not_show_is_null_with_a_note(collect: Collect, site: str) -> None:
    _, rows = await collect(site)

    empty = {(row["key"], name) for row in rows for name, v in row["data"].items() if v is None}
    noted = {(row["key"], note["field"]) for row in rows for note in row["about"]["notes"]}
    assert empty == noted
    assert len(empty) > 20


@pytest.mark.parametrize("site", SITES)
async def test_a_second_run_stores_what_is_new_or_changed_and_nothing_else(
    web: PracticeWeb, collect: Collect, site: str
) -> None:
    await collect(site)
    changes = web.sites.listings.board.changes()
    web.sites.listings.board.move_to(2)

    report, rows = await collect(site)

    fresh = {key for name, key in changes.new if name == site}
    edited = {key for name, key in changes.changed if name == site}
    counts = report.progress.counts
    assert counts[ItemState.STORED] == len(fresh) + len(edited) > 0
    assert counts[ItemState.UNCHANGED] == len(truth_of(web, site)) - counts[ItemState.STORED]
    assert {row["key"] for row in rows if row["version"] == 2} == edited
    assert {key: data_of(rows)[key] for key in truth_of(web, site)} == truth_of(web, site)


@pytest.mark.parametrize("site", SITES)
async def test_ads_that_were_taken_down_are_gone(
    web: PracticeWeb, clock: VirtualClock, collect: Collect, site: str
) -> None:
    await collect(site)
    await clock.sleep(86_400)
    web.sites.listings.board.move_to(2)

    _, rows = await collect(site)

    gone = {row["key"] for row in rows if row["gone_at"] is not None}
    assert gone == data_of(rows).keys() - truth_of(web, site).keys()
    assert gone


async def test_share_links_that_look_like_ads_are_not_followed(
    web: PracticeWeb, collect: Collect
) -> None:
    report, rows = await collect("listings_imoti")

    assert web.tally.hits["/imoti/spodeli"] == 0
    assert report.progress.counts[ItemState.FAILED] == 0
    assert {row["url"].partition("?")[2] for row in rows} == {""}


async def test_each_ad_is_fetched_once_though_lists_repeat_it(
    web: PracticeWeb, collect: Collect
) -> None:
    await collect("listings_imoti")

    hits = {path: count for path, count in web.tally.hits.items() if "/obiava-" in path}
    assert set(hits.values()) == {1}
    assert len(hits) == len(truth_of(web, "listings_imoti"))
