"""Write sources in the browser: propose one for a URL, edit a manifest, try it, save it."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, Request
from starlette.responses import Response

from longline.config.job_spec import make_spec
from longline.core.errors import BadFile, BadOption, ConfigError, LonglineError
from longline.core.output import sanitize_error
from longline.devtools.propose.proposal import Proposal, manifest_text
from longline.devtools.propose.proposer import PageSurvey, Proposer, Transport
from longline.devtools.session import NO_SOURCE, open_page_chain
from longline.server.web.access import AdminOnly
from longline.server.web.context import Home, Web
from longline.server.web.forms import naming_fields, read_form, redirect
from longline.server.web.off_loop import NotInTime, off_loop_of
from longline.server.web.pages.records import cell
from longline.server.web.pages.sources import try_source
from longline.server.web.rendering import render
from longline.server.web.source_files import (
    NotTheSameFile,
    editable_file,
    from_browser,
    new_file,
    parse_text,
    read_sources,
    read_text,
    save_text,
    source_url,
    write_new,
)
from longline.sources.loader import Entry
from longline.sources.manifest import Manifest, resolve_files

router = APIRouter(include_in_schema=False)

_PROPOSE_SECONDS = 90.0
_MOST_FORM = 1_000_000  # bytes of a form with a manifest
_PREVIEW = 8  # records
_PREVIEW_COLUMNS = 8
_MOST_URL = 2_000  # characters
_MOST_DIFF = 2_000  # lines


# ---------------- A new source from a URL


@router.get("/sources/new")
async def show_new(request: Request, _caller: AdminOnly) -> Response:
    """Ask for the address of a list."""
    return _new_page(request, {"url": request.query_params.get("url", "")})


@router.post("/sources/new")
async def propose(request: Request, web: Home, _caller: AdminOnly) -> Response:
    """Propose a manifest for an address, and show the records that it gives."""
    form = await read_form(request)
    try:
        with naming_fields({"name": "Name", "URL": "Address"}):
            found, proposal = await _propose(request, web, form)
    except LonglineError as error:
        return _new_page(request, form, problem=sanitize_error(error), status=422)
    text = manifest_text(proposal)
    return _new_page(request, form, found=found, proposal=proposal, text=text)


@router.get("/sources/save")
async def leave_save() -> Response:
    """Lead to a new source: a text that was not saved is only in the form."""
    return redirect("/sources/new")


@router.post("/sources/save")
async def save_new(request: Request, web: Home, _caller: AdminOnly) -> Response:
    """Save a new manifest into the first folder of sources."""
    form = await read_form(request, most=_MOST_FORM)
    text = from_browser(form.get("text", ""))
    files = await read_sources(web.settings)
    try:
        path, entry = new_file(web.settings, files, text)
        await asyncio.to_thread(write_new, path, text)
    except ConfigError as error:
        return _new_page(request, form, text=text, problem=_text_of(error), status=422)
    return redirect(source_url(entry.name), f"Saved as {path}")


def _new_page(
    request: Request,
    form: Mapping[str, str],
    *,
    status: int = 200,
    problem: str = "",
    text: str = "",
    found: PageSurvey | None = None,
    proposal: Proposal | None = None,
) -> Response:
    return render(
        request,
        "source_new.html",
        status=status,
        form=form,
        problem=problem,
        text=text,
        proposal=proposal,
        candidates=found.candidates if found else [],
        chosen=found.candidates.index(proposal.candidate) if found and proposal else 0,
        records=[
            {name: cell(value) for name, value in one.items()}
            for one in (proposal.records[:_PREVIEW] if proposal else ())
        ],
        columns=[one.name for one in proposal.all_fields][:_PREVIEW_COLUMNS] if proposal else [],
    )


async def _propose(
    request: Request, web: Web, form: Mapping[str, str]
) -> tuple[PageSurvey, Proposal]:
    url = _checked_url(form.get("url", ""))
    name = form.get("name", "").strip() or None
    transport: Transport = "browser" if form.get("transport") == "browser" else "http"
    number = form.get("candidate", "")
    spec = make_spec({"source": NO_SOURCE})

    async def work() -> tuple[PageSurvey, Proposal]:
        async with open_page_chain(web.settings, spec, web.clock, transport=transport) as chain:
            proposer = Proposer(chain, url, name, clock=web.clock, transport=transport)
            found = await proposer.survey()
            if not number.isdigit():
                return found, await proposer.best(found)
            if int(number) >= len(found.candidates):
                raise BadOption("candidate", "the page has changed; propose again")
            return found, await proposer.propose(found, found.candidates[int(number)])

    return await off_loop_of(request).run(work, seconds=_PROPOSE_SECONDS)


def _checked_url(text: str) -> str:
    url = text.strip()
    if url and "://" not in url:
        url = f"https://{url}"
    try:
        parts = urlsplit(url)
        is_web = parts.scheme.lower() in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        is_web = False
    if not is_web or len(url) > _MOST_URL or any(ord(one) < 33 for one in url):  # noqa: PLR2004  # controls
        raise BadOption("URL", "write the address of a web page, such as https://example.org/list")
    return url


# ---------------- Edit a manifest


@router.get("/sources/edit")
async def show_editor(request: Request, web: Home, _caller: AdminOnly) -> Response:
    """Show the text of a manifest or job file in an editor."""
    path = _path_of(web, request.query_params)
    text, version = read_text(path)
    return _editor_page(request, path, text, version, problem=_problem_of(text, path))


@router.post("/sources/edit")
async def edit(request: Request, web: Home, _caller: AdminOnly) -> Response:
    """Check, try, compare or save the text of a manifest or job file."""
    form = await read_form(request, most=_MOST_FORM)
    path = _path_of(web, form)
    text, version = from_browser(form.get("text", "")), form.get("version", "")
    action = form.get("action", "check")
    problem = _problem_of(text, path)
    if problem is not None:
        return _editor_page(request, path, text, version, problem=problem, status=422)
    if action == "save":
        return _save(request, path, text, version)
    if action == "review":
        return _editor_page(request, path, text, version, diff=_diff(path, text))
    tried = await _try(request, web, parse_text(text, path)) if action == "try" else {}
    return _editor_page(request, path, text, version, is_valid=True, **tried)


def _save(request: Request, path: Path, text: str, version: str) -> Response:
    try:
        entry = save_text(path, text, version)
    except NotTheSameFile as error:
        _, newest = read_text(path)
        return _editor_page(
            request,
            path,
            text,
            newest,  # saving again replaces what is shown now
            conflict=_text_of(error),
            diff=_diff(path, text),
            status=409,
        )
    return redirect(source_url(entry.name), f"Saved {path}")


async def _try(request: Request, web: Web, entry: Entry) -> dict[str, Any]:
    if not isinstance(entry.model, Manifest):
        return {"checks": None, "check_problem": "A job file has no page of its own to try."}
    path = entry.document.path
    try:
        values = resolve_files(entry.values, path.parent)
        spec = make_spec({"source": str(path), "manifest": values})
        return await try_source(request, web, spec)
    except NotInTime as error:
        return {"checks": None, "check_problem": str(error)}
    except ConfigError as error:
        return {"checks": None, "check_problem": _text_of(error)}


def _editor_page(
    request: Request, path: Path, text: str, version: str, *, status: int = 200, **values: Any
) -> Response:
    defaults: dict[str, Any] = {
        "problem": None,
        "conflict": "",
        "diff": None,
        "is_valid": False,
        "checks": None,
        "check_problem": "",
    }
    return render(
        request,
        "source_edit.html",
        status=status,
        file=str(path),
        edit_url=f"/sources/edit?{urlencode({'file': str(path)})}",
        text=text,
        version=version,
        **(defaults | values),
    )


def _path_of(web: Web, values: Mapping[str, str]) -> Path:
    return editable_file(web.settings, values.get("file", ""))


def _problem_of(text: str, path: Path) -> dict[str, Any] | None:
    """Return what is wrong with a text, with the lines around the place; None if it is valid."""
    try:
        parse_text(text, path)
    except BadFile as error:
        lines = text.splitlines()
        first = max(0, error.line - 3)
        around = [
            {"number": number, "text": one, "is_wrong": number == error.line}
            for number, one in enumerate(lines[first : error.line + 2], start=first + 1)
        ]
        return {
            "text": error.problem,
            "line": error.line,
            "column": error.column,
            "around": around if error.line else [],
        }
    return None


def _diff(path: Path, text: str) -> list[tuple[str, str]]:
    """Return the lines that saving would change, each with its kind: old, new, place or same."""
    before, _ = read_text(path)
    lines = difflib.unified_diff(before.splitlines(), text.splitlines(), lineterm="", n=3)
    kinds = {"-": "old", "+": "new", "@": "place"}
    return [
        (kinds.get(line[:1], "same"), line)
        for number, line in enumerate(lines)
        if 2 <= number < _MOST_DIFF  # noqa: PLR2004  # without the two lines that name the files
    ]


def _text_of(error: ConfigError) -> str:
    """Return an error without the path of a file that does not exist yet."""
    if isinstance(error, BadFile):
        place = f"line {error.line}, column {error.column}: " if error.line else ""
        return f"{place}{error.problem}"
    return sanitize_error(error)
