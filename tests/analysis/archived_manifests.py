"""A manifest that is run with an archive, changed, and applied again to what was archived."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from longline.analysis.reextract import Reextraction, ReextractStatus, reextract, source_for
from longline.analysis.replay import Replay, replay, source_now
from longline.config.settings import Settings
from longline.core.clock import Clock
from longline.core.model import Job
from longline.orchestrator import Orchestrator
from longline.storage.query import RecordQuery
from longline.storage.store import Store
from longline.wiring import open_archive
from tests.scripted_site import ScriptedSite

PAGES, PER_PAGE = 3, 4
ALL = PAGES * PER_PAGE
QUOTES = """
manifest: html
name: quotes
start: {site}/
pages: .next a@href
items: {{elements: div.quote}}
fields:
  text: {{css: .text, required: true}}
  author: .author
"""
GOODS = """
manifest: api
name: goods
base_url: {site}
endpoints:
  goods:
    path: /goods
    records: items
    key: id
    pagination: {{kind: cursor, path: next, parameter: after}}
    fields: {{id: id, name: name}}
"""


@dataclass
class Past:
    """A home, and a manifest that is run, changed and run again on what the home has kept."""

    site: ScriptedSite
    home: Path
    clock: Clock
    job: Job | None = None

    @property
    def manifest(self) -> Path:
        return self.home / "source.yaml"

    def write(self, text: str) -> None:
        self.manifest.parent.mkdir(exist_ok=True)
        self.manifest.write_text(text.format(site=self.site.url))

    async def run(self, text: str, **spec: Any) -> Job:
        self.write(text)
        spec = {"archive": True, "rate": "unlimited", **spec}
        async with Orchestrator(
            str(self.manifest), home=self.home, clock=self.clock, **spec
        ) as longline:
            report = await longline.execute()
            self.job = await longline.store.jobs.get(report.job)
        self.site.hits.clear()
        return self.job

    async def again(self, text: str | None = None, **how: Any) -> Reextraction:
        if text is not None:
            self.write(text)
        assert self.job is not None
        async with self.store() as store, open_archive(Settings(home=self.home)) as archive:
            source = source_for(self.job, None, {})
            result = await reextract(store, archive, self.job, source, self.clock, **how)
        assert self.site.hits.total() == 0
        shown = result.as_dict()
        assert sum(shown[finding.value] for finding in ReextractStatus) == shown["items"]
        return result

    async def replayed(self, text: str, **how: Any) -> Replay:
        """Replay the quarantine with a changed manifest; with the archive, if there is one."""
        self.write(text)
        assert self.job is not None
        settings = Settings(home=self.home)
        async with self.store() as store, open_archive(settings) as archive:
            source = source_now(self.job, None)
            result = await replay(store, self.job, source, self.clock, archive=archive, **how)
        assert self.site.hits.total() == 0
        return result

    async def records(self) -> dict[str, Any]:
        async with self.store() as store:
            return {row["key"]: row["data"] for row in await store.records.list(RecordQuery())}

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        async with Orchestrator("n8n", home=self.home, clock=self.clock) as longline:
            yield longline.store


def quote(number: int) -> str:
    return (
        f'<div class="quote" id="q{number}"><b class="text">Text {number}</b>'
        f'<i class="author">Author {number}</i><i class="full">Full name {number}</i></div>'
    )


def listed(numbers: list[int], following: str | None = None) -> str:
    link = f'<p class="next"><a href="{following}">Next</a></p>' if following else ""
    return f"<main>{''.join(quote(number) for number in numbers)}</main>{link}"


def past_of(home: Path, site: ScriptedSite, clock: Clock) -> Past:
    """Return a site with quotes on several pages and an API of goods, and an empty home."""
    for page in range(PAGES):
        numbers = list(range(page * PER_PAGE, (page + 1) * PER_PAGE))
        following = f"/page{page + 1}" if page + 1 < PAGES else None
        site.says("/" if page == 0 else f"/page{page}", listed(numbers, following))
    site.answers["/goods"] = goods
    return Past(site, home, clock)


async def goods(request: web.Request) -> web.StreamResponse:
    page = int(request.query.get("after", 0))
    numbers = range(page * PER_PAGE, (page + 1) * PER_PAGE)
    items = [{"id": n, "name": f"name {n}", "title": f"title {n}", "sku": f"s{n}"} for n in numbers]
    following = page + 1 if page + 1 < PAGES else None
    return web.json_response({"items": items, "next": following})
