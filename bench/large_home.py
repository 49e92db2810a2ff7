"""Builds large homes with the functions that longline itself stores with."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from longline.analysis.duplicates import find_duplicates
from longline.analysis.match_rules import Rules
from longline.config.job_spec import JobSpec
from longline.core.clock import SystemClock
from longline.core.errors import FailureKind
from longline.core.model import Failure, Item, Outcome, OutcomeAction, Record, Usage
from longline.drift.profiles import profile_run, shape_of
from longline.pipeline.pipeline import Material
from longline.pipeline.quality import score
from longline.scheduling.flow import FrozenFlow, load_flow
from longline.scheduling.flow_runner import start_flow
from longline.storage.events.events import event_row
from longline.storage.jobs import NewJob
from longline.storage.monitoring.alerts import Alert, AlertChange, AlertState
from longline.storage.monitoring.logs import LogLine
from longline.storage.profiles import DriftResult
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim
from longline.storage.scheduling.flows import FlowState
from longline.storage.scheduling.launches import SOURCE, NewLaunch
from longline.storage.store import Store

_EVERY_OPEN = 503  # of the jobs: it has not ended
_EVERY_FAILED = 9
_EVERY_QUARANTINED = 37
_EVERY_DRIFTED = 41  # of the jobs
_EVERY_WAITING = 40  # of the runs of flows: it waits for a person
_SHARED = 10  # items of each job that its source had before, with other values
_FIELDS = 20
_ALERTS, _OPEN_ALERTS = 2000, 40
_TEXT = "A thing like others. " * 10
_FLOW = """\
flow: {name}
about: A flow of a benchmark.
steps:
  - name: first
    command: ["true"]
  - name: ask
    approve: "Publish all?"
    after: first
"""
_RULES = {
    "match": "things",
    "sources": ["source-0", "source-1"],
    "block": [["code"]],
    "compare": {"title": {"weight": 1}, "price": {"weight": 5}, "text": {"weight": 3}},
    "threshold": 8,
}


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a home has: `items` of each job; the first job begins at `start`, each after `interval`.

    With `is_mixed`, some records change, and some items fail with their attempts, or are
    quarantined; without it, each job has only records of its own.
    """

    jobs: int
    items: int
    sources: int
    start: float
    interval: float
    is_mixed: bool = False


def source_name(number: int) -> str:
    """Return the name of a source."""
    return f"source-{number}"


# ---------------- Jobs


async def add_jobs(store: Store, amounts: Amounts) -> None:
    """Add the jobs that a home does not have yet."""
    ended: defaultdict[str, list[str]] = defaultdict(list)
    for number in range(len(await store.jobs.list(limit=None)), amounts.jobs):
        source = source_name(number % amounts.sources)
        job = await _run_job(store, number, amounts, ended[source][-5:])
        ended[source].append(job)


