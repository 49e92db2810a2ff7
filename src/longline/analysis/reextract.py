"""Extract the items of a job again from archived responses, and compare the records."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from longline.config.job_spec import make_spec
from longline.core.clock import Clock
from longline.core.errors import ConfigError, LonglineError, StoreError
from longline.core.json import FieldDiff, diff_json
from longline.core.model import FINAL_STATES, Item, ItemState, Job, Outcome, OutcomeAction, Record
from longline.engine.collector import Collector, NoStrayCancellation, ends_process
from longline.http.archive.warc import MISSING, Archive, build_replay
from longline.http.errors import NotArchived
from longline.sources.base import Source
from longline.sources.loader import SUFFIXES, load_source, read_job_file
from longline.storage.backends import as_json, sanitize_key, sanitize_text
from longline.storage.events.events import event_row
from longline.storage.query import RecordQuery
from longline.storage.store import Store

_ROUNDING = 1e-5  # seconds; the times in an archive are whole microseconds
Row = Mapping[str, Any]
_MANIFESTS = frozenset({"html", "api"})


class ReplayClock(Clock):
    """The time of a replay: that of its latest archived response."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        await self.wait_until(self._now + max(0.0, seconds))

    async def wait_until(self, at: float) -> None:
        """Advance to the time of an archived response."""
        await asyncio.sleep(0)
        self._now = max(self._now, at)


def replay_collector(
    archive: Archive, job: Job, source: Source, *, began: float = 0.0, until: float | None = None
) -> Collector:
    """Return a collector whose responses are the archived ones of a job, up to a time."""
    clock = ReplayClock(began)
    until = None if until is None else until + _ROUNDING
    link = build_replay(archive, job.id, clock, until=until, arrive=clock.wait_until)
    return Collector(source, link, clock, job.settings.get("params") or {})


# ---------------- Repeat discovery, and pair the items of a job with what it finds


@dataclass(frozen=True, slots=True)
class Rediscovery:
    """What a source finds on the archived pages of a job.

    Attributes:
        items: what it found, in order, each key once.
        problem: why it could not find all; None when it came to its end.
        is_unarchived: whether the problem is a page that the archive does not hold.
        is_repeated: whether discovery was repeated at all.
    """

    items: tuple[Item, ...] = ()
    problem: str | None = None
    is_unarchived: bool = False
    is_repeated: bool = True


@dataclass(frozen=True, slots=True)
class PairedItems:
    """The items of a job as the source finds them now: by row key, and new ones without a row."""

    items: Mapping[str, Item] = field(default_factory=dict)
    new: Sequence[Item] = ()


def is_manifest(source: Source) -> bool:
    """Return whether a source is a manifest: all its items come from discovery."""
    return source.kind in _MANIFESTS


async def rediscover(
    store: Store, archive: Archive, job: Job, source: Source, rows: Sequence[Row]
) -> Rediscovery:
    """Repeat the discovery of a job with a source, from archived responses only.

    Sources of manifests are always repeated, since any of their rules may have changed. Discovery
    written in Python is repeated only if items carry values from it.
    """
    if not source.can_repeat_discovery:
        return Rediscovery(is_repeated=False)
    if not (is_manifest(source) or any(source.carries_values(item_of(row)) for row in rows)):
        return Rediscovery(is_repeated=False)
    events = await store.events.list(job.id, types=["job.discovered"])
    until = max((event.at for event in events), default=None)
    collector = replay_collector(archive, job, source, until=until)
    limit = job.settings.get("limit")
    found: dict[str, Item] = {}
    visit = collector.visit(cursor=source.cursor_to_repeat(job.cursor))
    try:
        with NoStrayCancellation():
            await source.prepare(visit)
            items = source.discover(visit)
            async with aclosing(items) if isinstance(items, AsyncGenerator) else nullcontext():
                async for one in items:
                    if isinstance(one, Item):
                        found.setdefault(sanitize_key(one.key), one)
                    if limit is not None and len(found) >= limit:
                        break
    except StoreError:
        raise
    except BaseException as error:  # whatever a source raises ends its discovery
        if ends_process(error):
            raise
        problem = str(error) if isinstance(error, LonglineError) else repr(error)
        return Rediscovery(
            tuple(found.values()), sanitize_text(problem), isinstance(error, NotArchived)
        )
    return Rediscovery(tuple(found.values()), sanitize_text("; ".join(visit.cuts)) or None)


