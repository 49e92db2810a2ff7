"""Launches: placed once, leased within limits, reclaimed, and given up after three deaths."""

from __future__ import annotations

from typing import Any

from longline.core.model import JobState
from longline.storage.jobs import NewJob
from longline.storage.scheduling.launches import Launch, LaunchLimits, LaunchState, NewLaunch
from longline.storage.store import Store
from tests.virtual import EPOCH


def launch(name: str = "shop", **values: Any) -> NewLaunch:
    return NewLaunch("source", name, {"source": name}, "command", EPOCH, **values)


async def leased(store: Store, owner: str = "me", **limits: Any) -> list[Launch]:
    return await store.launches.lease(owner, EPOCH, EPOCH + 20, LaunchLimits(**limits))


async def test_a_launch_with_a_key_is_placed_once(store: Store) -> None:
    first = await store.launches.place(launch(key="daily@1"))
    again = await store.launches.place(launch(key="daily@1"))
    others = [await store.launches.place(launch()) for _ in range(2)]

    assert first == again
    assert len({first, *others}) == 3


async def test_launches_are_leased_by_priority_within_the_limits(store: Store) -> None:
    names = ["a", "a", "b", "c", "d"]
    ids = [await store.launches.place(launch(name)) for name in names]
    urgent = await store.launches.place(launch("e", priority=5))

    found = await leased(store, total=4, by_name={"a": 2})
    more = await leased(store, "other", total=4)

    assert [one.id for one in found] == [urgent, ids[0], ids[1], ids[2]]
    assert more == []


async def test_a_launch_is_not_leased_before_it_is_due(store: Store) -> None:
    await store.launches.place(launch(due_at=EPOCH + 1))

    assert await leased(store) == []


async def test_launches_of_a_dead_executor_are_queued_again(store: Store) -> None:
    await store.launches.place(launch())
    (one,) = await leased(store, "dead")

    (reclaimed,) = await store.launches.reclaim(EPOCH, ["dead"])
    late = await store.launches.finish(one.id, "dead", EPOCH, result="complete", reason=None)

    assert (reclaimed.state, reclaimed.deaths) == (LaunchState.QUEUED, 0)
    assert not late


async def test_a_launch_is_given_up_after_the_third_death(store: Store) -> None:
    await store.launches.place(launch())
    given_up = []
    for _ in range(3):
        (one,) = await leased(store)
        given_up.append(
            await store.launches.count_death(one.id, "me", EPOCH, due_at=EPOCH, how="signal 9")
        )

    (ended,) = await store.launches.list()
    assert given_up == [False, False, True]
    assert (ended.state, ended.result, ended.deaths) == (LaunchState.ENDED, "failed", 3)


async def test_only_a_queued_launch_is_cancelled(store: Store) -> None:
    first, second = [await store.launches.place(launch(name)) for name in ("a", "b")]
    (running,) = await leased(store, total=1)

    results = {one: await store.launches.cancel(one, EPOCH, "test") for one in (first, second)}

    assert (running.id, results) == (first, {first: False, second: True})


async def test_a_launch_cancelled_at_its_start_is_not_leased_again(store: Store) -> None:
    number = await store.launches.place(launch())
    await leased(store)
    await store.launches.cancel(number, EPOCH, "not today")
    await store.launches.reclaim(EPOCH, ["me"])

    assert await leased(store) == []
    found = await store.launches.get(number)
    assert found is not None
    assert (found.state, found.result, found.reason) == ("ended", "cancelled", "not today")


async def test_a_launch_cancelled_at_its_start_leaves_the_job_of_another(store: Store) -> None:
    cancelled, other = [await store.launches.place(launch()) for _ in range(2)]
    await leased(store, per_name=2)
    job = await store.jobs.create(NewJob("shop", {"source": "shop"}, {}, EPOCH))
    await store.launches.attach(other, "me", job.id, EPOCH)
    await store.launches.cancel(cancelled, EPOCH, "not today")

    is_attached = await store.launches.attach(cancelled, "me", job.id, EPOCH)

    assert not is_attached
    assert (await store.jobs.get(job.id)).state is JobState.PENDING
