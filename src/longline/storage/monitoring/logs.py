"""Stored log lines: warnings and errors of all processes, bounded in age and number.

They are numbered in the order of their commits, as events are, so that a reader who remembers the
last number misses none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Text, cast, delete, func, or_, select, update

from longline.storage.backends import (
    BulkInsert,
    as_sanitized_json,
    sanitize_key,
    sanitize_text,
)
from longline.storage.database import Repository, defer_write, reads, writes
from longline.storage.events.events import wait_for_turn
from longline.storage.schema import jobs, logs

NOT_STORED = "longline.not_stored"
"""The logger of the line that says how many further lines of a job were not stored."""
_DAY = 86400.0
_STEP = 5000  # lines that one transaction deletes
_COLUMNS = ("level", "logger", "message", "exception", "job_id", "source", "domain", "key")
_INSERT = BulkInsert(logs, ("at", *_COLUMNS, "flow", "worker", "fields"))


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a log; `level` is a number of the module logging, `id` is 0 until it is stored.

    `item` is the key of an item, `flow` the id of a flow run. `fields` are all others.
    """

    at: float
    level: int
    logger: str
    message: str
    exception: str | None = None
    job: str | None = None
    source: str | None = None
    domain: str | None = None
    item: str | None = None
    flow: str | None = None
    worker: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    id: int = 0


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which lines are wanted; None is any.

    `level` is the lowest. `text` is searched in message, exception and fields, in any case.
    `since` is included, `until` is not.
    """

    job: str | None = None
    source: str | None = None
    level: int | None = None
    text: str | None = None
    domain: str | None = None
    item: str | None = None
    since: float | None = None
    until: float | None = None

    def clauses(self) -> Iterator[ColumnElement[bool]]:
        """Yield it as conditions."""
        if self.job is not None:
            yield logs.c.job_id == self.job
        if self.source is not None:
            of_source = select(jobs.c.id).where(jobs.c.source == self.source)
            yield or_(logs.c.source == self.source, logs.c.job_id.in_(of_source))
        if self.level is not None:
            yield logs.c.level >= self.level
        if self.text:
            texts = (logs.c.message, logs.c.exception, cast(logs.c.fields, Text))
            wanted = self.text.lower()
            yield or_(*(func.lower(one).contains(wanted, autoescape=True) for one in texts))
        if self.domain is not None:
            yield logs.c.domain == self.domain
        if self.item is not None:
            yield logs.c.key == sanitize_key(self.item)
        if self.since is not None:
            yield logs.c.at >= self.since
        if self.until is not None:
            yield logs.c.at < self.until


class Logs(Repository):
    """Stored log lines."""

    @property
    def is_away(self) -> bool:
        """Whether the database does not respond, so that a write would wait for it."""
        return self._database.is_away

    def add_soon(self, lines: Sequence[LogLine], *, max_per_job: int | None) -> Future[None]:
        """Queue lines for the writer, from any thread; the future is done when they are stored.

        Of each job at most `max_per_job` lines are stored, and one that counts the others.

        Raises:
            RuntimeError: the store is closed.
        """
        return self._database.write_soon(
            lambda connection: defer_write(
                connection, _store_lines, (lines, max_per_job), is_last=True
            )
        )

    @reads
    def search(
        self, connection: Connection, wanted: LogFilter, *, limit: int = 100
    ) -> tuple[list[LogLine], int]:
        """Return the newest lines, oldest first, and the cursor after them for `read`."""
        newest = connection.scalar(select(func.max(logs.c.id))) or 0
        query = select(logs).where(*wanted.clauses()).order_by(logs.c.id.desc()).limit(limit)
        return [_line_of(row) for row in reversed(connection.execute(query).all())], newest

    @reads
    def page(
        self,
        connection: Connection,
        wanted: LogFilter,
        *,
        before: int | None = None,
        limit: int = 100,
        span: int = 100_000,
    ) -> tuple[list[LogLine], int | None]:
        """Return the newest lines before a cursor, newest first, and the next cursor.

        At most `span` numbers are searched, so that a rare text does not cost more than that. The
        next cursor is None after the oldest line.
        """
        oldest, newest = connection.execute(select(func.min(logs.c.id), func.max(logs.c.id))).one()
        if newest is None:
            return [], None
        end = newest + 1 if before is None else min(before, newest + 1)
        start = end - span
        query = select(logs).where(logs.c.id < end, logs.c.id >= start, *wanted.clauses())
        rows = connection.execute(query.order_by(logs.c.id.desc()).limit(limit)).all()
        lines = [_line_of(row) for row in rows]
        after = lines[-1].id if len(lines) == limit else start
        return lines, after if after > oldest else None

    @reads
    def read(
        self, connection: Connection, after: int, wanted: LogFilter, *, limit: int = 500
    ) -> tuple[list[LogLine], int]:
        """Return the lines after a cursor in the order of their commits, and the next cursor."""
        newest = max(connection.scalar(select(func.max(logs.c.id))) or 0, after)
        query = select(logs).where(logs.c.id > after, *wanted.clauses())
        rows = connection.execute(query.order_by(logs.c.id).limit(limit)).all()
        lines = [_line_of(row) for row in rows]
        return lines, newest if len(lines) < limit else lines[-1].id

    @reads
    def names_source(self, connection: Connection, source: str) -> bool:
        """Return whether a line of this source is stored."""
        query = select(logs.c.id).where(logs.c.source == source).limit(1)
        return connection.scalar(query) is not None

    async def prune_old(
        self, now: float, *, max_days: float | None, max_count: int | None, steps: int = 10
    ) -> int:
        """Delete lines that are too old, or not among the newest `max_count`; return how many.

        None is no limit. A large backlog is left to the next calls: it takes at most `steps`.
        """
        before = None if max_days is None else now - max_days * _DAY
        deleted = 0
        for _ in range(steps):
            count = await self._delete_step(before, max_count)
            deleted += count
            if count < _STEP:
                break
        return deleted

    @writes
    def _delete_step(
        self, connection: Connection, before: float | None, max_count: int | None
    ) -> int:
        is_old: list[ColumnElement[bool]] = []
        if before is not None:
            is_old.append(logs.c.at < before)
        if max_count is not None:
            newest = connection.scalar(select(func.max(logs.c.id))) or 0
            is_old.append(logs.c.id <= newest - max_count)
        # One by one, so that each uses an index: mostly there is nothing to delete.
        steps = [select(logs.c.id).where(one).limit(_STEP) for one in is_old]
        return sum(
            connection.execute(delete(logs).where(logs.c.id.in_(one))).rowcount for one in steps
        )


def _line_of(row: Any) -> LogLine:
    return LogLine(
        at=row.at,
        level=row.level,
        logger=row.logger,
        message=row.message,
        exception=row.exception,
        job=row.job_id,
        source=row.source,
        domain=row.domain,
        item=row.key,
        flow=row.flow,
        worker=row.worker,
        fields=row.fields,
        id=row.id,
    )


def _store_lines(
    connection: Connection, several: Sequence[tuple[Sequence[LogLine], int | None]]
) -> None:
    wait_for_turn(connection)  # the numbers follow the commits; lines of a job are counted once
    for lines, max_per_job in several:
        kept, excess = _within_limit(connection, lines, max_per_job)
        _INSERT.run(connection, [_row_of(line) for line in kept])
        for job, last in excess.items():
            _count_excess(connection, job, *last)


def _within_limit(
    connection: Connection, lines: Sequence[LogLine], max_per_job: int | None
) -> tuple[list[LogLine], dict[str, tuple[int, LogLine]]]:
    """Return the lines to store, and of each job that has too many: how many more, and the last."""
    counts: Counter[str] = Counter()
    kept: list[LogLine] = []
    excess: dict[str, tuple[int, LogLine]] = {}
    for line in lines:
        job = line.job
        if job is None or max_per_job is None:
            kept.append(line)
            continue
        if job not in counts:
            own = select(logs.c.id).where(logs.c.job_id == job, logs.c.logger != NOT_STORED)
            found = select(func.count()).select_from(own.limit(max_per_job).subquery())
            counts[job] = connection.scalar(found) or 0
        if counts[job] < max_per_job:
            counts[job] += 1
            kept.append(line)
        else:
            excess[job] = (excess[job][0] + 1 if job in excess else 1, line)
    return kept, excess


def _count_excess(connection: Connection, job: str, count: int, last: LogLine) -> None:
    """Say in the last line of a job how many further lines were not stored."""
    mine = (logs.c.job_id == job) & (logs.c.logger == NOT_STORED)
    before = connection.execute(select(logs.c.id, logs.c.fields).where(mine)).first()
    total = count + (before.fields["not_stored"] if before else 0)
    message, fields = f"{total:,} further lines of this job were not stored", {"not_stored": total}
    if before is None:
        line = LogLine(
            *(last.at, last.level, NOT_STORED, message),
            job=job,
            source=last.source,
            fields=fields,
        )
        _INSERT.run(connection, [_row_of(line)])
        return
    values = {"at": last.at, "message": message, "fields": fields}
    connection.execute(update(logs).where(logs.c.id == before.id).values(values))


def _row_of(line: LogLine) -> dict[str, Any]:
    return {
        "at": line.at,
        "level": line.level,
        "logger": _storable(line.logger),
        "message": _storable(line.message),
        "exception": _storable(line.exception),
        "job_id": _storable_key(line.job),
        "source": _storable_key(line.source),
        "domain": _storable_key(line.domain),
        "key": _storable_key(line.item),
        "flow": _storable_key(line.flow),
        "worker": _storable_key(line.worker),
        "fields": as_sanitized_json(line.fields),
    }


def _storable(text: str | None) -> str | None:
    return None if text is None else sanitize_text(text.replace("\x00", "\ufffd"))


def _storable_key(text: str | None) -> str | None:
    return None if text is None else sanitize_key(text)
