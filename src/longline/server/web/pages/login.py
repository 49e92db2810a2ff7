"""Log in with a one-time link or a token, log out, and what the live parts connect to."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response, StreamingResponse

from longline.server.web.access import (
    SESSION_COOKIE,
    AnyCaller,
    LoginLimit,
    client_of,
    open_session,
    set_session_cookie,
    too_many_failures,
)
from longline.server.web.context import Home, Web
from longline.server.web.forms import read_form
from longline.server.web.live import SSE_HEADERS
from longline.server.web.rendering import render
from longline.storage.access import Credential, CredentialKind
from longline.storage.events.events import event_row

router = APIRouter(include_in_schema=False)


@router.get("/login")
async def show_login(request: Request, web: Home) -> Response:
    """Show the login, or open a session with the one-time link."""
    link = request.query_params.get("link")
    if link is None:
        return _login_page(request)
    found = await web.store.credentials.redeem(link, web.clock.now())
    if found is None:
        problem = "This link was used before, or has expired."
        return await _refused(request, web, problem)
    return await _logged_in(request, web, found)


@router.post("/login")
async def log_in(request: Request, web: Home) -> Response:
    """Open a session with a token."""
    limit: LoginLimit = request.app.state.login_limit
    if (wait := limit.wait(client_of(request), web.clock.now())) > 0:
        return too_many_failures(request, wait)
    form = await read_form(request)
    found = await web.store.credentials.find(form.get("token", "").strip(), web.clock.now())
    if found is None or found.kind is not CredentialKind.TOKEN:
        return await _refused(request, web, "This token is not valid.")
    return await _logged_in(request, web, found, form.get("next", "/"))


@router.post("/login/out")
async def log_out(web: Home, caller: AnyCaller) -> Response:
    """End the session of this browser."""
    if caller.session is not None:
        await web.store.credentials.end_session(caller.session)
    response = RedirectResponse("/login", status_code=303)
    response.delete_cookie(SESSION_COOKIE, path="/")
    return response


@router.get("/live/{name}")
async def stream_part(request: Request, name: str, web: Home, caller: AnyCaller) -> Response:
    """Stream a live part of a page; its arguments are in the query."""
    if name not in web.live:
        raise HTTPException(404, f"There is no live part {name!r}.")
    stream = web.live.stream(name, dict(request.query_params), caller)
    return StreamingResponse(stream, media_type="text/event-stream", headers=SSE_HEADERS)


def _login_page(request: Request, problem: str = "", status: int = 200) -> Response:
    return render(request, "login.html", status=status, problem=problem)


async def _refused(request: Request, web: Web, problem: str) -> Response:
    limit: LoginLimit = request.app.state.login_limit
    client, now = client_of(request), web.clock.now()
    limit.count(client, now)
    await web.store.events.append(
        event_row(None, now, "access.refused", caller="unknown", client=client)
    )
    return _login_page(request, problem, 403)


async def _logged_in(request: Request, web: Web, by: Credential, target: str = "/") -> Response:
    secret = await open_session(web, by, client_of(request))
    # Only a path of this server: "//host" and "/\host" would lead to another one.
    is_own = target.startswith("/") and not target.startswith(("//", "/\\"))
    response = RedirectResponse(target if is_own else "/", status_code=303)
    set_session_cookie(request, response, secret)
    return response
