"""Discovery repeated from archived answers, and the items of a job paired with what it finds."""

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
from longline.sources.base import Source
from longline.sources.visit import Visit
from longline.storage.columns import sanitize_key, sanitize_text
from longline.storage.store import Store

# ---------------- A past that passes again: several tasks that meet archived moments in the order


class Timeline:
    """The time of a replay: it moves on to the next moment when everybody waits for one."""

    def __init__(self) -> None:
        self.now = 0.0
        self._moments: list[_Moment] = []
        self._numbers = itertools.count()
        self._busy: set[Seat] = set()

    def take_seat(self) -> Seat:
        """Return a clock for one more task; time stands still until it waits, or leaves."""
        seat = Seat(self)
        self._busy.add(seat)
        return seat

    async def wait(self, seat: Seat, at: float) -> None:
        """Wait for a moment, unless it has passed, or the task has ended and left this behind."""
        if seat.has_left:
            return
        moment = (at, next(self._numbers), asyncio.get_running_loop().create_future(), seat)
        heapq.heappush(self._moments, moment)
        seat.waiting += 1
        self._busy.discard(seat)
        self._move_on()
        try:
            await moment[2]
        except asyncio.CancelledError:
            self._give_up(moment)
            raise

    def leave(self, seat: Seat) -> None:
        """Go on without a task that has ended."""
        seat.has_left = True
        self._busy.discard(seat)
        if seat.waiting:  # something that the task began and did not wait for
            self._drop([moment for moment in self._moments if moment[3] is seat])
        self._move_on()

    def _move_on(self) -> None:
        while not self._busy and self._moments:
            at, _, reached, seat = heapq.heappop(self._moments)
            self._wake(seat)
            if not reached.done():  # else it was cancelled, and nobody was there at that moment
                self.now = max(self.now, at)
                reached.set_result(None)

    def _wake(self, seat: Seat) -> None:
        # A task with several requests at once counts as waiting while one of them does.
        seat.waiting -= 1
        if not seat.waiting and not seat.has_left:
            self._busy.add(seat)

    def _give_up(self, moment: _Moment) -> None:
        if moment in self._moments:
            self._drop([moment])

    def _drop(self, moments: list[_Moment]) -> None:
        for moment in moments:
            self._moments.remove(moment)
            self._wake(moment[3])
            moment[2].cancel()
        heapq.heapify(self._moments)


class Seat(Clock):
    """The clock of one task on a timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.waiting = 0
        self.has_left = False

    def now(self) -> float:
        return self._timeline.now

    async def sleep(self, seconds: float) -> None:
        await self.reach(self.now() + max(0.0, seconds))

    async def reach(self, at: float) -> None:
        """Come back at a moment of the past, in its turn."""
        await self._timeline.wait(self, at)

    def leave(self) -> None:
        """Say that the task has ended."""
        self._timeline.leave(self)


_Moment = tuple[float, int, "asyncio.Future[None]", Seat]

ROUNDING = 1e-5  # seconds; the times in an archive's files are whole microseconds
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
class Pairs:
    """The items of a job as the source finds them now: by row key, and those without a row."""

    items: Mapping[str, Item] = field(default_factory=dict)
    new: Sequence[Item] = ()


def is_manifest(source: Source) -> bool:
    """Return whether all items of a source come from its discovery, and its code is ours."""
    return source.kind in _MANIFESTS


async def rediscover(
    store: Store, archive: Archive, job: Job, source: Source, rows: Sequence[Row]
) -> Rediscovery:
    """Repeat the discovery of a job with a source, from archived answers alone.

    Sources of manifests are always repeated, since any of their rules may have changed. Discovery
    written in Python is repeated only if items carry values from it.
    """
    if not source.can_repeat_discovery:
        return Rediscovery(is_repeated=False)
    if not (is_manifest(source) or any(source.carries_values(item_of(row)) for row in rows)):
        return Rediscovery(is_repeated=False)
    events = await store.events.list(job.id, kind="job.discovered")
    until = max((event.at for event in events), default=None)
    seat = Timeline().take_seat()
    link = build_replay(
        archive,
        job.id,
        seat,
        until=None if until is None else until + ROUNDING,
        arrive=seat.reach,
    )
    collector = Collector(source, link, seat, job.settings.get("params") or {})
    found: dict[str, Item] = {}
    visit = collector.visit(cursor=source.cursor_to_repeat(job.cursor))
    try:
        await _discover(source, visit, job.settings.get("limit"), found)
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
        seat.leave()
    return Rediscovery(tuple(found.values()), sanitize_text("; ".join(visit.cuts)) or None)


async def _discover(
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


def pair(source: Source, rows: Sequence[Row], found: Sequence[Item], limit: int | None) -> Pairs:
    """Pair the rows of a job with the items that a source finds now.

    An item is the same one if its key and its element are; if its element is, under another key; if
    its key is; or if its address has as many items as before, in their order.

    Args:
        source: which found them.
        rows: all items of the job, in the order in which they were found.
        found: the items, each key once.
        limit: that of the job; no more items than that belong to it.
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
    return Pairs(pairing.paired, new)


class _Pairing:
    """Rows and items that have no counterpart yet, and those that have."""

    def __init__(self, rows: Sequence[Row], found: Sequence[Item]) -> None:
        self._rows = [item_of(row) for row in rows]
        self.found = list(found)
        self.paired: dict[str, Item] = {}

    def match(self, name: Callable[[Item], Hashable], *, only_equal_counts: bool = False) -> None:
        """Pair what has the same name, in order; None is not a name."""
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
