"""Alerts: what is wrong, its evidence, what to do, silences, rules, and who was notified."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from longline.core.errors import BadFile, BadOption
from longline.monitoring.alerts.alerting import read_evaluation
from longline.monitoring.alerts.manifest_rules import read_rules
from longline.monitoring.alerts.notifications import is_silenced, silence_alerts
from longline.monitoring.alerts.rules import RULE_KINDS, Rule, default_rules
from longline.server.web.context import Home, Web
from longline.server.web.forms import naming_fields, read_form, redirect
from longline.server.web.live import LivePart
from longline.server.web.rendering import duration, percent, render
from longline.storage.monitoring.alerts import ALERT_CHANNEL, Alert, Silence

router = APIRouter(include_in_schema=False)

_OPEN = 200  # open alerts that are listed
_PAGE = 50
_DELIVERIES = 100
_STALE = 120.0  # seconds after which the last evaluation is old
_HOURS = {"1": 1, "4": 4, "24": 24, "168": 168}
_PAGES = {
    "source": "/sources/{}",
    "flow": "/flows/{}",
    "schedule": "/schedules/{}",
    "job": "/jobs/{}",
    "domain": "/domains#{}",
}


@router.get("/alerts")
async def show_alerts(request: Request, web: Home) -> Response:
    """List open alerts and silences."""
    return render(request, "alerts.html", **await read_alerts(web, {}))


async def read_alerts(web: Web, _arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the list of open alerts."""
    now = web.clock.now()
    found = await web.store.alerts.list(limit=_OPEN + 1)
    silences = await web.store.alerts.silences(now)
    state = await read_evaluation(web.store, web.clock)
    failing = [
        one
        for one in await web.store.subscribers.list()
        if one.name.startswith(ALERT_CHANNEL) and one.failures
    ]
    return {
        "view": "open",
        "alerts": [_line(one, silences) for one in found[:_OPEN]],
        "has_more": len(found) > _OPEN,
        "silences": silences,
        "evaluation": state,
        "is_stale": state.evaluated_at is None or now - state.evaluated_at > _STALE,
        "failing": [(one.name.removeprefix(ALERT_CHANNEL), one.error) for one in failing],
    }


LIVE = {"alerts": LivePart("alerts_part.html", read_alerts)}


@router.get("/alerts/resolved")
async def show_resolved(request: Request, web: Home) -> Response:
    """List alerts that are over."""
    text = request.query_params.get("before", "")
    before = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None  # noqa: PLR2004  # as 64 bits
    found = await web.store.alerts.resolved(before=before, limit=_PAGE + 1)
    older = f"?before={found[_PAGE - 1].id}" if len(found) > _PAGE else None
    lines = [_line(one, ()) for one in found[:_PAGE]]
    return render(request, "alerts_resolved.html", view="resolved", alerts=lines, older=older)


@router.get("/alerts/rules")
async def show_rules(request: Request, web: Home) -> Response:
    """List the rules with their limits."""
    problem = None
    try:
        rules = await asyncio.to_thread(read_rules, web.settings)
    except BadFile as error:
        rules, problem = default_rules(), str(error)
    rows = [
        {"rule": one, "about": RULE_KINDS[one.kind].about, "limit": _limit(one)} for one in rules
    ]
    return render(request, "alerts_rules.html", view="rules", rows=rows, problem=problem)


@router.get("/alerts/deliveries")
async def show_deliveries(request: Request, web: Home) -> Response:
    """List the newest attempts to notify channels."""
    channel = request.query_params.get("channel") or None
    found = await web.store.alerts.deliveries(channel=channel, limit=_DELIVERIES)
    rows = [*reversed(found)]
    return render(request, "alerts_deliveries.html", view="deliveries", deliveries=rows)


@router.get("/alerts/{number}")
async def show_alert(request: Request, web: Home, number: int) -> Response:
    """Show an alert with its evidence and its notifications."""
    found = await web.store.alerts.get(_bounded(number))
    silences = await web.store.alerts.silences(web.clock.now())
    sent = await web.store.alerts.notifications(found)
    deliveries = await web.store.alerts.deliveries(event_ids=[one.event_id for one in sent])
    line = _line(found, silences)
    return render(
        request, "alert.html", view="", one=line, sent=sent, deliveries=[*reversed(deliveries)]
    )


# ---------------- Actions


@router.post("/alerts/silences")
async def add_silence(request: Request, web: Home) -> Response:
    """Silence an alert, or all that match patterns, for some hours."""
    form = await read_form(request)
    hours = _HOURS.get(form.get("hours", "4"))
    if hours is None:
        raise BadOption("For", f"it is one of {', '.join(_HOURS)}")
    number, rule, subject = (form.get(name, "").strip() for name in ("alert", "rule", "subject"))
    if number and not (number.isascii() and number.isdigit()):
        raise BadOption("alert", "it is not a number")
    with naming_fields({"rule": "Rule", "subject": "Subject"}):
        added = await silence_alerts(
            web.store,
            _bounded(int(number[:20])) if number else (rule, subject),
            seconds=hours * 3600.0,
            reason=form.get("reason", "").strip()[:500],
            at=web.clock.now(),
        )
    return redirect("/alerts", f"silence {added.id} lasts {hours} h")


@router.post("/alerts/silences/{number}/end")
async def end_silence(web: Home, number: int) -> Response:
    """End a silence now."""
    await web.store.alerts.unsilence(_bounded(number), web.clock.now())
    return redirect("/alerts", f"silence {number} has ended")


# ---------------- Values


def _bounded(number: int) -> int:
    """Return a number that a database can compare; none has one that is larger."""
    return min(max(number, 0), 2**62)


def _line(one: Alert, silences: Sequence[Silence]) -> dict[str, Any]:
    kind, _, name = one.subject.partition("/")
    url = _PAGES[kind].format(quote(name, safe="")) if kind in _PAGES and name else None
    return {"alert": one, "is_silenced": is_silenced(one, silences), "subject_url": url}


def _limit(rule: Rule) -> str:
    unit = RULE_KINDS[rule.kind].unit

    def amount(value: float) -> str:
        if unit == "seconds":
            return duration(value)
        return percent(value) if unit == "share" else f"{value:g}"

    limits = (("min", rule.min), ("max", rule.max))
    parts = [f"{name} {amount(value)}" for name, value in limits if value is not None]
    return ", ".join([*parts, *(["learned"] if rule.is_learned else [])])
