"""The life of an alert: pending, firing, resolved.

A condition that is found opens an alert. The alert fires once the problem has lasted as long as its
rule requires, and is resolved once the problem was absent for a while, so that a problem that comes
and goes stays one alert. A pending alert whose problem is over is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from longline.monitoring.alerts.conditions import AlertCondition
from longline.storage.monitoring.alerts import Alert, AlertChange, AlertState

_CRITICAL = "critical"


def decide_changes(
    opened: Sequence[Alert],
    conditions: Iterable[AlertCondition],
    now: float,
    *,
    waits: Mapping[str, float],
    resolve_after: float,
) -> list[AlertChange]:
    """Return how alerts change.

    Args:
        opened: the alerts that are not resolved.
        conditions: all that is wrong now.
        now: the time.
        waits: by rule, the seconds that a problem lasts before its alert fires; default 0.
        resolve_after: the seconds that a problem is absent before its alert is resolved.
    """
    found = _worst_by_alert(conditions)
    known = {(one.rule, one.subject): one for one in opened}
    changes: list[AlertChange] = []
    for key, condition in found.items():
        wait = waits.get(condition.rule, 0.0)
        changes.append(_found(known.get(key) or _new(condition, now), condition, now, wait))
    changes += _absent((one for key, one in known.items() if key not in found), now, resolve_after)
    return changes


def _worst_by_alert(conditions: Iterable[AlertCondition]) -> dict[tuple[str, str], AlertCondition]:
    worst: dict[tuple[str, str], AlertCondition] = {}
    for one in conditions:
        key = (one.rule, one.subject)
        if key not in worst or (one.severity == _CRITICAL != worst[key].severity):
            worst[key] = one
    return worst


def _new(condition: AlertCondition, now: float) -> Alert:
    return Alert(
        rule=condition.rule,
        subject=condition.subject,
        state=AlertState.PENDING,
        severity=condition.severity,
        summary=condition.summary,
        evidence=condition.evidence,
        action=condition.action,
        since=now if condition.since is None else min(condition.since, now),
        seen_at=now,
    )


def _found(alert: Alert, condition: AlertCondition, now: float, wait: float) -> AlertChange:
    """Return the change of an alert whose problem was found again."""
    is_worse = condition.severity == _CRITICAL != alert.severity
    seen = replace(
        alert,
        severity=_CRITICAL if is_worse else alert.severity,
        summary=condition.summary,
        evidence=condition.evidence,
        action=condition.action,
        since=alert.since if condition.since is None else min(condition.since, alert.since),
        seen_at=now,
    )
    if alert.state is AlertState.PENDING:
        if now - seen.since < wait:
            return AlertChange(seen)
        fired = replace(seen, state=AlertState.FIRING, fired_at=now)
        return AlertChange(fired, "alert.firing")
    if is_worse:
        return AlertChange(replace(seen, fired_at=now), "alert.worsened")
    return AlertChange(seen)


def _absent(missing: Iterable[Alert], now: float, resolve_after: float) -> Iterator[AlertChange]:
    """Yield the changes of alerts whose problems were not found."""
    for alert in missing:
        if alert.state is AlertState.PENDING:
            yield AlertChange(alert, is_dropped=True)
        elif now - alert.seen_at >= resolve_after:
            resolved = replace(alert, state=AlertState.RESOLVED, resolved_at=now)
            yield AlertChange(resolved, "alert.resolved")
