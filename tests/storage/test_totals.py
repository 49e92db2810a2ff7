"""The totals of a home: sums over jobs that survive restarts, of a bounded number of names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import insert

from longline.core.model import Job, Lease, Outcome, OutcomeAction, Usage
from longline.storage.database import Database
from longline.storage.events.events import EventFilter, event_row
from longline.storage.jobs import NewJob
from longline.storage.monitoring.totals import OTHER
from longline.storage.queue.enqueue import Discovered
from longline.storage.scheduling.launches import NewLaunch
from longline.storage.schema import alerts
from longline.storage.store import Store
from tests.storage.given import item, leased, queued, record
from tests.virtual import EPOCH


def usage(status: int = 200, seconds: float = 0.2) -> Usage:
    used = Usage(requests=1)
    used.add_response(status, 100, seconds)
    return used


async def complete(store: Store, leases: list[Lease], *outcomes: Outcome) -> None:
    await store.queue.complete_all(list(zip(leases, outcomes, strict=True)))


async def new_source(store: Store, source: str, at: float = EPOCH) -> Job:
    return await store.jobs.create(NewJob(source, {}, {}, at))


async def test_requests_and_outcomes_of_all_jobs_are_summed(store: Store) -> None:
    first = await queued(store, "a", "b")
    stored = Outcome(OutcomeAction.STORE, record=record("a"), usage=usage())
    failed = Outcome(OutcomeAction.FAIL, kind=None, reason="no", usage=usage(404, 3.0))
    await complete(store, await leased(store, first, 2), stored, failed)
    second = await store.jobs.create(NewJob("shop", {}, {"n": 2}, EPOCH))
    await store.queue.enqueue(Discovered(second.id, [item("c")], EPOCH))
    late = Outcome(OutcomeAction.DEFER, due=EPOCH + 60, usage=usage(503, 0.04))
    await complete(store, await leased(store, second), late)

    counters = (await store.totals.read(EPOCH)).sources["shop"].counters

    assert {name: counters[name] for name in ("requests", "received_bytes")} == {
        "requests": 3,
        "received_bytes": 300,
    }
    assert [counters[f"items/{state}"] for state in ("stored", "failed", "deferred")] == [1, 1, 1]
    assert [counters[f"status/{name}"] for name in ("2xx", "4xx", "5xx")] == [1, 1, 1]
    assert [counters[f"time/{bound}"] for bound in ("0.05", "0.25", "5")] == [1, 1, 1]
    assert counters["time/sum"] == pytest.approx(3.24)


async def test_a_job_keeps_only_its_own_statistics(store: Store) -> None:
    job = await queued(store, "a")
    stored = Outcome(OutcomeAction.STORE, record=record("a"), usage=usage())
    await complete(store, await leased(store, job), stored)

    assert not [name for name in await store.events.statistics(job.id) if "/" in name]


async def test_skipping_all_items_counts_each(store: Store) -> None:
    job = await queued(store, "a", "b", "c")
    await store.queue.skip_queued(job.id, "budget", "spent", EPOCH)  # type: ignore[arg-type]  # its value

    counters = (await store.totals.read(EPOCH)).sources["shop"].counters

    assert counters["items/skipped"] == 3


async def test_open_jobs_show_their_queue_and_what_waits(store: Store) -> None:
    job = await queued(store, "a", "b")
    stored = Outcome(OutcomeAction.STORE, record=record("a"), usage=usage(), at=EPOCH + 30)
    await complete(store, await leased(store, job), stored)

    shop = (await store.totals.read(EPOCH + 100)).sources["shop"]

    assert (shop.open_jobs["running"], shop.open_items, shop.records) == (1, 1, 1)
    assert shop.waiting_since == EPOCH + 30


async def test_a_deferred_item_does_not_wait_before_it_is_due(store: Store) -> None:
    job = await queued(store, "a")
    late = Outcome(OutcomeAction.DEFER, due=EPOCH + 500, usage=usage())
    await complete(store, await leased(store, job), late)

    early = (await store.totals.read(EPOCH + 400)).sources["shop"]
    later = (await store.totals.read(EPOCH + 600)).sources["shop"]

    assert (early.waiting_since, later.waiting_since) == (None, EPOCH)


async def test_sources_beyond_the_limit_are_summed(store: Store) -> None:
    for place, source in enumerate(("old", "new", "newest")):
        job = await new_source(store, source, EPOCH + place)
        await store.events.add_statistics(job.id, {"requests": 10})

    found = await store.totals.read(EPOCH, max_sources=1)

    assert {name: one.counters["requests"] for name, one in found.sources.items()} == {
        "old": 10,
        OTHER: 20,
    }
    assert found.hidden_sources == 2


async def test_a_source_named_other_is_summed_with_the_others(store: Store) -> None:
    for place, source in enumerate((OTHER, "new")):
        job = await new_source(store, source, EPOCH + place)
        await store.events.add_statistics(job.id, {"requests": 10})

    found = await store.totals.read(EPOCH, max_sources=1)

    assert found.sources.keys() == {OTHER}
    assert found.sources[OTHER].counters["requests"] == 20


async def test_domains_in_trouble_come_before_newer_ones(store: Store) -> None:
    opened = event_row(None, EPOCH, "breaker.opened", domain="bad.test", reason="x", until=EPOCH)
    others = [
        event_row(None, EPOCH + one, "limit.learned", domain=f"{one}.test", rate=2.0)
        for one in range(1, 6)
    ]
    await store.events.append(opened, *others)

    found = await store.totals.read(EPOCH + 10, max_domains=2)

    assert list(found.domains) == ["bad.test", "5.test"]
    assert (found.domains["bad.test"].is_open, found.domains["5.test"].rate) == (True, 2.0)
    assert found.hidden_domains == 4
    assert found.all_domains == {"domains": 6, "open": 1, "trips": 1, "bans": 0, "refusals": 0}


async def test_the_last_run_shows_freshness_coverage_and_exports(store: Store) -> None:
    job = await queued(store, "a", is_last=True)
    stored = Outcome(OutcomeAction.STORE, record=record("a"), usage=usage())
    await complete(store, await leased(store, job), stored)
    await store.jobs.finish(job.id, EPOCH + 50)
    profile: dict[str, Any] = {"records": 1, "invalid": 0, "coverage": {"title": 1.0, "price": 0.5}}
    found: dict[str, Any] = {"is_sound": False, "drift": ["price"]}
    profiled = event_row(job.id, EPOCH, "source.profiled", source="shop", **profile, **found)
    written = event_row(job.id, EPOCH, "export.written", output="x.csv", records=1)
    await store.events.append(profiled, written)

    shop = (await store.totals.read(EPOCH + 60)).sources["shop"]

    assert (shop.runs["complete"], shop.last_good_at) == (1, EPOCH + 50)
    assert (sorted(shop.coverage), shop.drift) == ([0.5, 1.0], 1)
    assert shop.exports == {"written": 1, "failed": 0}


async def test_launches_workers_and_subscribers_that_wait_are_seen(store: Store) -> None:
    await store.launches.place(NewLaunch("source", "shop", {}, "test", EPOCH))
    await store.workers.renew("alive", "host:1:x", EPOCH, EPOCH + 20)
    await store.workers.renew("late", "host:2:x", EPOCH, EPOCH + 5)
    await store.subscribers.add("mine", EventFilter(), EPOCH, 0)

    found = await store.totals.read(EPOCH + 10)

    assert (found.launches, found.due_since) == ({"queued": 1}, EPOCH)
    assert found.workers == {True: 1, False: 1}
    assert [(one.name, one.lag) for one in found.subscribers] == [("mine", 2)]
    assert found.size_bytes > 0


def alert(**changes: Any) -> dict[str, Any]:
    name = {"rule": "stale", "subject": "source/shop"}
    state = {"state": "firing", "severity": "critical", "since": EPOCH, "seen_at": EPOCH}
    return {**name, **state, "summary": "", "evidence": {}, "action": "", **changes}


async def test_only_firing_alerts_are_counted(store: Store, database: Database) -> None:
    rows = [
        alert(),
        alert(subject="source/other"),
        alert(rule="disk", state="pending"),
        alert(rule="gone", state="resolved", resolved_at=EPOCH),
    ]
    for row in rows:
        await database.write(lambda connection, row=row: connection.execute(insert(alerts), row))  # type: ignore[misc]  # a default binds it

    found = await store.totals.read(EPOCH)

    assert found.alerts == {("stale", "critical"): 2}


async def test_an_empty_home_has_totals(store: Store) -> None:
    found = await store.totals.read(EPOCH)

    assert (found.sources, found.domains, found.hidden_domains) == ({}, {}, 0)
    assert replace(found, size_bytes=0).newest_event == 0
