"""Jobs that are stopped on the way, the same on every engine and database: by death or by hand."""

from __future__ import annotations

import asyncio

import pytest

from longline.core.model import JobState
from longline.storage.queue.queue import PAUSED_BY_USER
from tests.conformance.grounds import AT_ONCE, EngineOn

pytestmark = pytest.mark.real_time

_MANY = 200


async def test_whoever_is_killed_in_the_middle_every_item_is_stored_once(
    engine_on: EngineOn,
) -> None:
    engine_on.site.has(40)
    engine_on.options["count"] = 40
    engine_on.site.hold_after(12)
    job = await engine_on.begin_elsewhere()
    await engine_on.is_at_the_gate(AT_ONCE)

    await engine_on.kill_whoever_works(job.id)
    engine_on.site.gate.set()
    report = await engine_on.run()

    finished = await engine_on.finished(job.id)
    asked = engine_on.site.asked()
    assert (report.job, report.state) == (job.id, JobState.COMPLETE)
    assert {row["state"] for row in finished.values()} == {"stored"}
    assert len(finished) == 40
    assert max(row["tries"] for row in finished.values()) == 2
    assert {key for key, row in finished.items() if asked[key] > row["tries"]} == set()
    assert await engine_on.contradictions(job.id) == []


async def test_what_was_committed_before_an_interrupt_is_not_asked_for_again(
    engine_on: EngineOn,
) -> None:
    engine_on.site.has(40)
    engine_on.options["count"] = 40
    engine_on.site.hold_after(12)
    running = asyncio.create_task(engine_on.run())
    await engine_on.is_at_the_gate(AT_ONCE)

    engine_on.orchestrator.interrupt()
    await engine_on.begins_no_more()
    engine_on.site.gate.set()
    paused = await running
    committed = await engine_on.finished(paused.job)
    report = await engine_on.resume(paused.job)

    assert (paused.state, paused.exit_code) == (JobState.PAUSED, 130)
    assert 12 <= len(committed) < 40
    assert (report.job, report.state) == (paused.job, JobState.COMPLETE)
    assert engine_on.site.asked() == {f"item/{number}": 1 for number in range(40)}
    assert await engine_on.contradictions(report.job) == []


async def test_a_job_that_is_paused_from_elsewhere_stops_and_goes_on_when_resumed(
    engine_on: EngineOn,
) -> None:
    engine_on.site.has(_MANY)
    engine_on.options["count"] = _MANY
    engine_on.site.slowness = 0.2
    running = asyncio.create_task(engine_on.run())
    job = await engine_on.has_begun(12)

    await engine_on.orchestrator.pause(job.id)
    paused = await running
    await engine_on.is_let_go(job.id)
    engine_on.site.slowness = 0.0
    committed = await engine_on.finished(job.id)
    report = await engine_on.resume(job.id)

    assert (paused.state, paused.exit_code) == (JobState.PAUSED, 4)
    assert paused.reason == PAUSED_BY_USER
    assert len(committed) < _MANY
    assert report.state is JobState.COMPLETE
    assert engine_on.site.asked() == {f"item/{number}": 1 for number in range(_MANY)}
    assert await engine_on.contradictions(report.job) == []


async def test_after_a_cancel_nothing_more_is_begun_and_other_jobs_go_on(
    engine_on: EngineOn,
) -> None:
    engine_on.site.has(_MANY)
    engine_on.site.has(5, area="other")
    engine_on.options["count"] = _MANY
    engine_on.site.slowness = 0.2
    running = asyncio.create_task(engine_on.run())
    job = await engine_on.has_begun(12)

    await engine_on.orchestrator.cancel(job.id)
    cancelled = await running
    await engine_on.is_let_go(job.id)
    asked = engine_on.site.asked()
    other = await engine_on.run(options={"area": "other", "count": 5})

    assert (cancelled.state, cancelled.exit_code) == (JobState.CANCELLED, 4)
    assert len(asked) < _MANY
    assert other.state is JobState.COMPLETE
    assert engine_on.site.asked() == asked


async def test_a_site_that_is_down_parks_its_items_and_fails_none(engine_on: EngineOn) -> None:
    engine_on.site.is_down = True
    running = asyncio.create_task(engine_on.run(concurrency=10))  # as many as open the breaker
    job = await engine_on.has_begun(10)
    await engine_on.rests(job.id)

    engine_on.orchestrator.interrupt()
    paused = await running
    engine_on.site.is_down = False
    await engine_on.close_breaker()
    report = await engine_on.resume(job.id)

    assert (paused.state, paused.progress.remaining) == (JobState.PAUSED, 20)
    assert report.state is JobState.COMPLETE
    assert len(await engine_on.finished(job.id)) == 20
    assert await engine_on.contradictions(job.id) == []


async def test_a_site_that_bans_us_pauses_the_job_until_its_breaker_is_closed(
    engine_on: EngineOn,
) -> None:
    engine_on.site.bans()

    paused = await engine_on.run()
    engine_on.site.has(20)
    await engine_on.close_breaker()
    report = await engine_on.resume(paused.job)

    assert (paused.state, paused.exit_code) == (JobState.PAUSED, 4)
    data = (engine_on.domain, "403", "'You have been blocked'")
    assert [datum for datum in data if datum not in (paused.reason or "")] == []
    assert paused.progress.remaining == 20
    assert report.state is JobState.COMPLETE
    assert len(await engine_on.finished(report.job)) == 20
    assert await engine_on.contradictions(report.job) == []
