"""Launches as people see them: cancel one, and the result of several together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from longline.core.errors import NotFoundError
from longline.core.model import JobState
from longline.storage.scheduling.flows import FlowNotChangeable
from longline.storage.scheduling.launches import SOURCE, Launch, LaunchState
from longline.storage.store import Store


class UnknownLaunch(NotFoundError):
    """There is no launch with this id."""

    launch: int
    message = "there is no launch {launch}"
    hint = "`longline launches list` lists them."


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The result of all launches with the same origin.

    `state` is that of `group_state`. `results` counts the launches by their results, or by their
    states until they have ended; `items` counts the items of their jobs by their states.
    """

    origin: str
    state: str
    results: Mapping[str, int]
    items: Mapping[str, int]


async def group_result(store: Store, origin: str) -> GroupResult:
    """Return the result of the launches with this origin."""
    found = await store.launches.list(origin=origin, limit=None)
    items: Counter[str] = Counter()
    # Several launches may have continued the same job.
    for job in {one.target for one in found if one.kind == SOURCE and one.target is not None}:
        counts = await store.queue.counts(job)
        items.update({state.value: count for state, count in counts.items() if count})
    results = Counter(result_of(one) for one in found)
    return GroupResult(origin, group_state(found), dict(results), dict(items))


def group_state(launches: Sequence[Launch]) -> str:
    """Return one state for several launches.

    It is `running` while one is not at its end, and the state that all of them have in common. With
    different states it is `partial`, since some of the work is done.
    """
    results = {result_of(one) for one in launches}
    if not results:
        return JobState.COMPLETE
    if any(one.state is not LaunchState.ENDED for one in launches):
        return LaunchState.QUEUED if results == {LaunchState.QUEUED} else LaunchState.RUNNING
    return results.pop() if len(results) == 1 else JobState.PARTIAL


def result_of(launch: Launch) -> str:
    """Return the result of a launch, or its state until it has ended."""
    return launch.result or launch.state.value


async def cancel_launch(store: Store, launch: int, reason: str) -> Launch:
    """Cancel a launch: it is not started, or its job or flow is cancelled, which ends it.

    A launch that has ended is returned unchanged.

    Raises:
        UnknownLaunch: there is no such launch.
    """
    at = await store.now()
    if not await store.launches.cancel(launch, at, reason):
        found = await find_launch(store, launch)
        is_running = found.state is LaunchState.RUNNING
        if is_running and found.target is not None and found.kind == SOURCE:
            await store.jobs.cancel(found.target, at, reason)
        elif is_running and found.target is not None:
            with suppress(FlowNotChangeable):  # it has just ended, or is being undone
                await store.flows.cancel(found.target, reason, at)
    return await find_launch(store, launch)


async def find_launch(store: Store, launch: int) -> Launch:
    """Return a launch by its id.

    Raises:
        UnknownLaunch: there is no such launch.
    """
    found = await store.launches.get(launch)
    if found is None:
        raise UnknownLaunch(launch)
    return found
