"""What the sweep finds: messages that were lost, discovery that kills, and that only one leads."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path

import psutil
import pytest

from longline.core.model import Event, Item, Job, JobState
from longline.distributed.app import FETCH, OUTPUT
from longline.distributed.sweeper import WORKER_LEASE, Children, Sweeper
from longline.engine.owner import process_of, this_host, this_run
from longline.storage.events.events import EventFilter
from longline.storage.jobs import NewJob
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.tasks import Task, TaskKind
from tests.distributed.cluster_home import Home
from tests.servers import RedisServer
from tests.virtual import VirtualClock


@pytest.fixture
def home(tmp_path: Path, redis_server: RedisServer) -> Iterator[Home]:
    home = Home(tmp_path / "home", redis_server)
    yield home
    home.close()


@pytest.fixture
def sweeper(home: Home, clock: VirtualClock) -> Sweeper:
    return Sweeper(home.store, home.messages, clock, home.settings, "first")


async def found(home: Home, job: Job, count: int, at: float) -> None:
    """Have a job's items found."""
    items = [Item(str(number), f"http://site.test/{number}") for number in range(count)]
    await home.store.queue.enqueue(Discovered(job.id, items, at, is_last=True))


def a_dead_child() -> str:
    """Return the name of an owner that died although its parent, which is us, lives."""
    child = subprocess.Popen(["true"])
    born, ours = psutil.Process(child.pid).create_time(), psutil.Process().create_time()
    child.wait()
    host = this_host()
    return f"{host}:{child.pid}:{born:.2f}:{child.pid:x}:{os.getpid()}:{ours:.2f}"


async def test_due_items_are_published_with_messages(
    home: Home, sweeper: Sweeper, clock: VirtualClock
) -> None:
    job = await home.start_job("http://site.test", 25)
    await found(home, job, 25, clock.now())
    before = (await home.messages.waiting())[FETCH]

    swept = await sweeper.sweep()

    assert swept.offered == 3  # of ten items each
    assert (await home.messages.waiting())[FETCH] == before + 3


async def test_a_lost_message_is_sent_again_after_five_seconds(
    home: Home, sweeper: Sweeper, clock: VirtualClock
) -> None:
    job = await home.start_job("http://site.test", 25)
    await found(home, job, 25, clock.now())
    await sweeper.sweep()
    home.forget_messages()

    soon = await sweeper.sweep()
    await clock.sleep(6)
    later = await sweeper.sweep()

    assert (soon.resent, later.resent) == (0, 3)
    assert (await home.messages.waiting())[FETCH] == 3


async def test_discovery_that_kills_its_worker_three_times_pauses_the_job(
    home: Home, sweeper: Sweeper, clock: VirtualClock
) -> None:
    job = await home.start_job("http://site.test", 25)

    await _die_discovering(home, job, sweeper, clock)
    await _die_discovering(home, job, sweeper, clock)
    twice = (await home.store.jobs.get(job.id)).state
    await _die_discovering(home, job, sweeper, clock)

    ended = await home.store.jobs.get(job.id)
    assert twice is JobState.RUNNING
    assert ended.state is JobState.PAUSED
    assert "3" in (ended.reason or "")


async def test_a_death_with_an_item_in_flight_is_not_of_discovery(
    home: Home, sweeper: Sweeper, clock: VirtualClock
) -> None:
    job = await home.start_job("http://site.test", 25)

    for _ in range(3):
        await _die_discovering(home, job, sweeper, clock, in_flight={7})
    await sweeper.sweep()  # by now nobody knows any more what they had in hand

    assert (await home.store.jobs.get(job.id)).state is JobState.RUNNING


async def test_only_its_own_supervisor_says_whether_a_worker_died_of_discovery(
    home: Home, sweeper: Sweeper, clock: VirtualClock
) -> None:
    own = Sweeper(home.store, home.messages, clock, home.settings, "not the leader")
    job = await home.start_job("http://site.test", 25)
    await sweeper.sweep()

    for _ in range(3):
        await _die_discovering(home, job, own, clock, in_flight={7}, leader=sweeper)
    of_items = (await home.store.jobs.get(job.id)).state
    for _ in range(3):
        await _die_discovering(home, job, own, clock, leader=sweeper)

    assert of_items is JobState.RUNNING
    assert (await home.store.jobs.get(job.id)).state is JobState.PAUSED


async def test_deaths_of_discovery_are_known_to_the_next_leader(
    home: Home, sweeper: Sweeper, clock: VirtualClock
) -> None:
    job = await home.start_job("http://site.test", 25)
    await _die_discovering(home, job, sweeper, clock)
    await _die_discovering(home, job, sweeper, clock)
    await sweeper.release_leadership()
    following = Sweeper(home.store, home.messages, clock, home.settings, "second")

    await _die_discovering(home, job, following, clock)

    assert (await home.store.jobs.get(job.id)).state is JobState.PAUSED


