"""Five hundred archived items, extracted again with the web gone: the same, or exactly the change.

The chain is built around the archive here; the web is the practice web, over real HTTP.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from longline.analysis.reextract import ReextractStatus, reextract, source_for
from longline.core.model import Job
from longline.http.archive.warc import Archive, open_warc
from longline.storage.query import RecordQuery
from longline.storage.store import Store, open_store
from tests.archived_jobs import collected
from tests.integration.conftest import Serve
from tests.virtual import VirtualClock

ITEMS = 500
CHANGED = '''
"""The catalogue, but every tenth template has its title read in another way."""

from longline.sources.n8n.source import N8n
from longline.sources.base import layer


class ChangedN8n(N8n):
    @layer()
    async def metadata(self, visit):
        found = await super().metadata(visit)
        if int(visit.item.key) % 10 == 0:
            found["title"] = f"{found['title']}!"
        return found
'''


@asynccontextmanager
async def home(folder: Path) -> AsyncIterator[tuple[Store, Archive]]:
    with open_store(f"sqlite:///{folder}/longline.sqlite") as store:
        async with open_warc(folder / "archive") as archive:
            yield store, archive


async def collect(
    serve: Serve, folder: Path, clock: VirtualClock, web_options: dict[str, Any], **options: Any
) -> tuple[Job, list[dict[str, Any]]]:
    """Collect a practice web into a home, then stop the web; return the job and its records."""
    async with serve(**web_options) as web, home(folder) as (store, archive):
        addresses = {
            "site_url": web.site_url,
            "api_url": web.api_url,
            "youtube_url": web.youtube_url,
        }
        job = await collected(store, archive, "n8n", {**addresses, **options}, clock)
        return job, await store.records.list(RecordQuery())


async def test_with_the_web_gone_records_are_the_same_or_differ_exactly_as_the_source_does(
    serve: Serve, tmp_path: Path, clock: VirtualClock
) -> None:
    job, before = await collect(serve, tmp_path, clock, {"items": ITEMS}, transcripts=False)
    path = tmp_path / "changed.py"
    path.write_text(CHANGED)
    titles = {row["key"]: row["data"]["title"] for row in before}
    expected = {
        key: [{"field": "title", "old": title, "new": f"{title}!"}]
        for key, title in titles.items()
        if int(key) % 10 == 0
    }

    async with home(tmp_path) as (store, archive):
        same = await reextract(store, archive, job, source_for(job, None, {}), clock, write=True)
        after = await store.records.list(RecordQuery())
        changed = await reextract(store, archive, job, source_for(job, str(path), {}), clock)

    assert len(before) == ITEMS
    assert after == before
    told = same.as_dict()
    assert (told["same"], told["written"], told["requests"]) == (ITEMS, 0, 0)
    told = changed.as_dict()
    assert len(expected) > 20
    assert told["changes"] == expected
    assert (told["same"], told["failed"], told["requests"]) == (ITEMS - len(expected), 0, 0)


async def test_transcripts_and_their_refusals_come_from_the_archive_too(
    serve: Serve, tmp_path: Path, clock: VirtualClock
) -> None:
    web = {"items": 60, "faults": 0.2}
    job, before = await collect(serve, tmp_path, clock, web)
    outcomes = {one["outcome"] for row in before for one in row["data"]["transcripts"] or ()}

    async with home(tmp_path) as (store, archive):
        result = await reextract(store, archive, job, source_for(job, None, {}), clock)

    assert len(outcomes) > 2
    assert result.requests == 0
    assert [one for one in result.comparisons if one.status is ReextractStatus.CHANGED] == []
    assert result.as_dict()["same"] == len(before)
