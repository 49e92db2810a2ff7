"""Tasks: work that is done once, by one process at a time, until it is done.

Most are about a job; the refresh of proxies belongs to none. They are rows of `cells`. The process
that has claimed a task renews it; when it stops or dies, another process claims the task.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

import orjson
from sqlalchemy import Connection, delete, select, update

from longline.core.model import OPEN_STATES, JobState
from longline.storage.backends import upsert
from longline.storage.database import Repository, reads, writes
from longline.storage.events.events import EventRow, append_events, event_row
from longline.storage.queue.queue import MOST_DEATHS
from longline.storage.schema import cells, jobs

_ROOM = "orders"


class TaskKind(StrEnum):
    """What is done.

    For a job: write its records as `what` says, or call `Source.finished`. For no job: a step of a
    refresh of proxies.
    """

    EXPORT = "export"
    FINISHED = "finished"
    PROXIES = "proxies"


@dataclass(frozen=True, slots=True)
class Task:
    """A task of a job, or of none (""); with `is_after_end`, it waits until the job has ended.

    `owner` has claimed it until `until`; `deaths` counts processes that were killed while they
    worked on it.
    """

    job: str
    kind: TaskKind
    placed_at: float
    what: Mapping[str, Any] = field(default_factory=dict)
    is_after_end: bool = False
    owner: str | None = None
    until: float = 0.0
    deaths: int = 0

    @property
    def name(self) -> str:
        """The id: equal tasks of a job are one task."""
        if not self.what:
            return f"{self.job}/{self.kind}"
        content = orjson.dumps([self.is_after_end, self.what], option=orjson.OPT_SORT_KEYS)
        return f"{self.job}/{self.kind}/{hashlib.sha256(content).hexdigest()[:12]}"

    def is_free(self, at: float, dead: Sequence[str]) -> bool:
        """Return whether no live process has claimed it."""
        return self.owner is None or self.until < at or self.owner in dead

    def event(self, at: float, end: str, **data: str) -> EventRow:
        """Return an event of the job: the task "failed" or was "dropped"."""
        if self.kind is TaskKind.PROXIES:
            return event_row(None, at, "proxies.task_failed", **self.what, **data)
        kind = "export" if self.kind is TaskKind.EXPORT else "source.finished"
        output = {"output": self.what["output"]} if "output" in self.what else {}
        return event_row(self.job, at, f"{kind}.{end}", **output, **data)


class TaskQueue(Repository):
    """The tasks of all jobs in one database."""

    @writes
    def place(self, connection: Connection, task: Task) -> None:
        """Enqueue a task; an equal one is replaced."""
        place_task(connection, task)

    @reads
    def ready(self, connection: Connection, before: float) -> list[Task]:
        """Return the tasks that could be done since before then, claimed or not, oldest first."""
        found = _tasks(connection)
        if not found:
            return []
        names = {task.job for task in found if task.is_after_end}
        query = select(jobs.c.id, jobs.c.state, jobs.c.finished_at).where(jobs.c.id.in_(names))
        ended = {
            job: at or 0.0
            for job, state, at in connection.execute(query)
            if JobState(state) not in OPEN_STATES
        }
        due = [
            (max(task.placed_at, ended[task.job] if task.is_after_end else 0.0), task.name, task)
            for task in found
            if not task.is_after_end or task.job in ended
        ]
        return [task for at, _, task in sorted(due, key=lambda one: one[:2]) if at <= before]

    @reads
    def of_job(self, connection: Connection, job: str) -> list[Task]:
        """Return the tasks of a job, oldest first, due or not."""
        found = [task for task in _tasks(connection) if task.job == job]
        return sorted(found, key=lambda task: (task.placed_at, task.name))

    @writes
    def drop(self, connection: Connection, task: Task, at: float, dead: Sequence[str]) -> bool:
        """Remove a task and append an event; False when it is done or a live process has it."""
        found = _locked(connection, task)
        if found is None or not found.is_free(at, dead):
            return False
        connection.execute(delete(cells).where(_is_row_of(found)))
        append_events(connection, [found.event(at, "dropped")])
        return True

    @writes
    def claim(
        self,
        connection: Connection,
        task: Task,
        owner: str,
        at: float,
        until: float,
        *,
        dead: Sequence[str] = (),
        killed: Sequence[str] = (),
    ) -> Task | None:
        """Claim a task; None when a live process has it, or it is done.

        `dead` owners are gone; of them, `killed` ones may have died of the task. After the third
        such death it is given up with an event.
        """
        found = _locked(connection, task, skip_locked=True)
        if found is None or not found.is_free(at, dead):
            return None
        deaths = found.deaths + (found.owner in killed)
        if deaths >= MOST_DEATHS:
            connection.execute(delete(cells).where(_is_row_of(found)))
            reason = (
                f"{deaths} workers were killed while running it: check how much memory it needs"
            )
            append_events(connection, [found.event(at, "failed", reason=reason)])
            return None
        claimed = replace(found, owner=owner, until=until, deaths=deaths)
        _update(connection, claimed)
        return claimed

    @writes
    def renew(self, connection: Connection, task: Task, until: float) -> bool:
        """Keep a claim until later; False when another process has claimed the task."""
        found = _locked(connection, task)
        if found is None or found.owner != task.owner:
            return False
        _update(connection, replace(found, until=until))
        return True

    @writes
    def complete(self, connection: Connection, task: Task, *results: EventRow) -> bool:
        """Remove a claimed task and append events; False when another process has claimed it."""
        if not complete_task(connection, task):
            return False
        append_events(connection, results)
        return True


def complete_task(connection: Connection, task: Task) -> bool:
    """Remove a claimed task in the caller's transaction; False: another process has claimed it."""
    found = _locked(connection, task)
    if found is None or found.owner != task.owner:
        return False
    connection.execute(delete(cells).where(_is_row_of(task)))
    return True


def tasks_of_kind(connection: Connection, kind: TaskKind) -> list[Task]:
    """Return all tasks of a kind, claimed or not."""
    return [task for task in _tasks(connection) if task.kind is kind]


def place_task(connection: Connection, task: Task) -> None:
    """Enqueue a task in the caller's transaction."""
    state = asdict(task)
    row = upsert(connection, cells).values(room=_ROOM, name=task.name, state=state)
    connection.execute(
        row.on_conflict_do_update(index_elements=["room", "name"], set_={"state": state})
    )


def _decode_task(state: Mapping[str, Any]) -> Task:
    return Task(**{**state, "kind": TaskKind(state["kind"])})


def _tasks(connection: Connection) -> list[Task]:
    query = select(cells.c.state).where(cells.c.room == _ROOM)
    return [_decode_task(state) for state in connection.scalars(query)]


def _is_row_of(task: Task) -> Any:
    return (cells.c.room == _ROOM) & (cells.c.name == task.name)


def _locked(connection: Connection, task: Task, *, skip_locked: bool = False) -> Task | None:
    """Return the stored task, locked until the transaction ends."""
    query = select(cells.c.state).where(_is_row_of(task))
    state = connection.scalar(query.with_for_update(skip_locked=skip_locked))
    return None if state is None else _decode_task(state)


def _update(connection: Connection, task: Task) -> None:
    connection.execute(update(cells).where(_is_row_of(task)).values(state=asdict(task)))