async def test_a_job_that_cannot_be_read_here_is_paused_and_the_others_go_on(
    home: Home, sweeper: Sweeper, clock: VirtualClock
) -> None:
    settings = {"source": "little.py", "of_a_newer_longline": 1}
    strange = await home.store.jobs.create(NewJob("pages", settings, {}, clock.now()))
    await home.store.jobs.start(strange.id, clock.now(), engine="celery")
    job = await home.start_job("http://site.test", 25)
    await found(home, job, 25, clock.now())

    swept = await sweeper.sweep()

    paused = await home.store.jobs.get(strange.id)
    assert paused.state is JobState.PAUSED
    assert "of_a_newer_longline" in (paused.reason or "")
    assert swept.offered == 3


async def test_a_free_task_gets_messages_until_it_is_claimed(
    home: Home, sweeper: Sweeper, clock: VirtualClock
) -> None:
    job = await home.start_job("http://site.test", 25)
    order = Task(job.id, TaskKind.EXPORT, clock.now(), {"output": "a.csv"})
    await home.store.tasks.place(order)
    before = (await home.messages.waiting())[OUTPUT]

    await sweeper.sweep()
    await clock.sleep(6)
    await sweeper.sweep()  # one waits: whoever takes it finds all
    told = (await home.messages.waiting())[OUTPUT]
    home.forget_messages(OUTPUT)
    await sweeper.sweep()
    again = (await home.messages.waiting())[OUTPUT]
    home.forget_messages(OUTPUT)
    await home.store.tasks.claim(order, "somebody", clock.now(), clock.now() + 60)
    await clock.sleep(6)
    await sweeper.sweep()

    assert (told - before, again) == (1, 1)
    assert (await home.messages.waiting())[OUTPUT] == 0


async def test_one_leads_until_it_gives_up(
    home: Home, sweeper: Sweeper, clock: VirtualClock
) -> None:
    other = Sweeper(home.store, home.messages, clock, home.settings, "second")

    assert (await sweeper.sweep()).is_leader
    assert not (await other.sweep()).is_leader
    await sweeper.release_leadership()
    assert (await other.sweep()).is_leader


async def _die_discovering(
    home: Home,
    job: Job,
    sweeper: Sweeper,
    clock: VirtualClock,
    *,
    in_flight: Collection[int] = (),
    leader: Sweeper | None = None,
) -> None:
    now, owner = clock.now(), a_dead_child()
    children = Children(os.getpid(), in_flight={process_of(owner) or 0: in_flight})
    before = await home.store.chunks.status(job.id)
    await home.store.jobs.lease_discovery(
        job.id, owner, at=now, until=now + 20, dead=[before.discoverer or ""]
    )
    if leader is not None:
        await leader.sweep(Children(parent=1))  # before whoever knows more
    await sweeper.sweep(children)


async def test_a_worker_of_this_host_that_was_killed_is_lost_immediately(
    home: Home, sweeper: Sweeper, clock: VirtualClock
) -> None:
    other = Sweeper(home.store, home.messages, clock, home.settings, "second")
    now = clock.now()
    await home.store.workers.renew("killed", a_dead_child(), now, now + WORKER_LEASE)
    await home.store.workers.renew("alive", this_run(), now, now + WORKER_LEASE)
    await sweeper.sweep()

    swept = await other.sweep()

    assert (swept.lost, len(await home.store.workers.owners())) == ([], 1)
    (event,) = await lost_workers(home)
    assert event.data["worker"] == "killed"


async def test_a_worker_elsewhere_is_lost_when_it_does_not_renew(
    home: Home, sweeper: Sweeper, clock: VirtualClock
) -> None:
    other = Sweeper(home.store, home.messages, clock, home.settings, "second")
    await home.store.workers.renew("far", "elsewhere:1:1.00:ab", clock.now(), clock.now() + 1)
    found = []
    for _ in range(20):
        found.append([*(await sweeper.sweep()).lost, *(await other.sweep()).lost])
        await clock.sleep(2)

    assert found.index(["far"]) == WORKER_LEASE / 2  # sweeps, each two seconds after the last
    assert len(await lost_workers(home)) == 1


async def test_after_an_outage_workers_have_time_to_renew(
    home: Home, sweeper: Sweeper, clock: VirtualClock
) -> None:
    owner = "elsewhere:1:1.00:ab"
    await home.store.workers.renew("far", owner, clock.now(), clock.now() + WORKER_LEASE)
    for _ in range(20):
        await sweeper.sweep()
        await home.store.workers.renew("far", owner, clock.now(), clock.now() + WORKER_LEASE)
        await clock.sleep(2)

    await clock.sleep(60)  # no process reaches the database
    await sweeper.sweep()
    await home.store.workers.renew("far", owner, clock.now(), clock.now() + WORKER_LEASE)
    await clock.sleep(2)
    await sweeper.sweep()

    assert await lost_workers(home) == []


async def lost_workers(home: Home) -> list[Event]:
    return (await home.store.events.read(0, EventFilter(types=("worker.lost",))))[0]
