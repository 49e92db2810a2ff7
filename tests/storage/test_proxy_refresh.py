"""The refresh of proxies as tasks: each step is done once, and survives its process."""

from __future__ import annotations

import pytest

from longline.storage.events.events import EventFilter
from longline.storage.proxy_refresh import PoolSummary, Refresh, Step
from longline.storage.queue.tasks import Task, TaskKind
from longline.storage.store import Store

CANDIDATES = [{"host": f"p{number}"} for number in range(3)]
CHUNKS = [CANDIDATES[:2], CANDIDATES[2:]]


async def claim(store: Store, step: Step, owner: str = "me", dead: tuple[str, ...] = ()) -> Task:
    """Claim the first task of a step."""
    ready = await store.tasks.ready(1e9)
    task = next(one for one in ready if one.what["step"] == step)
    killed = [one for one in dead if one.startswith("killed")]
    claimed = await store.tasks.claim(task, owner, 10, 40, dead=dead, killed=killed)
    assert claimed is not None
    return claimed


async def collected(store: Store) -> Refresh:
    """Return a refresh whose two chunks wait."""
    await store.proxy_refreshes.begin(10, "manual", {"timeout": 5})
    task = await claim(store, Step.COLLECT)
    await store.proxy_refreshes.complete_collection(task, 11, CHUNKS, {"list": "it is empty"})
    return await last(store)


async def last(store: Store) -> Refresh:
    """Return the last refresh, which there is."""
    found = await store.proxy_refreshes.last()
    assert found is not None
    return found


async def steps(store: Store) -> list[str]:
    """Return the steps of the tasks that wait."""
    return [str(one.what["step"]) for one in await store.tasks.ready(1e9)]


async def events(store: Store, name: str) -> list[dict[str, object]]:
    """Return the data of the events of a type."""
    return [dict(one.data) for one in await store.events.last(EventFilter((name,)), limit=9)]


async def test_a_refresh_goes_through_its_steps(store: Store) -> None:
    refreshes = store.proxy_refreshes
    begun = await collected(store)
    first = await claim(store, Step.CHECK)
    chunk = await refreshes.chunk(first)
    await refreshes.complete_chunk(first, 12, [{"alive": 1}], alive=1)
    middle = await last(store)
    await refreshes.complete_chunk(await claim(store, Step.CHECK), 13, [], alive=0)
    results = await refreshes.results(begun.number)
    merge = await claim(store, Step.MERGE)
    pool = PoolSummary(14, {"alive": 1}, 10)
    await refreshes.complete(merge, 14, pool)
    end = await last(store)

    assert (begun.step, begun.candidates, begun.chunks) == (Step.CHECK, 3, 2)
    assert chunk == CHUNKS[0]
    assert (middle.checked, middle.alive, middle.is_open) == (1, 1, True)
    assert results == [{"alive": 1}]
    assert (end.is_open, end.checked, end.ended_at) == (False, 2, 14)
    assert await steps(store) == []
    assert await refreshes.results(begun.number) == []
    assert await refreshes.pool() == pool
    ended = (await events(store, "proxies.refreshed"))[0]
    assert (ended["alive"], ended["problems"]) == (1, {"list": "it is empty"})


async def test_one_refresh_is_open_at_a_time(store: Store) -> None:
    first = await store.proxy_refreshes.begin(10, "manual", {})
    second = await store.proxy_refreshes.begin(11, "schedule", {})

    assert second == first
    assert await steps(store) == ["collect"]


async def test_the_next_refresh_has_the_next_number(store: Store) -> None:
    begun = await collected(store)
    for _ in range(2):
        await store.proxy_refreshes.complete_chunk(await claim(store, Step.CHECK), 12, [], alive=0)
    await store.proxy_refreshes.complete(await claim(store, Step.MERGE), 13, None)

    again = await store.proxy_refreshes.begin(20, "manual", {})

    assert again.number == begun.number + 1


async def test_without_candidates_it_is_merged_immediately(store: Store) -> None:
    await store.proxy_refreshes.begin(10, "manual", {})

    await store.proxy_refreshes.complete_collection(await claim(store, Step.COLLECT), 11, [], {})

    assert await steps(store) == ["merge"]


async def test_a_chunk_of_a_dead_process_is_done_again(store: Store) -> None:
    await collected(store)
    lost = await claim(store, Step.CHECK, "dead")
    again = await claim(store, Step.CHECK, "me", dead=("dead",))

    late = await store.proxy_refreshes.complete_chunk(lost, 12, [{"by": "dead"}], alive=1)
    done = await store.proxy_refreshes.complete_chunk(again, 13, [{"by": "me"}], alive=1)

    assert again.name == lost.name
    assert (late, done) == (False, True)
    assert await store.proxy_refreshes.results(1) == [{"by": "me"}]
    assert (await last(store)).checked == 1


async def test_a_chunk_that_kills_processes_is_given_up(store: Store) -> None:
    await collected(store)
    await store.proxy_refreshes.complete_chunk(await claim(store, Step.CHECK), 12, [], alive=0)
    owner = "killed0"
    task = await claim(store, Step.CHECK, owner)
    for number in (1, 2):
        task = await claim(store, Step.CHECK, f"killed{number}", dead=(f"killed{number - 1}",))
    given_up = await store.tasks.claim(task, "me", 10, 40, dead=["killed2"], killed=["killed2"])

    after = await store.proxy_refreshes.advance(20)

    assert given_up is None
    assert (await events(store, "proxies.task_failed"))[0]["chunk"] == 1
    assert after is not None
    assert (after.step, after.checked) == (Step.MERGE, 1)
    assert await steps(store) == ["merge"]


async def test_a_refresh_whose_collection_is_given_up_ends(store: Store) -> None:
    await store.proxy_refreshes.begin(10, "manual", {})
    task = await claim(store, Step.COLLECT)
    await store.tasks.complete(task)

    after = await store.proxy_refreshes.advance(20)

    assert after is not None
    assert (after.is_open, "collect" in after.problems["collect"]) == (False, True)


@pytest.mark.parametrize("states", [{"alive": 3}, {"alive": 1, "dead": 2}])
async def test_the_summary_of_the_pool_is_kept(store: Store, states: dict[str, int]) -> None:
    await store.proxy_refreshes.note_pool(PoolSummary(1, states, 10))
    await store.proxy_refreshes.note_pool(PoolSummary(2, {"alive": 9}, 10))
    await store.proxy_refreshes.note_pool(PoolSummary(3, {"alive": 9}, 10))

    assert await store.proxy_refreshes.pool() == PoolSummary(2, {"alive": 9}, 10)


async def test_tasks_of_proxies_belong_to_no_job(store: Store) -> None:
    await store.proxy_refreshes.begin(10, "manual", {})

    ready = await store.tasks.ready(1e9)

    assert [(one.kind, one.job) for one in ready] == [(TaskKind.PROXIES, "")]
