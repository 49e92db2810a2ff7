"""The executor: it leases, keeps runs alive, counts deaths, reclaims, and releases at its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from longline.core.errors import StoreGone
from longline.core.model import JobState
from longline.scheduling.executor import EndKind, Executor, RunEnd, domain_of
from longline.storage.jobs import NewJob
from longline.storage.queue.queue import PAUSED_BY_USER
from longline.storage.scheduling.launches import Launch, LaunchLimits, LaunchState, NewLaunch
from longline.storage.store import Store, open_store
from tests.virtual import EPOCH, VirtualClock

ENDED = RunEnd(EndKind.ENDED, "complete")
DIED = RunEnd(EndKind.DIED, reason="killed by SIGKILL")
INTERRUPTED = RunEnd(EndKind.INTERRUPTED)


class ScriptedRunner:
    """Ends each run of a launch as scripted, or when it is stopped."""

    def __init__(self, *ends: RunEnd, seconds: float = 1.0) -> None:
        self.ends = list(ends)
        self.seconds = seconds
        self.started: list[str] = []
        self.most = self.now = 0

    async def run(self, launch: Launch, owner: str, stop: asyncio.Event) -> RunEnd:
        del owner
        self.started.append(launch.name)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            async with asyncio.timeout(self.seconds):
                await stop.wait()
        except TimeoutError:
            return self.ends.pop(0) if self.ends else ENDED
        finally:
            self.now -= 1
        return INTERRUPTED


@pytest.fixture
def store(tmp_path: Path) -> Any:
    store = open_store(f"sqlite:///{tmp_path / 'longline.sqlite'}")
    yield store
    store.close()


@asynccontextmanager
async def executing(store: Store, runner: ScriptedRunner, **limits: Any) -> AsyncIterator[Executor]:
    executor = Executor(store, VirtualClock(), {"source": runner}, limits=LaunchLimits(**limits))
    async with asyncio.TaskGroup() as group:
        group.create_task(executor.run())
        try:
            yield executor
        finally:
            executor.stop()


async def place(store: Store, name: str = "shop", **values: Any) -> int:
    new = NewLaunch("source", name, values.pop("spec", {"source": name}), "test", EPOCH, **values)
    return await store.launches.place(new)


async def until(is_true: Callable[[Launch], bool], store: Store, launch: int) -> Launch:
    async with asyncio.timeout(3600):
        while True:
            found = await store.launches.get(launch)
            assert found is not None
            if is_true(found):
                return found
            await asyncio.sleep(0.1)


def has_ended(launch: Launch) -> bool:
    return launch.state is LaunchState.ENDED


async def new_job(store: Store, state: JobState, reason: str = "") -> str:
    job = await store.jobs.create(NewJob("shop", {"source": "shop"}, {}, EPOCH))
    await store.jobs.start(job.id, EPOCH)
    if state is JobState.PAUSED:
        await store.jobs.pause(job.id, EPOCH, reason)
    if state is JobState.CANCELLED:
        await store.jobs.cancel(job.id, EPOCH, reason)
    return job.id


async def attached(store: Store, job: str) -> int:
    """Place a launch whose job was started by an executor that has released it."""
    launch = await place(store)
    await store.launches.lease("before", EPOCH, EPOCH + 15, LaunchLimits())
    await store.launches.attach(launch, "before", job, EPOCH)
    await store.launches.release(launch, "before")
    return launch


async def test_a_launch_ends_as_its_run_does(store: Store) -> None:
    runner = ScriptedRunner(RunEnd(EndKind.ENDED, "partial", "3 items failed"))
    launch = await place(store)

    async with executing(store, runner):
        ended = await until(has_ended, store, launch)

    assert (ended.result, ended.reason, ended.owner) == ("partial", "3 items failed", None)


async def test_a_due_launch_starts_within_a_second(store: Store) -> None:
    async with executing(store, ScriptedRunner()):
        await asyncio.sleep(60)
        placed = VirtualClock().now()
        ended = await until(has_ended, store, await place(store))

    assert ended.started_at is not None
    assert ended.started_at - placed < 1


async def test_no_more_run_than_the_limits_allow(store: Store) -> None:
    launches = [await place(store, f"source{number}") for number in range(6)]
    runner = ScriptedRunner()

    async with executing(store, runner, total=2):
        for launch in launches:
            await until(has_ended, store, launch)

    assert (runner.most, len(runner.started)) == (2, 6)


async def test_two_executors_share_the_limits_and_run_each_launch_once(store: Store) -> None:
    launches = [await place(store, f"source{number}") for number in range(8)]
    runner = ScriptedRunner()

    async with executing(store, runner, total=3), executing(store, runner, total=3):
        for launch in launches:
            await until(has_ended, store, launch)

    assert (runner.most, sorted(runner.started)) == (3, [f"source{n}" for n in range(8)])


async def test_sources_of_one_domain_are_limited_together(store: Store) -> None:
    specs = [{"source": "x", "set": {"site": f"https://{host}/"}} for host in ("a", "a", "b")]
    launches = [await place(store, f"s{n}", spec=spec) for n, spec in enumerate(specs)]
    runner = ScriptedRunner()

    async with executing(store, runner, per_domain=1, domain_of=domain_of):
        await asyncio.sleep(0.9)
        first = list(runner.started)
        for launch in launches:
            await until(has_ended, store, launch)

    assert first == ["s0", "s2"]


async def test_flows_do_not_use_up_the_room_of_the_sources_they_wait_for(store: Store) -> None:
    flows = [NewLaunch("flow", f"flow{n}", {}, "test", EPOCH) for n in range(4)]
    ids = [await store.launches.place(flow) for flow in flows]
    await place(store)

    leased = await store.launches.lease("me", EPOCH, EPOCH + 15, LaunchLimits(total=1))

    assert [one.kind for one in leased] == ["flow"] * len(ids) + ["source"]


async def test_a_kind_without_a_runner_ends_as_failed(store: Store) -> None:
    launch = await store.launches.place(NewLaunch("flow", "nightly", {}, "test", EPOCH))

    async with executing(store, ScriptedRunner()):
        ended = await until(has_ended, store, launch)

    assert ended.result == "failed"


async def test_a_run_that_died_is_started_again(store: Store) -> None:
    launch = await place(store)
    runner = ScriptedRunner(DIED, DIED)

    async with executing(store, runner):
        ended = await until(has_ended, store, launch)

    assert (ended.result, ended.deaths, len(runner.started)) == ("complete", 2, 3)


async def test_three_deaths_end_the_launch_and_pause_its_job(store: Store) -> None:
    job = await new_job(store, JobState.RUNNING)
    launch = await attached(store, job)
    runner = ScriptedRunner(DIED, DIED, DIED)

    async with executing(store, runner):
        ended = await until(has_ended, store, launch)

    paused = await store.jobs.get(job)
    assert (ended.result, len(runner.started)) == ("failed", 3)
    assert paused.state is JobState.PAUSED
    assert paused.reason == ended.reason
    assert "SIGKILL" in (ended.reason or "")


async def test_an_outage_is_not_a_death(store: Store) -> None:
    launch = await place(store)
    outage = RunEnd(EndKind.OUTAGE, reason="the database does not respond")
    runner = ScriptedRunner(*[outage] * 5)

    async with executing(store, runner):
        ended = await until(has_ended, store, launch)

    assert (ended.result, ended.deaths, len(runner.started)) == ("complete", 0, 6)


async def test_an_error_of_the_runner_counts_as_a_death(store: Store) -> None:
    class Broken(ScriptedRunner):
        async def run(self, launch: Launch, owner: str, stop: asyncio.Event) -> RunEnd:
            await super().run(launch, owner, stop)
            raise ZeroDivisionError

    launch = await place(store)

    async with executing(store, Broken()):
        ended = await until(has_ended, store, launch)

    assert (ended.result, ended.deaths) == ("failed", 3)


async def test_a_shutdown_releases_what_runs(store: Store) -> None:
    launch = await place(store)
    runner = ScriptedRunner(seconds=600)

    async with executing(store, runner):
        await until(lambda one: one.state is LaunchState.RUNNING, store, launch)
    released = await store.launches.get(launch)
    async with executing(store, ScriptedRunner()):
        ended = await until(has_ended, store, launch)

    assert released is not None
    assert (released.state, released.owner, released.due_at) == (LaunchState.QUEUED, None, 0.0)
    assert (ended.result, ended.deaths) == ("complete", 0)


async def test_leases_are_renewed_while_a_run_takes_long(store: Store) -> None:
    launch = await place(store)
    runner = ScriptedRunner(seconds=300)

    async with executing(store, runner), executing(store, runner):
        await asyncio.sleep(100)
        found = await store.launches.get(launch)

    assert found is not None
    assert (found.state, found.deaths) == (LaunchState.RUNNING, 0)
    assert found.until is not None
    assert found.until > EPOCH + 100


async def test_an_executor_of_another_host_is_replaced_within_20_s(store: Store) -> None:
    launch = await place(store)
    await store.launches.lease("elsewhere:1:0:x", EPOCH, EPOCH + 15, LaunchLimits())

    async with executing(store, ScriptedRunner()):
        running = await until(lambda one: one.owner != "elsewhere:1:0:x", store, launch)
        ended = await until(has_ended, store, launch)

    assert running.deaths == 0
    assert ended.started_at is not None
    assert ended.started_at < EPOCH + 20


async def test_a_run_whose_lease_was_lost_is_stopped(store: Store) -> None:
    launch = await place(store)
    runner = ScriptedRunner(seconds=600)

    async with executing(store, runner):
        running = await until(lambda one: one.owner is not None, store, launch)
        await store.launches.release(launch, str(running.owner), EPOCH + 9999)
        await asyncio.sleep(5)
        is_running = runner.now

    assert is_running == 0


async def test_a_launch_that_was_leased_but_not_started_is_released(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = await place(store)
    lease, answers = store.launches.lease, [True]

    async def lose_answer(*args: Any) -> Any:
        leased = await lease(*args)
        if answers.pop() if answers else False:
            raise StoreGone("postgresql://x", "no answer", 60)
        return leased

    monkeypatch.setattr(store.launches, "lease", lose_answer)

    async with executing(store, ScriptedRunner()):
        ended = await until(has_ended, store, launch)

    assert ended.result == "complete"


async def test_an_outage_of_the_database_ends_no_run(
    store: Store, monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    launch = await place(store)
    runner = ScriptedRunner(seconds=200)

    async def fail(*_args: Any, **_values: Any) -> Any:
        raise StoreGone("postgresql://x", "refused", 60)

    async with executing(store, runner):
        await until(lambda one: one.state is LaunchState.RUNNING, store, launch)
        with monkeypatch.context() as outage:
            for name in ("renew", "is_due", "finish"):
                outage.setattr(store.launches, name, fail)
            await asyncio.sleep(300)
        ended = await until(has_ended, store, launch)

    assert (ended.result, runner.started) == ("complete", ["shop"])
    assert len([text for text in logged if "waits for the database" in text]) == 1


@pytest.mark.parametrize(
    ("state", "reason", "runs"),
    [
        (JobState.PAUSED, PAUSED_BY_USER, 0),
        (JobState.CANCELLED, "cancelled by the user", 0),
        (JobState.PAUSED, "interrupted", 1),
        (JobState.RUNNING, "", 1),
    ],
)
async def test_a_launch_continues_its_job_unless_a_person_stopped_it(
    store: Store, state: JobState, reason: str, runs: int
) -> None:
    launch = await attached(store, await new_job(store, state, reason))
    runner = ScriptedRunner()

    async with executing(store, runner):
        ended = await until(has_ended, store, launch)

    assert len(runner.started) == runs
    assert ended.result == ("complete" if runs else state.value)


async def test_a_job_on_workers_is_followed_to_its_end(store: Store) -> None:
    launch = await place(store)
    job = await new_job(store, JobState.RUNNING)
    runner = ScriptedRunner(RunEnd(EndKind.SUBMITTED, job=job))

    async with executing(store, runner):
        await until(lambda one: one.state is LaunchState.RUNNING, store, launch)
        await asyncio.sleep(100)
        still = await store.launches.get(launch)
        await store.jobs.cancel(job, EPOCH, "enough")
        ended = await until(has_ended, store, launch)

    assert still is not None
    assert still.state is LaunchState.RUNNING
    assert (ended.result, ended.reason) == ("cancelled", "enough")


@pytest.mark.parametrize(
    ("spec", "domain"),
    [
        ({"source": "n8n"}, None),
        ({"set": {"site": "https://shop.test:8443/a"}}, "shop.test:8443"),
        ({"set": {}, "manifest": {"about": "x", "base_url": "http://a.test/x"}}, "a.test"),
        (
            {
                "manifest": {
                    "items": {"list": ["{base_url}/list"]},
                    "parameters": {"base_url": "http://b.test"},
                }
            },
            "b.test",
        ),
    ],
)
def test_the_domain_of_a_source_is_that_of_its_first_url(
    spec: dict[str, Any], domain: str | None
) -> None:
    assert domain_of(spec) == domain
