"""What people change about schedules: add one, or run one now."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from longline.core.clock import utc_datetime
from longline.core.errors import BadOption, ConfigError
from longline.scheduling.definitions import DefinitionFiles
from longline.scheduling.planning import next_start
from longline.scheduling.schedule import Schedule, make_schedule
from longline.scheduling.scheduler import launch_of
from longline.storage.scheduling.schedules import StoredOccurrence, StoredSchedule
from longline.storage.store import Store


async def add_schedule(
    store: Store, files: DefinitionFiles, schedule: Schedule, now: float
) -> StoredSchedule:
    """Add a schedule, or change the one of this name that was added so.

    Raises:
        ConfigError: its target does not exist or cannot run, it is never due again, a file defines
            its name, or schedules would wait for each other.
    """
    is_over = next_start(schedule, utc_datetime(now)) is None
    if schedule.trigger is not None and schedule.enabled and is_over:
        option = "end" if schedule.at is None else "at"
        raise BadOption(f"--{option}", "this time is over, so the schedule would never run")
    await asyncio.to_thread(files.target_of, schedule)
    others = [one for one in await store.schedules.list() if one.name != schedule.name]
    together = [*(make_schedule(one.definition) for one in others), schedule]
    await asyncio.to_thread(files.check_cycles, together)
    return await store.schedules.save(schedule.name, schedule.stated(), now)


async def missing_trigger(store: Store, files: DefinitionFiles, schedule: Schedule) -> str | None:
    """Return the source or flow that is to trigger a schedule and is unknown; None: it is known.

    It may be unknown because it has never run and is not in a folder of the settings.
    """
    after, on = schedule.after, schedule.on
    flow = None if after is None else after.flow
    source = after.source if after is not None else on.source if on is not None else None
    kind, name = ("source", source) if flow is None else ("flow", flow)
    if name is None or files.knows(kind, name):
        return None
    has_run = (
        await store.jobs.list(source=name, limit=1)
        if kind == "source"
        else await store.flows.list(flow=name, limit=1)
    )
    if has_run:
        return None
    label = f"{kind} {name}"
    for one in await store.schedules.list():
        with suppress(ConfigError):  # it runs nothing now
            if label in files.target_of(make_schedule(one.definition)).runs:
                return None
    return label


async def run_now(store: Store, files: DefinitionFiles, name: str, now: float) -> StoredOccurrence:
    """Queue a run of a schedule in addition to its times, even if it is paused.

    Raises:
        ConfigError: there is no such schedule, or its target cannot run.
    """
    schedule = make_schedule((await store.schedules.get(name)).definition)
    target = files.target_of(schedule)
    (started,) = await store.schedules.start(
        name, now, lambda nominal: launch_of(schedule, target, nominal, now)
    )
    return started
