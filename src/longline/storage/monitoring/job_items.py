"""Items of a job as people look at them: pages of a list, groups of failures, recent ones, waits.

Every query is bounded, so that its duration does not depend on the size of the job.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy import Connection, func, select, tuple_

from longline.core.errors import FailureKind
from longline.core.model import FINAL_STATES, ItemState
from longline.storage.database import Repository, reads
from longline.storage.queue.queue import queued_domains
from longline.storage.scanning import Scan, scan_page
from longline.storage.schema import events, items

MOST_GROUPED = 2000
"""Items of each state whose failures are grouped."""
_FEW = 2000  # items of a state, up to which they are sorted in memory
_MOST_DOMAINS = 20
_EXAMPLES = 3
_BAD = (ItemState.FAILED, ItemState.QUARANTINED, ItemState.SKIPPED)
_ADDRESS = re.compile(r"https?://\S+")
_SHOWN = (
    *("id", "key", "url", "state", "kind", "reason", "status"),
    *("tries", "requests", "seconds", "finished_at", "due_at"),
)


@dataclass(frozen=True, slots=True)
class ItemRow:
    """An item in a list."""

    id: int
    key: str
    url: str
    state: str
    kind: str | None
    reason: str | None
    status: int | None
    tries: int
    requests: int
    seconds: float | None
    finished_at: float | None
    due_at: float


@dataclass(frozen=True, slots=True)
class FinishedItem:
    """An item that has ended, for charts."""

    at: float
    seconds: float
    requests: int
    status: int | None
    state: str


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Items of a job that failed for the same reason; addresses in it are replaced by `…`."""

    kind: str
    state: str
    reason: str
    count: int
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DomainWait:
    """The next queued item of a domain: when it is due, and why it was deferred."""

    domain: str
    due: float
    kind: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait that a job has begun at a time, in seconds."""

    at: float
    seconds: float


class JobItems(Repository):
    """The items of each job, for people."""

    @reads
    def page(
        self,
        connection: Connection,
        job: str,
        state: ItemState,
        *,
        before: tuple[float, int] | None = None,
        limit: int = 50,
    ) -> list[ItemRow]:
        """Return items in a state: finished ones by time, the newest first, others as they are due.

        `before` is time and id of the last known one.
        """
        of_state = (items.c.job_id == job, items.c.state == state)
        if state not in FINAL_STATES:
            return _rows(connection, select(*_COLUMNS).where(*of_state).limit(limit))
        place = tuple_(items.c.finished_at, items.c.id)
        some = select(items.c.id, items.c.finished_at).where(*of_state).limit(_FEW + 1)
        few = connection.execute(some).all()
        if len(few) <= _FEW:
            ordered = sorted(((row.finished_at or 0.0, row.id) for row in few), reverse=True)
            ids = [one[1] for one in ordered if before is None or one < before][:limit]
            found = _rows(connection, select(*_COLUMNS).where(items.c.id.in_(ids)))
            return sorted(found, key=lambda one: ids.index(one.id))
        # This state is common, so the newest items of the job have it soon. With `coalesce`,
        # the database reads them in the order of time, and not by the index on the state.
        query = select(*_COLUMNS).where(
            items.c.job_id == job,
            items.c.finished_at.is_not(None),
            func.coalesce(items.c.state, "") == state,
        )
        if before is not None:
            query = query.where(place < before)
        order = (items.c.finished_at.desc(), items.c.id.desc())
        return _rows(connection, query.order_by(*order).limit(limit))

    @reads
    def by_key(
        self,
        connection: Connection,
        job: str,
        *,
        state: ItemState | None = None,
        kind: FailureKind | None = None,
        after: str | None = None,
        limit: int = 50,
        seconds: float = 0.2,
    ) -> tuple[list[ItemRow], str | None]:
        """Return items in the order of their keys, and the key after which the next page starts.

        The key is None on the last page. A page may have fewer than `limit` items, even none, if
        no more were found within about `seconds`.

        Args:
            connection: the transaction.
            job: the id of the job.
            state: only items in this state.
            kind: only items whose failure was of this kind.
            after: the last known key.
            limit: how many.
            seconds: about how long to search.
        """
        query = select(*_COLUMNS)
        if kind is not None:
            query = query.where(items.c.kind == kind)
        if state is not None:
            is_in_state = (items.c.job_id == job) & (items.c.state == state)
            few = connection.scalars(select(items.c.id).where(is_in_state).limit(_FEW + 1)).all()
            if len(few) <= _FEW:
                of_few = query.where(items.c.id.in_(few), items.c.key > (after or ""))
                found = _rows(connection, of_few.order_by(items.c.key).limit(limit + 1))
                return found[:limit], found[limit - 1].key if len(found) > limit else None
            # This state is common, so some of them follow soon in the order of the keys, too.
            query = query.where(items.c.state == state)
        page = scan_page(
            connection,
            Scan((items.c.key,), (items.c.job_id == job,)),
            query,
            after=None if after is None else (after,),
            size=limit,
            seconds=seconds,
        )
        place = None if page.position is None else page.position[0]
        return [ItemRow(**row) for row in page.rows], place

    @reads
    def last_finished(
        self, connection: Connection, job: str, *, limit: int = 2000
    ) -> list[FinishedItem]:
        """Return the items that ended last, oldest first."""
        columns = ("finished_at", "seconds", "requests", "status", "state")
        query = (
            select(*(items.c[name] for name in columns))
            .where(items.c.job_id == job, items.c.finished_at.is_not(None))
            .order_by(items.c.finished_at.desc())
            .limit(limit)
        )
        rows = connection.execute(query).all()
        return [FinishedItem(row[0], row[1] or 0.0, *row[2:]) for row in reversed(rows)]

    @reads
    def failure_groups(self, connection: Connection, job: str) -> list[FailureGroup]:
        """Return what went wrong, the most frequent first; of many items, the first of each state.

        Skipped items are included: their pages do not exist, for example.
        """
        columns = ("kind", "reason", "key", "url")
        counts: Counter[tuple[str, str, str]] = Counter()
        keys: dict[tuple[str, str, str], list[str]] = {}
        for state in _BAD:
            query = select(*(items.c[name] for name in columns)).where(
                items.c.job_id == job, items.c.state == state, items.c.kind.is_not(None)
            )
            for kind, reason, key, url in connection.execute(query.limit(MOST_GROUPED)):
                group = (kind, state.value, general_reason(reason or "", key, url))
                counts[group] += 1
                keys.setdefault(group, [])
                if len(keys[group]) < _EXAMPLES:
                    keys[group].append(key)
        return [FailureGroup(*group, n, tuple(keys[group])) for group, n in counts.most_common()]

    @reads
    def domain_waits(self, connection: Connection, job: str) -> list[DomainWait]:
        """Return the next queued item of each domain, of the first domains."""
        found = []
        for domain in islice(queued_domains(connection, job), _MOST_DOMAINS):
            query = (
                select(items.c.due_at, items.c.kind, items.c.reason)
                .where(
                    items.c.job_id == job,
                    items.c.state == ItemState.QUEUED,
                    items.c.domain == domain,
                )
                .order_by(items.c.priority.desc(), items.c.due_at)
                .limit(1)
            )
            row = connection.execute(query).one_or_none()
            if row is not None:
                found.append(DomainWait(domain, *row))
        return found

    @reads
    def last_waits(self, connection: Connection, job: str, *, limit: int = 500) -> list[Wait]:
        """Return the last times that an item was deferred or a site asked to wait, oldest first."""
        found: list[Wait] = []
        for name, field in (("item.deferred", "due"), ("limit.refused", "pause")):
            query = (
                select(events.c.at, events.c.data)
                .where(events.c.job_id == job, events.c.type == name)
                .order_by(events.c.id.desc())
                .limit(limit)
            )
            for at, data in connection.execute(query):
                value = data.get(field)
                if isinstance(value, int | float):
                    found.append(Wait(at, max(0.0, value - at if field == "due" else value)))
        return sorted(found, key=lambda one: one.at)


_COLUMNS = tuple(items.c[name] for name in _SHOWN)


def general_reason(reason: str, key: str, url: str) -> str:
    """Return a reason without the item that it names, so that it is the same for other items."""
    text = reason.removeprefix(f"item {key}: ")
    if url:
        text = text.removeprefix(f"{url}: ").replace(url, "…")
    return _ADDRESS.sub("…", text)


def _rows(connection: Connection, query: Any) -> list[ItemRow]:
    rows: Sequence[Any] = connection.execute(query).all()
    return [ItemRow(*row) for row in rows]
