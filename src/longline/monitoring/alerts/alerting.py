"""The part of the server that finds what is wrong, keeps alerts and has people notified.

One of several servers does so at a time. The leader lease only saves work: alerts are changed in
transactions that lock them, so that two servers never open, fire or notify one twice.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from longline.config.settings import Settings
from longline.core.clock import Clock
from longline.core.errors import LonglineError, StoreError, error_text
from longline.core.redaction import KNOWN_SECRETS
from longline.engine.owner import this_run
from longline.limits.backends.state import StateBackend
from longline.monitoring.alerts.conditions import AlertCondition
from longline.monitoring.alerts.configuration import AlertFile, AlertSettings
from longline.monitoring.alerts.evaluation import EvaluationCache, evaluate
from longline.monitoring.alerts.life import decide_changes
from longline.monitoring.alerts.manifest_rules import ManifestRules, apply_source_rules
from longline.monitoring.alerts.notifications import decide_notifications
from longline.monitoring.alerts.rules import make_rules
from longline.storage.events.events import EventFilter
from longline.storage.store import Store

_LOG = logging.getLogger(__name__)
_LEADER = "alerts"
_LEADER_LEASE = 30.0  # seconds
_LEADER_RENEWAL = 10.0
_INTERVAL = 30.0  # seconds between two evaluations
_TICK = 5.0  # seconds between two polls for ended jobs and due notifications
_ENDS = EventFilter(("job.complete", "job.partial", "job.failed", "job.cancelled", "job.paused"))
_ROOM, _STATE = "alerts", "evaluation"


@dataclass(frozen=True, slots=True)
class Findings:
    """All that is wrong now, and by rule how many seconds it lasts before its alert fires."""

    conditions: Sequence[AlertCondition]
    waits: Mapping[str, float]


Evaluate = Callable[[AlertSettings, float], Awaitable[Findings]]
"""Evaluates the rules of the settings at a time."""


@dataclass(frozen=True, slots=True)
class EvaluationState:
    """When rules were last evaluated, and what failed since.

    `error` is None while it succeeds; `failed_at` is the time of the first failure in a row.
    """

    evaluated_at: float | None = None
    seconds: float = 0.0
    failed_at: float | None = None
    error: str | None = None


async def read_evaluation(store: Store, clock: Clock) -> EvaluationState:
    """Return when rules were last evaluated."""
    found, _ = await _states(store, clock).read(_STATE)
    return found or EvaluationState()


def make_alerting(store: Store, clock: Clock, home: Settings) -> Alerting:
    """Return the part that evaluates the rules of the settings file and of the manifests."""
    cache, manifests = EvaluationCache(), ManifestRules(home)

    async def find(settings: AlertSettings, now: float) -> Findings:
        changed = await asyncio.to_thread(manifests.read)
        rules = [*apply_source_rules(make_rules(settings.rules), changed)]
        found = await evaluate(store, rules, now, home=home.home, cache=cache)
        return Findings(found, {rule.name: rule.for_seconds for rule in rules})

    return Alerting(store, clock, AlertFile(), find)


class Alerting:
    """Evaluates rules, changes alerts, and appends the notifications that channels send.

    Args:
        file: the settings of alerts.
        evaluate: finds what is wrong.
    """

    def __init__(self, store: Store, clock: Clock, file: AlertFile, evaluate: Evaluate) -> None:
        self._store = store
        self._clock = clock
        self._file = file
        self._evaluate = evaluate
        self._owner = this_run()
        self._renewed_at = -math.inf
        self._evaluated_at: float | None = None
        self._cursor: int | None = None
        self._problem = ""  # of the last evaluation
        self._channels: Sequence[str] | None = None

    async def tick(self) -> float:
        """Evaluate if it is time or a job has ended, and notify; return when to call again.

        Raises:
            StoreError: the database cannot be used.
        """
        now = self._clock.now()
        if not await self._leads(now):
            return _TICK
        settings = await self._file.current(self._store)
        if await self._is_due(now):
            await self._try_evaluation(settings)
        await self._append_notifications(settings)
        return _TICK

    async def close(self) -> None:
        """Let another server continue immediately."""
        await self._store.leaders.release(_LEADER, self._owner)

    async def _leads(self, now: float) -> bool:
        """Renew the lease if necessary; return whether this server holds it."""
        if 0 <= now - self._renewed_at < _LEADER_RENEWAL:
            return True
        until = now + _LEADER_LEASE
        is_leader = await self._store.leaders.acquire(_LEADER, self._owner, now, until)
        self._renewed_at = now if is_leader else -math.inf
        if not is_leader:
            self._evaluated_at = None
        return is_leader

    async def _is_due(self, now: float) -> bool:
        """Return whether the interval is over, or a job has ended since the last evaluation."""
        if self._cursor is None:
            self._cursor = await self._store.events.newest()
        ended, self._cursor = await self._store.events.read(self._cursor, _ENDS)
        last = self._evaluated_at
        return bool(ended) or last is None or not 0 <= now - last < _INTERVAL

    async def _try_evaluation(self, settings: AlertSettings) -> None:
        """Evaluate and change alerts; after a failure, they stay as they are."""
        now = self._evaluated_at = self._clock.now()
        try:
            findings = await self._evaluate(settings, now)
            await self._change_alerts(findings, settings, now)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  # the edge of the rules, which may be plugins
            text = str(error) if isinstance(error, LonglineError) else error_text(error)
            if text != self._problem:  # otherwise it is logged every 30 s
                _LOG.warning("alert rules could not be evaluated: %s", text, exc_info=error)
            self._problem = text
            await self._save_state(partial(_failed, error=KNOWN_SECRETS.text(text), at=now))
        else:
            self._problem = ""
            seconds = self._clock.now() - now
            await self._save_state(lambda _old: EvaluationState(evaluated_at=now, seconds=seconds))

    async def _change_alerts(self, findings: Findings, settings: AlertSettings, now: float) -> None:
        conditions = [_redacted(one) for one in findings.conditions]
        if not conditions and await self._store.alerts.is_quiet():
            return
        decide = partial(
            decide_changes,
            conditions=conditions,
            now=now,
            waits=findings.waits,
            resolve_after=settings.resolve_after,
        )
        await self._store.alerts.change(decide, now)

    async def _append_notifications(self, settings: AlertSettings) -> None:
        if settings.channels != self._channels:
            await self._store.alerts.keep_channels(settings.channels)
            self._channels = settings.channels
        now = self._clock.now()
        decide = partial(decide_notifications, settings=settings, now=now)
        # Mostly nothing is due, and a transaction that writes is not needed.
        if not settings.channels or not decide(*await self._store.alerts.candidates(now)):
            return
        for one in await self._store.alerts.notify(decide, now):
            _LOG.info("notified %s of %s", ", ".join(one.channels), one.group)

    async def _save_state(self, step: Callable[[EvaluationState], EvaluationState]) -> None:
        states = _states(self._store, self._clock)
        await states.change(_STATE, lambda old, _now: (step(old or EvaluationState()), None))


def _failed(old: EvaluationState, *, error: str, at: float) -> EvaluationState:
    return replace(old, error=error, failed_at=at if old.failed_at is None else old.failed_at)


def _states(store: Store, clock: Clock) -> StateBackend[EvaluationState]:
    return store.state_backend(_ROOM, EvaluationState, clock)


def _redacted(condition: AlertCondition) -> AlertCondition:
    return replace(
        condition,
        summary=KNOWN_SECRETS.text(condition.summary),
        evidence=KNOWN_SECRETS.data(dict(condition.evidence)),
        action=KNOWN_SECRETS.text(condition.action),
    )
