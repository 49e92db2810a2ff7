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
from longline.errors import LonglineError, NotArchived, NothingArchived
from longline.fetching.archives.base import Archive
from longline.fetching.transports.replay import MISSING, build_replay
from longline.jobs.collector import Collector, Extraction
from longline.jobs.comparison import Comparison, Finding, Reextraction, changes_between
from longline.jobs.rediscovery import (
    ROUNDING,
    Pairs,
    Rediscovery,
    Row,
    is_manifest,
    item_of,
    pair,
    rediscover,
)
from longline.jobs.timeline import Seat, Timeline
from longline.model import FINAL_STATES, Item, ItemState, Job, Record, Verdict
from longline.sources.base import Source
from longline.sources.load import load_source
from longline.stores.journal import fact
from longline.stores.keys import kept_key
from longline.stores.records import RecordQuery
from longline.stores.store import Store

_GOOD = frozenset({ItemState.STORED, ItemState.UNCHANGED})
_MADE_ELSEWHERE = (
    "it carries values that cannot be extracted again from the archive; run the source again"
)
_NOT_FOUND = "the source does not find it any more, or only under the key of another item"


def source_for(job: Job, reference: str | None, options: Mapping[str, Any]) -> Source:
    """Return the source to extract with: the job's own, or another, with the job's settings.

    The job's own manifest is read again from its file; if that is gone, the job's copy is used.

    Args:
        job: whose settings count, since they decide which addresses are asked for.
        reference: another source, or a job file, whose own settings count then.
        options: settings that differ.

    Raises:
        ConfigError: there is no such source, or a setting does not fit it.
    """
    spec = make_spec(job.settings)
    reference = reference or manifest_file(job)
    if reference and reference.endswith(SUFFIXES):
        spec = make_spec({"set": spec.options, **read_file(Path(reference))})
        reference = None
    kind = load_source(reference) if reference else load_source(spec.source, spec.manifest)
    return kind.with_options({**spec.options, **options})


def manifest_file(job: Job) -> str | None:
    """Return the path of the manifest that a job was run with, if the file is still there."""
    spec = make_spec(job.settings)
    is_there = spec.source.endswith(SUFFIXES) and Path(spec.source).is_file()
    return spec.source if is_there else None


def copy_notice(job: Job) -> str | None:
    """Return that the job's copy of its manifest is used, if the file is not there any more."""
    spec = make_spec(job.settings)
    if spec.manifest is None or manifest_file(job) is not None:
        return None
    return f"{spec.source} is not there any more; the job's own copy of it is used"


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
    rows = await store.queue.rows(job.id)
    again = await rediscover(store, archive, job, source, rows)
    pairs = pair(source, rows, again.items, job.settings.get("limit"))
    tried = [row for row in rows if row["state"] in FINAL_STATES and row["finished_at"] is not None]
    found = _Reextractor(
        store,
        archive,
        job,
        source,
        again=again,
        pairs=pairs,
        written_at=clock.now() if write else None,
    )
    comparisons = await found.run(tried[:limit])
    if limit is None:
        comparisons += await found.run_new(tried)
    result = Reextraction(
        job.id,
        tuple(comparisons),
        found.written,
        unfinished=len(rows) - len(tried),
        discovery_problem=again.problem,
        is_discovery_repeated=again.is_repeated,
    )
    if write:
        event = fact(job.id, clock.now(), "job.reextracted", written=result.written)
        await store.journal.append(event)
    return result