def pair_items(
    source: Source, rows: Sequence[Row], found: Sequence[Item], limit: int | None
) -> PairedItems:
    """Pair the rows of a job with the items that a source finds now.

    An item is the same if its key and its element are; if its element is, under another key; if its
    key is; or if its URL has as many items as before, in their order.

    Args:
        source: that found them.
        rows: all items of the job, in the order in which they were found.
        found: the items, each key once.
        limit: of the job; it has no more items than that.
    """
    left, free = [item_of(row) for row in rows], list(found)
    paired: dict[str, Item] = {}

    def match(name: Callable[[Item], Hashable], *, only_equal_counts: bool = False) -> None:
        """Pair rows and items with the same name, in order; None is not a name."""
        nonlocal left, free
        waiting: defaultdict[Hashable, deque[Item]] = defaultdict(deque)
        for item in free:
            waiting[name(item)].append(item)
        counts = Counter(map(name, left))
        unpaired = []
        for row in left:
            items = waiting[name(row)]
            is_equal = not only_equal_counts or len(items) == counts[name(row)]
            if name(row) is None or not items or not is_equal:
                unpaired.append(row)
                continue
            counts[name(row)] -= 1
            paired[row.key] = items.popleft()
        used = {id(item) for item in paired.values()}
        left, free = unpaired, [item for item in free if id(item) not in used]

    match(lambda item: (sanitize_key(item.key), source.identity_of(item)))
    match(source.identity_of)
    match(lambda item: sanitize_key(item.key))
    match(lambda item: item.url, only_equal_counts=True)
    return PairedItems(paired, free if limit is None else free[: max(0, limit - len(rows))])


def item_of(row: Row) -> Item:
    """Return the item of a row."""
    return Item(row["key"], row["url"], row["priority"], row["data"])


class NothingArchived(ConfigError):
    """A job has no archived responses to extract from."""

    job: str
    message = "job {job} has no archived responses"
    hint = "Run the source with --archive to be able to extract its items again."


# ---------------- The result


class ReextractStatus(StrEnum):
    """The result of extracting an item again."""

    SAME = "same"
    CHANGED = "changed"
    NEW = "new"
    REMOVED = "removed"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ReextractedItem:
    """One item: its status, the fields that differ, why it failed.

    `new_key` is the key that the source gives it now, if it differs. `is_superseded` says that a
    later job has seen the record since: volatile fields are then not compared, and the record is
    never replaced.
    """

    key: str
    status: ReextractStatus
    changes: tuple[FieldDiff, ...] = ()
    reason: str | None = None
    is_superseded: bool = False
    requests: int = 0
    new_key: str | None = None


@dataclass(frozen=True, slots=True)
class Reextraction:
    """The result of extracting the items of a job again.

    Attributes:
        job: its id.
        comparisons: one for each item, including those that only the present source finds.
        written: how many records were written.
        unfinished: how many items of the job never finished and are not compared.
        discovery_problem: why it is unknown whether the source finds other items now.
        is_discovery_repeated: whether discovery was repeated; without it, new items are unknown.
    """

    job: str
    comparisons: tuple[ReextractedItem, ...]
    written: int = 0
    unfinished: int = 0
    discovery_problem: str | None = None
    is_discovery_repeated: bool = True

    @property
    def requests(self) -> int:
        """How many requests were made, as counted by the request chain."""
        return sum(one.requests for one in self.comparisons)

    @property
    def exit_code(self) -> int:
        """0 when all items were extracted and compared, 3 when some were not."""
        missing = self.of(ReextractStatus.FAILED) + self.of(ReextractStatus.REMOVED)
        return 3 if missing or self.unfinished or self.discovery_problem else 0

    def of(self, status: ReextractStatus) -> list[ReextractedItem]:
        """Return the items of this status."""
        return [one for one in self.comparisons if one.status is status]

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {
            "job": self.job,
            "items": len(self.comparisons),
            **{status.value: len(self.of(status)) for status in ReextractStatus},
            "superseded": sum(one.is_superseded for one in self.comparisons),
            "written": self.written,
            "requests": self.requests,
            "unfinished": self.unfinished,
            "discovery": {
                "repeated": self.is_discovery_repeated,
                "problem": self.discovery_problem,
            },
            "changes": {
                one.key: [change.as_dict() for change in one.changes]
                for one in self.of(ReextractStatus.CHANGED)
            },
            "renamed": {one.key: one.new_key for one in self.comparisons if one.new_key},
            "failures": {one.key: one.reason for one in self.of(ReextractStatus.FAILED)},
            "not_found": {one.key: one.reason for one in self.of(ReextractStatus.REMOVED)},
        }


