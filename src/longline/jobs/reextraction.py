"""Extraction once more, from archived answers: what a source makes of them now."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from longline.clock import Clock
from longline.config.files import SUFFIXES, read_file
from longline.config.spec import make_spec
from longline.errors import NotArchived, NothingArchived
from longline.fetching.archives.base import Archive
from longline.fetching.transports.replay import MISSING, build_replay
from longline.jobs.collector import Collector, Extraction
from longline.jobs.comparison import Comparison, Finding, Reextraction, changes_between
from longline.jobs.timeline import Seat, Timeline
from longline.model import Item, ItemState, Job, Record, Verdict
from longline.sources.base import Source
from longline.sources.load import load_source
from longline.stores.journal import fact
from longline.stores.records import RecordQuery
from longline.stores.store import Store

_ROUNDING = 1e-5  # seconds; the moments in an archive's files are whole microseconds
_GOOD = frozenset({ItemState.STORED, ItemState.UNCHANGED})
Row = Mapping[str, Any]


def source_for(job: Job, reference: str | None, options: Mapping[str, Any]) -> Source:
    """Return the source to extract with: the job's own, or another, with the job's settings.

    Args:
        job: whose settings count, since they decide which addresses are asked for.
        reference: another source, or a job file, whose own settings count then.
        options: settings that differ.

    Raises:
        ConfigError: there is no such source, or a setting does not fit it.
    """
    spec = make_spec(job.settings)
    if reference and reference.endswith(SUFFIXES):
        spec = make_spec({"set": spec.options, **read_file(Path(reference))})
        reference = None
    kind = load_source(reference) if reference else load_source(spec.source, spec.manifest)
    return kind.with_options({**spec.options, **options})


async def reextract(
    store: Store,
    archive: Archive,
    job: Job,
    source: Source,
    clock: Clock,
    *,
    limit: int | None = None,
    write: bool = False,
) -> Reextraction:
    """Take the finished items of a job through a source again and compare; make no request.

    Args:
        store: where the job and its records are.
        archive: where its answers are.
        job: whose items.
        source: what extracts; a fresh object.
        clock: says when new versions were written.
        limit: take only so many of the items, in the order they were found.
        write: store what is new or changed.

    Raises:
        NothingArchived: the job kept no answers.
    """
    if not await archive.count(job.id):
        raise NothingArchived(job.id)
    rows = await store.queue.finished(job.id)
    tried = [row for row in rows if row["finished_at"] is not None][:limit]
    again = _Reextractor(store, archive, job, source, written_at=clock.now() if write else None)
    result = Reextraction(job.id, tuple(await again.run(tried)), again.written)
    if write:
        told = fact(job.id, clock.now(), "job.reextracted", written=result.written)
        await store.journal.append(told)
    return result


class _Reextractor:
    """Takes items through their layers, at the moments at which it happened."""

    def __init__(
        self,
        store: Store,
        archive: Archive,
        job: Job,
        source: Source,
        *,
        written_at: float | None,
    ) -> None:
        self._store = store
        self._archive = archive
        self._job = job
        self._source = source
        self._params = job.settings.get("params") or {}
        self._written_at = written_at
        self.written = 0

    async def run(self, rows: Sequence[Row]) -> list[Comparison]:
        """Return what was found, in the order of the rows."""
        timeline = Timeline()
        own = timeline.take_seat()
        tasks: dict[str, asyncio.Task[Comparison]] = {}
        async with asyncio.TaskGroup() as group:
            for row in sorted(rows, key=_start):
                await own.reach(_start(row))
                tasks[row["key"]] = group.create_task(self._repeat(row, timeline.take_seat()))
            own.leave()
        return [tasks[row["key"]].result() for row in rows]

    async def _repeat(self, row: Row, seat: Seat) -> Comparison:
        try:
            extraction = await self._extract(row, seat)
        finally:
            seat.leave()
        query = RecordQuery(source=self._job.source, key=row["key"], limit=1)
        stored = await self._store.records.list(query)
        found = self._compared(row, extraction, stored[0] if stored else None)
        if found.finding in {Finding.NEW, Finding.CHANGED} and not found.is_superseded:
            await self._write(extraction.record)
        return replace(found, requests=extraction.account.requests)

    async def _extract(self, row: Row, seat: Seat) -> Extraction:
        until = row["finished_at"] + _ROUNDING
        link = build_replay(self._archive, self._job.id, seat, until=until, arrive=seat.reach)
        item = Item(row["key"], row["url"], row["priority"], row["data"])
        collector = Collector(self._source, link, seat, self._params)
        return await collector.collect(item, tries=row["tries"])

    def _compared(self, row: Row, extraction: Extraction, stored: Row | None) -> Comparison:
        key, was_good = row["key"], row["state"] in _GOOD
        if extraction.record is None:
            is_skipped = not was_good and extraction.outcome.verdict is Verdict.SKIP
            finding = Finding.SKIPPED if is_skipped else Finding.FAILED
            return Comparison(key, finding, reason=extraction.outcome.reason)
        is_superseded = self._is_superseded(row, stored)
        if stored is None or not was_good:
            return Comparison(key, Finding.NEW, is_superseded=is_superseded)
        ignored = self._source.volatile if is_superseded else frozenset()
        changes = changes_between(stored["data"], extraction.record.data, ignored)
        if not changes:
            return Comparison(key, Finding.SAME, is_superseded=is_superseded)
        if missing := _missing(extraction):  # then the difference need not be the source's doing
            return Comparison(key, Finding.FAILED, reason=missing, is_superseded=is_superseded)
        return Comparison(key, Finding.CHANGED, changes, is_superseded=is_superseded)

    def _is_superseded(self, row: Row, stored: Row | None) -> bool:
        if stored is None or stored["job_id"] == self._job.id:
            return False
        is_later: bool = stored["seen_at"] > row["finished_at"]
        return is_later

    async def _write(self, record: Record | None) -> None:
        if record is None or self._written_at is None:
            return
        # A changed source may have another name; these are still the records of the job's.
        ours = replace(record, source=self._job.source)
        await self._store.records.create(ours, at=self._written_at, job=self._job.id)
        self.written += 1


def _start(row: Row) -> float:
    moment: float = row["finished_at"] - (row["seconds"] or 0.0)
    return moment


def _missing(extraction: Extraction) -> str | None:
    for happening in extraction.account.happenings:
        if happening.kind == MISSING:
            return str(NotArchived(**happening.data))
    return None
