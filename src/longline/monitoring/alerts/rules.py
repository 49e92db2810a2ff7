"""The rules of alerts: what each kind finds, the default rules, and how a file changes them.

Each kind has a default rule of the same name. `alerts.rules` of the settings file changes default
rules by name, and adds rules with another name and a `kind`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from longline.config.times import Seconds
from longline.config.validation import StrictModel, describe_unknown_key, invalid, one_or_several
from longline.monitoring.alerts.learning import Tolerance

Severity = Literal["warning", "critical"]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
_DURATION = TypeAdapter(Seconds)
_LEARNED = frozenset({"learned", "tolerance"})
_MINUTE, _HOUR = 60.0, 3600.0
UNWANTED = (*range(400, 404), *range(405, 410), *range(411, 600))
"""The HTTP statuses of the kind http-errors: all errors but 404 and 410."""


@dataclass(frozen=True, slots=True)
class RuleKind:
    """One kind of rule.

    `about` says what it finds, `limits` what `min` and `max` limit; `unit` is count, share or
    seconds. `options` are those that a rule of this kind may set, besides the common ones.
    `tolerance` is how much a learned value may vary. `subject` is the kind of subject.
    """

    name: str
    about: str
    severity: Severity = "warning"
    wait: float = 0.0
    subject: str = "source"
    limits: str = ""
    unit: str = "count"
    options: frozenset[str] = frozenset()
    min: float | None = None
    max: float | None = None
    tolerance: Tolerance | None = None


def _learned(*options: str) -> frozenset[str]:
    return _LEARNED | set(options)


def _limited(*options: str) -> frozenset[str]:
    return frozenset(options)


RULE_KINDS: Mapping[str, RuleKind] = {
    one.name: one
    for one in (
        # ---------------- The last run of a source that has ended
        RuleKind(
            "run-failed",
            "The last run failed, or could not be started.",
            severity="critical",
        ),
        RuleKind(
            "run-partial",
            "The last run is incomplete: a list was not read to its end, or a budget is exhausted.",
        ),
        RuleKind(
            "run-warnings",
            "The last run has warnings, such as many similar records or an empty field.",
        ),
        RuleKind(
            "few-records",
            "The last run has fewer records than usual, or the number is slowly falling.",
            severity="critical",
            limits="records of a run",
            options=_learned("min"),
            tolerance=Tolerance(share=0.25, is_low=True, is_count=True, is_weekly=True, recent=3),
        ),
        RuleKind(
            "log-critical",
            "The last run has logged critical errors.",
            severity="critical",
            limits="log lines of a run",
            options=_limited("max"),
            max=0,
        ),
        RuleKind(
            "log-errors",
            "The last run has logged more errors than usual.",
            limits="log lines of a run",
            options=_learned("max"),
            tolerance=Tolerance(share=1.0, least=10, is_high=True, is_count=True),
        ),
        RuleKind(
            "log-warnings",
            "The last run has logged more warnings than usual.",
            limits="log lines of a run",
            options=_learned("max"),
            tolerance=Tolerance(share=2.0, least=50, is_high=True, is_count=True),
        ),
        RuleKind(
            "http-errors",
            "More responses than usual have an unwanted HTTP status.",
            limits="share of the requests",
            unit="share",
            options=_learned("max", "statuses"),
            max=0.5,
            tolerance=Tolerance(least=0.1, is_high=True),
        ),
        RuleKind(
            "request-failures",
            "More requests than usual got no response: network errors, timeouts.",
            limits="share of the requests",
            unit="share",
            options=_learned("max"),
            max=0.5,
            tolerance=Tolerance(least=0.1, is_high=True),
        ),
        RuleKind(
            "retries",
            "More requests than usual were repeated.",
            limits="share of the requests",
            unit="share",
            options=_learned("max"),
            tolerance=Tolerance(least=0.2, is_high=True),
        ),
        RuleKind(
            "few-successes",
            "A smaller share of the requests than usual succeeded.",
            limits="successful requests of a run",
            options=_learned("min"),
            tolerance=Tolerance(least=0.25, is_low=True),
        ),
        RuleKind(
            "many-requests",
            "The last run has sent far more requests than usual.",
            limits="requests of a run",
            options=_learned("max"),
            tolerance=Tolerance(share=1.5, least=100, is_high=True, is_count=True),
        ),
        RuleKind(
            "failed-items",
            "A larger share of the items than usual failed.",
            limits="share of the items",
            unit="share",
            options=_learned("max"),
            max=0.5,
            tolerance=Tolerance(least=0.1, is_high=True),
        ),
        RuleKind(
            "quarantined-items",
            "A larger share of the items than usual was quarantined.",
            limits="share of the items",
            unit="share",
            options=_learned("max"),
            max=0.5,
            tolerance=Tolerance(least=0.05, is_high=True),
        ),
        RuleKind(
            "field-coverage",
            "Fewer records than usual have a field, or their share is slowly falling.",
            limits="share of the records that have each field",
            unit="share",
            options=_learned("min", "fields"),
            tolerance=Tolerance(least=0.1, is_low=True, recent=3),
        ),
        RuleKind(
            "changed-share",
            "Far more or far fewer records than usual have changed.",
            limits="share of the records that are new or changed",
            unit="share",
            options=_learned("min", "max"),
            tolerance=Tolerance(least=0.35, is_low=True, is_high=True),
        ),
        RuleKind(
            "long-run",
            "The last run took, or the current one is taking, much longer than usual.",
            limits="duration of a run",
            unit="seconds",
            options=_learned("max"),
            tolerance=Tolerance(share=2.5, least=300, is_high=True),
        ),
        # ---------------- What is wrong now
        RuleKind(
            "no-progress",
            "A running job has finished no item for this long.",
            limits="time without a finished item",
            unit="seconds",
            options=_limited("max"),
            max=_HOUR,
        ),
        RuleKind(
            "job-waiting",
            "A job was paused by a ban, an error or a dead process, and nothing continues it.",
            wait=15 * _MINUTE,
        ),
        RuleKind(
            "stale-data",
            "The data of a source is older than its limit `fresh`, or runs no longer end as often "
            "as usual.",
            limits="age of the data",
            unit="seconds",
            options=_learned("max"),
            tolerance=Tolerance(),
        ),
        RuleKind(
            "drift",
            "The records of the last run differ from those of earlier runs.",
            severity="critical",
        ),
        RuleKind(
            "quarantine-growing",
            "The last three runs have quarantined far more items than usual.",
            limits="items that the three runs have quarantined",
            options=_limited("max"),
            max=20,
        ),
        RuleKind(
            "ban",
            "A site has banned us, or presents a challenge.",
            severity="critical",
            subject="domain",
        ),
        RuleKind(
            "breaker-open",
            "The circuit breaker of a domain has been open for this long.",
            subject="domain",
            limits="time since it opened",
            unit="seconds",
            options=_limited("max"),
            max=30 * _MINUTE,
        ),
        RuleKind(
            "missed-schedule",
            "An occurrence of a schedule was missed, or failures have paused the schedule.",
            subject="schedule",
        ),
        RuleKind(
            "flow-waiting",
            "A flow needs attention, or has waited for approval for this long.",
            subject="flow",
            limits="time since it began to wait",
            unit="seconds",
            options=_limited("max"),
            max=_HOUR,
        ),
        RuleKind(
            "worker-gone",
            "A worker was lost and has not started again.",
            wait=2 * _MINUTE,
            subject="worker",
        ),
        RuleKind(
            "event-lag",
            "A subscriber or webhook has not handled an event for this long, or is disabled.",
            subject="subscriber",
            limits="age of the oldest unhandled event",
            unit="seconds",
            options=_limited("max"),
            max=15 * _MINUTE,
        ),
        RuleKind(
            "few-proxies",
            "Fewer proxies than `proxies.minimum` are usable.",
            wait=5 * _MINUTE,
            subject="home",
            limits="usable proxies",
            options=_limited("min"),
        ),
        RuleKind(
            "disk-low",
            "The disk of the home is nearly full.",
            severity="critical",
            subject="home",
            limits="share of the disk that is free",
            unit="share",
            options=_limited("min"),
            min=0.05,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as it is evaluated; `for_seconds` is how long a condition lasts before it fires.

    `only` and `excluded` are patterns of names of subjects, such as those of sources. A `min` or
    `max` of None is no limit.
    """

    name: str
    kind: str
    severity: str
    for_seconds: float = 0.0
    is_enabled: bool = True
    only: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    min: float | None = None
    max: float | None = None
    is_learned: bool = False
    tolerance: Tolerance = field(default_factory=Tolerance)
    fields: Mapping[str, float] = field(default_factory=dict)
    statuses: tuple[int, ...] = UNWANTED

    def applies_to(self, name: str) -> bool:
        """Return whether it is about the subject of this name."""
        if self.only and not any(fnmatchcase(name, one) for one in self.only):
            return False
        return not any(fnmatchcase(name, one) for one in self.excluded)


