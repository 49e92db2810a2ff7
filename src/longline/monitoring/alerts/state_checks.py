"""Rules about what is wrong now: jobs, domains, schedules, flows, workers, events, the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from statistics import median
from typing import Any

from longline.core.model import JobState
from longline.monitoring.alerts.conditions import AlertCondition
from longline.monitoring.alerts.rules import Rule
from longline.monitoring.alerts.run_checks import RunSeries, duration_text, usual_duration
from longline.storage.events.subscribers import WEBHOOK, Subscriber
from longline.storage.events.webhooks import Webhook
from longline.storage.monitoring.alert_inputs import AlertInputs, MeasuredRun
from longline.storage.queue.queue import PAUSED_BY_USER

_BY_PERSON = (PAUSED_BY_USER, "interrupted")  # reasons of jobs that a person has stopped
_DAY, _HOUR = 86_400.0, 3600.0
_RECENT = 7 * _DAY  # seconds that a state that nothing has changed since is reported
_RETIRED = 14 * _DAY  # seconds after which a source without runs is not expected to run
_MIN_GAPS = 6  # times between runs, from which it is learned how often a source runs
_MAX_GAPS = 15  # of older runs, not all are read
_MIN_SPAN = 12 * _HOUR  # seconds that these runs cover
_REGULAR = 4.0  # the longest time between two runs, relative to the median
_LATE = 2.0  # how many of the longest times may pass
_GOOD = (JobState.COMPLETE, JobState.PARTIAL)


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The disk of a home, in bytes."""

    total: int
    free: int


@dataclass(frozen=True, slots=True)
class HomeState:
    """All that these rules examine.

    `runs` are the ended runs of each source, oldest first, and `series` those with the same
    options, by source and options. `disk` is None where it is not known.
    """

    now: float
    inputs: AlertInputs
    runs: Mapping[str, Sequence[MeasuredRun]]
    series: Mapping[tuple[str, str], RunSeries] = field(default_factory=dict)
    subscribers: Sequence[Subscriber] = ()
    webhooks: Sequence[Webhook] = ()
    disk: DiskSpace | None = None


def check_state(rule: Rule, home: HomeState) -> list[AlertCondition]:
    """Return what a rule finds wrong now, of all subjects that it is about."""
    check = _CHECKS.get(rule.kind)
    found = check(rule, home) if check else ()
    return [one for one in found if rule.applies_to(one.subject.partition("/")[2] or one.subject)]


def is_about_state(rule: Rule) -> bool:
    """Return whether a rule is about what is wrong now."""
    return rule.kind in _CHECKS


def _found(rule: Rule, subject: str, problem: str, **values: Any) -> AlertCondition:
    since, action = values.pop("since", None), values.pop("action")
    return AlertCondition(rule.name, subject, rule.severity, problem, values, action, since=since)


def _limit(rule: Rule) -> float:
    return inf if rule.max is None else rule.max


# ---------------- Jobs


def _no_progress(rule: Rule, home: HomeState) -> Iterator[AlertCondition]:
    for run in home.inputs.unfinished:
        since = max(run.changed_at or run.started_at, run.progress_at or 0.0)
        idle = home.now - since
        if run.state == JobState.RUNNING and idle > _limit(rule):
            yield _found(
                rule,
                f"source/{run.source}",
                f"{run.source}: a running job has finished no item for {duration_text(idle)}",
                job=run.job,
                observed=round(idle),
                limit=rule.max,
                since=since,
                action=f"See `longline jobs {run.job}`; if its process has died, continue it with "
                f"`longline resume {run.job}`.",
            )


