"""Repeat discovery from archived responses, and pair the items of a job with those it finds."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from longline.core.clock import Clock
from longline.core.errors import LonglineError, StoreError
from longline.core.model import Item, Job
from longline.engine.extractor import Collector, is_of_the_process, no_stray_cancellation
from longline.http.archive.base import Archive
from longline.http.errors import NotArchived
from longline.http.transports.replay import build_replay
from longline.sources.base import Source, Visit
from longline.storage.columns import sanitize_key, sanitize_text
from longline.storage.store import Store

# ---------------- Replayed time: several tasks wait for archived times in their order


class Timeline:
    """The time of a replay: it advances to the next time when every task waits for one."""

    def __init__(self) -> None:
        self.now = 0.0
        self._waits: list[_Wait] = []
        self._numbers = itertools.count()
        self._busy: set[ReplayClock] = set()

    def new_clock(self) -> ReplayClock:
        """Return a clock for one more task; time stops until that waits or ends."""
        clock = ReplayClock(self)
        self._busy.add(clock)
        return clock

    async def wait(self, clock: ReplayClock, at: float) -> None:
        """Wait for a time, unless the task of the clock has ended."""
        if clock.has_ended:
            return
        wait = (at, next(self._numbers), asyncio.get_running_loop().create_future(), clock)
        heapq.heappush(self._waits, wait)
        clock.waiting += 1
        self._busy.discard(clock)
        self._advance()
        try:
            await wait[2]
        except asyncio.CancelledError:
            if wait in self._waits:
                self._cancel([wait])
            raise

    def end(self, clock: ReplayClock) -> None:
        """Continue without a task that has ended."""
        clock.has_ended = True
        self._busy.discard(clock)
        if clock.waiting:  # the task started a request and did not await it
            self._cancel([wait for wait in self._waits if wait[3] is clock])
        self._advance()

    def _advance(self) -> None:
        while not self._busy and self._waits:
            at, _, reached, clock = heapq.heappop(self._waits)
            self._wake(clock)
            if not reached.done():  # else it was cancelled, and time does not advance to it
                self.now = max(self.now, at)
                reached.set_result(None)

    def _wake(self, clock: ReplayClock) -> None:
        # A task with several concurrent requests is waiting while one of them is.
        clock.waiting -= 1
        if not clock.waiting and not clock.has_ended:
            self._busy.add(clock)

    def _cancel(self, waits: list[_Wait]) -> None:
        for wait in waits:
            self._waits.remove(wait)
            self._wake(wait[3])
            wait[2].cancel()
        heapq.heapify(self._waits)


class ReplayClock(Clock):
    """The clock of one task on a timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.waiting = 0
        self.has_ended = False

    def now(self) -> float:
        return self._timeline.now

    async def sleep(self, seconds: float) -> None:
        await self.wait_until(self.now() + max(0.0, seconds))

    async def wait_until(self, at: float) -> None:
        """Return at an archived time, in the order of all tasks."""
        await self._timeline.wait(self, at)

    def end(self) -> None:
        """Tell the timeline that the task has ended."""
        self._timeline.end(self)


_Wait = tuple[float, int, "asyncio.Future[None]", ReplayClock]

# ---------------- Discovery

ROUNDING = 1e-5  # seconds; the times in an archive are whole microseconds
Row = Mapping[str, Any]
_MANIFESTS = frozenset({"html", "api"})


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
    events = await store.events.list(job.id, kind="job.discovered")
    until = max((event.at for event in events), default=None)
    clock = Timeline().new_clock()
    link = build_replay(
        archive,
        job.id,
        clock,
        until=None if until is None else until + ROUNDING,
        arrive=clock.wait_until,
    )
    collector = Collector(source, link, clock, job.settings.get("params") or {})
    found: dict[str, Item] = {}
    visit = collector.visit(cursor=source.cursor_to_repeat(job.cursor))
    try:
        await _collect_items(source, visit, job.settings.get("limit"), found)
    except StoreError:
        raise
    except BaseException as error:  # whatever a source raises ends its discovery
        if is_of_the_process(error):
            raise
        problem = str(error) if isinstance(error, LonglineError) else repr(error)
        return Rediscovery(
            tuple(found.values()), sanitize_text(problem), isinstance(error, NotArchived)
        )
    finally:
        clock.end()
    return Rediscovery(tuple(found.values()), sanitize_text("; ".join(visit.cuts)) or None)


async def _collect_items(
    source: Source, visit: Visit, limit: int | None, found: dict[str, Item]
) -> None:
    with no_stray_cancellation():
        await source.prepare(visit)
        stream = source.discover(visit)
        try:
            async for one in stream:
                if isinstance(one, Item):
                    found.setdefault(sanitize_key(one.key), one)
                if limit is not None and len(found) >= limit:
                    return
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()


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
    pairing = _Pairing(rows, found)

    def identity(item: Item) -> Hashable:
        return source.identity_of(item)

    def key_and_identity(item: Item) -> Hashable:
        return sanitize_key(item.key), identity(item)

    pairing.match(key_and_identity)
    pairing.match(identity)
    pairing.match(lambda item: sanitize_key(item.key))
    pairing.match(lambda item: item.url, only_equal_counts=True)
    new = pairing.found if limit is None else pairing.found[: max(0, limit - len(rows))]
    return PairedItems(pairing.paired, new)


class _Pairing:
    """Rows and items without a counterpart, and the pairs found so far."""

    def __init__(self, rows: Sequence[Row], found: Sequence[Item]) -> None:
        self._rows = [item_of(row) for row in rows]
        self.found = list(found)
        self.paired: dict[str, Item] = {}

    def match(self, name: Callable[[Item], Hashable], *, only_equal_counts: bool = False) -> None:
        """Pair rows and items with the same name, in order; None is not a name."""
        waiting: defaultdict[Hashable, deque[Item]] = defaultdict(deque)
        for item in self.found:
            waiting[name(item)].append(item)
        waiting.pop(None, None)
        if only_equal_counts:
            counts: defaultdict[Hashable, int] = defaultdict(int)
            for row in self._rows:
                counts[name(row)] += 1
            for one in [one for one, items in waiting.items() if len(items) != counts[one]]:
                del waiting[one]
        taken: set[int] = set()
        rows, self._rows = self._rows, []
        for row in rows:
            items = waiting.get(name(row))
            if not items:
                self._rows.append(row)
                continue
            item = items.popleft()
            taken.add(id(item))
            self.paired[row.key] = item
        self.found = [item for item in self.found if id(item) not in taken]


def item_of(row: Row) -> Item:
    """Return the item of a row."""
    return Item(row["key"], row["url"], row["priority"], row["data"])
