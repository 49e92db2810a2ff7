"""Each rule, in a real database: it fires once, is grouped with its like, and is resolved once."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from longline.config.settings import Settings
from longline.core.model import Event
from longline.monitoring.alerts.alerting import Alerting, make_alerting
from longline.monitoring.alerts.rules import RULE_KINDS
from longline.storage.events.events import EventFilter, event_row
from longline.storage.proxy_refresh import PoolSummary
from longline.storage.scheduling.flows import FlowState, NewFlowRun
from longline.storage.scheduling.launches import SOURCE, NewLaunch
from longline.storage.scheduling.schedules import DecidedOccurrence, Wanted
from longline.storage.store import Store, open_store
from tests.monitoring.alerts.simulated_runs import (
    BAD,
    USUAL,
    Numbers,
    close_breaker,
    finish_run,
    open_breaker,
    start_run,
)
from tests.virtual import EPOCH, VirtualClock

DAY, HOUR, MINUTE = 86_400.0, 3600.0, 60.0
NAMES = ("first", "second")
FILE = """
alerts:
  mail: {ops: {host: 127.0.0.1, from: a@mail.test, to: b@mail.test}}
  notify: [mail:ops]
  group_by: rule
"""


@dataclass
class Home:
    """A home with two sources that ran every day for a week, and its alerting."""

    store: Store
    clock: VirtualClock
    alerting: Alerting
    file: Path

    async def run_for(self, minutes: int) -> None:
        for _ in range(minutes):
            await self.alerting.tick()
            await self.clock.sleep(MINUTE)

    async def events(self, kind: str, **data: str) -> Sequence[Event]:
        found = await self.store.events.last(EventFilter((kind,)), limit=1000)
        return [one for one in found if data.items() <= one.data.items()]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the usual runs, which each test copies."""
    path = tmp_path_factory.mktemp("template") / "longline.sqlite"

    async def fill(store: Store) -> None:
        for day in range(-7, 0):
            for name in NAMES:
                await finish_run(store, name, EPOCH + day * DAY, USUAL)

    with open_store(f"sqlite:///{path}") as store:
        asyncio.run(fill(store))
    return path


@pytest.fixture
async def home(
    template: Path, clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Home]:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "longline.yaml"
    file.write_text(FILE)
    path = shutil.copy(template, tmp_path / "longline.sqlite")
    with open_store(f"sqlite:///{path}") as store:
        yield Home(store, clock, make_alerting(store, clock, Settings(home=tmp_path)), file)


class Trouble:
    """What is wrong with two subjects: with two sources, unless a class says otherwise."""

    subjects: Sequence[str] = tuple(f"source/{name}" for name in NAMES)

    async def begin(self, home: Home) -> None:
        """Get into trouble, and wait until it has lasted long enough."""

    async def end(self, home: Home) -> None:
        """Get out of it."""
        now = home.clock.now()
        for name in NAMES:
            # After many changes, the next run changes as many back.
            for at in (now - 120, now - 60, now):
                await finish_run(home.store, name, at, USUAL)


class BadRuns(Trouble):
    """The last runs are bad."""

    def __init__(self, numbers: Numbers, runs: int = 1) -> None:
        self._numbers = numbers
        self._runs = runs

    async def begin(self, home: Home) -> None:
        for number in range(self._runs):
            await home.clock.sleep(number)
            for name in NAMES:
                await finish_run(home.store, name, home.clock.now(), self._numbers)


class Late(Trouble):
    """There are no runs any more."""

    async def begin(self, home: Home) -> None:
        await home.clock.sleep(3 * DAY)


class Unfinished(Trouble):
    """The last runs are not finished: they hang, or are paused."""

    def __init__(self, reason: str | None = None) -> None:
        self._reason = reason
        self._jobs: list[str] = []

    async def begin(self, home: Home) -> None:
        for name in NAMES:
            job = await start_run(home.store, name, home.clock.now(), USUAL)
            self._jobs.append(job.id)
            if self._reason is not None:
                await home.store.jobs.pause(job.id, home.clock.now(), self._reason)
        await home.clock.sleep(2 * HOUR)

    async def end(self, home: Home) -> None:
        for job in self._jobs:
            await home.store.jobs.cancel(job, home.clock.now(), "enough")


class OpenBreaker(Trouble):
    """The sites do not respond, or have banned us."""

    subjects = tuple(f"domain/{name}.test" for name in NAMES)

    def __init__(self, *, is_ban: bool) -> None:
        self._is_ban = is_ban

    async def begin(self, home: Home) -> None:
        for name in NAMES:
            job = await finish_run(home.store, name, home.clock.now(), USUAL)
            at, domain = home.clock.now(), f"{name}.test"
            await open_breaker(home.store, job, at, domain, is_ban=self._is_ban)
        await home.clock.sleep(HOUR)

    async def end(self, home: Home) -> None:
        for name in NAMES:
            job = await finish_run(home.store, name, home.clock.now(), USUAL)
            await close_breaker(home.store, job, home.clock.now(), f"{name}.test")


