"""The sources of the home, by name."""

from __future__ import annotations

from pathlib import Path

from longline.core.errors import BadFile
from longline.core.redaction import KNOWN_SECRETS
from longline.server.models import Page, Source
from longline.server.web.api.requests import CursorText, Limit, api_router, page_in_memory
from longline.server.web.context import Home, Web
from longline.server.web.source_files import known_source, other_sources, read_sources

router = api_router("sources")

_PYTHON, _INVALID = "python", "invalid"


@router.get("/sources")
async def list_sources(web: Home, limit: Limit = 100, cursor: CursorText = None) -> Page[Source]:
    """List the sources that can be run by their names, and the files that are invalid."""
    files = await read_sources(web.settings)
    rows = await web.store.projections.rows("sources")
    last = {row["source"]: row["job"] for row in rows if row["source"]}
    found = {name: _source(name, _PYTHON, last.get(name)) for name in (*last, *other_sources())}
    for problem in files.problems:
        if isinstance(problem, BadFile):
            name = Path(problem.path).stem
            found[name] = _source(name, _INVALID, last.get(name), problem=str(problem))
    for name, entry in files.entries.items():
        found[name] = _source(name, entry.kind, last.get(name), about=entry.about)
    return page_in_memory(found.values(), limit, cursor, lambda one: (one.name,))


@router.get("/sources/{name:path}")
async def get_source(web: Home, name: str) -> Source:
    """Return a source."""
    known = await known_source(web, name)
    last = await _last_job(web, name)
    if known.entry is not None:
        return _source(name, known.entry.kind, last, about=known.entry.about)
    if known.problem is not None:
        return _source(name, _INVALID, last, problem=str(known.problem))
    problem = None if known.reference else "it has no file, and no job that shows how to run it"
    return _source(name, _PYTHON, last, problem=problem)


async def _last_job(web: Web, name: str) -> str | None:
    rows = await web.store.projections.rows("sources", keys=[name])
    return rows[0]["job"] if rows else None


def _source(
    name: str, kind: str, last_job: str | None, *, about: str = "", problem: str | None = None
) -> Source:
    shown = None if problem is None else KNOWN_SECRETS.text(problem)
    return Source(name=name, kind=kind, about=about, problem=shown, last_job=last_job)
