"""Schedules: defined by files and commands, decided once, paused after failures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from longline.core.errors import StoreError
from longline.core.model import JobState
from longline.storage.events.events import EventFilter
from longline.storage.scheduling.launches import LaunchLimits, NewLaunch
from longline.storage.scheduling.schedules import (
    DecidedOccurrence,
    ScheduleOfFile,
    ScheduleState,
    ScheduleTaken,
    UnknownSchedule,
    Wanted,
)
from longline.storage.store import Store, open_store
from tests.storage.given import new_job
from tests.virtual import EPOCH

DAILY = {"name": "daily", "source": "shop", "cron": "0 3 * * *"}
FILE = "/etc/shop.yaml"


def launch(name: str, nominal: float) -> NewLaunch:
    origin = f"schedule/{name}"
    return NewLaunch("source", "shop", {}, origin, EPOCH, key=f"{origin}@{nominal}")


def fired(nominal: float, name: str = "daily") -> DecidedOccurrence:
    return DecidedOccurrence(nominal, "scheduled", "fired", launch=launch(name, nominal))


async def decide(store: Store, *decisions: DecidedOccurrence, name: str = "daily") -> None:
    await store.schedules.decide({name: Wanted()}, lambda _: decisions, EPOCH + 9)


async def types(store: Store) -> list[str]:
    found, _ = await store.events.read(0, EventFilter(("schedule.*", "occurrence.*", "source.*")))
    return [event.type for event in found]


async def end_launch(store: Store, result: str) -> None:
    (one,) = await store.launches.lease("me", EPOCH, EPOCH + 20, LaunchLimits())
    await store.launches.finish(one.id, "me", EPOCH, result=result, reason=None)


async def test_a_schedule_is_added_changed_and_removed(store: Store) -> None:
    await store.schedules.save("daily", DAILY, EPOCH)
    await store.schedules.save("daily", DAILY, EPOCH + 1)
    changed = await store.schedules.save("daily", {**DAILY, "priority": 1}, EPOCH + 2)
    await store.schedules.remove("daily", EPOCH + 3)

    assert (changed.definition["priority"], changed.decided_until) == (1, EPOCH)
    assert await store.schedules.list() == []
    assert await types(store) == ["schedule.added", "schedule.changed", "schedule.removed"]
    with pytest.raises(UnknownSchedule):
        await store.schedules.get("daily")


async def test_changed_times_count_from_the_change_on(store: Store) -> None:
    await store.schedules.save("daily", DAILY, EPOCH)

    changed = await store.schedules.save("daily", {**DAILY, "cron": "* * * * *"}, EPOCH + 500)

    assert changed.decided_until == EPOCH + 500


async def test_a_file_removes_only_its_own_schedules(store: Store) -> None:
    await store.schedules.save("manual", {**DAILY, "name": "manual"}, EPOCH)
    await store.schedules.sync("/etc/other.yaml", {"other": {"name": "other"}}, EPOCH)
    await store.schedules.sync(FILE, {"daily": DAILY, "late": {"name": "late"}}, EPOCH)

    await store.schedules.sync(FILE, {"daily": DAILY}, EPOCH + 1)

    assert [one.name for one in await store.schedules.list()] == ["daily", "manual", "other"]
    assert await store.schedules.origins() == ["/etc/other.yaml", FILE]


async def test_the_name_of_another_origin_is_refused_whole(store: Store) -> None:
    await store.schedules.save("daily", DAILY, EPOCH)

    with pytest.raises(ScheduleTaken):
        await store.schedules.sync(FILE, {"new": {"name": "new"}, "daily": DAILY}, EPOCH)

    assert [one.name for one in await store.schedules.list()] == ["daily"]


async def test_a_command_cannot_change_the_schedule_of_a_file(store: Store) -> None:
    await store.schedules.sync(FILE, {"daily": DAILY}, EPOCH)

    with pytest.raises(ScheduleOfFile):
        await store.schedules.remove("daily", EPOCH)
    with pytest.raises(ScheduleOfFile):
        await store.schedules.save("daily", DAILY, EPOCH)


async def test_a_decision_stores_fate_launch_and_event_together(store: Store) -> None:
    await store.schedules.save("daily", DAILY, EPOCH)

    await decide(store, fired(EPOCH + 1), DecidedOccurrence(EPOCH + 2, "scheduled", "missed", "x"))

    missed, first = await store.schedules.history("daily")
    (placed,) = await store.launches.list()
    assert (first.fate, first.launch_id, first.state) == ("fired", placed.id, "queued")
    assert (missed.fate, missed.reason, missed.launch_id) == ("missed", "x", None)
    assert (await store.schedules.get("daily")).decided_until == EPOCH + 2
    assert await types(store) == ["schedule.added", "occurrence.fired", "occurrence.missed"]


async def test_a_second_row_of_an_occurrence_undoes_the_decision(store: Store) -> None:
    await store.schedules.save("daily", DAILY, EPOCH)
    await decide(store, fired(EPOCH + 1))

    with pytest.raises(StoreError):
        await decide(store, fired(EPOCH + 2), fired(EPOCH + 1))

    assert [one.nominal_at for one in await store.schedules.history("daily")] == [EPOCH + 1]
    assert len(await store.launches.list()) == 1


async def test_two_processes_decide_an_occurrence_once(store: Store, address: str) -> None:
    await store.schedules.save("daily", DAILY, EPOCH)

    def plan(state: ScheduleState) -> Iterable[DecidedOccurrence]:
        is_new = state.row.decided_until < EPOCH + 1
        return [fired(EPOCH + 1)] if is_new else []

    with open_store(address) as other:
        for _ in range(5):
            await asyncio.gather(
                *(one.schedules.decide({"daily": Wanted()}, plan, EPOCH) for one in (store, other))
            )

    assert len(await store.launches.list()) == 1


async def test_a_queued_occurrence_is_fired_later(store: Store) -> None:
    await store.schedules.save("daily", DAILY, EPOCH)
    queued = DecidedOccurrence(EPOCH + 2, "scheduled", "queued", "running")
    await decide(store, fired(EPOCH + 1), queued)
    before = await store.schedules.poll()
    await end_launch(store, "complete")

    after = await store.schedules.poll()
    await decide(store, fired(EPOCH + 2))

    second, _ = await store.schedules.history("daily")
    assert (before.released, after.released) == ([], ["daily"])
    assert (second.fate, second.reason) == ("fired", None)


async def test_a_decision_sees_what_runs_and_is_queued(store: Store) -> None:
    await store.schedules.save("daily", DAILY, EPOCH)
    await decide(
        store, fired(EPOCH + 1), DecidedOccurrence(EPOCH + 2, "scheduled", "queued", "running")
    )
    (placed,) = await store.launches.list()
    seen: list[ScheduleState] = []

    def look(state: ScheduleState) -> Iterable[DecidedOccurrence]:
        seen.append(state)
        return ()

    await store.schedules.decide({"daily": Wanted((EPOCH + 1, EPOCH + 5))}, look, EPOCH)

    (state,) = seen
    assert list(state.queued) == [EPOCH + 2]
    assert [one.launch for one in state.running] == [placed.id]
    assert state.occurrences == {EPOCH + 1: "fired"}


async def test_a_cancelled_run_makes_room(store: Store) -> None:
    await store.schedules.save("daily", DAILY, EPOCH)
    await decide(store, fired(EPOCH + 1))
    (running,) = await store.launches.list()

    await decide(store, replace(fired(EPOCH + 2), cancels=[running.id]))

    second, first = await store.launches.list()
    assert (first.result, second.state) == ("cancelled", "queued")


async def test_a_job_that_a_cancelled_run_is_about_to_start_is_cancelled(store: Store) -> None:
    await store.schedules.save("daily", DAILY, EPOCH)
    await decide(store, fired(EPOCH + 1))
    (one,) = await store.launches.lease("me", EPOCH, EPOCH + 20, LaunchLimits())

    await decide(store, DecidedOccurrence(EPOCH + 2, "scheduled", "fired", cancels=[one.id]))
    job = await store.jobs.create(new_job())
    is_mine = await store.launches.attach(one.id, "me", job.id, EPOCH + 3)

    found = await store.jobs.get(job.id)
    assert (is_mine, found.state) == (True, JobState.CANCELLED)


async def test_the_job_of_a_cancelled_run_is_cancelled(store: Store) -> None:
    await store.schedules.save("daily", DAILY, EPOCH)
    await decide(store, fired(EPOCH + 1))
    job = await store.jobs.create(new_job())
    (one,) = await store.launches.lease("me", EPOCH, EPOCH + 20, LaunchLimits())
    await store.launches.attach(one.id, "me", job.id, EPOCH)

    await decide(store, DecidedOccurrence(EPOCH + 2, "scheduled", "fired", cancels=[one.id]))

    assert (await store.jobs.get(job.id)).state == "cancelled"


async def test_failures_in_a_row_pause_a_schedule(store: Store) -> None:
    await store.schedules.save("daily", {**DAILY, "pause_after_failures": 2}, EPOCH)
    states: list[Any] = []
    for number, result in enumerate(("failed", "partial", "failed", "cancelled", "failed")):
        await decide(store, fired(EPOCH + number + 1))
        await end_launch(store, result)
        row = await store.schedules.get("daily")
        states.append((row.failures, row.paused_at is not None))
    resumed = await store.schedules.resume("daily", EPOCH)

    assert states == [(1, False), (0, False), (1, False), (1, False), (2, True)]
    assert (resumed.failures, resumed.paused_at) == (0, None)
    assert (await types(store))[-2:] == ["schedule.paused", "schedule.resumed"]


async def test_a_manual_run_does_not_take_the_place_of_a_scheduled_one(store: Store) -> None:
    await store.schedules.save("daily", DAILY, EPOCH)

    runs = [
        await store.schedules.start("daily", EPOCH + 1, lambda at: launch("daily", at))
        for _ in range(2)
    ]
    await decide(store, fired(EPOCH + 1))

    assert len({one[0].nominal_at for one in runs} | {EPOCH + 1}) == 3
    assert [one[0].kind for one in runs] == ["manual", "manual"]


async def test_a_backfill_starts_only_what_was_not_fired(store: Store) -> None:
    await store.schedules.save("daily", DAILY, EPOCH)
    await decide(store, fired(EPOCH + 1), DecidedOccurrence(EPOCH + 2, "scheduled", "missed", "x"))

    started = await store.schedules.start(
        "daily", EPOCH + 9, lambda at: launch("daily", at), [EPOCH - 5, EPOCH + 1, EPOCH + 2]
    )

    assert [one.nominal_at for one in started] == [EPOCH + 2, EPOCH - 5]
    assert [one.kind for one in await store.schedules.history("daily")] == [
        "backfill",
        "scheduled",
        "backfill",
    ]
    assert len(await store.launches.list()) == 3


async def test_removing_a_schedule_decides_what_is_queued(store: Store) -> None:
    await store.schedules.save("daily", DAILY, EPOCH)
    await decide(store, DecidedOccurrence(EPOCH + 2, "scheduled", "queued", "running"))

    await store.schedules.remove("daily", EPOCH + 3)

    (one,) = await store.schedules.history("daily")
    assert (one.fate, one.reason) == ("skipped", "removed")


async def test_late_data_is_an_event_once_until_it_is_fresh_again(store: Store) -> None:
    hour = 3600.0
    judge = store.schedules.judge_freshness
    results = [await judge("shop", hour, EPOCH + number * hour) for number in (0, 1, 2, 3)]
    job = await store.jobs.create(new_job())
    await store.jobs.start(job.id, EPOCH)
    await store.jobs.fail(job.id, EPOCH + 3 * hour, "x")
    failed = await judge("shop", hour, EPOCH + 3 * hour)

    assert results == [EPOCH + hour, EPOCH + hour, None, None]
    assert failed is None
    assert (await types(store)).count("source.late") == 1