class _Reextractor:
    """Takes items through their layers, at the times at which it happened."""

    def __init__(
        self,
        store: Store,
        archive: Archive,
        job: Job,
        source: Source,
        *,
        again: Rediscovery,
        pairs: Pairs,
        written_at: float | None,
    ) -> None:
        self._store = store
        self._archive = archive
        self._job = job
        self._source = source
        self._again = again
        self._pairs = pairs
        self._params = job.settings.get("params") or {}
        self._written_at = written_at
        self._added: dict[str, Item] = {}
        self.written = 0

    async def run(self, rows: Sequence[Row]) -> list[Comparison]:
        """Return what came of the rows, in their order."""
        done: dict[str, Comparison] = {}
        waiting = list(rows)
        # Layers may add items, and those again others: each wave has what the one before added.
        while ready := [(row, item) for row in waiting if (item := self._item(row)) is not None]:
            done |= await self._run_all(ready)
            waiting = [row for row in waiting if row["key"] not in done]
        done |= {row["key"]: self._unextracted(row) for row in waiting}
        return [done[row["key"]] for row in rows]

    async def run_new(self, rows: Sequence[Row]) -> list[Comparison]:
        """Return what came of the items that the job did not have; `rows` are those it had."""
        now = max((row["finished_at"] for row in rows), default=0.0)
        told = {"state": None, "tries": 1, "seconds": 0.0, "finished_at": now}
        ready = [({"key": kept_key(one.key), **told}, one) for one in self._pairs.new]
        return list((await self._run_all(ready)).values())

    def _item(self, row: Row) -> Item | None:
        """Return the item of a row as the source finds it now; None if it does not, or not yet."""
        key, stored = row["key"], item_of(row)
        if self._source.obstacle_to_repeat(stored) is not None:
            return None
        if (item := self._pairs.items.get(key) or self._added.get(key)) is not None:
            return item
        if self._again.is_repeated and is_manifest(self._source):
            is_lost = self._again.is_unarchived and not stored.data
            return stored if is_lost else None
        return None if self._source.carries_values(stored) else stored

    def _unextracted(self, row: Row) -> Comparison:
        key, again = row["key"], self._again
        if (obstacle := self._source.obstacle_to_repeat(item_of(row))) is not None:
            return Comparison(key, Finding.FAILED, reason=obstacle)
        if again.problem is not None:
            problem = f"cannot be extracted again: discovery ended with {again.problem}"
            return Comparison(key, Finding.FAILED, reason=problem)
        if again.is_repeated and is_manifest(self._source):
            return Comparison(key, Finding.REMOVED, reason=_NOT_FOUND)
        return Comparison(key, Finding.FAILED, reason=_MADE_ELSEWHERE)

    async def _run_all(self, ready: Sequence[tuple[Row, Item]]) -> dict[str, Comparison]:
        timeline = Timeline()
        own = timeline.take_seat()
        tasks: dict[str, asyncio.Task[Comparison]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for row, item in sorted(ready, key=lambda one: _start(one[0])):
                    await own.reach(_start(row))
                    repeat = self._repeat(row, item, timeline.take_seat())
                    tasks[row["key"]] = group.create_task(repeat)
                own.leave()
        except* LonglineError as several:
            raise several.exceptions[0] from several
        return {row["key"]: tasks[row["key"]].result() for row, _ in ready}

    async def _repeat(self, row: Row, item: Item, seat: Seat) -> Comparison:
        try:
            extraction = await self._extract(row, item, seat)
        finally:
            seat.leave()
        self._added.update({kept_key(one.key): one for one in extraction.found})
        new_key = kept_key(item.key)
        # A record that was written under its new key before is what this one is compared with.
        stored = await self._stored(new_key)
        is_renamed = new_key != row["key"]
        if is_renamed and stored is None:
            stored = await self._stored(row["key"])
        else:
            is_renamed = False
        found = self._compared(row, extraction, stored, is_renamed=is_renamed)
        if found.finding in {Finding.NEW, Finding.CHANGED} and not found.is_superseded:
            await self._write(extraction.record)
        if is_renamed and extraction.record is not None:
            found = replace(found, new_key=new_key)
        return replace(found, requests=extraction.account.requests)

    async def _stored(self, key: str) -> Row | None:
        rows = await self._store.records.list(
            RecordQuery(source=self._job.source, key=key, limit=1)
        )
        return rows[0] if rows else None

    async def _extract(self, row: Row, item: Item, seat: Seat) -> Extraction:
        until = row["finished_at"] + ROUNDING
        link = build_replay(self._archive, self._job.id, seat, until=until, arrive=seat.reach)
        collector = Collector(self._source, link, seat, self._params)
        return await collector.collect(item, tries=row["tries"])

    def _compared(
        self, row: Row, extraction: Extraction, stored: Row | None, *, is_renamed: bool
    ) -> Comparison:
        key, was_good = row["key"], row["state"] in _GOOD or row["state"] is None
        if missing := missing_answer(
            extraction
        ):  # without it, nothing can be said about the others
            return Comparison(key, Finding.FAILED, reason=missing)
        if extraction.record is None:
            was_stored = row["state"] in _GOOD
            is_skipped = not was_stored and extraction.outcome.verdict is Verdict.SKIP
            finding = Finding.SKIPPED if is_skipped else Finding.FAILED
            return Comparison(key, finding, reason=extraction.outcome.reason)
        is_superseded = self._is_superseded(row, stored)
        if stored is None or not was_good:
            return Comparison(key, Finding.NEW, is_superseded=is_superseded)
        ignored = self._source.volatile if is_superseded else frozenset()
        changes = changes_between(stored["data"], extraction.record.data, ignored)
        finding = Finding.CHANGED if changes or is_renamed else Finding.SAME
        return Comparison(key, finding, changes, is_superseded=is_superseded)

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


def missing_answer(extraction: Extraction) -> str | None:
    """Return which answer an extraction asked for that the archive does not hold."""
    for happening in extraction.account.happenings:
        if happening.kind == MISSING:
            return str(NotArchived(**happening.data))
    return None
