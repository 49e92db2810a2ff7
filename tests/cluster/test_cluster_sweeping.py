"""What the sweep finds: messages that were lost, discovery that kills, and that only one leads."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cluster.cluster_home import Home
from longline.cluster.app import FETCH
from longline.cluster.sweeping import Sweeper
from longline.model import Item, Job, JobState
from longline.stores.adding import Discovered
from servers import RedisServer
from virtual import VirtualClock


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
    await home.store.queue.add(Discovered(job.id, items, at, is_last=True))


def a_dead_child() -> str:
    """Return the name of an owner that died although its parent, which is us, lives."""
    child = subprocess.Popen(["true"])
    born, ours = psutil.Process(child.pid).create_time(), psutil.Process().create_time()
    child.wait()
    host = socket.gethostname()
    return f"{host}:{child.pid}:{born:.2f}:{child.pid:x}:{os.getpid()}:{ours:.2f}"


async def test_what_is_due_is_offered_and_told_of(
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

    assert (soon.told_again, later.told_again) == (0, 3)
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
    assert "3 workers died while they discovered" in (ended.reason or "")


async def test_one_leads_until_it_gives_up(
    home: Home, sweeper: Sweeper, clock: VirtualClock
) -> None:
    other = Sweeper(home.store, home.messages, clock, home.settings, "second")

    assert (await sweeper.sweep()).is_leader
    assert not (await other.sweep()).is_leader
    await sweeper.give_up()
    assert (await other.sweep()).is_leader


async def _die_discovering(home: Home, job: Job, sweeper: Sweeper, clock: VirtualClock) -> None:
    now, owner = clock.now(), a_dead_child()
    before = await home.store.chunks.standing(job.id)
    await home.store.jobs.take_discovery(job.id, owner, now, now + 20, [before.finder or ""])
    await sweeper.sweep()
