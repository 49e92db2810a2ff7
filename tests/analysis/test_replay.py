"""A thousand broken records: none stored, none lost, and all fixed without a request."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from longline.analysis.replay import Replay, replay, source_now
from longline.core.errors import BadOption
from longline.core.model import JobState, Outcome, OutcomeAction
from longline.engine.report import JobReport
from longline.orchestrator import Orchestrator
from longline.pipeline.pipeline import unpack_material
from longline.storage.queue.failures import FailureQuery
from longline.storage.queue.quarantine import REPLAY_UNFINISHED, ReprocessedItem
from longline.storage.queue.queue import Queue
from longline.storage.store import Store
from tests.analysis.broken_listings import (
    BREAKS,
    CODE_NOTE,
    CODE_ORIGIN,
    KEYS,
    MANY,
    Killed,
    page_of,
)
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

ALL = len(BREAKS) * MANY
EACH = 3
SOME = len(BREAKS) * EACH
KILLED_AMONG = 500  # a few more than the source is killed at


@pytest.fixture
def listings(site: ScriptedSite) -> ScriptedSite:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=page_of(request.path.strip("/")))

    site.answers.update({f"/{key}": answer for key in KEYS})
    return site


@contextlib.asynccontextmanager
async def ran(
    site: ScriptedSite, home: Path, clock: VirtualClock, source: str = "Strict", **spec: Any
) -> AsyncIterator[tuple[Store, JobReport]]:
    """Run a source of broken listings to its end; the site counts from then on."""
    reference = f"tests.analysis.broken_listings:{source}"
    spec = {"rate": "unlimited", "concurrency": 50, **spec}
    async with Orchestrator(
        reference, {"site": site.url}, home=home, clock=clock, **spec
    ) as longline:
        report = await longline.execute()
        site.hits.clear()
        yield longline.store, report


async def replayed(
    store: Store, report: JobReport, source: str, *, clock: VirtualClock | None = None, **how: Any
) -> Replay:
    job = await store.jobs.get(report.job)
    fixed = source_now(job, f"tests.analysis.broken_listings:{source}")
    return await replay(store, job, fixed, clock or VirtualClock(), **how)


async def counted(queue: Queue, job: str) -> dict[str, int]:
    return {state.value: count for state, count in (await queue.counts(job)).items() if count}


async def test_a_thousand_broken_records_of_twenty_kinds_are_quarantined_and_replayed(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock) as (store, report):
        before = report.as_dict()
        groups = await store.quarantine.groups(report.job)
        held = await store.quarantine.held(report.job, limit=ALL + 1)
        stored_before = await store.records.count()

        result = await replayed(store, report, "Fixed")

        job = await store.jobs.get(report.job)
        events = await store.events.list(report.job, types=["item.stored"], limit=ALL + 1)
        records = await store.records.count()
        after = await counted(store.queue, report.job)
        findings = await store.jobs.findings(report.job, "listings")

    assert (ALL, before["quarantined"], before["stored"], stored_before) == (1000, 1000, 0, 0)
    assert (before["state"], len(held)) == ("failed", ALL)
    assert sum(group.count for group in groups) == ALL
    assert all(one.reason and unpack_material(one.raw).results["page"]["id"] for one in held)
    assert listings.hits == Counter()
    assert (result.ends, result.exit_code) == ({"stored": ALL}, 0)
    assert (job.state, job.reason, after) == (JobState.COMPLETE, None, {"stored": ALL})
    assert sorted(event.key or "" for event in events) == sorted(KEYS)
    assert (records, findings.items_without_record, findings.keys_stored_twice) == (ALL, 0, 0)


async def test_every_kind_of_fault_has_a_reason_that_its_records_share(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock, limit=SOME) as (store, report):
        groups = await store.quarantine.groups(report.job)

    fields = {(group.reason.partition(":")[0], group.count) for group in groups}
    assert {(name, EACH) for name in ("title", "price.currency", "rooms", "link")} <= fields
    assert any("EUR" in group.reason and "BGN" in group.reason for group in groups)
    assert {group.count for group in groups} <= {EACH, 2 * EACH}


async def test_a_record_is_replayed_as_if_it_had_just_been_collected(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock, limit=20) as (store, report):
        await replayed(store, report, "Fixed")
        row = await store.records.get(KEYS[0])
        (*_, item) = await store.queue.finished(report.job)

    about = row["about"]
    assert row["data"]["price"] == {"amount": 90_000, "currency": "EUR"}
    assert about["notes"] == [{"field": "code", "text": CODE_NOTE}]
    assert about["provenance"]["code"] == CODE_ORIGIN
    assert about["provenance"]["price"] == f"page {listings.url}/{KEYS[0]}"
    assert (about["layers"], row["grade"]) == ({"page": "ok"}, "Excellent")
    assert (item["state"], item["raw"], item["status"], item["requests"]) == (
        "stored",
        None,
        200,
        1,
    )


async def test_a_killed_replay_loses_nothing(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock, limit=KILLED_AMONG) as (store, report):
        with pytest.raises(Killed):
            await replayed(store, report, "Mortal")
        halfway = await counted(store.queue, report.job)
        cut_off = await store.jobs.get(report.job)

        await replayed(store, report, "Fixed")

        events = await store.events.list(report.job, types=["item.stored"], limit=ALL + 1)
        job = await store.jobs.get(report.job)

    assert halfway == {"stored": 400, "quarantined": KILLED_AMONG - 400}
    assert (cut_off.state, cut_off.reason) == (JobState.PARTIAL, REPLAY_UNFINISHED)
    assert sorted(event.key or "" for event in events) == sorted(KEYS[:KILLED_AMONG])
    assert job.state is JobState.COMPLETE
    assert listings.hits == Counter()


async def test_an_invalid_item_stays_with_its_new_reason(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock, limit=SOME) as (store, report):
        result = await replayed(store, report, "HalfMended")
        job = await store.jobs.get(report.job)
        (group,) = await store.quarantine.groups(report.job)

        rest = await replayed(store, report, "Fixed")
        ended = await store.jobs.get(report.job)

    assert result.ends == {"stored": SOME - EACH, "quarantined": EACH}
    assert (result.exit_code, len(result.still)) == (3, EACH)
    assert job.state is JobState.PARTIAL
    assert re.findall(r"\d+", job.reason or "") == [str(EACH), str(SOME), str(SOME)]
    assert "quarantined" in (job.reason or "")
    assert (group.reason.partition(":")[0], group.count) == ("title", EACH)
    assert (rest.ends, ended.state) == ({"stored": EACH}, JobState.COMPLETE)


async def test_a_dry_run_predicts_the_result_and_changes_nothing(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock, limit=SOME) as (store, report):
        result = await replayed(store, report, "HalfMended", dry_run=True)
        after = await counted(store.queue, report.job)
        job = await store.jobs.get(report.job)

    assert (result.ends, result.is_dry) == ({"quarantined": EACH, "stored": SOME - EACH}, True)
    assert (after, job.state) == ({"quarantined": SOME}, JobState.FAILED)


async def test_only_the_items_that_are_named_are_replayed(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock, limit=10) as (store, report):
        result = await replayed(store, report, "Fixed", keys=KEYS[2:4])
        after = await counted(store.queue, report.job)
        job = await store.jobs.get(report.job)

    assert result.ends == {"stored": 2}
    assert (after, job.state) == ({"stored": 2, "quarantined": 8}, JobState.PARTIAL)


async def test_a_key_that_is_not_in_quarantine_is_refused_before_anything_is_done(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock, limit=10) as (store, report):
        with pytest.raises(BadOption) as refused:
            await replayed(store, report, "Fixed", keys=[KEYS[0], "x"])
        after = await counted(store.queue, report.job)

    assert refused.value.option == "KEY"
    assert "'x'" in refused.value.problem
    assert after == {"quarantined": 10}


async def test_another_source_is_refused(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock, limit=1) as (store, report):
        with pytest.raises(BadOption) as refused:
            await replayed(store, report, "Stranger")

    assert refused.value.option == "--source"
    assert "'listings'" in refused.value.problem
    assert "'stranger'" in refused.value.problem


async def test_an_unstorable_record_keeps_its_material(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock, "Silent", limit=SOME) as (store, report):
        groups = await store.quarantine.groups(report.job)
        pair = await store.quarantine.get(report.job, "18-0")
        large = await store.quarantine.get(report.job, "19-0")

        result = await replayed(store, report, "Fixed")

        job = await store.jobs.get(report.job)

    assert report.as_dict()["quarantined"] == 2 * EACH
    assert {group.kind for group in groups} == {"invalid"}
    assert unpack_material(pair.raw).results["page"]["title"] == "half a pair: \ud800"
    assert unpack_material(large.raw).results["page"]["area"] == 2**70
    assert (result.ends, job.state) == ({"stored": 2 * EACH}, JobState.COMPLETE)


async def test_an_unstorable_record_does_not_affect_others(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock, limit=SOME) as (store, report):
        result = await replayed(store, report, "Silent")
        pair = await store.quarantine.get(report.job, "18-0")

    assert result.ends == {"stored": SOME - 2 * EACH, "quarantined": 2 * EACH}
    assert unpack_material(pair.raw).results["page"]["title"] == "half a pair: \ud800"


async def test_a_bug_after_the_last_request_is_fixed_without_a_request(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock, "Buggy", limit=SOME) as (store, report):
        groups = await store.quarantine.groups(report.job)

        await replayed(store, report, "Fixed")

        job = await store.jobs.get(report.job)

    assert report.as_dict()["failed"] == 2 * EACH
    assert {group.kind for group in groups} == {"bug"}
    assert (job.state, listings.hits) == (JobState.COMPLETE, Counter())


async def test_a_replay_does_not_replace_the_record_of_a_later_job(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock, limit=2) as (store, report):
        await clock.sleep(60)
        async with ran(listings, tmp_path, clock, "Fixed", limit=1) as (_, later):
            pass

        result = await replayed(store, report, "Fixed")

        row = await store.records.get(KEYS[0])
        items = await store.queue.finished(report.job)

    assert result.ends == {"skipped": 1, "stored": 1}
    assert (row["job_id"], row["version"]) == (later.job, 1)
    assert [item["state"] for item in items] == ["skipped", "stored"]
    assert [bool(item["reason"]) for item in items] == [True, False]


async def test_a_second_replay_does_not_replace_the_record_of_a_later_job(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock, limit=1) as (store, report):
        await clock.sleep(60)
        async with ran(listings, tmp_path, clock, "Fixed", limit=1) as (_, later):
            pass
        await clock.sleep(60)
        strict = await replayed(store, report, "Strict", clock=clock)

        result = await replayed(store, report, "Fixed", clock=clock)

        row = await store.records.get(KEYS[0])

    assert (strict.ends, result.ends) == ({"quarantined": 1}, {"skipped": 1})
    assert (row["job_id"], row["version"]) == (later.job, 1)


async def test_a_dry_run_considers_records_of_later_jobs(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock, limit=2) as (store, report):
        await clock.sleep(60)
        async with ran(listings, tmp_path, clock, "Fixed", limit=1):
            pass

        foreseen = await replayed(store, report, "Fixed", dry_run=True)
        result = await replayed(store, report, "Fixed")

    assert foreseen.ends == result.ends == {"skipped": 1, "stored": 1}


async def test_a_run_after_a_replay_that_was_killed_is_one_of_its_own(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock, limit=KILLED_AMONG) as (store, report):
        with pytest.raises(Killed):
            await replayed(store, report, "Mortal")

    async with ran(listings, tmp_path, clock, limit=KILLED_AMONG) as (store, again):
        requests = again.as_dict()["requests"]

    assert again.job != report.job
    assert requests >= KILLED_AMONG


async def test_a_replay_killed_after_the_last_item_only_ends_the_job(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock, limit=3) as (store, report):
        job = await store.jobs.get(report.job)
        record = Outcome(OutcomeAction.SKIP, reason="not wanted")
        held = await store.quarantine.held(job.id)
        await store.quarantine.complete([ReprocessedItem(one, record) for one in held], clock.now())

        result = await replayed(store, report, "Fixed")
        ended = await store.jobs.get(report.job)

    assert (result.items, result.exit_code) == (0, 0)
    assert (ended.state, REPLAY_UNFINISHED in (ended.reason or "")) == (JobState.COMPLETE, False)


async def test_a_job_that_is_running_is_not_replayed(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock, limit=3) as (store, report):
        await store.failures.requeue(FailureQuery(report.job, key=KEYS[0]), clock.now())
        await store.jobs.start(report.job, clock.now())

        with pytest.raises(BadOption, match="running") as refused:
            await replayed(store, report, "Fixed")

        after = await counted(store.queue, report.job)
        job = await store.jobs.get(report.job)

    assert refused.value.option == "JOB"
    assert report.job in refused.value.problem
    assert (after, job.state) == ({"queued": 1, "quarantined": 2}, JobState.RUNNING)


async def test_an_item_that_is_queued_during_a_replay_is_left_out(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock, limit=2) as (store, report):
        late = _Late(store, await store.quarantine.held(report.job))
        job = await store.jobs.get(report.job)
        await store.failures.requeue(FailureQuery(report.job, key=KEYS[0]), clock.now())

        fixed = source_now(job, "tests.analysis.broken_listings:Fixed")
        result = await replay(late, job, fixed, clock)  # type: ignore[arg-type]  # as above

    assert list(result.left) == [KEYS[0]]
    assert (result.ends, result.state, result.exit_code) == ({"stored": 1}, JobState.PAUSED, 4)


async def test_concurrent_replays_store_each_item_once(
    listings: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    async with ran(listings, tmp_path, clock, limit=5) as (store, report):
        seen = await store.quarantine.held(report.job)
        await replayed(store, report, "Fixed")
        fixed = source_now(await store.jobs.get(report.job), "tests.analysis.broken_listings:Fixed")
        late = await replay(_Late(store, seen), await store.jobs.get(report.job), fixed, clock)  # type: ignore[arg-type]  # a store with a memory
        events = await store.events.list(report.job, types=["item.stored"])

    assert (late.ends, late.left, late.others, late.exit_code) == ({}, {}, 5, 0)
    assert len(events) == 5


class _Late:
    """A store that is read before another replay writes."""

    def __init__(self, store: Store, seen: list[Any]) -> None:
        self.jobs, self.events, self.queue = store.jobs, store.events, store.queue
        self.profiles = store.profiles
        self.quarantine = self
        self._store, self._seen = store, seen

    async def held(self, _job: str, **_which: Any) -> list[Any]:
        seen, self._seen = self._seen, []
        return seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store.quarantine, name)


LISTED = """
manifest: api
name: goods
base_url: {site}
endpoints:
  goods: {{path: /goods, key: id, fields: {{id: id, price: {price}}}}}