def _long_running(rule: Rule, home: HomeState) -> Iterator[AlertCondition]:
    for run in home.inputs.unfinished:
        spent = home.now - run.started_at
        if run.state != JobState.RUNNING or run.starts > 1:
            continue
        series = home.series.get((run.source, run.options))
        usual = usual_duration(rule, series) if rule.is_learned and series else None
        limit = min(_limit(rule), inf if usual is None else usual.high)
        bound = "the limit is" if limit == rule.max else "usually at most"
        if spent > limit:
            yield _found(
                rule,
                f"source/{run.source}",
                f"{run.source}: a job has been running for {duration_text(spent)}; {bound} "
                f"{duration_text(limit)}",
                job=run.job,
                observed=round(spent),
                expected=[None, round(limit)],
                runs_compared=0 if usual is None else usual.runs,
                since=run.started_at + limit,
                action=f"Look at its progress with `longline jobs {run.job}`; `longline pause "
                f"{run.job}` stops it safely.",
            )


def _waiting_jobs(rule: Rule, home: HomeState) -> Iterator[AlertCondition]:
    for run in home.inputs.unfinished:
        if run.state != JobState.PAUSED or run.is_continued or run.reason in _BY_PERSON:
            continue
        yield _found(
            rule,
            f"source/{run.source}",
            f"{run.source}: a job is paused, and no process continues it: {run.reason}",
            job=run.job,
            reason=run.reason,
            since=run.changed_at,
            action=f"Correct the cause and run `longline resume {run.job}`, or `longline cancel "
            f"{run.job}`.",
        )


def _failed_launches(rule: Rule, home: HomeState) -> Iterator[AlertCondition]:
    newest = {row["source"]: row["changed_at"] or 0.0 for row in home.inputs.sources}
    last = {one.source: one for one in home.inputs.failed_launches}
    for one in last.values():
        if one.ended_at > newest.get(one.source, 0.0):  # no job has begun since
            yield _found(
                rule,
                f"source/{one.source}",
                f"{one.source}: the last run could not be started: {one.reason}",
                launch=one.launch,
                reason=one.reason,
                since=one.ended_at,
                action=f"See `longline launches show {one.launch}`, and correct the cause.",
            )


# ---------------- Sources


def _stale_data(rule: Rule, home: HomeState) -> Iterator[AlertCondition]:
    for source, runs in home.runs.items():
        ends = [run.ended_at for run in runs if run.state in _GOOD]
        learned = usual_interval(ends) if rule.is_learned else None
        limits = [one for one in (rule.max, learned) if one is not None]
        age = home.now - ends[-1] if ends else None
        if source not in home.inputs.late and age is not None and limits:
            limit = min(limits)
            if limit < age <= max(_RETIRED, 10 * limit):
                yield _stale(rule, source, runs, limit, now=home.now, data_at=ends[-1])
    for source, event in home.inputs.late.items():
        data_at, limit = event.get("data_at"), event.get("limit") or 0.0
        yield _stale(rule, source, home.runs.get(source, ()), limit, now=home.now, data_at=data_at)


def usual_interval(ends: Sequence[float]) -> float | None:
    """Return how much time may pass between two runs; None: they are few, or not regular."""
    gaps = [later - earlier for earlier, later in pairwise(ends)][-_MAX_GAPS:]
    if len(gaps) < _MIN_GAPS or sum(gaps) < _MIN_SPAN or max(gaps) > _REGULAR * median(gaps):
        return None
    return _LATE * max(gaps)


def _stale(
    rule: Rule,
    source: str,
    runs: Sequence[MeasuredRun],
    limit: float,
    *,
    now: float,
    data_at: float | None,
) -> AlertCondition:
    age = None if data_at is None else now - data_at
    job = runs[-1].job if runs else None
    how = "it has no data" if age is None else f"its data is {duration_text(age)} old"
    advice = f"`longline report {job}` shows the last run" if job else "it has never run"
    return _found(
        rule,
        f"source/{source}",
        f"{source}: {how}; the limit is {duration_text(limit)}",
        job=job,
        observed=None if age is None else round(age),
        limit=round(limit),
        since=None if data_at is None else data_at + limit,
        action=f"Check why no run has succeeded: {advice}; run it with `longline run {source}`.",
    )