async def _run_job(store: Store, number: int, amounts: Amounts, before: Sequence[str]) -> str:
    at, count = amounts.start + number * amounts.interval, amounts.items
    source, is_open = source_name(number % amounts.sources), number % _EVERY_OPEN == 0
    settings = JobSpec(source=source, limit=count).snapshot()
    job = await store.jobs.create(NewJob(source, settings, {"number": number}, at))
    await store.jobs.start(job.id, at + 1)
    domain = f"site-{number}.test"
    shared = _SHARED if amounts.is_mixed else 0
    keys = [f"{source}-{n}" if n < shared else f"{number}-{n}" for n in range(count)]
    found = [Item(key, f"https://{domain}/{key}") for key in keys]
    await store.queue.enqueue(Discovered(job.id, found, at + 2, is_last=True))
    leases = await store.queue.lease(Claim(job.id, "bench", count, at + 3, at + 60))
    attempts = []
    for place, lease in enumerate(leases[: count // 2] if is_open else leases):
        if amounts.is_mixed:
            outcome = _mixed_outcome(source, lease.item, number // amounts.sources, place)
        else:
            outcome = _outcome(source, lease.item, place)
        attempts.append((lease, replace(outcome, at=at + 4 + place)))
    await store.queue.complete_all(attempts)
    trouble = {"domain": domain, "reason": "errors", "until": at + 140}
    learned = {"domain": domain, "rate": 2.0}
    name, data = ("breaker.opened", trouble) if number % 5 == 0 else ("limit.learned", learned)
    await store.events.append(event_row(job.id, at + 80, name, **data))
    if is_open:
        return job.id
    result = None
    if amounts.is_mixed:
        result = _drift_result(count, before, is_drifted=number % _EVERY_DRIFTED == 0)
    else:
        coverage = {f"field_{one}": 0.9 for one in range(_FIELDS)}
        profile = {"source": source, "records": count, "invalid": 0, "coverage": coverage}
        sound = {"is_sound": True, "drift": []}
        await store.events.append(event_row(job.id, at + 90, "source.profiled", **profile, **sound))
    await store.jobs.finish(job.id, at + 100 + count, result)
    return job.id


def _outcome(source: str, item: Item, place: int) -> Outcome:
    usage = Usage(requests=1)
    usage.add_response(200, 13_000, 0.01 * (place % 70))
    if place % _EVERY_FAILED == 0:
        return Outcome(
            OutcomeAction.FAIL, kind=FailureKind.NETWORK, reason="refused", seconds=0.3, usage=usage
        )
    data = {"title": f"Thing {item.key}", "price": place, "text": _TEXT}
    record = Record(source, item.key, item.url, data, fingerprint=item.key)
    return Outcome(OutcomeAction.STORE, record=record, seconds=0.2, usage=usage)


def _mixed_outcome(source: str, item: Item, lap: int, place: int) -> Outcome:
    data = _data(lap, place)
    if place % _EVERY_QUARANTINED == _EVERY_QUARANTINED - 1:
        reason = "price: must be a number"
        raw = Material({"page": data}, layers={"page": "ok"}, problems=[reason]).as_raw()
        kind = FailureKind.INVALID
        return replace(
            _outcome(source, item, 1),
            action=OutcomeAction.QUARANTINE,
            record=None,
            kind=kind,
            reason=reason,
            raw=raw,
        )
    outcome = _outcome(source, item, place + 1 if place < _SHARED else place)
    if outcome.record is None:
        reason = f"item {item.key}: {item.url}: connection refused"
        outcome.usage.failures += [
            Failure(0.0, item.url, FailureKind.NETWORK, reason, step, 0.3)
            for step in ("retried", "gave up")
        ]
        return replace(outcome, reason=reason)
    layers = {"page": "ok"}
    record = Record(
        source,
        item.key,
        item.url,
        data,
        fingerprint=f"{item.key} {data['price']}",
        provenance=dict.fromkeys(data, f"page {item.url}"),
        layers=layers,
        quality=score(None, ["page"], data, layers),
    )
    return replace(outcome, record=record)


def _data(lap: int, place: int) -> dict[str, Any]:
    empty = {f"field_{one}": None for one in range(place % 4)}
    fields = {f"field_{one}": f"value {one} of {place}" for one in range(place % 4, 10)}
    code = f"{lap}-{place}"
    data = {"title": f"Thing {code}", "price": place + lap, "text": _TEXT, "code": code}
    return {**data, "tags": ["one", "two"], **empty, **fields}


def _drift_result(count: int, before: Sequence[str], *, is_drifted: bool) -> DriftResult:
    drift = {"field_3": "field_3 is filled in 75 % of the records, before in 100 %"}
    profile = {
        **_profile(count),
        "scope": "",
        "items": count,
        "measured_by": list(before),
        "definitions": {},
        "drift": drift if is_drifted else {},
    }
    return DriftResult(profile, tuple(drift.values()) if is_drifted else ())


@cache
def _profile(count: int) -> Mapping[str, Any]:
    profile, _ = profile_run([shape_of(str(n), _data(0, n), 0.9) for n in range(count)])
    return profile.as_json()


# ---------------- Everything else


async def add_others(store: Store, amounts: Amounts, *, flows: Path) -> None:
    """Add alerts, log lines, launches, runs of flows and duplicates, unless there are some."""
    if await store.matches.kinds():
        return
    end = amounts.start + amounts.jobs * amounts.interval
    await _add_alerts(store, amounts, end)
    await _add_logs(store, amounts)
    await _add_launches(store, amounts, end)
    await _add_flow_runs(store, flows, end)
    await find_duplicates(store.matches, Rules.model_validate(_RULES), clock=SystemClock())


async def _add_alerts(store: Store, amounts: Amounts, end: float) -> None:
    resolved: dict[str, Any] = {"state": AlertState.RESOLVED, "resolved_at": end}

    def alert(number: int) -> Alert:
        since = end - number * 600.0
        return Alert(
            rule="partial",
            subject=f"source/{source_name(number % amounts.sources)}",
            state=AlertState.FIRING,
            severity="critical" if number % 5 == 0 else "warning",
            summary="its last run lacks a tenth of its items",
            evidence={"failed": 12, "items": 110},
            action="Look at the failures of the job.",
            since=since,
            seen_at=since,
            fired_at=since,
        )

    # One of each rule and source is open, so each round resolves those of the one before.
    for start in range(0, _ALERTS, _OPEN_ALERTS):
        some = [alert(_ALERTS - number) for number in range(start, start + _OPEN_ALERTS)]
        await store.alerts.change(
            lambda opened, some=some: [
                *(AlertChange(replace(one, **resolved), "alert.resolved") for one in opened),
                *(AlertChange(one, "alert.firing") for one in some),
            ],
            end,
        )


async def _add_logs(store: Store, amounts: Amounts) -> None:
    jobs = await store.jobs.list(limit=amounts.jobs)
    for start in range(0, len(jobs), 500):
        lines = [
            LogLine(
                at=job.created_at + place,
                level=logging.ERROR if place % 3 == 0 else logging.WARNING,
                logger="longline.engine",
                message=f"item {place} of {job.source} failed: connection refused",
                job=job.id,
                source=job.source,
                domain=f"site-{place}.test",
                item=f"{job.id}-{place}",
                fields={"attempt": place},
            )
            for job in jobs[start : start + 500]
            for place in range(10)
        ]
        await asyncio.wrap_future(store.logs.add_soon(lines, max_per_job=None))


async def _add_launches(store: Store, amounts: Amounts, end: float) -> None:
    for job in await store.jobs.list(limit=amounts.jobs // 5):
        at = job.created_at
        spec = {"source": job.source}
        new = NewLaunch(SOURCE, job.source, spec, f"schedule/{job.source}", at)
        launch = await store.launches.place(new)
        await store.launches.lease_one(launch, "bench", at, at + 60)
        await store.launches.attach(launch, "bench", job.id, at)
        await store.launches.finish(launch, "bench", end, result=job.state.value, reason=job.reason)


async def _add_flow_runs(store: Store, folder: Path, end: float) -> None:
    for number in range(400):
        name = f"flow-{number % 20}"
        flow = _load_flow(folder, name)
        at = end - (400 - number) * 3600.0
        run = await start_flow(store, flow, {}, at=at, origin=f"schedule/{name}")
        [leased] = [
            one for one in await store.flows.lease("bench", at, at + 60) if one.id == run.id
        ]
        lease = leased.lease
        await store.flows.begin_step(lease, "first", at, input_hash="", undo=None)
        await store.flows.complete_step(lease, "first", at + 9, {})
        await store.flows.wait_for_approval(lease, "ask", at + 10, None)
        is_waiting = number % _EVERY_WAITING == 0
        state = FlowState.WAITING if is_waiting else FlowState.COMPLETE
        await store.flows.change_state(lease, state, at + 60)


@cache
def _load_flow(folder: Path, name: str) -> FrozenFlow:
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.yaml"
    file.write_text(_FLOW.format(name=name), "utf-8")
    return load_flow(str(file))
