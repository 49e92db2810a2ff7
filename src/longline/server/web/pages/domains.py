"""Domains: limits, circuit breakers, bans and refusals, and what a person may change."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from longline.core.errors import BadOption
from longline.limits.learning import displayed_rate, limit_of
from longline.server.web.context import Home
from longline.server.web.forms import naming_fields, read_form, redirect
from longline.server.web.rendering import render
from longline.services.domains import (
    Domain,
    forget_limit,
    pin_limit,
    read_domains,
    reset_breaker,
)
from longline.wiring import open_domain_states

router = APIRouter(include_in_schema=False)

_MOST = 2000  # domains that are read
_PAGE = 100  # of them on a page
_RECENT = 86_400.0  # seconds for which a ban or a refusal is marked
_VIEWS = ("all", "trouble", "pinned")
_LABELS = {
    "DOMAIN": "Domain",
    "rate": "Requests per second",
    "burst": "Burst",
    "capacity": "Burst",
}


@router.get("/domains")
async def show_domains(request: Request, web: Home) -> Response:
    """List domains, those in trouble first."""
    given = request.query_params
    text, view = given.get("q", "").strip(), given.get("show", "all")
    if view not in _VIEWS:
        raise HTTPException(422, "There is no such list of domains.")
    now = web.clock.now()
    async with open_domain_states(web.settings, web.clock, web.store) as states:
        known = await read_domains(web.store, states, now, most=_MOST)
    rows = [_row(one, now) for one in known.values() if text.casefold() in one.name.casefold()]
    counts = {
        "all": len(rows),
        "trouble": sum(bool(row["problems"]) for row in rows),
        "pinned": sum(row["origin"] == "pinned" for row in rows),
    }
    if view == "trouble":
        rows = [row for row in rows if row["problems"]]
    elif view == "pinned":
        rows = [row for row in rows if row["origin"] == "pinned"]
    rows.sort(key=lambda row: (not row["problems"], not row["is_restless"], row["name"]))
    start = _start(given.get("from", "0"))
    more = {"q": text, "show": view, "from": start + _PAGE}
    return render(
        request,
        "domains.html",
        rows=rows[start : start + _PAGE],
        counts=counts,
        views=_VIEWS,
        chosen=view,
        text=text,
        next_url=f"/domains?{urlencode(more)}" if len(rows) > start + _PAGE else None,
    )


def _start(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) < 9  # noqa: PLR2004  # digits
    return int(text) if is_number else 0


def _row(domain: Domain, now: float) -> dict[str, Any]:
    history, limit, breaker = domain.history or {}, domain.limit, domain.breaker
    happened = [history.get(name) or 0 for name in ("banned_at", "refused_at")]
    return {
        "name": domain.name,
        "problems": domain.problems,
        "is_restless": max(happened) > now - _RECENT,
        "rate": displayed_rate(limit) if limit else history.get("rate"),
        "burst": limit_of(limit).capacity if limit else None,
        "origin": limit.origin if limit else history.get("rate_origin"),
        "is_forgettable": limit is not None,
        "proven": limit.proven or None if limit else None,
        "ceiling": limit.ceiling if limit else None,
        "published": limit.published if limit else None,
        "robots_rate": limit.restraint if limit else history.get("robots_rate"),
        "refusals": max(limit.refusals if limit else 0, history.get("refusals", 0)),
        "refused_at": history.get("refused_at"),
        "bans": history.get("bans", 0),
        "banned_at": history.get("banned_at"),
        "ban_evidence": history.get("ban_evidence"),
        "phase": breaker.phase.value if breaker else history.get("breaker", "closed"),
        "until": breaker.until if breaker else None,
        "reason": breaker.reason if breaker else None,
        "trips": max(breaker.trips if breaker else 0, history.get("trips", 0)),
        "failures": breaker.failures if breaker else 0,
        "has_breaker": breaker is not None,
        "changes": breaker.history[::-1][:5] if breaker else (),
    }


@router.post("/domains/reset")
async def reset_domain(request: Request, web: Home) -> Response:
    """Close the breaker of a domain."""
    form = await read_form(request)
    domain = form.get("domain", "")
    async with open_domain_states(web.settings, web.clock, web.store) as states:
        _, due = await reset_breaker(web.store, states, web.clock, domain)
    return _back(form, f"The breaker of {domain} is closed; {due} deferred items are due now")


@router.post("/domains/pin")
async def pin_domain(request: Request, web: Home) -> Response:
    """Pin the rate limit of a domain."""
    form = await read_form(request)
    domain = form.get("domain", "").strip()
    with naming_fields(_LABELS):
        rate, burst = _number(form, "rate"), _number(form, "burst", 1.0)
        if burst != int(burst):
            raise BadOption("burst", "must be a whole number")
        async with open_domain_states(web.settings, web.clock, web.store) as states:
            name, _ = await pin_limit(
                web.store, states, web.clock, domain, rate=rate, burst=int(burst)
            )
    return _back(form, f"The limit of {name} is pinned to {rate:g} requests per second")


@router.post("/domains/forget")
async def forget_domain(request: Request, web: Home) -> Response:
    """Forget the rate limit of a domain."""
    form = await read_form(request)
    async with open_domain_states(web.settings, web.clock, web.store) as states:
        name = await forget_limit(web.store, states, web.clock, form.get("domain", ""))
    return _back(form, f"The limit of {name} is forgotten")


def _number(form: dict[str, str], name: str, default: float | None = None) -> float:
    text = form.get(name, "").strip()
    if not text and default is not None:
        return default
    try:
        return float(text)
    except ValueError:
        raise BadOption(name, f"must be a number, not {text!r:.40}") from None


def _back(form: dict[str, str], done: str) -> Response:
    view = form.get("show", "")
    return redirect(f"/domains?show={view}" if view in _VIEWS else "/domains", done)