def _drifted(rule: Rule, home: HomeState) -> Iterator[AlertCondition]:
    for row in home.inputs.sources:
        if row["is_sound"] is False and row["drift"]:
            source, job = row["source"], row["coverage_job"]
            yield _found(
                rule,
                f"source/{source}",
                f"{source}: the records of the last run have drifted: {'; '.join(row['drift'])}",
                job=job,
                drift=list(row["drift"]),
                since=row["changed_at"],
                action=f"See `longline drift show {source}`; correct the source, or accept the "
                f"change with `longline drift accept {job}`.",
            )


# ---------------- Domains


def _bans(rule: Rule, home: HomeState) -> Iterator[AlertCondition]:
    for row, about in _open_breakers(home):
        if _is_ban(row):
            domain = row["domain"]
            yield _found(
                rule,
                f"domain/{domain}",
                f"{domain} has banned us{about}: {row['ban_evidence']}",
                source=home.inputs.domain_sources.get(domain),
                reason=row["ban_evidence"],
                bans=row["bans"],
                until=row["breaker_until"],
                since=row["banned_at"],
                action=f"Lower the rate with `longline limits pin {domain} --rate 0.5`; "
                f"`longline breakers show {domain}` shows when requests resume.",
            )


def _breakers(rule: Rule, home: HomeState) -> Iterator[AlertCondition]:
    for row, about in _open_breakers(home):
        spent = home.now - row["breaker_since"]
        if not _is_ban(row) and spent > _limit(rule):
            domain = row["domain"]
            yield _found(
                rule,
                f"domain/{domain}",
                f"{domain}: the circuit breaker has been open for {duration_text(spent)}{about}: "
                f"{row['breaker_reason']}",
                source=home.inputs.domain_sources.get(domain),
                reason=row["breaker_reason"],
                observed=round(spent),
                limit=rule.max,
                trips=row["trips"],
                since=row["breaker_since"],
                action=f"Check whether the site is reachable; `longline breakers reset {domain}` "
                "closes the breaker.",
            )


def _open_breakers(home: HomeState) -> Iterator[tuple[Mapping[str, Any], str]]:
    for row in home.inputs.domains:
        if row["breaker"] == "open" and home.now - row["changed_at"] <= _RECENT:
            source = home.inputs.domain_sources.get(row["domain"])
            yield row, f" (source {source})" if source else ""


def _is_ban(row: Mapping[str, Any]) -> bool:
    banned_at = row["banned_at"]
    return banned_at is not None and banned_at >= row["breaker_since"]


# ---------------- Schedules, flows, workers, subscribers, disk


def _schedules(rule: Rule, home: HomeState) -> Iterator[AlertCondition]:
    for one in home.inputs.schedules:
        subject = f"schedule/{one.name}"
        history = f"`longline schedule history {one.name}` lists its occurrences"
        if one.paused_at is not None and one.failures:
            yield _found(
                rule,
                subject,
                f"schedule {one.name} is paused: {one.pause_reason}",
                failures=one.failures,
                reason=one.pause_reason,
                since=one.paused_at,
                action=f"{history}; correct the cause and run `longline schedule resume "
                f"{one.name}`.",
            )
        elif one.fate == "missed" and one.paused_at is None:
            yield _found(
                rule,
                subject,
                f"schedule {one.name}: the last occurrence was missed: {one.reason}",
                nominal_at=one.nominal_at,
                reason=one.reason,
                since=one.decided_at,
                action=f"{history}; `longline schedule run {one.name}` starts it now.",
            )


def _flows(rule: Rule, home: HomeState) -> Iterator[AlertCondition]:
    for one in home.inputs.flows:
        spent, is_waiting = home.now - one.since, one.state == "waiting"
        if is_waiting and spent <= _limit(rule):
            continue
        waited = f"has waited for approval for {duration_text(spent)}"
        what = waited if is_waiting else "needs attention"
        do = f"`longline flow approve {one.run}`" if is_waiting else "retry or undo it"
        yield _found(
            rule,
            f"flow/{one.run}",
            f"flow {one.flow} {what}: {one.reason or one.run}",
            flow=one.flow,
            run=one.run,
            reason=one.reason,
            observed=round(spent),
            since=one.since,
            action=f"See `longline flow show {one.run}`; then {do}.",
        )


