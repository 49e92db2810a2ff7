"""Templates of the pages, and the filters that they share.

Jinja2 escapes every value. What a site has sent appears as text, in one line and of bounded length
where a table shows it; only addresses with http or https become links.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from longline.core.output import count_text, sanitize, size_text
from longline.monitoring.reports.page import UNKNOWN, plain_line
from longline.storage.access import Role

STATIC = Path(__file__).parent / "static"

_LEVELS = {
    "complete": "ok",
    "stored": "ok",
    "unchanged": "ok",
    "closed": "ok",
    "well": "ok",
    "running": "busy",
    "waiting": "warn",
    "created": "dim",
    "queued": "dim",
    "paused": "warn",
    "partial": "warn",
    "half-open": "warn",
    "warning": "warn",
    "deferred": "dim",
    "skipped": "dim",
    "cancelled": "dim",
    "compensating": "warn",
    "compensated": "warn",
    "pending": "dim",
    "undo failed": "bad",
    "undoing": "warn",
    "resolved": "ok",
    "failed": "bad",
    "abandoned": "bad",
    "leased": "busy",
    "ramping": "warn",
    "confirmed": "ok",
    "rejected": "bad",
    "undecided": "dim",
    "quarantined": "bad",
    "open": "bad",
    "missed": "bad",
    "needs attention": "bad",
    "needs_attention": "bad",
    "firing": "bad",
    "error": "bad",
    "critical": "bad",
    "gone": "bad",
    "fired": "ok",
    "ok": "ok",
    "degraded": "warn",
    "valid": "ok",
    "expired": "dim",
    "revoked": "dim",
    "alive": "ok",
    "unchecked": "dim",
    "dead": "bad",
    "transparent": "warn",
    "anonymous": "ok",
    "elite": "ok",
    "silent": "bad",
    "lost": "bad",
    "good": "ok",
    "bad": "bad",
    "neutral": "dim",
}
_SHAPES = {"ok": "✓", "busy": "▶", "warn": "◆", "bad": "▲", "dim": "●"}
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_MOST_CELL = 200  # characters of a value in a table


def render(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page; `values` are what its template needs."""
    return HTMLResponse(render_text(request, template, status=status, **values), status)


def render_text(request: Request, template: str, **values: Any) -> str:
    """Return the text of a template for the caller of a request."""
    caller = request.scope.get("state", {}).get("caller")
    return (
        environment()
        .get_template(template)
        .render(
            path=request.url.path,
            query=dict(request.query_params),
            was_done=_done_before(request),
            **access_of(caller),
            **values,
        )
    )


def _done_before(request: Request) -> str | None:
    """Return what a form has done; None for an address that came from elsewhere, such as a mail."""
    is_own = request.headers.get("sec-fetch-site", "same-origin") == "same-origin"
    return request.query_params.get("done") if is_own else None


def access_of(caller: Any) -> dict[str, Any]:
    """Return what templates know about a caller."""
    role: Role | None = None if caller is None else caller.role
    return {
        "caller": caller,
        "can_operate": role is not None and role.covers(Role.OPERATE),
        "can_admin": role is not None and role.covers(Role.ADMIN),
    }


@cache
def environment() -> Environment:
    """Return the environment of all templates."""
    made = Environment(
        loader=PackageLoader("longline.server.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "time": time_text,
        "ago": ago,
        "until": until,
        "duration": duration,
        "number": number,
        "counted": count_text,
        "percent": percent,
        "size": size,
        "line": line,
        "code": code,
        "lines": sanitize,
        "level": level,
        "shape": shape,
        "link": web_link,
        "json": json_text,
        "data": data_attribute,
    }
    made.globals |= {"static": static_url, "now": lambda: datetime.now(UTC).timestamp()}
    return made


@cache
def static_url(name: str) -> str:
    """Return the URL of a static file; it changes with the file, so that browsers may keep it."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


def time_text(at: float | None, *, seconds: bool = False) -> Markup:
    """Return a time as an element: UTC without a script, the time of the browser with one."""
    if at is None:
        return Markup("unknown")
    moment = datetime.fromtimestamp(at, UTC)
    text = f"{moment:%Y-%m-%d %H:%M:%S}" if seconds else f"{moment:%Y-%m-%d %H:%M}"
    return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(), f"{text} UTC")


def ago(at: float | None) -> str:
    """Return how long ago a time was."""
    if at is None:
        return "never"
    seconds = datetime.now(UTC).timestamp() - at
    return "now" if seconds < 1 else f"{duration(seconds)} ago"


def until(at: float | None) -> str:
    """Return in how long a time is."""
    if at is None:
        return UNKNOWN
    seconds = at - datetime.now(UTC).timestamp()
    return "now" if seconds < 1 else f"in {duration(seconds)}"


def duration(seconds: float | None) -> str:
    """Return seconds in the two largest units that matter."""
    if seconds is None:
        return UNKNOWN
    if seconds < _MINUTE:
        return f"{seconds:.0f} s" if seconds >= 1 or seconds == 0 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < 2 * _DAY:
        minutes = whole % _HOUR // _MINUTE
        return f"{whole // _HOUR} h {minutes:02d}" if minutes else f"{whole // _HOUR} h"
    return f"{whole // _DAY} days"


def number(value: float | None, digits: int = 0) -> str:
    """Return a number with separators; a dash for a value that is not known."""
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def percent(share: float | None, digits: int = 0) -> str:
    """Return a share as a percentage that never rounds up to 100 %."""
    if share is None:
        return UNKNOWN
    scale = 10**digits
    return f"{int(share * 100 * scale + 1e-9) / scale:.{digits}f} %"


def size(count: float | None) -> str:
    """Return a number of bytes in the unit that fits."""
    return UNKNOWN if count is None else size_text(round(count))


def line(value: Any, most: int = _MOST_CELL) -> str:
    """Return any value as one line of bounded length."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json_text(value)
    return plain_line(text, most)


def code(text: str) -> Markup:
    """Return a text whose parts in backticks, such as commands, are code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one of them is not closed
        return escape(text)
    pieces = (
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )
    return Markup("").join(pieces)


def level(state: Any) -> str:
    """Return the level of a state: ok, busy, warn, bad or dim."""
    return _LEVELS.get(str(state), "dim")


def shape(state: Any) -> str:
    """Return the sign of a state, which says the same as its colour."""
    return _SHAPES[level(state)]


def web_link(value: Any) -> str | None:
    """Return an address that is safe to link to; None for anything else."""
    is_link = isinstance(value, str) and value.lower().startswith(("http://", "https://"))
    return value if is_link else None


def json_text(value: Any, *, is_indented: bool = False) -> str:
    """Return a value as JSON; what JSON lacks as text."""
    option = orjson.OPT_NON_STR_KEYS | (orjson.OPT_INDENT_2 if is_indented else 0)
    return orjson.dumps(value, default=str, option=option).decode()


def data_attribute(value: Mapping[str, Any] | Any) -> str:
    """Return a value for a `data-` attribute that scripts read; Jinja2 escapes it."""
    return json_text(value)