def diff_stored(
    old: Mapping[str, Any], new: Mapping[str, Any], ignored: frozenset[str] = frozenset()
) -> tuple[FieldDiff, ...]:
    """Return the top-level fields that differ between stored data and new data as stored."""
    return diff_json(old, orjson.loads(as_json(new)), max_depth=1, ignored=ignored)


_GOOD = frozenset({ItemState.STORED, ItemState.UNCHANGED})
_MADE_ELSEWHERE = (
    "it contains values that cannot be extracted from the archive; run the source again"
)
_NOT_FOUND = "the source no longer finds it, or only under the key of another item"


def source_for(job: Job, reference: str | None, options: Mapping[str, Any]) -> Source:
    """Return the source to extract with: the job's own, or another, with the job's settings.

    The job's own manifest is read again from its file; if that is gone, the job's copy is used.

    Args:
        job: its settings are used, since they decide which URLs are requested.
        reference: another source, or a job file, whose own settings are used then.
        options: settings that differ.

    Raises:
        ConfigError: there is no such source, or a setting does not fit it.
    """
    spec = make_spec(job.settings)
    reference = reference or manifest_file(job)
    if reference and reference.endswith(SUFFIXES):
        spec = make_spec({"set": spec.options, **read_job_file(Path(reference))})
        reference = None
    kind = load_source(reference) if reference else load_source(spec.source, spec.manifest)
    return kind.with_options({**spec.options, **options})


def manifest_file(job: Job) -> str | None:
    """Return the path of the manifest that a job was run with, if the file still exists."""
    spec = make_spec(job.settings)
    is_there = spec.source.endswith(SUFFIXES) and Path(spec.source).is_file()
    return spec.source if is_there else None


def copy_notice(job: Job) -> str | None:
    """Return a notice that the job's copy of its manifest is used because the file is gone."""
    spec = make_spec(job.settings)
    if spec.manifest is None or manifest_file(job) is not None:
        return None
    return f"{spec.source} no longer exists; the job's copy of it is used"


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
    """Extract the finished items of a job again and compare the records; make no request.

    Args:
        store: where the job and its records are.
        archive: where its responses are.
        job: whose items.
        source: extracts them; a new object.
        clock: the time of new versions.
        limit: only the first items, in the order they were found.
        write: store what is new or changed.

    Raises:
        NothingArchived: the job has no archived responses.
    """
    if not await archive.count(job.id):
        raise NothingArchived(job.id)
    rows = await store.queue.rows(job.id)
    again = await rediscover(store, archive, job, source, rows)
    pairs = pair_items(source, rows, again.items, job.settings.get("limit"))
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
        event = event_row(job.id, clock.now(), "job.reextracted", written=result.written)
        await store.events.append(event)
    return result