class MissedSchedule(Trouble):
    """Occurrences of schedules are missed."""

    subjects = tuple(f"schedule/{name}" for name in NAMES)

    async def begin(self, home: Home) -> None:
        now = home.clock.now()
        for name in NAMES:
            stated = {"name": name, "source": name, "every": "1d"}
            await home.store.schedules.save(name, stated, now)
            await self._decide(home, name, DecidedOccurrence(now, "scheduled", "missed", "late"))

    async def end(self, home: Home) -> None:
        now = home.clock.now()
        for name in NAMES:
            launch = NewLaunch(SOURCE, name, {}, f"schedule/{name}", now, key=name)
            fired = DecidedOccurrence(now, "scheduled", "fired", launch=launch)
            await self._decide(home, name, fired)

    async def _decide(self, home: Home, name: str, one: DecidedOccurrence) -> None:
        decide = home.store.schedules.decide
        await decide({name: Wanted()}, lambda _states: [one], home.clock.now())


class WaitingFlow(Trouble):
    """Flows wait for approval."""

    def __init__(self) -> None:
        self.subjects: list[str] = []

    async def begin(self, home: Home) -> None:
        flows, now = home.store.flows, home.clock.now()
        for name in NAMES:
            run = await flows.create(NewFlowRun(name, {}, "hash", ["ask"], {}, "command", now))
            (leased,) = await flows.lease("me", now, now + 60)
            await flows.change_state(leased.lease, FlowState.WAITING, now)
            self.subjects.append(f"flow/{run.id}")
        await home.clock.sleep(2 * HOUR)

    async def end(self, home: Home) -> None:
        for subject in self.subjects:
            run = subject.removeprefix("flow/")
            await home.store.flows.cancel(run, "enough", home.clock.now())


class LostWorker(Trouble):
    """Workers are lost."""

    subjects = tuple(f"worker/{name}" for name in NAMES)

    async def begin(self, home: Home) -> None:
        now, owners = home.clock.now(), [f"host:12:boot:{name}" for name in NAMES]
        for name, owner in zip(NAMES, owners, strict=True):
            await home.store.workers.renew(name, owner, now, now + 60)
        await home.store.workers.remove_lost(now, owners, with_expired=False)
        await home.clock.sleep(3 * MINUTE)

    async def end(self, home: Home) -> None:
        now = home.clock.now()
        for name in NAMES:
            await home.store.workers.renew(name, f"host:13:boot:{name}", now, now + DAY)


class SlowSubscriber(Trouble):
    """Subscribers do not handle their events."""

    subjects = tuple(f"subscriber/{name}" for name in NAMES)

    async def begin(self, home: Home) -> None:
        now = home.clock.now()
        for name in NAMES:
            await home.store.subscribers.add(name, EventFilter(("custom.*",)), now, None)
        await home.store.events.append(event_row(None, now, "custom.one"))
        await home.clock.sleep(HOUR)

    async def end(self, home: Home) -> None:
        newest, now = await home.store.events.newest(), home.clock.now()
        for name in NAMES:
            subscribers = home.store.subscribers
            await subscribers.claim(name, "me", at=now, until=now + HOUR, dead=())
            await subscribers.advance(name, "me", cursor=newest, at=now, until=now)


class FullDisk(Trouble):
    """The disk is full, by the limit of the file; a home has only one."""

    subjects = ("home",)

    async def begin(self, home: Home) -> None:
        home.file.write_text(f"{FILE}  rules: {{disk-low: {{min: 100%}}}}\n")

    async def end(self, home: Home) -> None:
        home.file.write_text(f"{FILE}  rules: {{disk-low: {{min: 0}}}}\n")


class FewProxies(Trouble):
    """Proxies have died, and fewer than the minimum are left."""

    subjects = ("home",)

    async def begin(self, home: Home) -> None:
        pool = PoolSummary(home.clock.now(), {"alive": 3, "dead": 9}, minimum=10)
        await home.store.proxy_refreshes.note_pool(pool)

    async def end(self, home: Home) -> None:
        pool = PoolSummary(home.clock.now(), {"alive": 12, "dead": 0}, minimum=10)
        await home.store.proxy_refreshes.note_pool(pool)


def troubles() -> Mapping[str, Trouble]:
    """Return a trouble for each rule."""
    return {
        **{kind: BadRuns(numbers) for kind, numbers in BAD.items()},
        "run-failed": BadRuns(Numbers(records=0, failed=3)),
        "quarantine-growing": BadRuns(replace(USUAL, quarantined=8), runs=3),
        "no-progress": Unfinished(),
        "job-waiting": Unfinished("the site has banned us"),
        "stale-data": Late(),
        "ban": OpenBreaker(is_ban=True),
        "breaker-open": OpenBreaker(is_ban=False),
        "missed-schedule": MissedSchedule(),
        "flow-waiting": WaitingFlow(),
        "worker-gone": LostWorker(),
        "event-lag": SlowSubscriber(),
        "few-proxies": FewProxies(),
        "disk-low": FullDisk(),
    }


@pytest.mark.parametrize("rule", RULE_KINDS)
async def test_a_rule_fires_once_is_grouped_and_resolves(home: Home, rule: str) -> None:
    trouble = troubles()[rule]
    await home.run_for(1)

    await trouble.begin(home)
    await home.run_for(8)
    fired = await home.events("alert.firing", rule=rule)
    notified = await home.events("alert.notified", group=rule)
    await trouble.end(home)
    await home.run_for(8)

    subjects = [one.data["subject"] for one in fired]
    assert sorted(subjects) == sorted(trouble.subjects)
    assert [states(one) for one in notified] == [["firing"] * len(subjects)]
    assert await home.events("alert.firing", rule=rule) == fired
    (_first, *rest) = await home.events("alert.notified", group=rule)
    assert [states(one) for one in rest] == [["resolved"] * len(subjects)]


def states(notified: Event) -> list[str]:
    return [one["state"] for one in notified.data["alerts"]]
