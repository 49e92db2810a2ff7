"""Subscribers of events: durable cursors, and the lease of the process that reads for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from longline.core.errors import BadOption, LonglineError
from longline.storage.backends import sanitize_text
from longline.storage.database import Repository, reads, writes
from longline.storage.events.events import EventFilter, newest_event
from longline.storage.schema import events, subscribers

WEBHOOK = "webhook/"
"""The prefix of the subscribers of webhooks."""


class UnknownSubscriber(LonglineError):
    """There is no subscriber of this name."""

    name: str
    message = "there is no subscriber {name!r}"
    hint = "`longline events subscribers` lists them."


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A reader of events, and how far it has read.

    `cursor` is the last event that it has handled. `lag` is how many events there are since the
    first one that it wants and has not handled; `waiting_since` is when that one happened, None
    without one. `failures` counts those in a row; `due_at` is when it is tried again.
    """

    name: str
    cursor: int
    wanted: EventFilter
    is_enabled: bool = True
    moved_at: float | None = None
    failures: int = 0
    due_at: float = 0.0
    error: str | None = None
    owner: str | None = None
    until: float | None = None
    lag: int = 0
    waiting_since: float | None = None


class Subscribers(Repository):
    """The subscribers of all processes on one database."""

    @writes
    def add(
        self, connection: Connection, name: str, wanted: EventFilter, at: float, start: int | None
    ) -> Subscriber:
        """Add a subscriber, or change what a known one wants; its cursor stays.

        A new one starts after the event `start`; None: it gets only events from now on.

        Raises:
            BadOption: there is no such event type, or `start` is past the newest event.
        """
        save_subscriber(connection, name, wanted, at, start)
        return _find(connection, name)

    @writes
    def remove(self, connection: Connection, name: str) -> None:
        """Remove a subscriber.

        Raises:
            UnknownSubscriber: there is none of this name.
            BadOption: it belongs to a webhook.
        """
        _find(connection, name)
        if name.startswith(WEBHOOK):
            webhook = name.removeprefix(WEBHOOK)
            advice = f"remove it with `longline webhooks remove {webhook}`"
            raise BadOption("subscriber", f"{name} is a webhook; {advice}")
        connection.execute(delete(subscribers).where(subscribers.c.name == name))

    @writes
    def replay(self, connection: Connection, name: str, start: int) -> Subscriber:
        """Let a subscriber read again from after the event `start`, and retry it now.

        Raises:
            UnknownSubscriber: there is none of this name.
            BadOption: `start` is past the newest event.
        """
        _find(connection, name)
        cursor = _start_cursor(connection, start)
        # The process that reads for it notices that it has lost its lease, and stops.
        values = {"cursor": cursor, "failures": 0, "due_at": 0.0, "error": None, "owner": None}
        connection.execute(update(subscribers).where(subscribers.c.name == name).values(**values))
        return _find(connection, name)

    @reads
    def list(self, connection: Connection) -> list[Subscriber]:
        """Return all subscribers by name."""
        return read_subscribers(connection)

    @reads
    def slowest(
        self, connection: Connection, *, before: float | None = None, max_count: int | None = None
    ) -> Subscriber | None:
        """Return the subscriber that keeps `EventLog.prune` from deleting events; None: none does.

        It has the lowest cursor, and has not handled an event that is old.
        """
        query = select(subscribers).order_by(subscribers.c.cursor, subscribers.c.name).limit(1)
        row = connection.execute(query).one_or_none()
        if row is None:
            return None
        later = select(events.c.id, events.c.at).where(events.c.id > row.cursor)
        first = connection.execute(later.order_by(events.c.id).limit(1)).one_or_none()
        if first is None:
            return None
        is_old = before is not None and first.at < before
        if max_count is not None:
            is_old = is_old or first.id <= newest_event(connection) - max_count
        return _subscriber_of(row) if is_old else None

    @reads
    def get(self, connection: Connection, name: str) -> Subscriber:
        """Return a subscriber.

        Raises:
            UnknownSubscriber: there is none of this name.
        """
        return _with_lag(connection, _find(connection, name), newest_event(connection))

    @reads
    def find_due(self, connection: Connection, name: str, at: float) -> Subscriber | None:
        """Return a subscriber if it has events after its cursor and may be tried now.

        Raises:
            UnknownSubscriber: it was removed.
        """
        found = _find(connection, name)
        is_ready = found.is_enabled and found.due_at <= at
        return found if is_ready and found.cursor < newest_event(connection) else None

    @writes
    def claim(
        self,
        connection: Connection,
        name: str,
        owner: str,
        *,
        at: float,
        until: float,
        dead: Sequence[str] = (),
    ) -> Subscriber | None:
        """Lease a subscriber that is due; None when another process has the lease.

        `dead` are owners whose processes have ended, so that their leases are void.

        Raises:
            UnknownSubscriber: it was removed.
        """
        is_free = or_(
            subscribers.c.owner.is_(None),
            subscribers.c.owner == owner,
            subscribers.c.owner.in_(list(dead)),
            subscribers.c.until < at,
        )
        claimed = connection.execute(
            update(subscribers)
            .where(
                subscribers.c.name == name,
                subscribers.c.is_enabled.is_(True),
                subscribers.c.due_at <= at,
                is_free,
            )
            .values(owner=owner, until=until)
        )
        found = _find(connection, name)
        return found if claimed.rowcount else None

    @writes
    def advance(
        self,
        connection: Connection,
        name: str,
        owner: str,
        *,
        cursor: int,
        at: float,
        until: float,
    ) -> bool:
        """Move the cursor after events were handled, and renew the lease; False: it was lost."""
        values = {"cursor": cursor, "moved_at": at, "until": until, "failures": 0, "error": None}
        return _change(connection, name, owner, values)

    @writes
    def fail(
        self,
        connection: Connection,
        name: str,
        owner: str,
        *,
        cursor: int,
        failures: int,
        due_at: float,
        error: str,
    ) -> bool:
        """Note that the event after `cursor` could not be handled; False: the lease was lost."""
        values = {
            "cursor": cursor,
            "failures": failures,
            "due_at": due_at,
            "error": sanitize_text(error),
            "owner": None,
        }
        return _change(connection, name, owner, values)

    @writes
    def release(self, connection: Connection, name: str, owner: str) -> None:
        """Release the lease, so that another process can read immediately."""
        _change(connection, name, owner, {"owner": None})


