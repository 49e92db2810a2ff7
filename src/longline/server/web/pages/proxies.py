"""Proxies: the pool, the last checks, the refresh, and what a person may change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from longline.server.web.context import Home, Web
from longline.server.web.forms import read_form, redirect
from longline.server.web.live import LivePart
from longline.server.web.rendering import render
from longline.services.proxies import (
    check_proxies,
    proxies_json,
    read_overview,
    remove_proxies,
    start_refresh,
)

router = APIRouter(include_in_schema=False)

_PAGE = 100  # proxies
_VIEWS = ("all", "alive", "unchecked", "quarantined", "dead")
_ORDER = {state: rank for rank, state in enumerate(("quarantined", "alive", "unchecked", "dead"))}


@router.get("/proxies")
async def show_proxies(request: Request, web: Home) -> Response:
    """List the proxies of the pool."""
    given = dict(request.query_params)
    if given.get("show", "all") not in _VIEWS:
        raise HTTPException(422, "There is no such list of proxies.")
    values = await read_proxies(web, given)
    arguments = {name: values[name] for name in ("show", "q", "from")}
    return render(request, "proxies.html", arguments=urlencode(arguments), **values)


async def read_proxies(web: Web, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the live part of the page."""
    found = await read_overview(web.settings, web.store, web.clock)
    text, view = arguments.get("q", "").strip()[:300], arguments.get("show", "all")
    start = _start(arguments.get("from", "0"))
    rows = proxies_json(found)
    rows = [row for row in rows if text.casefold() in _searched(row)]
    counts = {name: sum(row["state"] == name for row in rows) for name in _VIEWS[1:]}
    counts["all"] = len(rows)
    chosen = [row for row in rows if view in ("all", row["state"])]
    chosen.sort(key=lambda row: (_ORDER[row["state"]], -row["requests"], row["address"]))
    more = {"show": view, "q": text, "from": start + _PAGE}
    return {
        "rows": chosen[start : start + _PAGE],
        "counts": counts,
        "views": _VIEWS,
        "show": view,
        "q": text,
        "from": start,
        "total": found.pool.total,
        "summary": found.summary,
        "refresh": found.refresh,
        "sources": [name for name, one in found.settings.candidates.items() if one.enabled],
        "problem": found.problem,
        "next_url": f"/proxies?{urlencode(more)}" if len(chosen) > start + _PAGE else None,
    }


LIVE = {"proxies": LivePart("proxies_part.html", read_proxies)}


def _start(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) < 9  # noqa: PLR2004  # digits
    return int(text) if is_number else 0


def _searched(row: Mapping[str, Any]) -> str:
    names = ("address", "tier", "country", "origin", "exit_address")
    return " ".join(str(row[name] or "") for name in names).casefold()


@router.post("/proxies/refresh")
async def refresh_pool(request: Request, web: Home) -> Response:
    """Begin a refresh."""
    form = await read_form(request)
    begun = await start_refresh(web.settings, web.store, web.clock)
    return _back(form, f"Refresh {begun.number} has begun")


@router.post("/proxies/check")
async def check_proxy(request: Request, web: Home) -> Response:
    """Check one proxy."""
    form = await read_form(request)
    address = form.get("address", "")
    checked = await check_proxies(web.settings, web.store, web.clock, [address])
    state = "alive" if checked.alive else "dead"
    return _back(form, f"{address} is {state}")


@router.post("/proxies/remove")
async def remove_proxy(request: Request, web: Home) -> Response:
    """Remove one proxy."""
    form = await read_form(request)
    removed = await remove_proxies(web.settings, web.store, web.clock, [form.get("address", "")])
    return _back(form, f"{removed[0]} is removed")


def _back(form: Mapping[str, str], done: str) -> Response:
    view = form.get("show", "")
    return redirect(f"/proxies?show={view}" if view in _VIEWS else "/proxies", done)
