"""What is wrong with data: quarantine, drift, and duplicate records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from fastapi import Query

from longline.analysis.clusters import (
    Cluster,
    explain_record,
    page_clusters,
    summarize_cluster,
)
from longline.analysis.duplicates import decide_names
from longline.drift.monitor import accept_profile, drift_of, last_profile, sources_watched
from longline.pipeline.pipeline import unpack_material
from longline.server.models import (
    Drift,
    DriftAccepted,
    DriftDetails,
    DuplicateDecision,
    DuplicateDetails,
    DuplicateGroup,
    Page,
    QuarantinedItem,
    QuarantineGroup,
)
from longline.server.web.api.requests import (
    CursorText,
    Limit,
    api_router,
    page_in_memory,
    page_of,
    read_cursor,
)
from longline.server.web.context import Home, Web
from longline.storage.queue.quarantine import Group, HoldingJob
from longline.storage.queue.quarantine import QuarantinedItem as HeldItem

router = api_router("quality")

_GROUPED = 10_000  # items of each job, and state, that are grouped
_JOBS = 20  # that are read together

_Position = tuple[HoldingJob, int]  # a job, and the place of a group in it


# ---------------- Quarantine


@router.get("/quarantine")
async def list_quarantine(
    web: Home,
    source: Annotated[str | None, Query(description="Only items of this source.")] = None,
    job: Annotated[str | None, Query(description="Only items of this job.")] = None,
    limit: Limit = 100,
    cursor: CursorText = None,
) -> Page[QuarantineGroup]:
    """List the reasons for quarantine, of the newest job first.

    In each job, the most frequent reason is first; of each state, its first 10,000 items are read.
    """
    key = read_cursor(cursor, float, str, int)
    after = None if key is None else (HoldingJob(key[1], "", key[0], 0), key[2])
    found: list[tuple[_Position, Group]] = []
    async for one in _groups(web, source, job, after):
        found.append(one)
        if len(found) > limit:
            break
    some, following = page_of(
        found, limit, lambda one: (one[0][0].created_at, one[0][0].id, one[0][1])
    )
    return Page(items=[QuarantineGroup.model_validate(one) for _, one in some], next=following)


async def _groups(
    web: Web, source: str | None, job: str | None, after: _Position | None
) -> AsyncIterator[tuple[_Position, Group]]:
    """Yield groups with their positions, after one of them."""
    async for one in _holding_jobs(web, source, job, after):
        groups = await web.store.quarantine.reasons(one.id, most=_GROUPED)
        start = after[1] + 1 if after is not None and after[0].id == one.id else 0
        for place, group in enumerate(groups[start:], start):
            yield (one, place), group


async def _holding_jobs(
    web: Web, source: str | None, name: str | None, after: _Position | None
) -> AsyncIterator[HoldingJob]:
    if name is not None:
        job = await web.store.jobs.get(name)
        if source in (None, job.source):
            yield HoldingJob(job.id, job.source, job.created_at, 0)
        return
    if after is not None:  # the rest of the job in which the page before ended
        yield after[0]
    before = None if after is None else (after[0].created_at, after[0].id)
    while True:
        jobs = await web.store.quarantine.jobs(source=source, before=before, limit=_JOBS)
        for one in jobs:
            yield one
        if len(jobs) < _JOBS:
            return
        before = (jobs[-1].created_at, jobs[-1].id)


@router.get("/quarantine/items")
async def list_quarantined_items(
    web: Home,
    job: Annotated[str, Query(description="The job.")],
    reason: Annotated[str, Query(description="Only reasons that contain this text.")] = "",
    limit: Annotated[int, Query(ge=1, le=100, description="Maximum number of entries.")] = 20,
    cursor: CursorText = None,
) -> Page[QuarantinedItem]:
    """List the items of a job that are in quarantine, with what they were made of."""
    found = await web.store.jobs.get(job)
    key = read_cursor(cursor, int)
    held = await web.store.quarantine.held(
        found.id, text=reason, after=0 if key is None else key[0], limit=limit + 1
    )
    some, following = page_of(held, limit, lambda one: (one.id,))
    return Page(items=[_item_of(one) for one in some], next=following)


def _item_of(held: HeldItem) -> QuarantinedItem:
    material = unpack_material(held.raw)
    values = {
        "id": held.id,
        "job": held.job,
        "key": held.item.key,
        "url": held.item.url,
        "state": held.state,
        "kind": held.kind,
        "reason": held.reason,
        "tries": held.tries,
        "problems": list(material.problems) or [held.reason],
        "layers": dict(material.layers),
        "raw": material.results,
        "finished_at": held.finished_at,
    }
    return QuarantinedItem.model_validate(values)


# ---------------- Drift


@router.get("/drift")
async def list_drift(web: Home, limit: Limit = 100, cursor: CursorText = None) -> Page[Drift]:
    """List the last run of each source, compared with earlier ones, by source."""
    names = await web.store.profiles.sources()
    page = page_in_memory(names, limit, cursor, lambda one: (one,))
    rows = await sources_watched(web.store, page.items)
    return Page(items=[Drift.model_validate(_drift_row(one)) for one in rows], next=page.next)


@router.get("/drift/{source:path}")
async def get_drift(web: Home, source: str) -> DriftDetails:
    """Return the fields of a source in its last run, next to those of earlier runs."""
    return DriftDetails.model_validate(_drift_row(await drift_of(web.store, source)))


@router.post("/drift/{source:path}/accept")
async def accept_drift(web: Home, source: str) -> DriftAccepted:
    """Use the records of the last run of a source as the baseline of later runs."""
    last = await last_profile(web.store, source)
    kept = await accept_profile(web.store, last.job, web.clock.now())
    return DriftAccepted(source=kept.source, job=kept.job)


def _drift_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "drift": list(row["drift"].values())}


# ---------------- Duplicates

_Kind = Annotated[str | None, Query(description="Only groups by these rules.")]


@router.get("/duplicates")
async def list_duplicates(
    web: Home, kind: _Kind = None, limit: Limit = 100, cursor: CursorText = None
) -> Page[DuplicateGroup]:
    """List groups of records that describe the same thing."""
    key = read_cursor(cursor, str, int)
    after = ("", 0) if key is None else (key[0], key[1])
    found = await page_clusters(web.store.matches, kind, after=after, limit=limit + 1)
    some, following = page_of(found, limit, lambda one: (one.kind, one.records[0]["id"]))
    return Page(items=[_group_of(one) for one in some], next=following)


def _group_of(cluster: Cluster) -> DuplicateGroup:
    return DuplicateGroup.model_validate(summarize_cluster(cluster))


@router.get("/duplicates/one")
async def get_duplicate(
    web: Home,
    kind: Annotated[str, Query(description="The name of the rules.")],
    record: Annotated[str, Query(description="One of its records, as source/key.")],
) -> DuplicateDetails:
    """Return the group of a record with its merged view and the evidence of its pairs."""
    return DuplicateDetails.model_validate(await explain_record(web.store.matches, kind, record))


@router.post("/duplicates/decisions")
async def decide_duplicate(web: Home, body: DuplicateDecision) -> DuplicateDecision:
    """Confirm or reject that two records are the same thing; it overrides the rules."""
    pair = (body.left, body.right)
    await decide_names(web.store.matches, body.kind, pair, body.decision, at=web.clock.now())
    return body