def read_subscribers(connection: Connection) -> list[Subscriber]:
    """Return all subscribers by name, in the caller's transaction."""
    newest = newest_event(connection)
    rows = connection.execute(select(subscribers).order_by(subscribers.c.name)).all()
    return [_with_lag(connection, _subscriber_of(row), newest) for row in rows]


def save_subscriber(
    connection: Connection, name: str, wanted: EventFilter, at: float, start: int | None
) -> None:
    """Add or change a subscriber in the caller's transaction, as `Subscribers.add` does."""
    list(wanted.clauses())
    chosen = {"types": list(wanted.types), "filter": _filter_json(wanted)}
    known = connection.execute(
        update(subscribers).where(subscribers.c.name == name).values(**chosen)
    )
    if not known.rowcount:
        row = {
            "name": name,
            "cursor": _start_cursor(connection, start),
            "is_enabled": True,
            "created_at": at,
            "failures": 0,
            "due_at": 0.0,
        }
        connection.execute(insert(subscribers), {**row, **chosen})


def _change(connection: Connection, name: str, owner: str, values: Mapping[str, Any]) -> bool:
    mine = (subscribers.c.name == name) & (subscribers.c.owner == owner)
    return connection.execute(update(subscribers).where(mine).values(**values)).rowcount == 1


def _start_cursor(connection: Connection, start: int | None) -> int:
    newest = newest_event(connection)
    if start is not None and not 0 <= start <= newest:
        raise BadOption("cursor", f"it must be from 0 to {newest}, the newest event")
    return newest if start is None else start


def _find(connection: Connection, name: str) -> Subscriber:
    query = select(subscribers).where(subscribers.c.name == name)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise UnknownSubscriber(name)
    return _subscriber_of(row)


def _subscriber_of(row: Row[Any]) -> Subscriber:
    filters: Mapping[str, str] = row.filter
    return Subscriber(
        name=row.name,
        cursor=row.cursor,
        wanted=EventFilter(tuple(row.types), **filters),
        is_enabled=row.is_enabled,
        moved_at=row.moved_at,
        failures=row.failures,
        due_at=row.due_at,
        error=row.error,
        owner=row.owner,
        until=row.until,
    )


def _with_lag(connection: Connection, one: Subscriber, newest: int) -> Subscriber:
    conditions: list[ColumnElement[bool]] = []
    with suppress(BadOption):  # a type of another version, which its delivery reports
        conditions = [*one.wanted.clauses()]
    query = select(func.min(events.c.id)).where(events.c.id > one.cursor, *conditions)
    first = connection.scalar(query)
    if first is None:
        return replace(one, lag=0)
    waiting = connection.scalar(select(events.c.at).where(events.c.id == first))
    return replace(one, lag=newest - first + 1, waiting_since=waiting)


def _filter_json(wanted: EventFilter) -> dict[str, str]:
    named = {"job": wanted.job, "source": wanted.source, "subject": wanted.subject}
    return {name: value for name, value in named.items() if value is not None}
