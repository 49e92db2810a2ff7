"""The refresh of proxies: its steps as tasks, and the results of each chunk until they are merged.

One refresh is open at a time. Its steps are `collect`, then a `check` for each chunk of candidates,
then `merge`. A step is a task (`storage/queue/tasks.py`) that one process claims; it is removed in
the transaction that stores its result, so a step whose process dies is done again, and no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, delete, select

from longline.storage.backends import upsert
from longline.storage.database import Repository, lock_name, reads, writes
from longline.storage.events.events import append_events, event_row
from longline.storage.queue.tasks import Task, TaskKind, complete_task, place_task, tasks_of_kind
from longline.storage.schema import cells

_STATE, _CHUNKS, _RESULTS = "proxy_refresh", "proxy_chunks", "proxy_results"  # rooms of cells
_LAST, _POOL = "last", "pool"
Checked = Mapping[str, Any]
"""A candidate or a result as JSON, which only the checker reads."""


class Step(StrEnum):
    """A step of a refresh."""

    COLLECT = "collect"
    CHECK = "check"
    MERGE = "merge"


@dataclass(frozen=True, slots=True)
class Refresh:
    """A refresh, the open one or the last; `ended_at` is None while it is open.

    `plan` is how its candidates are checked, and `reason` why it began. `chunks` and `checked`
    count chunks of candidates, all and done; `alive` are the proxies that passed. `problems` are
    those of sources of candidates, by name, and of steps.
    """

    number: int
    reason: str
    started_at: float
    plan: Mapping[str, Any] = field(default_factory=dict)
    step: Step = Step.COLLECT
    candidates: int = 0
    chunks: int = 0
    checked: int = 0
    alive: int = 0
    ended_at: float | None = None
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether steps are still to be done."""
        return self.ended_at is None


@dataclass(frozen=True, slots=True)
class PoolSummary:
    """The pool at a time: how many proxies are in each state, and how many must be alive."""

    at: float
    states: Mapping[str, int] = field(default_factory=dict)
    minimum: int | None = None

    @property
    def usable(self) -> int:
        """How many proxies are neither dead nor in quarantine."""
        return self.states.get("alive", 0) + self.states.get("unchecked", 0)

    @property
    def is_low(self) -> bool:
        """Whether fewer proxies are usable than must be."""
        return self.minimum is not None and self.usable < self.minimum


class ProxyRefreshes(Repository):
    """The refreshes of the proxies of a database."""

    @writes
    def begin(
        self, connection: Connection, at: float, reason: str, plan: Mapping[str, Any]
    ) -> Refresh:
        """Begin a refresh, and return it; an open one is returned instead."""
        lock_name(connection, _STATE)
        last = _read(connection)
        if last is not None and last.is_open:
            return last
        new = Refresh(1 if last is None else last.number + 1, reason, at, plan)
        _write(connection, new)
        _place(connection, new, Step.COLLECT, at)
        began = event_row(None, at, "proxies.refresh_started", refresh=new.number, reason=reason)
        append_events(connection, [began])
        return new

    @reads
    def last(self, connection: Connection) -> Refresh | None:
        """Return the open refresh, or the last one."""
        return _read(connection)

    @writes
    def complete_collection(
        self,
        connection: Connection,
        task: Task,
        at: float,
        chunks: Sequence[Sequence[Checked]],
        problems: Mapping[str, str],
    ) -> bool:
        """Store the candidates in chunks; False when another process has claimed the task."""
        current = _read(connection, is_locked=True)
        if current is None or not complete_task(connection, task):
            return False
        new = replace(
            current,
            step=Step.CHECK,
            candidates=sum(len(chunk) for chunk in chunks),
            chunks=len(chunks),
            problems={**current.problems, **problems},
        )
        for number, chunk in enumerate(chunks):
            _store(connection, _CHUNKS, f"{new.number}/{number}", [*chunk])
            _place(connection, new, Step.CHECK, at, chunk=number)
        _write(connection, new)
        _advance(connection, new, at)
        return True

    @reads
    def chunk(self, connection: Connection, task: Task) -> list[Checked]:
        """Return the candidates of the chunk of a task."""
        name = f"{task.what['refresh']}/{task.what['chunk']}"
        query = select(cells.c.state).where(cells.c.room == _CHUNKS, cells.c.name == name)
        return list(connection.scalar(query) or ())

    @writes
    def complete_chunk(
        self,
        connection: Connection,
        task: Task,
        at: float,
        results: Sequence[Checked],
        *,
        alive: int,
        problem: str | None = None,
    ) -> bool:
        """Store the results of a chunk; False when another process has claimed the task.

        A `problem` is one of the whole chunk, such as a judge that does not respond.
        """
        current = _read(connection, is_locked=True)
        if current is None or not complete_task(connection, task):
            return False
        name = f"{task.what['refresh']}/{task.what['chunk']}"
        _store(connection, _RESULTS, name, [*results])
        problems = {} if problem is None else {"check": problem}
        new = replace(
            current,
            checked=current.checked + 1,
            alive=current.alive + alive,
            problems={**current.problems, **problems},
        )
        _write(connection, new)
        done = event_row(
            None,
            at,
            "proxies.checked",
            refresh=new.number,
            chunk=task.what["chunk"],
            chunks=new.chunks,
            checked=len(results),
            alive=alive,
        )
        append_events(connection, [done])
        _advance(connection, new, at)
        return True

    @reads
    def results(self, connection: Connection, refresh: int) -> list[Checked]:
        """Return the results of all chunks of a refresh."""
        query = select(cells.c.state).where(
            cells.c.room == _RESULTS, cells.c.name.startswith(f"{refresh}/")
        )
        ordered = query.order_by(cells.c.name)
        return [result for chunk in connection.scalars(ordered) for result in chunk]

    @writes
    def complete(
        self,
        connection: Connection,
        task: Task,
        at: float,
        pool: PoolSummary | None,
        problem: str | None = None,
    ) -> bool:
        """End a refresh whose results are in the pool; False: another process has claimed it."""
        current = _read(connection, is_locked=True)
        if current is None or not complete_task(connection, task):
            return False
        if pool is not None:
            _store(connection, _STATE, _POOL, asdict(pool))
        problems = {} if problem is None else {"merge": problem}
        _end(connection, replace(current, problems={**current.problems, **problems}), at)
        return True

    @writes
    def advance(self, connection: Connection, at: float) -> Refresh | None:
        """Continue an open refresh whose tasks were given up; return the last refresh."""
        current = _read(connection, is_locked=True)
        if current is None or not current.is_open:
            return current
        return _advance(connection, current, at)

    @writes
    def note_pool(self, connection: Connection, pool: PoolSummary) -> None:
        """Store how many proxies are in each state, for alerts and metrics."""
        known = _read_pool(connection)
        if known is None or (known.states, known.minimum) != (pool.states, pool.minimum):
            _store(connection, _STATE, _POOL, asdict(pool))

    @reads
    def pool(self, connection: Connection) -> PoolSummary | None:
        """Return what `note_pool` has stored last; None without a pool."""
        return _read_pool(connection)


