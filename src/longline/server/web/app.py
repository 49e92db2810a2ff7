"""The ASGI application: pages, API, static files, and the guard in front of them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from longline.config.secrets import is_loopback
from longline.core.errors import LonglineError
from longline.server.web import api, probes
from longline.server.web.access import SECURITY_HEADERS, Guard, LoginLimit
from longline.server.web.api.openapi import openapi_document
from longline.server.web.api.requests import BodyLimit
from longline.server.web.context import Web
from longline.server.web.event_stream import EventStreams
from longline.server.web.forms import redirect
from longline.server.web.live import LivePart, LiveParts
from longline.server.web.pages import (
    alerts,
    domains,
    duplicates,
    events,
    flows,
    home,
    jobs,
    login,
    logs,
    proxies,
    quarantine,
    records,
    schedules,
    settings,
    source_editor,
    sources,
    workers,
)
from longline.server.web.problems import problem_response, wants_page
from longline.server.web.rendering import STATIC

_YEAR = 31_536_000
_PAGES: tuple[ModuleType, ...] = (
    home,
    source_editor,  # before sources, whose names would match its paths
    sources,
    jobs,
    records,
    schedules,
    flows,
    domains,
    proxies,
    quarantine,
    duplicates,
    alerts,
    logs,
    events,
    workers,
    settings,
    login,
)


def create_app(web: Web, host: str) -> FastAPI:
    """Return the application that serves a home at a host."""
    app = FastAPI(
        title="longline",
        version="1",
        description="Run and watch the sources of a home.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
    )
    limit = LoginLimit()
    app.state.web = web
    app.state.login_limit = limit
    web.live = LiveParts(web, _live_parts())
    web.events = EventStreams(web)
    web.checkup = workers.Checkup()
    for router in (*(one.router for one in _PAGES), probes.router, *_api_routers()):
        app.include_router(router)
    app.mount("/static", _StaticFiles(directory=STATIC), name="static")
    app.openapi = lambda: openapi_document(app)  # type: ignore[method-assign]  # as FastAPI documents
    app.add_middleware(BodyLimit)
    app.add_middleware(Guard, web=web, hosts=_known_hosts(web, host), limit=limit)
    app.add_exception_handler(LonglineError, _on_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(Exception, _on_unexpected)
    return app


def _live_parts() -> dict[str, LivePart]:
    """Return the live parts of all pages, by name."""
    return {name: part for one in _PAGES for name, part in getattr(one, "LIVE", {}).items()}


def _api_routers() -> list[APIRouter]:
    return list(api.routers())


def _known_hosts(web: Web, host: str) -> frozenset[str]:
    """Return the names under which browsers may reach the server."""
    own = {"localhost"} if is_loopback(host) else {host.lower()}
    return frozenset(own | {one.lower() for one in web.settings.web_hosts})


class _StaticFiles(StaticFiles):
    """Static files that browsers keep: their URLs change with them."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = f"public, max-age={_YEAR}, immutable"
        return response


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, LonglineError)  # noqa: S101  # registered for this class
    return problem_response(request, error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  # registered for this class
    detail = error.detail
    if error.status_code == 404 and detail == "Not Found":  # noqa: PLR2004  # as HTTP names it
        detail = f"There is nothing at {request.url.path}."
    if error.status_code == 405 and request.method == "GET" and wants_page(request):  # noqa: PLR2004  # as HTTP names it
        # Only forms are sent there; the page above it has them.
        return redirect(request.url.path.rpartition("/")[0] or "/")
    response = problem_response(request, detail, status=error.status_code)
    response.headers.update(error.headers or {})
    return response


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101  # registered for this class
    first = error.errors()[0]
    place = ".".join(str(one) for one in first["loc"] if one not in ("body", "query", "path"))
    text = f"{place}: {first['msg']}" if place else str(first["msg"])
    if first["type"] == "json_invalid":
        text = f"the body is not valid JSON: {first['ctx']['error']}, at character {place}"
    elif first["loc"] == ("body",) and first["type"] in ("missing", "model_attributes_type"):
        text = "the body must be a JSON object, with the header Content-Type: application/json"
    return problem_response(request, text, status=422)


async def _on_unexpected(request: Request, _error: Exception) -> Response:
    text = "The server could not handle this request; its log has the reason."
    response = problem_response(request, text, status=500)
    # It is sent around the guard, which gives all others these headers.
    response.headers.update({**SECURITY_HEADERS, "Cache-Control": "no-store"})
    return response