Amount = float | str
"""A number, a share such as 5%, or a duration such as 2h; which one depends on the kind."""
_Patterns = Annotated[tuple[str, ...], BeforeValidator(one_or_several)]


class RuleLimits(StrictModel):
    """What a manifest says about a rule; what it leaves out is not changed."""

    enabled: bool | None = None
    severity: Severity | None = None
    min: Amount | None = None
    max: Amount | None = None
    learned: bool | None = None
    tolerance: Amount | None = None
    fields: dict[str, Amount] | None = None
    statuses: tuple[Annotated[int, Field(ge=100, le=599)], ...] | None = None


class RuleValues(RuleLimits):
    """What the settings file says about a rule; what it leaves out is that of the default rule."""

    kind: str | None = None
    for_seconds: Seconds | None = Field(default=None, alias="for")
    only: _Patterns | None = None
    excluded: _Patterns | None = Field(default=None, alias="except")


def default_rules() -> list[Rule]:
    """Return the rules without a file."""
    return [_default_rule(one) for one in RULE_KINDS.values()]


def make_rules(values: Mapping[str, RuleValues]) -> list[Rule]:
    """Return the default rules as a file changes them, and those that it adds.

    Raises:
        PydanticCustomError: a rule is invalid; the message begins with its name.
    """
    rules = {one.name: one for one in default_rules()}
    for name, stated in values.items():
        rules[name] = _make_rule(name, stated)
    return list(rules.values())


