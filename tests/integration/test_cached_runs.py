"""A second run with the cache: what has not changed is asked about, and not fetched again."""

from __future__ import annotations

from email.utils import formatdate
from pathlib import Path
from typing import Any

from longline.core.model import ItemState
from longline.orchestrator import Orchestrator
from tests.integration.conftest import Collect, Serve
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

FAST: dict[str, Any] = {"rate": "unlimited", "cache": True}


async def test_an_unchanged_catalogue_with_validators_says_unchanged(
    serve: Serve, collect: Collect
) -> None:
    async with serve(items=30, validators=True) as web, collect(web, **FAST) as longline:
        first = await longline.execute()
        web.tally.statuses.clear()
        second = await longline.execute()
        statuses = web.tally.statuses

    assert first.progress.counts[ItemState.STORED] == 30
    assert second.progress.counts[ItemState.UNCHANGED] == 30
    assert second.progress.statistic("revalidated") == statuses[304] >= 30
    assert (
        second.progress.statistic("received_bytes")
        < first.progress.statistic("received_bytes") / 10
    )


async def test_a_fresh_answer_costs_neither_a_request_nor_a_token(
    site: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    # On virtual time the server's own date would lie months back.
    headers = {"cache-control": "max-age=3600", "date": formatdate(clock.now(), usegmt=True)}
    for number in range(10):
        site.says(f"/item/{number}", f"page {number}", headers=headers)
    spec: dict[str, Any] = {"rate": 1.0, "burst": 1, "cache": True}
    async with Orchestrator(
        "tests.sample_sources:PageSource", {"site": site.url}, home=tmp_path, clock=clock, **spec
    ) as longline:
        await longline.execute()
        asked = sum(site.hits.values())
        started = clock.now()
        second = await longline.execute()

    assert sum(site.hits.values()) == asked
    assert second.progress.statistic("cached") == 10
    assert second.progress.statistic("requests") == 0
    assert clock.now() - started < 1


async def test_without_the_cache_everything_is_fetched_again(
    site: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    for number in range(10):
        site.says(f"/item/{number}", f"page {number}", headers={"cache-control": "max-age=3600"})
    async with Orchestrator(
        "tests.sample_sources:PageSource",
        {"site": site.url},
        home=tmp_path,
        clock=clock,
        rate="unlimited",
    ) as longline:
        await longline.execute()
        await longline.execute()

    assert site.hits["/item/3"] == 2
    assert not (tmp_path / "cache.sqlite").exists()
