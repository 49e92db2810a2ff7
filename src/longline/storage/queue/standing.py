"""What the database knows of a job on a cluster that must be known to say whether it goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, exists, func, or_, select, update

from longline.core.model import ItemState, JobState
from longline.storage.errors import UnknownJob
from longline.storage.events import append_events, event_row
from longline.storage.schema import events, items, jobs

DISCOVERY_FAILED = "discovery.failed"
_KILLED = "discovery.killed"
_BEGINNINGS = ("job.started", "job.resumed")


@dataclass(frozen=True, slots=True)
class ClusterJobStatus:
    """Where a job stands.

    `leased` items are in somebody's hands. `begun_at` is when this run of it began. `finder` is who
    discovers, until `finder_until` unless it is heard of; `failure` is what the event says that
    tells why discovery has failed in this run.
    """

    state: JobState
    is_discovered: bool
    finder: str | None
    finder_until: float | None
    leased: int
    begun_at: float
    failure: Mapping[str, Any] | None

    @property
    def is_searched(self) -> bool:
        """Whether discovery is under way, or would be if somebody was told to."""
        return not self.is_discovered and self.failure is None

    def lacks_finder(self, at: float, dead: Sequence[str] = ()) -> bool:
        """Say whether somebody has to be told to discover: nobody living does."""
        if self.state is not JobState.RUNNING or not self.is_searched:
            return False
        return self.finder is None or self.finder in dead or (self.finder_until or 0.0) < at


def look_at(connection: Connection, job: str) -> ClusterJobStatus:
    """Return where a job stands.

    Raises:
        UnknownJob: there is no such job.
    """
    row = connection.execute(select(jobs).where(jobs.c.id == job)).one_or_none()
    if row is None:
        raise UnknownJob(job)
    begun, begun_at = _beginning(connection, job)
    leased = connection.scalar(
        select(func.count()).where(items.c.job_id == job, items.c.state == ItemState.LEASED)
    )
    return ClusterJobStatus(
        state=JobState(row.state),
        is_discovered=row.is_discovered,
        finder=row.discovery_owner,
        finder_until=row.discovery_until,
        leased=leased or 0,
        begun_at=begun_at or row.started_at or row.created_at,
        failure=_failure(connection, job, begun),
    )


def without_finder(connection: Connection, at: float, before: float) -> list[str]:
    """Return the jobs of a cluster that run, began before a moment, and nobody finds items for."""
    query = select(jobs.c.id).where(
        jobs.c.state == JobState.RUNNING,
        jobs.c.engine == "celery",
        jobs.c.is_discovered.is_(False),
        or_(jobs.c.discovery_owner.is_(None), jobs.c.discovery_until < at),
    )
    found = {job: look_at(connection, job) for job in connection.scalars(query).all()}
    return [
        job
        for job, standing in found.items()
        if standing.begun_at <= before and standing.lacks_finder(at)
    ]


def release_dead_discoverer(connection: Connection, argument: tuple[str, str, float, bool]) -> int:
    """Let another discover after one that was killed, and note if that was what it died of.

    Returns how many have died of it in this run; 0 when it was not this one who discovered.
    """
    job, owner, at, is_of_it = argument
    left = connection.execute(
        update(jobs)
        .where(
            jobs.c.id == job,
            jobs.c.is_discovered.is_(False),
            jobs.c.discovery_owner == owner,
        )
        .values(discovery_owner=None, discovery_until=None)
    )
    if not left.rowcount:
        return 0
    if is_of_it:
        append_events(connection, [event_row(job, at, _KILLED, owner=owner)])
    begun, _ = _beginning(connection, job)
    since = (events.c.job_id == job) & (events.c.kind == _KILLED) & (events.c.id > begun)
    return connection.scalar(select(func.count()).where(since)) or 0


def over(connection: Connection) -> list[str]:
    """Return the jobs of a cluster that run although all their items are found and finished."""
    left = exists().where(
        items.c.job_id == jobs.c.id, items.c.state.in_([ItemState.QUEUED, ItemState.LEASED])
    )
    query = select(jobs.c.id).where(
        jobs.c.state == JobState.RUNNING,
        jobs.c.engine == "celery",
        jobs.c.is_discovered.is_(True),
        ~left,
    )
    return list(connection.scalars(query))


def last_finish(connection: Connection, job: str) -> float | None:
    """Return when an item of a job was finished last."""
    query = select(func.max(items.c.finished_at)).where(
        items.c.job_id == job, items.c.finished_at.is_not(None)
    )
    found: float | None = connection.scalar(query)
    return found


def _beginning(connection: Connection, job: str) -> tuple[int, float | None]:
    """Return the event that this run began with, by its number, and when that was."""
    query = (
        select(events.c.id, events.c.at)
        .where(events.c.job_id == job, events.c.kind.in_(_BEGINNINGS))
        .order_by(events.c.id.desc())
        .limit(1)
    )
    found = connection.execute(query).one_or_none()
    return (found.id, found.at) if found else (0, None)


def _failure(connection: Connection, job: str, since: int) -> Mapping[str, Any] | None:
    query = (
        select(events.c.data)
        .where(events.c.job_id == job, events.c.kind == DISCOVERY_FAILED, events.c.id > since)
        .order_by(events.c.id)
        .limit(1)
    )
    failure: Mapping[str, Any] | None = connection.scalar(query)
    return failure