def _check_rules(values: dict[str, RuleValues]) -> dict[str, RuleValues]:
    make_rules(values)
    return values


RuleSettings = Annotated[dict[str, RuleValues], AfterValidator(_check_rules)]
"""The rules of a settings file, by name."""


def _default_rule(kind: RuleKind) -> Rule:
    return Rule(
        name=kind.name,
        kind=kind.name,
        severity=kind.severity,
        for_seconds=kind.wait,
        min=kind.min,
        max=kind.max,
        is_learned=kind.tolerance is not None,
        tolerance=kind.tolerance or Tolerance(),
    )


_COMMON = {  # fields of the model, and of a rule
    "enabled": "is_enabled",
    "severity": "severity",
    "for_seconds": "for_seconds",
    "only": "only",
    "excluded": "excluded",
    "learned": "is_learned",
    "statuses": "statuses",
}


def _make_rule(name: str, values: RuleValues) -> Rule:
    if not _NAME.fullmatch(name):
        raise invalid(f"{name}: a name has up to 100 letters, digits, dots, underscores, hyphens")
    kind = _kind_of(name, values)
    return change_rule(replace(_default_rule(kind), name=name), values)


def change_rule(rule: Rule, values: RuleLimits) -> Rule:
    """Return a rule as a file changes it.

    Raises:
        PydanticCustomError: the values do not fit its kind; the message begins with its name.
    """
    name, kind = rule.name, RULE_KINDS[rule.kind]
    stated = values.model_fields_set
    for option in ("min", "max", "learned", "tolerance", "fields", "statuses"):
        if option in stated and option not in kind.options:
            allowed = ", ".join(sorted(kind.options))
            known = f"it has {allowed}" if allowed else "it has no limits"
            raise invalid(f"{name}: rules of the kind {kind.name} have no {option}; {known}")
    changed: dict[str, Any] = {
        own: value
        for given, own in _COMMON.items()
        if given in stated and (value := getattr(values, given)) is not None
    }
    for limit in ("min", "max"):
        if limit in stated:
            changed[limit] = _amount(name, limit, getattr(values, limit), kind.unit)
    if values.fields is not None:
        changed["fields"] = {
            one: _amount(name, f"fields.{one}", value, "share")
            for one, value in values.fields.items()
        }
    if values.tolerance is not None:
        changed["tolerance"] = _tolerance(name, kind, values.tolerance)
    return replace(rule, **changed)


def _kind_of(name: str, values: RuleValues) -> RuleKind:
    if values.kind is None and name not in RULE_KINDS:
        problem = describe_unknown_key(name, list(RULE_KINDS)).replace("key", "rule", 1)
        raise invalid(f"{name}: {problem}; a rule with a new name needs a kind")
    found = RULE_KINDS.get(values.kind or name)
    if found is None:
        problem = describe_unknown_key(values.kind or name, list(RULE_KINDS))
        raise invalid(f"{name}: {problem.replace('key', 'kind', 1)}")
    if name in RULE_KINDS and found.name != name:
        raise invalid(f"{name}: it is a default rule, whose kind cannot be changed")
    return found


def _amount(rule: str, option: str, value: Amount | None, unit: str) -> float | None:
    if value is None:
        return None
    if unit == "seconds":
        try:
            return _DURATION.validate_python(value)
        except ValidationError as error:
            raise invalid(f"{rule}: {option}: {error.errors()[0]['msg']}") from None
    percent = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    number = float(percent[1]) / 100 if percent and unit != "count" else value
    if isinstance(number, str) or number < 0 or (unit == "share" and number > 1):
        wanted = "a number of at least 0" if unit == "count" else "a share such as 5% or 0.05"
        raise invalid(f"{rule}: {option} must be {wanted}")
    return float(number)


def _tolerance(rule: str, kind: RuleKind, value: Amount) -> Tolerance:
    share = _amount(rule, "tolerance", value, "ratio")
    found = kind.tolerance or Tolerance()
    if share is None:
        return found
    # Of a share it is an amount, of anything else a share of what is usual.
    is_share = kind.unit == "share" or kind.name == "few-successes"
    return replace(found, least=share) if is_share else replace(found, share=share)
