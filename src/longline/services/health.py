"""Health of a home while it works: the checks of `longline health` and of /readyz.

The checks of the doctor that concern a running home are used again; those of an installation, such
as settings and sources, are left to the doctor. No check depends on the state of a site.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import psutil

from longline.config.plugins import HEALTH, load_plugin, plugin_names
from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.core.errors import BadFile, BadSource, StoreError
from longline.core.output import count_text
from longline.http.proxies.configuration import read_proxy_settings
from longline.monitoring.alerts.alerting import EvaluationState, read_evaluation
from longline.monitoring.alerts.configuration import read_alert_settings
from longline.scheduling.upcoming import due_since
from longline.services.background import SILENT, last_heartbeat, server_pids
from longline.services.doctor.doctor import disk, examine, home
from longline.services.doctor.findings import (
    Check,
    CheckContext,
    Finding,
    Verdict,
    ok,
    problem,
    warning,
)
from longline.services.doctor.servers import (
    abandoned_jobs,
    ask_database,
    broker,
    database,
    own_services,
    redis,
    workers,
)
from longline.storage.database import Database
from longline.storage.monitoring.totals import HomeTotals
from longline.storage.proxy_refresh import PoolSummary, Refresh
from longline.storage.scheduling.schedules import StoredSchedule
from longline.storage.store import Store

_TIMEOUT = 5.0  # seconds for all checks, which run in parallel
_SERVE = "run `longline serve --no-web`"
_LONG_LAG = 300.0  # seconds that an event, a due item or a due launch may wait
_MOST_SCHEDULES = 5  # late ones that are named
_LONGEST_REFRESH = 2 * 3600.0  # seconds that a refresh of proxies may take
_EXPIRES_SOON = 14 * 86400.0  # seconds


class HealthState(StrEnum):
    """The health of a home, or of one of its parts."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILED = "failed"


