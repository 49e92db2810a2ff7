"""Every state of a job and of its items follows from the events alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from longline.core.errors import FailureKind
from longline.core.model import Event, ItemState, Job, JobState, Lease, Outcome, OutcomeAction
from longline.storage.events.events import EventFilter
from longline.storage.profiles import DriftResult
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.failures import FailureQuery
from longline.storage.queue.quarantine import REPLAY_UNFINISHED, QuarantinedItem, ReprocessedItem
from longline.storage.queue.queue import PAUSED_BY_USER, Reclaim
from longline.storage.store import Store
from tests.storage.given import attempt, complete, ended, item, leased, new_job, queued, record
from tests.virtual import EPOCH

LATER = EPOCH + 60
RUNNING = {"job.started", "job.resumed", "job.continued"}
ENDED = {f"job.{state.value}" for state in JobState} - {"job.pending", "job.running"}
OPEN = "open"


@dataclass
class Followed:
    """A job as its events describe it."""

    source: str = ""
    state: str = ""
    reason: str | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def apply(self, event: Event) -> None:
        data, (kind, _, name) = event.data, event.type.partition(".")
        if event.type == "job.created":
            self.source, self.state = data["source"], "pending"
        elif event.type in RUNNING:
            self.state, self.reason = "running", None
        elif event.type in ENDED:
            self.state, self.reason = name, data["reason"]
        elif event.type == "job.reopened":
            if "reason" in data:
                self.state, self.reason = "paused", data["reason"]
            for state, count in data.get("states", {}).items():
                self._move(state, OPEN, count)
        elif event.type == "items.enqueued":
            self.counts[OPEN] += data["items"]
        elif event.type == "items.skipped":
            self._move(OPEN, "skipped", data["items"])
        elif kind == "item":
            self._move(data.get("before", OPEN), OPEN if name == "deferred" else name)

    def _move(self, before: str, after: str, count: int = 1) -> None:
        self.counts[before] -= count
        self.counts[after] += count

    def as_counted(self) -> Followed:
        """Return it without counts of zero."""
        return replace(self, counts=+self.counts)


async def rows_of(store: Store, job: str) -> Followed:
    found = await store.jobs.get(job)
    counts: Counter[str] = Counter()
    for state, count in (await store.queue.counts(job)).items():
        is_open = state in {ItemState.QUEUED, ItemState.LEASED}
        counts[OPEN if is_open else state.value] += count
    return Followed(found.source, found.state.value, found.reason, +counts)


async def check(store: Store, job: str) -> Followed:
    """Compare events and rows; return the job."""
    followed = Followed()
    for event in await store.events.list(job):
        followed.apply(event)
    assert followed.as_counted() == await rows_of(store, job)
    return followed.as_counted()


async def data_of(store: Store, job: str, name: str) -> list[dict[str, object]]:
    return [dict(event.data) for event in await store.events.list(job, types=[name])]


# ---------------- One change each


async def test_a_created_job_names_its_source(store: Store) -> None:
    job = await store.jobs.create(new_job())

    (event,) = await store.events.list(job.id)

    assert (event.type, event.version) == ("job.created", 2)
    assert event.data == {"source": "shop", "settings": {"limit": 5}}


async def test_only_new_items_are_counted_as_enqueued(store: Store) -> None:
    job = await queued(store, "a", "b")
    again = Discovered(job.id, [item("b"), item("c"), item("c")], EPOCH)

    await store.queue.enqueue(again)
    await store.queue.enqueue(again)

    assert await data_of(store, job.id, "items.enqueued") == [{"items": 2}, {"items": 1}]


async def test_items_are_counted_in_many_statements(store: Store) -> None:
    job = await queued(store, *map(str, range(100)))

    await store.queue.enqueue(Discovered(job.id, [item(str(n)) for n in range(300)], EPOCH))

    assert await data_of(store, job.id, "items.enqueued") == [{"items": 100}, {"items": 200}]


async def test_items_that_an_item_adds_are_enqueued(store: Store) -> None:
    job = await queued(store, "a", "b")
    (lease,) = await leased(store, job)
    outcome = Outcome(OutcomeAction.STORE, record=record("a"))

    await complete(store, attempt(lease, outcome, EPOCH, found=[item("b"), item("c")]))

    assert await data_of(store, job.id, "items.enqueued") == [{"items": 2}, {"items": 1}]
    assert (await check(store, job.id)).counts == {OPEN: 2, "stored": 1}


async def test_items_above_the_limit_are_not_enqueued(store: Store) -> None:
    job = await queued(store, "a", "b")

    await store.queue.enqueue(Discovered(job.id, [item("b"), item("c"), item("d")], EPOCH, limit=3))

    assert (await check(store, job.id)).counts == {OPEN: 3}


async def test_items_that_are_skipped_together_are_one_event(store: Store) -> None:
    job = await queued(store, "a", "b", "c")

    await store.queue.skip_before(job.id, "b", "resumed from b", EPOCH + 1)
    await store.queue.skip_queued(job.id, FailureKind.BUDGET, "no time is left", EPOCH + 2)
    await store.queue.skip_queued(job.id, FailureKind.BUDGET, "no time is left", EPOCH + 3)

    assert await data_of(store, job.id, "items.skipped") == [
        {"items": 1, "reason": "resumed from b"},
        {"items": 2, "reason": "no time is left", "failure": "budget"},
    ]
    assert (await check(store, job.id)).counts == {"skipped": 3}


async def test_a_retry_tells_the_states_that_its_items_had(store: Store) -> None:
    job = await queued(store, "a", "b", "c", "d", is_last=True)
    actions = [OutcomeAction.FAIL, OutcomeAction.QUARANTINE, OutcomeAction.FAIL, OutcomeAction.SKIP]
    for lease, action in zip(await leased(store, job, 4), actions, strict=True):
        kind = None if action is OutcomeAction.SKIP else FailureKind.INVALID
        await complete(store, ended(lease, action, kind=kind))
    await store.jobs.finish(job.id, EPOCH + 2)

    await store.failures.requeue(FailureQuery(job.id), LATER)
    await store.failures.requeue(FailureQuery(job.id), LATER)

    (data,) = await data_of(store, job.id, "job.reopened")
    assert (data["items"], data["states"]) == (3, {"failed": 2, "quarantined": 1})
    found = await check(store, job.id)
    assert (found.state, found.reason) == ("paused", data["reason"])
    assert found.counts == {OPEN: 3, "skipped": 1}


async def test_a_retry_of_a_running_job_does_not_pause_it(store: Store) -> None:
    job = await queued(store, "a", "b", is_last=True)
    (lease,) = await leased(store, job)
    await complete(store, ended(lease, OutcomeAction.FAIL, kind=FailureKind.SERVER))

    await store.failures.requeue(FailureQuery(job.id), LATER)

    (data,) = await data_of(store, job.id, "job.reopened")
    assert "reason" not in data
    assert (await check(store, job.id)).state == "running"


async def test_a_retry_that_continues_discovery_says_so(store: Store) -> None:
    job = await queued(store, "a")
    await store.queue.enqueue(Discovered(job.id, [], EPOCH, is_last=True, shortfall="budget"))
    await store.queue.skip_queued(job.id, FailureKind.BUDGET, "budget", EPOCH + 1)
    await store.jobs.finish(job.id, EPOCH + 2)

    await store.failures.requeue(FailureQuery(job.id), LATER)

    assert await data_of(store, job.id, "job.discovered") == [{"items": 1, "shortfall": "budget"}]
    (data,) = await data_of(store, job.id, "job.reopened")
    assert (data["is_discovering"], data["states"]) == (True, {"skipped": 1})
    await check(store, job.id)


@pytest.mark.parametrize("action", [OutcomeAction.QUARANTINE, OutcomeAction.FAIL])
async def test_an_item_that_is_processed_again_tells_its_state_before(
    store: Store, action: OutcomeAction
) -> None:
    job = await held_job(store, action, "a", "b")
    (first, _) = await store.quarantine.held(job.id)

    await store.quarantine.complete([stored_again(first)], LATER)

    (data,) = await data_of(store, job.id, "item.stored")
    before = await data_of(store, job.id, f"item.{first.state.value}")
    assert data["before"] == first.state
    assert [one.get("before") for one in before] == [None, None]
    found = await check(store, job.id)
    assert (found.state, found.reason) == ("partial", REPLAY_UNFINISHED)


async def test_each_state_of_a_replay_is_one_event(store: Store) -> None:
    job = await held_job(store, OutcomeAction.QUARANTINE, "a", "b", "c")
    first, second, third = await store.quarantine.held(job.id)

    await store.quarantine.complete([still_invalid(first)], LATER)
    await check(store, job.id)
    await store.quarantine.complete([stored_again(second)], LATER)
    await check(store, job.id)
    await store.quarantine.complete([stored_again(third)], LATER)
    await check(store, job.id)
    await store.quarantine.finish(job.id, LATER, DriftResult({"records": 2}))

    ends = [event for event in await store.events.list(job.id) if event.type in ENDED]
    assert [(event.type, event.data["reason"] == REPLAY_UNFINISHED) for event in ends] == [
        ("job.failed", False),
        ("job.failed", True),
        ("job.partial", True),
        ("job.partial", False),
    ]
    assert (await check(store, job.id)).counts == {"quarantined": 1, "stored": 2}


async def test_an_unfinished_replay_keeps_the_caveats_of_the_job(store: Store) -> None:
    job = await queued(store, "a")
    await store.queue.enqueue(Discovered(job.id, [], EPOCH, is_last=True, shortfall="no pages"))
    (lease,) = await leased(store, job)
    await complete(store, attempt(lease, Outcome(OutcomeAction.QUARANTINE, raw={}), EPOCH))
    await store.jobs.finish(job.id, EPOCH)
    before = await store.jobs.caveats(job.id)

    (held,) = await store.quarantine.held(job.id)
    await store.quarantine.complete([stored_again(held)], LATER)

    assert before.cuts == ("no pages",)
    assert await store.jobs.caveats(job.id) == before


async def test_a_job_that_another_process_paused_is_continued_once(store: Store) -> None:
    job = await queued(store, "a")
    await leased(store, job)
    await store.jobs.pause(job.id, EPOCH + 1, "stopped by a signal")

    await store.queue.renew([(job.id, "me")], EPOCH + 5, EPOCH + 25)
    await store.queue.renew([(job.id, "me")], EPOCH + 10, EPOCH + 30)

    (event,) = await store.events.list(job.id, types=["job.continued"])
    assert event.at == EPOCH + 5
    assert (await check(store, job.id)).state == "running"


async def test_a_job_that_a_person_paused_is_not_continued(store: Store) -> None:
    job = await queued(store, "a")
    await store.jobs.pause(job.id, EPOCH + 1, PAUSED_BY_USER)

    await store.queue.renew([(job.id, "me")], EPOCH + 5, EPOCH + 25)

    assert await data_of(store, job.id, "job.continued") == []
    assert (await check(store, job.id)).reason == PAUSED_BY_USER


async def test_a_job_that_was_cancelled_is_not_resumed(store: Store) -> None:
    job = await queued(store, "a")
    await store.jobs.cancel(job.id, EPOCH + 1, "cancelled")

    await store.jobs.start(job.id, EPOCH + 2)

    assert await data_of(store, job.id, "job.resumed") == []
    assert (await check(store, job.id)).state == "cancelled"


@pytest.mark.parametrize("reason", ["a\x00b", "half \ud83d", "naïve"])
async def test_the_reason_in_the_event_is_that_of_the_job(store: Store, reason: str) -> None:
    job = await queued(store, "a")

    await store.jobs.fail(job.id, EPOCH + 1, reason)

    assert (await check(store, job.id)).state == "failed"


# ---------------- Many changes in any order

_OUTCOMES = [
    *(OutcomeAction.STORE, OutcomeAction.STORE, OutcomeAction.SKIP, OutcomeAction.DEFER),
    *(OutcomeAction.FAIL, OutcomeAction.QUARANTINE),
]


@dataclass
class Actor:
    """Changes a job at random."""

    store: Store
    job: Job
    random: Random
    at: float = EPOCH
    leases: list[Lease] = field(default_factory=list)

    async def act(self) -> None:
        """Do one thing that is possible at any time."""
        self.at += 1
        choices: list[tuple[int, Callable[[], Awaitable[object]]]] = [
            (4, self._enqueue),
            (6, self._lease),
            (8, self._complete),
            (1, self._release),
            (2, self._reclaim),
            (3, self._replay),
            (2, self._retry),
            (1, self._skip_before),
            (1, lambda: self.store.queue.skip_queued(self.id, FailureKind.BUDGET, "no", self.at)),
            (1, lambda: self.store.jobs.pause(self.id, self.at, "stopped")),
            (1, lambda: self.store.jobs.pause_if_idle(self.id, self.at, "idle")),
            (1, lambda: self.store.queue.renew([(self.id, "me")], self.at, self.at + 20)),
            (2, lambda: self.store.jobs.finish(self.id, self.at)),
            (1, lambda: self.store.quarantine.finish(self.id, self.at, DriftResult(_PROFILE))),
            (3, lambda: self.store.jobs.start(self.id, self.at)),
        ]
        weights, actions = zip(*choices, strict=True)
        await self.random.choices(actions, weights)[0]()

    @property
    def id(self) -> str:
        return self.job.id

    async def _enqueue(self) -> None:
        keys = self.random.choices(range(400), k=self.random.randint(0, 40))
        is_last = self.random.random() < 0.5
        found = Discovered(self.id, [item(str(key)) for key in keys], self.at, is_last=is_last)
        await self.store.queue.enqueue(found)

    async def _lease(self) -> None:
        count = self.random.randint(1, 20)
        self.leases += await leased(self.store, self.job, count, at=self.at)

    async def _complete(self) -> None:
        some = [self.leases.pop() for _ in range(min(len(self.leases), 12))]
        await self.store.queue.complete_all([self._outcome(lease) for lease in some])

    def _outcome(self, lease: Lease) -> tuple[Lease, Outcome]:
        action = self.random.choice(_OUTCOMES)
        found = [item(f"{lease.item.key}/{n}") for n in range(self.random.choice([0, 0, 0, 2]))]
        if action is OutcomeAction.STORE:
            outcome = Outcome(action, record=record(lease.item.key))
        elif action is OutcomeAction.DEFER:
            outcome = Outcome(action, reason="later", due=self.at + 1)
        else:
            raw = {"page": 1} if self.random.random() < 0.7 else None
            outcome = Outcome(action, kind=FailureKind.INVALID, reason="odd", raw=raw)
        return attempt(lease, outcome, self.at, found=found)

    async def _release(self) -> None:
        some = [self.leases.pop() for _ in range(min(len(self.leases), 3))]
        await self.store.queue.release(some)

    async def _reclaim(self) -> None:
        killed = self.random.choice([[], ["me"]])
        await self.store.queue.reclaim(Reclaim(self.id, self.at, [], killed))

    async def _replay(self) -> None:
        held = await self.store.quarantine.held(self.id, limit=5)
        again = [self.random.choice([stored_again, still_invalid])(one) for one in held]
        await self.store.quarantine.complete(again, self.at)

    async def _retry(self) -> None:
        state = self.random.choice([None, ItemState.FAILED, ItemState.QUARANTINED])
        await self.store.failures.requeue(FailureQuery(self.id, state=state), self.at)

    async def _skip_before(self) -> None:
        await self.store.queue.skip_before(self.id, str(self.random.randint(0, 20)), "no", self.at)


_PROFILE = {"records": 1}


@pytest.mark.parametrize("seed", range(3))
async def test_rows_follow_from_events_after_any_action(store: Store, seed: int) -> None:
    random = Random(seed)
    actors = [Actor(store, await store.jobs.create(new_job(n=n)), random) for n in range(2)]
    followed = {actor.id: Followed() for actor in actors}
    seen, cursor = set(), 0

    for _ in range(100):
        actor = random.choice(actors)
        await actor.act()
        events, cursor = await store.events.read(cursor, EventFilter(), limit=1000)
        for event in events:
            followed[event.job or ""].apply(event)
            seen.add(event.type)
        assert followed[actor.id].as_counted() == await rows_of(store, actor.id)

    assert {"items.enqueued", "items.skipped", "job.reopened", "item.deferred"} <= seen


async def held_job(store: Store, action: OutcomeAction, *keys: str) -> Job:
    """Return a job that has ended, all of whose items failed or were quarantined."""
    job = await queued(store, *keys, is_last=True)
    for lease in await leased(store, job, len(keys)):
        outcome = Outcome(action, kind=FailureKind.INVALID, reason="no title", raw={"page": 1})
        await complete(store, attempt(lease, outcome, EPOCH))
    await store.jobs.finish(job.id, EPOCH)
    return job


def stored_again(held: QuarantinedItem) -> ReprocessedItem:
    return ReprocessedItem(held, Outcome(OutcomeAction.STORE, record=record(held.item.key)))


def still_invalid(held: QuarantinedItem) -> ReprocessedItem:
    outcome = Outcome(OutcomeAction.QUARANTINE, kind=FailureKind.INVALID, reason="odd", raw={})
    return ReprocessedItem(held, outcome)
