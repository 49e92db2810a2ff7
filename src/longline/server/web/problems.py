"""Errors as responses: problem+json (RFC 9457) for programs, a page for people."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from longline.core.errors import (
    ConfigError,
    ConflictError,
    LonglineError,
    NotAllowedError,
    NotFoundError,
    StoreError,
)
from longline.core.output import sanitize_error
from longline.server.web.rendering import render

_TITLES = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "Too large",
    421: "Unknown host",
    422: "Not possible",
    429: "Too many attempts",
    500: "Internal error",
    503: "Not available",
}
_STATUSES: tuple[tuple[type[LonglineError], int], ...] = (
    (NotAllowedError, 403),
    (NotFoundError, 404),
    (ConflictError, 409),
    (ConfigError, 422),
    (StoreError, 503),
)


def status_of(error: LonglineError) -> int:
    """Return the HTTP status for an error."""
    return next((status for family, status in _STATUSES if isinstance(error, family)), 500)


def problem_response(
    request: Request, problem: LonglineError | str, *, status: int | None = None, hint: str = ""
) -> Response:
    """Return an error as the client wants it: a page, or problem+json."""
    if isinstance(problem, LonglineError):
        status = status or status_of(problem)
        detail = sanitize_error(problem)  # with its hint
        kind = type(problem).__name__
    else:
        status = status or 400
        detail, kind = problem, ""
    title = _TITLES.get(status, "Error")
    if wants_page(request):
        return render(request, "problem.html", status=status, title=title, detail=detail, hint=hint)
    body: dict[str, Any] = {"type": "about:blank", "title": title, "status": status}
    body["detail"] = detail
    if hint:
        body["hint"] = hint
    if kind:
        body["kind"] = kind
    return JSONResponse(body, status, media_type="application/problem+json")


def wants_page(request: Request) -> bool:
    """Return whether a person looks at the response."""
    is_api = request.url.path.startswith(("/api/", "/metrics", "/livez", "/readyz"))
    return not is_api and "text/html" in request.headers.get("accept", "")