@dataclass(slots=True)
class _Reextractor:
    """Runs the layers of items again, each at its archived time."""

    store: Store
    archive: Archive
    job: Job
    source: Source
    again: Rediscovery
    pairs: PairedItems
    written_at: float | None
    added: dict[str, Item] = field(default_factory=dict)
    written: int = 0

    async def run(self, rows: Sequence[Row]) -> list[ReextractedItem]:
        """Return the results of the rows, in their order."""
        done: dict[str, ReextractedItem] = {}
        waiting = list(rows)
        # Layers may add items, whose layers add others: each round has those of the one before.
        while ready := [(row, item) for row in waiting if (item := self._item(row)) is not None]:
            done |= await self._run_all(ready)
            waiting = [row for row in waiting if row["key"] not in done]
        done |= {row["key"]: self._explain_missing(row) for row in waiting}
        return [done[row["key"]] for row in rows]

    async def run_new(self, rows: Sequence[Row]) -> list[ReextractedItem]:
        """Return the results of items that the job did not have; `rows` are those it had."""
        now = max((row["finished_at"] for row in rows), default=0.0)
        row = {"state": None, "tries": 1, "seconds": 0.0, "finished_at": now}
        ready = [({"key": sanitize_key(one.key), **row}, one) for one in self.pairs.new]
        return list((await self._run_all(ready)).values())

    def _item(self, row: Row) -> Item | None:
        """Return the item of a row as the source finds it now; None if it does not (yet)."""
        key, stored = row["key"], item_of(row)
        if self.source.obstacle_to_repeat(stored) is not None:
            return None
        if (item := self.pairs.items.get(key) or self.added.get(key)) is not None:
            return item
        if self.again.is_repeated and is_manifest(self.source):
            is_lost = self.again.is_unarchived and not stored.data
            return stored if is_lost else None
        return None if self.source.carries_values(stored) else stored

    def _explain_missing(self, row: Row) -> ReextractedItem:
        key, again = row["key"], self.again
        if (obstacle := self.source.obstacle_to_repeat(item_of(row))) is not None:
            return ReextractedItem(key, ReextractStatus.FAILED, reason=obstacle)
        if again.problem is not None:
            problem = f"cannot be extracted again: discovery ended with {again.problem}"
            return ReextractedItem(key, ReextractStatus.FAILED, reason=problem)
        if again.is_repeated and is_manifest(self.source):
            return ReextractedItem(key, ReextractStatus.REMOVED, reason=_NOT_FOUND)
        return ReextractedItem(key, ReextractStatus.FAILED, reason=_MADE_ELSEWHERE)

    async def _run_all(self, ready: Sequence[tuple[Row, Item]]) -> dict[str, ReextractedItem]:
        """Extract items one by one, in the order in which they finished."""
        found = {}
        for row, item in sorted(ready, key=lambda one: one[0]["finished_at"]):
            found[row["key"]] = await self._extract_again(row, item)
        return {row["key"]: found[row["key"]] for row, _ in ready}

    async def _extract_again(self, row: Row, item: Item) -> ReextractedItem:
        ended = row["finished_at"]
        began = ended - (row["seconds"] or 0.0)
        collector = replay_collector(self.archive, self.job, self.source, began=began, until=ended)
        outcome = await collector.collect(item, tries=row["tries"])
        self.added.update({sanitize_key(one.key): one for one in outcome.found})
        new_key = sanitize_key(item.key)
        # A record that was written under the new key before is the one to compare with.
        stored = await self._stored(new_key)
        is_renamed = new_key != row["key"] and stored is None
        if is_renamed:
            stored = await self._stored(row["key"])
        found = self._compare_record(row, outcome, stored, is_renamed=is_renamed)
        is_new = found.status in {ReextractStatus.NEW, ReextractStatus.CHANGED}
        if outcome.record is not None and is_new and not found.is_superseded:
            await self._write_record(outcome.record)
        if is_renamed and outcome.record is not None:
            found = replace(found, new_key=new_key)
        return replace(found, requests=outcome.usage.requests)

    async def _stored(self, key: str) -> Row | None:
        rows = await self.store.records.list(RecordQuery(source=self.job.source, key=key, limit=1))
        return rows[0] if rows else None

    def _compare_record(
        self, row: Row, outcome: Outcome, stored: Row | None, *, is_renamed: bool
    ) -> ReextractedItem:
        key, was_good = row["key"], row["state"] in _GOOD or row["state"] is None
        # Without that response nothing is known about the record.
        if missing := missing_response(outcome):
            return ReextractedItem(key, ReextractStatus.FAILED, reason=missing)
        if outcome.record is None:
            was_stored = row["state"] in _GOOD
            is_skipped = not was_stored and outcome.action is OutcomeAction.SKIP
            status = ReextractStatus.SKIPPED if is_skipped else ReextractStatus.FAILED
            return ReextractedItem(key, status, reason=outcome.reason)
        is_superseded = (
            stored is not None
            and stored["job_id"] != self.job.id
            and stored["seen_at"] > row["finished_at"]
        )
        if stored is None or not was_good:
            return ReextractedItem(key, ReextractStatus.NEW, is_superseded=is_superseded)
        ignored = self.source.volatile if is_superseded else frozenset()
        changes = diff_stored(stored["data"], outcome.record.data, ignored)
        status = ReextractStatus.CHANGED if changes or is_renamed else ReextractStatus.SAME
        return ReextractedItem(key, status, changes, is_superseded=is_superseded)

    async def _write_record(self, record: Record) -> None:
        if self.written_at is None:
            return
        # A changed source may have another name; the records still belong to the job's.
        ours = replace(record, source=self.job.source)
        await self.store.records.create(ours, at=self.written_at, job=self.job.id, is_seen=False)
        self.written += 1


def missing_response(outcome: Outcome) -> str | None:
    """Return which response an extraction requested that the archive does not hold."""
    for event in outcome.usage.events:
        if event.type == MISSING:
            return str(NotArchived(**event.data))
    return None
