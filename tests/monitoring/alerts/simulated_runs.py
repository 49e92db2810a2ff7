"""Runs of sources that are written through the store, with the numbers that a test gives them."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from longline.core.errors import FailureKind
from longline.core.model import Failure, Item, Job, Outcome, OutcomeAction, Record, Usage
from longline.storage.events.events import event_row
from longline.storage.jobs import NewJob
from longline.storage.monitoring.alert_inputs import MeasuredRun
from longline.storage.monitoring.logs import LogLine
from longline.storage.profiles import DriftResult
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim
from longline.storage.store import Store


@dataclass(frozen=True)
class Numbers:
    """What a run is like; `changed` of its `records` are new versions, the others unchanged.

    `statuses` and `kinds` count failed attempts, by HTTP status and without a response.
    """

    records: int = 30
    changed: int = 0
    failed: int = 0
    quarantined: int = 0
    seconds: float = 60.0
    requests: int = 100
    retries: int = 0
    statuses: Mapping[int, int] = field(default_factory=dict)
    kinds: Mapping[FailureKind, int] = field(default_factory=dict)
    coverage: Mapping[str, float] | None = None
    examined: int | None = None
    drift: tuple[str, ...] = ()
    cut: str | None = None
    warnings: tuple[str, ...] = ()
    logged: Mapping[int, int] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


USUAL = Numbers(
    records=40, changed=4, requests=100, coverage={"title": 1.0, "price": 0.9}, examined=200
)
BAD = {  # of each rule about the last run, a run that it finds; all else is as usual
    "few-records": replace(USUAL, records=2, changed=0),
    "log-critical": replace(USUAL, logged={logging.CRITICAL: 1}),
    "log-errors": replace(USUAL, logged={logging.ERROR: 30}),
    "log-warnings": replace(USUAL, logged={logging.WARNING: 90}),
    "http-errors": replace(USUAL, requests=130, statuses={503: 20, 403: 10}),
    "request-failures": replace(USUAL, requests=130, kinds={FailureKind.TIMEOUT: 30}),
    "retries": replace(USUAL, requests=160, retries=60),
    "few-successes": replace(USUAL, requests=160, statuses={404: 60}),
    "many-requests": replace(USUAL, requests=900),
    "failed-items": replace(USUAL, failed=20),
    "quarantined-items": replace(USUAL, quarantined=15),
    "field-coverage": replace(USUAL, coverage={"title": 1.0, "price": 0.4}),
    "changed-share": replace(USUAL, changed=39),
    "long-run": replace(USUAL, seconds=5000),
    "run-partial": replace(USUAL, cut="the list ended at page 3"),
    "run-warnings": replace(USUAL, warnings=("95% of 40 records have the same title",)),
    "drift": replace(USUAL, drift=("price is present in 10 of 40 records",)),
}


async def start_run(store: Store, source: str, at: float, numbers: Numbers) -> Job:
    """Create and start a job with its items."""
    settings = {"set": {}, "params": {}, "limit": None, **numbers.settings}
    job = await store.jobs.create(NewJob(source, settings, settings, at))
    await store.jobs.start(job.id, at)
    count = numbers.records + numbers.failed + numbers.quarantined
    items = [Item(f"{number}", f"https://{source}.test/{number}") for number in range(count)]
    usage = Usage(requests=numbers.requests - count, retries=numbers.retries)
    usage.failures += [
        *(_failure(at, FailureKind.SERVER, one, status) for status, one in _each(numbers.statuses)),
        *(_failure(at, kind, one) for kind, one in _each(numbers.kinds)),
    ]
    if numbers.cut is not None:
        usage.add_event("discovery.cut", reason=numbers.cut)
    for warning in numbers.warnings:
        usage.add_event("discovery.warning", reason=warning)
    await store.queue.enqueue(Discovered(job.id, items, at, is_last=True, usage=usage))
    return job


async def finish_run(store: Store, source: str, at: float, numbers: Numbers) -> str:
    """Write a whole run that ends at a time, through the public functions of the store."""
    began = at - numbers.seconds
    job = await start_run(store, source, began, numbers)
    leases = await store.queue.lease(Claim(job.id, "me", 10_000, began, at + 20))
    outcomes = [
        (lease, _outcome(source, lease.item, place, numbers, at))
        for place, lease in enumerate(leases)
    ]
    await store.queue.complete_all(outcomes)
    await log_lines(store, job.id, source, at, numbers.logged)
    await store.jobs.finish(job.id, at, _profile(numbers))
    return job.id


def _outcome(source: str, item: Item, place: int, numbers: Numbers, at: float) -> Outcome:
    usage = Usage(requests=1)
    if place < numbers.records:
        version = f"{at}" if place < numbers.changed else "same"
        record = Record(source, item.key, item.url, {"n": place}, version)
        return Outcome(OutcomeAction.STORE, record=record, at=at, usage=usage)
    if place < numbers.records + numbers.failed:
        kind, action = FailureKind.SERVER, OutcomeAction.FAIL
        return Outcome(action, kind=kind, reason="500", at=at, usage=usage)
    kind, action = FailureKind.INVALID, OutcomeAction.QUARANTINE
    return Outcome(action, kind=kind, reason="no title", raw={}, at=at, usage=usage)


def _profile(numbers: Numbers) -> DriftResult | None:
    if numbers.coverage is None:
        return None
    examined = numbers.records if numbers.examined is None else numbers.examined
    fields = {name: {"filled": round(share * examined)} for name, share in numbers.coverage.items()}
    profile = {
        "records": examined,
        "invalid": numbers.quarantined,
        "fields": fields,
        "drift": dict.fromkeys(numbers.drift, ""),
    }
    return DriftResult(profile, numbers.drift)


async def log_lines(
    store: Store, job: str, source: str, at: float, logged: Mapping[int, int]
) -> None:
    """Store this many lines of each level."""
    lines = [
        LogLine(at, level, "longline.test", f"line {one}", job=job, source=source)
        for level, count in logged.items()
        for one in range(count)
    ]
    if lines:
        await asyncio.wrap_future(store.logs.add_soon(lines, max_per_job=None))


def _each(counts: Mapping[Any, int]) -> list[tuple[Any, int]]:
    return [(name, one) for name, count in counts.items() for one in range(count)]


def _failure(at: float, kind: FailureKind, number: int, status: int | None = None) -> Failure:
    return Failure(at, f"https://a.test/{number}", kind, "it failed", "retried", 0.1, status)


async def open_breaker(store: Store, job: str, at: float, domain: str, *, is_ban: bool) -> None:
    """Append what the request chain appends when the breaker of a domain opens."""
    reason = "the page is a challenge" if is_ban else "10 failures in a row"
    rows = [event_row(job, at, "breaker.opened", domain=domain, reason=reason, until=at + 60)]
    if is_ban:
        rows.append(
            event_row(job, at, "domain.blocked", domain=domain, evidence=reason, until=None)
        )
    await store.events.append(*rows)


async def close_breaker(store: Store, job: str, at: float, domain: str) -> None:
    """Append what the request chain appends when the breaker of a domain closes."""
    await store.events.append(
        event_row(job, at, "breaker.closed", domain=domain, reason="a probe succeeded")
    )


# ---------------- Normal variation

_DAY = 86_400.0
_SATURDAY = 5


class SimulatedSource:
    """A source whose runs vary as those of real ones do, with a weekly rhythm.

    Counts, durations, coverage, errors and changes each have their own level and noise.
    """

    def __init__(self, name: str, seed: int, *, interval: float = _DAY, records: int = 0) -> None:
        self._rng = rng = random.Random(f"{name} {seed}")
        self.name = name
        self.interval = interval
        self._records = records or rng.choice([60, 120, 400, 2000])
        self._noise = rng.uniform(0.02, 0.1)
        self._weekend = rng.choice([0.0, 0.0, 0.1, 0.3])
        self._seconds = rng.uniform(60, 3600)
        self._fields = {f"f{number}": rng.choice([1.0, 0.97, 0.8, 0.5]) for number in range(6)}
        self._changed = rng.choice([0.02, 0.1, 0.4])
        self._bad = rng.choice([0.0, 0.005, 0.02])
        self._warnings = rng.choice([0, 2, 15])

    def normal(self, at: float) -> Numbers:
        """Return the numbers of a run with normal variation."""
        rng = self._rng
        is_weekend = int(at // _DAY + 3) % 7 >= _SATURDAY  # the epoch was a Thursday
        level = self._records * (1 - self._weekend * is_weekend)
        records = max(1, round(level * math.exp(rng.gauss(0, self._noise))))
        requests = records + rng.randint(3, 8)
        refused = self._binomial(requests, self._bad)
        changed = self._binomial(records, min(1.0, self._changed * rng.uniform(0.5, 1.5)))
        examined = min(records, 1500)
        coverage = {
            name: self._binomial(examined, share) / examined for name, share in self._fields.items()
        }
        spike = rng.choice([1.0] * 19 + [1.8])
        return Numbers(
            records=records,
            changed=changed,
            failed=self._binomial(records, self._bad / 2),
            quarantined=self._binomial(records, self._bad / 4),
            seconds=self._seconds * spike * math.exp(rng.gauss(0, 0.2)),
            requests=requests + 2 * refused + round(records * self._bad),
            retries=refused,
            statuses={503: refused} if refused else {},
            kinds={FailureKind.TIMEOUT: 1} if rng.random() < self._bad * 10 else {},
            coverage=coverage,
            logged={logging.WARNING: self._binomial(2 * self._warnings, 0.5)},
        )

    def _binomial(self, count: int, share: float) -> int:
        if count > 200:
            spread = math.sqrt(count * share * (1 - share))
            return min(count, max(0, round(self._rng.gauss(count * share, spread))))
        return sum(self._rng.random() < share for _ in range(count))


def measured(source: str, at: float, numbers: Numbers, *, options: str = "") -> MeasuredRun:
    """Return a run with these numbers as the store would measure it."""
    bad = numbers.failed + numbers.quarantined
    return MeasuredRun(
        job=f"{source}-{at:.0f}",
        source=source,
        options=options,
        identity="",
        state="partial" if bad else "complete",
        reason=None,
        starts=1,
        started_at=at - numbers.seconds,
        ended_at=at,
        items={
            "stored": numbers.changed,
            "unchanged": numbers.records - numbers.changed,
            "failed": numbers.failed,
            "quarantined": numbers.quarantined,
        },
        counters={"requests": numbers.requests, "retries": numbers.retries},
        failures={str(kind): one for kind, one in numbers.kinds.items()},
        statuses=dict(numbers.statuses),
        logged=dict(numbers.logged),
        coverage=numbers.coverage,
        examined=numbers.records if numbers.examined is None else numbers.examined,
        warnings=numbers.warnings,
    )