_STATE_OF = {
    Verdict.OK: HealthState.OK,
    Verdict.WARNING: HealthState.DEGRADED,
    Verdict.PROBLEM: HealthState.FAILED,
}


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The findings of the checks, the worst last."""

    findings: Sequence[Finding]

    @property
    def state(self) -> HealthState:
        """The worst state of all."""
        states = [_STATE_OF[one.verdict] for one in self.findings]
        worst_first = (HealthState.FAILED, HealthState.DEGRADED)
        return next((state for state in worst_first if state in states), HealthState.OK)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        checks = [
            {"check": one.about, "state": _STATE_OF[one.verdict].value, **_texts(one)}
            for one in self.findings
        ]
        return {"state": self.state.value, "checks": checks}


def _texts(finding: Finding) -> dict[str, Any]:
    shown = asdict(finding)
    return {"sentence": shown["sentence"], "remedy": shown["remedy"]}


# ---------------- Checks of a running home


def executor(context: CheckContext) -> Iterator[Finding]:
    """Check that the servers of this machine work."""
    folder = context.settings.home.absolute()
    running = _running_servers(context)
    for pid in running:
        silent = context.now() - (last_heartbeat(folder, pid) or 0.0)
        if silent > SILENT:
            sentence = f"the server (process {pid}) has sent no heartbeat for {silent:.0f} s"
            yield problem("executor", sentence, f"see its log; run `kill {pid}` and start it again")
        else:
            yield ok("executor", f"a server is running (process {pid})")
    if not running:
        yield ok("executor", "no server is running on this machine")


def _running_servers(context: CheckContext) -> list[int]:
    folder = context.settings.home.absolute()
    return [pid for pid in server_pids(folder) if psutil.pid_exists(pid)]


def alerts(context: CheckContext) -> Iterator[Finding]:
    """Check that the settings of alerts are valid, and that a server evaluates the rules."""

    async def read(opened: Database) -> tuple[EvaluationState, Sequence[str]]:
        store = Store(opened)
        names = [one.name for one in await store.webhooks.list()]
        return await read_evaluation(store, SystemClock()), names

    found = None
    with suppress(StoreError):  # the check of the database reports it
        found = ask_database(context, read)
    state, webhooks = found or (None, None)
    try:
        read_alert_settings(webhooks)
    except BadFile as error:
        sentence = f"the settings of alerts are not applied: {error}"
        yield warning("alerts", sentence, "correct the file; `longline config validate` checks it")
    if state is not None:
        yield _check_evaluation(state, context)


def _check_evaluation(found: EvaluationState, context: CheckContext) -> Finding:
    if found.error is not None:
        silent = context.now() - (found.failed_at or context.now())
        sentence = f"rules have not been evaluated for {silent:.0f} s: {found.error}"
        return warning("alerts", sentence, "see `longline logs`")
    if found.evaluated_at is None:
        return ok("alerts", "rules were never evaluated; `longline serve` evaluates them")
    silent = max(0.0, context.now() - found.evaluated_at)
    sentence = f"rules were last evaluated {silent:.0f} s ago"
    if silent > _LONG_LAG and _running_servers(context):
        return warning("alerts", f"{sentence}, although a server is running", "see `longline logs`")
    return ok("alerts", sentence)


def waiting_work(context: CheckContext) -> Iterator[Finding]:
    """Check that schedules, launches, events and items are processed in time."""

    async def read(opened: Database) -> tuple[HomeTotals, Sequence[StoredSchedule]]:
        store = Store(opened)
        totals = await store.totals.read(context.now(), max_domains=1)
        return totals, await store.schedules.list()

    try:
        found = ask_database(context, read)
    except StoreError:  # the check of the database reports it
        return
    if found is not None:
        totals, schedules = found
        yield from _check_schedules(schedules, totals.at)
        yield from _check_launches(totals)
        yield from _check_events(totals)
        yield from _check_items(totals)


def _check_schedules(stored: Sequence[StoredSchedule], now: float) -> Iterator[Finding]:
    late = {one.name: now - at for one in stored if (at := due_since(one)) is not None}
    late = {name: seconds for name, seconds in late.items() if seconds > _LONG_LAG}
    for name, seconds in sorted(late.items())[:_MOST_SCHEDULES]:
        sentence = f"the schedule {name} has been due for {seconds:.0f} s"
        yield warning("schedules", sentence, _SERVE)
    if len(late) > _MOST_SCHEDULES:
        sentence = f"{len(late) - _MOST_SCHEDULES:,} more schedules are due"
        yield warning("schedules", sentence, _SERVE)
    if not late:
        yield ok("schedules", "schedules start on time")


def _check_launches(found: HomeTotals) -> Iterator[Finding]:
    late = 0.0 if found.due_since is None else found.at - found.due_since
    if late > _LONG_LAG:
        sentence = f"a launch has been due for {late:.0f} s"
        remedy = f"{_SERVE}, or raise executor_jobs; `longline launches list` lists them"
        yield warning("launches", sentence, remedy)
    else:
        yield ok("launches", "launches start on time")


def _check_events(found: HomeTotals) -> Iterator[Finding]:
    waiting = [one for one in found.subscribers if one.is_enabled and one.waiting_since is not None]
    late = [one for one in waiting if found.at - (one.waiting_since or 0.0) > _LONG_LAG]
    for one in late:
        seconds = found.at - (one.waiting_since or 0.0)
        events = count_text(one.lag, "event")
        sentence = f"{one.name} is {events} behind; the oldest is {seconds:.0f} s old"
        remedy = f"{_SERVE}; `longline events subscribers` shows errors"
        yield warning("event lag", sentence, remedy)
    if not late:
        yield ok("event lag", "subscribers receive events on time")


def _check_items(found: HomeTotals) -> Iterator[Finding]:
    since = {name: one.waiting_since or found.at for name, one in found.sources.items()}
    late = {name: found.at - at for name, at in since.items() if found.at - at > _LONG_LAG}
    for name, seconds in sorted(late.items()):
        sentence = f"items of {name} are due, but none has been finished for {seconds:.0f} s"
        yield warning(
            "due items", sentence, "run `longline top`, and resume jobs that have no process"
        )
    if not late:
        yield ok("due items", "running jobs process their due items")


def certificates(context: CheckContext) -> Iterator[Finding]:
    """Check that the own certificate authorities are valid for some time."""
    file = context.settings.ca_file
    if file is None:
        return
    try:
        store = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        store.load_verify_locations(file)
    except (OSError, ValueError) as error:
        sentence = f"ca_file {file} cannot be used ({error})"
        yield problem("certificates", sentence, "write PEM certificates into it, or unset ca_file")
        return
    ends = [ssl.cert_time_to_seconds(str(one["notAfter"])) for one in store.get_ca_certs()]
    left = min(ends, default=float("inf")) - context.now()
    if left < _EXPIRES_SOON:
        state = "has expired" if left < 0 else f"expires in {left / 86400:.0f} days"
        sentence = f"a certificate in ca_file {file} {state}"
        yield warning("certificates", sentence, "replace it in the file")
    else:
        valid = count_text(len(ends), "valid certificate")
        yield ok("certificates", f"{valid} in ca_file")


def proxies(context: CheckContext) -> Iterator[Finding]:
    """Check that enough proxies are usable, and that refreshes end."""

    async def read(opened: Database) -> tuple[PoolSummary | None, Refresh | None]:
        refreshes = Store(opened).proxy_refreshes
        return await refreshes.pool(), await refreshes.last()

    try:
        read_proxy_settings()
    except BadFile as error:
        sentence = f"the settings of proxies are not applied: {error}"
        yield warning("proxies", sentence, "correct the file; `longline config validate` checks it")
    found = None
    with suppress(StoreError):  # the check of the database reports it
        found = ask_database(context, read)
    pool, refresh = found or (None, None)
    open_for = 0.0
    if refresh is not None and refresh.is_open:
        open_for = context.now() - refresh.started_at
    if open_for > _LONGEST_REFRESH:
        sentence = f"refresh {refresh.number if refresh else 0} has been open for {open_for:.0f} s"
        yield warning("proxies", sentence, f"{_SERVE}; `longline logs` shows problems")
    if pool is not None and pool.is_low:
        sentence = f"{pool.usable} proxies are usable; the minimum is {pool.minimum}"
        yield warning("proxies", sentence, "see `longline proxies stats`")
    elif pool is not None and any(pool.states.values()):
        yield ok("proxies", f"{pool.usable} proxies are usable")


CHECKS: Mapping[str, Check] = {
    "home": home,
    "disk": disk,
    "database": database,
    "redis": partial(redis, with_advisories=False),
    "broker": partial(broker, with_advisories=False),
    "services": own_services,
    "workers": workers,
    "executor": executor,
    "jobs": abandoned_jobs,
    "work": waiting_work,
    "alerts": alerts,
    "certificates": certificates,
    "proxies": proxies,
}
READINESS = ("home", "disk", "database", "redis", "broker")
"""The checks without which a process cannot work; what it works on does not count."""


# ---------------- Running them


def plugin_check(name: str, loaded: object) -> Check:
    """Return the check of a plugin.

    Raises:
        BadSource: it is not a function.
    """
    if not callable(loaded):
        kind = type(loaded).__name__
        raise BadSource(name, f"a health check is a function that takes a CheckContext, not {kind}")
    return partial(_run_plugin, name, loaded)


def _run_plugin(
    name: str, check: Callable[[CheckContext], Any], context: CheckContext
) -> Iterator[Finding]:
    for found in check(context):
        if not isinstance(found, Finding):
            kind = type(found).__name__
            raise BadSource(name, f"the check returned {kind} instead of findings")
        yield found


def _unusable(name: str, error: BadSource, _context: CheckContext) -> Iterator[Finding]:
    yield problem(name, str(error), "fix or remove the plugin; `longline plugins` lists them")


def all_checks() -> dict[str, Check]:
    """Return all checks by name, those of plugins last."""
    checks = dict(CHECKS)
    for name in plugin_names(HEALTH):
        about = name if name not in checks else f"{name} (plugin)"
        try:
            checks[about] = plugin_check(name, load_plugin(HEALTH, name))
        except BadSource as error:
            checks[about] = partial(_unusable, name, error)
    return checks


def check_health(
    settings: Settings,
    checks: Mapping[str, Check] | None = None,
    context: CheckContext | None = None,
) -> HealthReport:
    """Run checks, by default all; one that hangs or raises has failed."""
    chosen = all_checks() if checks is None else checks
    return HealthReport(examine(context or CheckContext(settings), chosen, seconds=_TIMEOUT))


async def check_readiness(settings: Settings) -> HealthReport:
    """Run the checks of `READINESS`."""
    checks = {name: CHECKS[name] for name in READINESS}
    return await asyncio.to_thread(check_health, settings, checks)