"""
PAGES = """
manifest: html
name: goods
start: {site}/good
fields: {{title: {title}}}
"""


async def fix_and_replay(
    manifest: Path, broken: str, fixed: str, site: ScriptedSite, clock: VirtualClock
) -> tuple[Replay, int]:
    """Run a manifest, fix it and replay; return the result and the number of records."""
    manifest.write_text(broken)
    home = manifest.parent / "home"
    async with Orchestrator(str(manifest), home=home, clock=clock, rate="unlimited") as longline:
        report = await longline.execute(str(manifest))
        site.hits.clear()
        manifest.write_text(fixed)
        job = await longline.store.jobs.get(report.job)
        result = await replay(longline.store, job, source_now(job, None), clock)
        return result, await longline.store.records.count()


async def test_data_from_discovery_is_read_again_without_a_request(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    site.says("/goods", json.dumps([{"id": 1, "price": 5}, {"id": 2}]))
    broken = LISTED.format(site=site.url, price="{path: price, required: true}")
    fixed = LISTED.format(site=site.url, price="price")

    result, records = await fix_and_replay(tmp_path / "goods.yaml", broken, fixed, site, clock)

    assert (result.ends, result.state.value, records) == ({"stored": 1}, "complete", 2)
    assert site.hits == Counter()


async def test_an_item_that_needs_a_request_is_left_out(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    site.says("/good", "<p>no title</p>")
    broken = PAGES.format(site=site.url, title="{css: h1, required: true}")
    fixed = PAGES.format(site=site.url, title="h1")

    result, records = await fix_and_replay(tmp_path / "goods.yaml", broken, fixed, site, clock)

    assert (result.ends, records, result.exit_code) == ({}, 0, 1)
    assert list(result.left) == ["/good"]
    assert (result.state.value, site.hits) == ("failed", Counter())
