"""Settings and tokens: what applies and where it comes from, and who may use the server."""

from __future__ import annotations

import asyncio
import platform
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Request
from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from longline.config.settings import (
    Explained,
    Settings,
    explain_settings,
    redact_value,
    settings_file,
)
from longline.config.times import Seconds
from longline.config.validation import describe_error
from longline.core.errors import BadOption, ConfigError
from longline.core.logging import redact_text
from longline.core.redaction import redact_server_url
from longline.server.web.access import AdminOnly, caller_of
from longline.server.web.context import Home, Web
from longline.server.web.forms import naming_fields, read_form, redirect
from longline.server.web.rendering import render
from longline.storage.access import Credential, CredentialKind, NewCredential, Role

router = APIRouter(include_in_schema=False)

_LONGEST = 366 * 86_400.0  # seconds of validity, as on the command line
_GIVEN = "as the server was started"
_ABOUT = {
    Role.READ: "see everything but tokens",
    Role.OPERATE: "also run, pause, retry, approve, decide",
    Role.ADMIN: "also edit sources, and manage tokens",
}


@dataclass(frozen=True, slots=True)
class SettingLine:
    """A setting as it is shown; `origin` is where its value comes from."""

    name: str
    about: str
    value: str
    origin: str

    @property
    def is_default(self) -> bool:
        """Whether nothing has set it."""
        return self.origin == "default"


@router.get("/settings")
async def show_settings(request: Request, web: Home) -> Response:
    """Show the settings of this server and, to an admin, the tokens."""
    return await _show(request, web)


async def _show(
    request: Request, web: Web, *, secret: str = "", created: Credential | None = None
) -> Response:
    lines, problem = await asyncio.to_thread(read_settings, web.settings)
    now = web.clock.now()
    is_admin = caller_of(request).role.covers(Role.ADMIN)
    tokens = await web.store.credentials.tokens() if is_admin else []
    file = settings_file()
    return render(
        request,
        "settings.html",
        lines=lines,
        problem=problem,
        file=None if file is None else str(file),
        version=version("longline"),
        python=platform.python_version(),
        tokens=[(one, _state_of(one, now)) for one in tokens],
        roles=[(role.value, about) for role, about in _ABOUT.items()],
        secret=secret,
        created=created,
    )


def _state_of(token: Credential, now: float) -> str:
    return "revoked" if token.revoked_at else "valid" if token.is_valid(now) else "expired"


def read_settings(settings: Settings) -> tuple[list[SettingLine], str]:
    """Return the settings that apply, those that were set first, and why some are not known.

    A value that the command line has set, or that a changed file has not replaced yet, is neither
    that of the file nor that of the environment.
    """
    problem = ""
    stated: dict[str, Explained] = {}
    try:
        stated = {one.name: one for one in explain_settings()}
    except ConfigError as error:
        problem = str(error)
    found = []
    for name, field in Settings.model_fields.items():
        value = _shown(name, getattr(settings, name))
        known = stated.get(name)
        if known is not None and known.value == value:
            origin = known.origin
        else:
            origin = "default" if value == _shown(name, field.get_default()) else _GIVEN
        found.append(SettingLine(name, field.description or "", _text_of(value), origin))
    return sorted(found, key=lambda one: one.is_default), problem


def _shown(name: str, value: Any) -> Any:
    is_server = name.endswith("_url") and isinstance(value, str)
    return redact_server_url(value) if is_server else redact_value(value)


def _text_of(value: Any) -> str:
    if value is None or value == []:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return redact_text(text)


# ---------------- Tokens


@router.get("/settings/tokens")
async def leave_new_token() -> Response:
    """Show the settings: who loads the page of a new token again asks for this address."""
    return redirect("/settings")


@router.post("/settings/tokens")
async def add_token(request: Request, web: Home, _caller: AdminOnly) -> Response:
    """Create a token, and show its secret this once."""
    form = await read_form(request)
    try:
        role = Role(form.get("role", ""))
    except ValueError:
        raise HTTPException(422, "There is no such role.") from None
    with naming_fields({"name": "Name", "expires": "Expires"}):
        seconds = _validity(form.get("expires", "").strip())
        new = NewCredential(CredentialKind.TOKEN, form.get("name", "").strip(), role, seconds)
        created, secret = await web.store.credentials.create(new, web.clock.now())
    # No redirect: the secret must be in no address, and no later page can show it.
    return await _show(request, web, secret=secret, created=created)


def _validity(text: str) -> float | None:
    if not text:
        return None
    try:
        seconds: float = TypeAdapter(Seconds).validate_python(text)
    except ValidationError as error:
        raise BadOption("expires", describe_error(error.errors()[0])) from error
    if not 0 < seconds <= _LONGEST:
        raise BadOption("expires", "it must be more than 0 and at most a year")
    return seconds


@router.post("/settings/tokens/{token}/revoke")
async def revoke_token(web: Home, token: str, _caller: AdminOnly) -> Response:
    """Revoke a token; the sessions that were opened with it end."""
    revoked = await web.store.credentials.revoke(token, web.clock.now())
    return redirect("/settings", f"The token {revoked.name} is revoked")