def _workers(rule: Rule, home: HomeState) -> Iterator[AlertCondition]:
    for one in home.inputs.lost_workers:
        yield _found(
            rule,
            f"worker/{one.worker}",
            f"worker {one.worker} is lost: {one.reason or 'reason unknown'}",
            reason=one.reason,
            since=one.at,
            action="Check its machine and start it again with `longline worker`; `longline status` "
            "lists the workers.",
        )


def _event_lag(rule: Rule, home: HomeState) -> Iterator[AlertCondition]:
    disabled = {one.subscriber: one for one in home.webhooks if one.disabled_reason}
    for one in home.subscribers:
        subject = f"subscriber/{one.name}"
        webhook = disabled.get(one.name)
        if webhook is not None:
            yield _found(
                rule,
                subject,
                f"webhook {webhook.name} is disabled: {webhook.disabled_reason}",
                reason=webhook.disabled_reason,
                lag=one.lag,
                action=f"Correct its receiver and run `longline webhooks enable {webhook.name}`.",
            )
        elif one.is_enabled and one.waiting_since is not None:
            age = home.now - one.waiting_since
            if age > _limit(rule):
                is_webhook = one.name.startswith(WEBHOOK)
                name = one.name.removeprefix(WEBHOOK)
                see = f"webhooks deliveries {name}" if is_webhook else "events subscribers"
                why = f": {one.error}" if one.error else ""
                yield _found(
                    rule,
                    subject,
                    f"{one.name} has not handled any event for {duration_text(age)}{why}",
                    lag=one.lag,
                    observed=round(age),
                    limit=rule.max,
                    failures=one.failures,
                    reason=one.error,
                    since=one.waiting_since + _limit(rule),
                    action=f"See `longline {see}`; `longline serve` delivers events.",
                )


def _disk(rule: Rule, home: HomeState) -> Iterator[AlertCondition]:
    disk = home.disk
    if disk is None or rule.min is None or not disk.total:
        return
    share = disk.free / disk.total
    if share < rule.min:
        yield _found(
            rule,
            "home",
            f"the disk of the home is {1 - share:.1%} full; {disk.free / 1e9:,.1f} GB free",
            observed=round(share, 4),
            limit=rule.min,
            free_bytes=disk.free,
            action="Delete old exports and archives, run `longline cache clear`, or move the home "
            "to a larger disk.",
        )


def _few_proxies(rule: Rule, home: HomeState) -> Iterator[AlertCondition]:
    pool = home.inputs.proxies
    wanted = None if pool is None else pool.minimum if rule.min is None else rule.min
    if pool is None or wanted is None or pool.usable >= wanted:
        return
    dead, held = pool.states.get("dead", 0), pool.states.get("quarantined", 0)
    yield _found(
        rule,
        "home",
        f"{pool.usable} proxies are usable, of at least {wanted:g}; {dead} are dead and {held} in "
        "quarantine",
        observed=pool.usable,
        limit=wanted,
        since=pool.at,
        action="See `longline proxies stats`; add sources to proxies.candidates, or run "
        "`longline proxies refresh`.",
    )


_CHECKS: Mapping[str, Callable[[Rule, HomeState], Iterator[AlertCondition]]] = {
    "no-progress": _no_progress,
    "long-run": _long_running,
    "job-waiting": _waiting_jobs,
    "run-failed": _failed_launches,
    "stale-data": _stale_data,
    "drift": _drifted,
    "ban": _bans,
    "breaker-open": _breakers,
    "missed-schedule": _schedules,
    "flow-waiting": _flows,
    "worker-gone": _workers,
    "event-lag": _event_lag,
    "disk-low": _disk,
    "few-proxies": _few_proxies,
}