def read_pool(connection: Connection) -> PoolSummary | None:
    """Return the last summary of the pool on the caller's snapshot."""
    return _read_pool(connection)


def _read_pool(connection: Connection) -> PoolSummary | None:
    query = select(cells.c.state).where(cells.c.room == _STATE, cells.c.name == _POOL)
    state = connection.scalar(query)
    return None if state is None else PoolSummary(**state)


def _read(connection: Connection, *, is_locked: bool = False) -> Refresh | None:
    query = select(cells.c.state).where(cells.c.room == _STATE, cells.c.name == _LAST)
    state = connection.scalar(query.with_for_update() if is_locked else query)
    return None if state is None else Refresh(**{**state, "step": Step(state["step"])})


def _write(connection: Connection, refresh: Refresh) -> None:
    _store(connection, _STATE, _LAST, asdict(refresh))


def _store(connection: Connection, room: str, name: str, state: Any) -> None:
    row = upsert(connection, cells).values(room=room, name=name, state=state)
    connection.execute(
        row.on_conflict_do_update(index_elements=["room", "name"], set_={"state": state})
    )


def _place(connection: Connection, refresh: Refresh, step: Step, at: float, **details: int) -> None:
    what = {"refresh": refresh.number, "step": step.value, **details}
    place_task(connection, Task("", TaskKind.PROXIES, at, what))


def _advance(connection: Connection, refresh: Refresh, at: float) -> Refresh:
    """Place the merge when all chunks are done, or given up; end it when another task was."""
    if tasks_of_kind(connection, TaskKind.PROXIES):
        return refresh
    if refresh.step is Step.CHECK:
        new = replace(refresh, step=Step.MERGE)
        _write(connection, new)
        _place(connection, new, Step.MERGE, at)
        return new
    problem = f"the step {refresh.step.value} was given up; see the events proxies.task_failed"
    problems = {**refresh.problems, refresh.step.value: problem}
    return _end(connection, replace(refresh, problems=problems), at)


def _end(connection: Connection, refresh: Refresh, at: float) -> Refresh:
    new = replace(refresh, ended_at=at)
    _write(connection, new)
    connection.execute(delete(cells).where(cells.c.room.in_((_CHUNKS, _RESULTS))))
    ended = event_row(
        None,
        at,
        "proxies.refreshed",
        refresh=new.number,
        candidates=new.candidates,
        chunks=new.chunks,
        checked=new.checked,
        alive=new.alive,
        seconds=round(max(0.0, at - new.started_at), 3),
        problems=dict(new.problems),
    )
    append_events(connection, [ended])
    return new
