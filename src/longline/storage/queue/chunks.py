"""Chunks: the work that a cluster is told of, taken by one process at a time.

A chunk is a right to some items that are due, not a list of them: which ones is decided when it is
taken. So a message that is lost, late or doubled changes nothing but time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, case, exists, func, insert, or_, select, update

from longline.core.errors import UnknownJob
from longline.core.model import ChunkState, ItemState, JobState, Lease
from longline.storage.database import Database
from longline.storage.events import append_events, event_row
from longline.storage.queue.queue import (
    DOMAINS,
    DUE,
    Claim,
    chunk_owners,
    lease_named,
    lease_ordinary,
)
from longline.storage.schema import chunks, events, items, jobs

# ---------------- What the database knows of a job on a cluster that must be known to say whether

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


# ---------------- Taking chunks: their items are leased to one process, in the step that marks


@dataclass(frozen=True, slots=True)
class Take:
    """A process's wish for a chunk: its items, up to `size`, are leased to `owner` until `until`.

    Each wish has a name of its own: what work that broke off has left behind must not be kept by
    the heartbeat of the next.
    """

    chunk: int
    owner: str
    at: float
    until: float
    size: int


@dataclass(frozen=True, slots=True)
class TakeMore:
    """The wish of a process that has work in hand, but time: any chunk that waits for nobody else.

    `busy` are the jobs and domains that it would only do more slowly; `before` leaves those alone
    that were offered only just now, for processes that have nothing to do. `domain` is the one
    that a `Turn` goes on with. Of chunks that were offered before `suspects_before`, a suspect is
    taken when there is nothing else: whoever says so has nothing in hand that would die with it.
    """

    owner: str
    at: float
    until: float
    size: int
    before: float
    busy: frozenset[tuple[str, str]] = frozenset()
    domain: str | None = None
    suspects_before: float | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """A chunk and its items, all of one domain; `is_alone`: its one item is a suspect.

    `run` is the run of the job that it belongs to: what was opened for an earlier one is old.
    """

    chunk: int
    job: str
    owner: str
    leases: Sequence[Lease]
    is_alone: bool = False
    run: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """Chunks of a job that are done, by id and owner, and the wish for `count` more of a domain."""

    job: str
    done: Sequence[tuple[int, str]]
    then: TakeMore
    count: int = 1


_ORDINARY = DUE.where(items.c.deaths == 0)
_SUSPECT = DUE.where(items.c.deaths > 0)


def take(connection: Connection, wish: Take) -> Taken | None:
    """Lease the items of a chunk; one that has none is used up."""
    row = connection.execute(
        select(chunks.c.job_id, jobs.c.state, jobs.c.runs)
        .join(jobs, jobs.c.id == chunks.c.job_id)
        .where(chunks.c.id == wish.chunk, chunks.c.state == ChunkState.OFFERED)
        # Waited for: who sent the message may be noting so, and to pass over it would lose it.
        .with_for_update(of=chunks)
    ).one_or_none()
    if row is None:
        return None
    ids: list[int] = []
    is_alone = False
    if row.state == JobState.RUNNING:
        ids, is_alone = _chosen(connection, row.job_id, wish)
    if not ids:
        _note(connection, wish, wish.chunk, ChunkState.DONE, 0)
        return None
    leases = _leased(connection, wish, wish.chunk, row.job_id, ids)
    return Taken(wish.chunk, row.job_id, wish.owner, leases, is_alone, row.runs)


def _leased(
    connection: Connection, wish: Take | TakeMore, chunk: int, job: str, ids: Sequence[int]
) -> list[Lease]:
    leases = lease_named(connection, job, ids, wish.owner, wish.until)
    _note(connection, wish, chunk, ChunkState.TAKEN, len(leases))
    return leases


def _note(
    connection: Connection, wish: Take | TakeMore, chunk: int, state: str, count: int
) -> None:
    connection.execute(_NOTE, _noted(wish, chunk, state, count))


def _noted(wish: Take | TakeMore, chunk: int, state: str, count: int) -> dict[str, Any]:
    return {
        "b_chunk": chunk,
        "b_state": state,
        "b_owner": wish.owner,
        "b_at": wish.at,
        "b_items": count,
        "b_end": wish.at if state == ChunkState.DONE else None,
    }


_NOTE = (
    update(chunks)
    .where(chunks.c.id == bindparam("b_chunk"))
    .values(
        state=bindparam("b_state"),
        owner=bindparam("b_owner"),
        taken_at=bindparam("b_at"),
        items=bindparam("b_items"),
        finished_at=bindparam("b_end"),
    )
)


def waiting_chunks(before: float) -> Any:
    """Return the oldest chunk of each job that somebody should have taken before that moment."""
    return (
        select(func.min(chunks.c.id).label("id"), chunks.c.job_id, jobs.c.runs)
        .join(jobs, jobs.c.id == chunks.c.job_id)
        .where(
            chunks.c.state == ChunkState.OFFERED,
            chunks.c.offered_at <= before,
            jobs.c.state == JobState.RUNNING,
        )
        .group_by(chunks.c.job_id, jobs.c.runs)
    )


def take_more(connection: Connection, wish: TakeMore) -> Taken | None:
    """Lease the items of any chunk that nobody has come for."""
    found = list(connection.execute(waiting_chunks(wish.before)))
    random.shuffle(found)  # so that no job waits for ever behind the others
    for chunk, job, run in found:
        ids = _ordinary(connection, job, wish)
        if ids and _is_ours(connection, chunk):
            leases = _leased(connection, wish, chunk, job, ids)
            return Taken(chunk, job, wish.owner, leases, run=run)
    return _take_suspect(connection, wish)


def _take_suspect(connection: Connection, wish: TakeMore) -> Taken | None:
    """Lease a suspect alone, of a chunk that nobody has come for in long, if that is wished for."""
    if wish.suspects_before is None:
        return None
    for chunk, job, run in connection.execute(waiting_chunks(wish.suspects_before)).all():
        ids = _suspect(connection, job, wish.at)
        if ids and _is_ours(connection, chunk):
            leases = _leased(connection, wish, chunk, job, ids)
            return Taken(chunk, job, wish.owner, leases, is_alone=True, run=run)
    return None


def _suspect(connection: Connection, job: str, at: float) -> list[int]:
    """Return a suspect of a job that is due, if there is one."""
    for domain in connection.scalars(DOMAINS, {"b_job": job}).all():
        asked = {"b_job": job, "b_domain": domain, "b_at": at, "b_count": 1}
        if ids := list(connection.scalars(_SUSPECT, asked)):
            return ids
    return []


def _ordinary(connection: Connection, job: str, wish: TakeMore) -> list[int]:
    for domain in connection.scalars(DOMAINS, {"b_job": job}).all():
        if (job, domain) in wish.busy:
            continue
        asked = {"b_job": job, "b_domain": domain, "b_at": wish.at, "b_count": wish.size}
        if ids := list(connection.scalars(_ORDINARY, asked)):
            return ids
    return []


def _is_ours(connection: Connection, chunk: int) -> bool:
    """Say whether a chunk is still offered, and nobody else takes it at this moment."""
    query = select(chunks.c.id).where(chunks.c.id == chunk, chunks.c.state == ChunkState.OFFERED)
    return connection.scalar(query.with_for_update(skip_locked=True)) is not None


def _chosen(connection: Connection, job: str, take: Take) -> tuple[list[int], bool]:
    """Return which items to lease, and whether it is a suspect."""
    domains = list(connection.scalars(DOMAINS, {"b_job": job}))
    random.shuffle(domains)  # so that many processes spread over them
    for query, count in ((_ORDINARY, take.size), (_SUSPECT, 1)):
        for domain in domains:
            wish = {"b_job": job, "b_domain": domain, "b_at": take.at, "b_count": count}
            if ids := list(connection.scalars(query, wish)):
                return ids, query is _SUSPECT
    return [], False


def turn(connection: Connection, wish: Turn) -> list[Taken]:
    """Mark chunks as done, and take others of their job, as many as are offered and have items."""
    then = wish.then
    if wish.done:
        ended = [{"b_chunk": chunk, "b_owner": by, "b_at": then.at} for chunk, by in wish.done]
        connection.execute(_END, ended)
    found = connection.execute(_OTHERS, {"b_job": wish.job, "b_count": wish.count}).all()
    if not found:
        return []
    claim = Claim(wish.job, then.owner, then.size * len(found), then.at, then.until)
    leases = lease_ordinary(connection, claim, then.domain or "")
    parts = [leases[start : start + then.size] for start in range(0, len(leases), then.size)]
    taken = [
        Taken(chunk.id, wish.job, then.owner, part, run=chunk.runs)
        for chunk, part in zip(found, parts, strict=False)  # with fewer items than were hoped for
    ]
    if taken:
        connection.execute(
            _NOTE, [_noted(then, one.chunk, ChunkState.TAKEN, len(one.leases)) for one in taken]
        )
    return taken


def end(connection: Connection, argument: tuple[int, str, float]) -> bool:
    """Mark a chunk as done; False when it is not this owner's any more."""
    chunk, owner, at = argument
    done = connection.execute(_END, {"b_chunk": chunk, "b_owner": owner, "b_at": at})
    return done.rowcount == 1


_END = (
    update(chunks)
    .where(
        chunks.c.id == bindparam("b_chunk"),
        chunks.c.owner == bindparam("b_owner"),
        chunks.c.state == ChunkState.TAKEN,
    )
    .values(state=ChunkState.DONE, finished_at=bindparam("b_at"))
)
_OTHERS = (
    select(chunks.c.id, jobs.c.runs)
    .join(jobs, jobs.c.id == chunks.c.job_id)
    .where(
        chunks.c.job_id == bindparam("b_job"),
        chunks.c.state == ChunkState.OFFERED,
        jobs.c.state == JobState.RUNNING,
    )
    .order_by(chunks.c.id)
    .limit(bindparam("b_count"))
    .with_for_update(of=chunks, skip_locked=True)
)


@dataclass(frozen=True, slots=True)
class ChunkProgress:
    """How many chunks a job has had so far, and where they stand; empty ones are not counted."""

    total: int
    completed: int
    offered: int
    taken: int


class Chunks:
    """The chunks of all jobs in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def offer(self, job: str, at: float, *, size: int, most: int = 64) -> list[int]:
        """Return new chunks, so that all that is due is covered; no more than `most` are open.

        While more than half of `most` are open, nothing is missing yet, and none is offered.
        Nothing is offered of a job that does not run. Of many callers at once none offers what
        another does.
        """
        offered: list[int] = await self._database.write(_offer, (job, at, size, most))
        return offered

    async def sent(self, ids: Sequence[int], at: float) -> None:
        """Note that a message was sent for each of these chunks."""
        if ids:
            await self._database.write(_sent, (ids, at))

    async def unanswered(self, job: str, before: float) -> list[int]:
        """Return the offered chunks for which a message was sent before that moment, or never."""
        query = (
            select(chunks.c.id)
            .where(
                chunks.c.job_id == job,
                chunks.c.state == ChunkState.OFFERED,
                or_(chunks.c.sent_at.is_(None), chunks.c.sent_at < before),
            )
            .order_by(chunks.c.id)
        )
        return await self._database.read(lambda connection: list(connection.scalars(query)))

    async def take(self, wish: Take) -> Taken | None:
        """Lease the items of a chunk; None when there is nothing to do, and nothing to be done.

        It was taken before, its job does not run, or nothing of it is due any more: a chunk is
        used up by that. Of a random domain the highest priority comes first; suspects, which a
        worker has died with, come last and alone.
        """
        taken: Taken | None = await self._database.write(take, wish)
        return taken

    async def take_more(self, wish: TakeMore) -> Taken | None:
        """Lease the items of a chunk that nobody has taken; None when there is none to be had.

        Suspects only if the wish says so: what is in hand beside them would die with them.
        """
        query = waiting_chunks(wish.before)
        if not await self._database.read(lambda connection: connection.execute(query).first()):
            return None
        taken: Taken | None = await self._database.write(take_more, wish)
        return taken

    async def turn(self, wish: Turn) -> list[Taken]:
        """Mark chunks as done, and take others of the same job at once; none: there are none.

        So nobody waits for a message while there is more to do.
        """
        taken: list[Taken] = await self._database.write(turn, wish)
        return taken

    async def finish(self, chunk: int, owner: str, at: float) -> bool:
        """Mark a chunk as done; False when it is not this owner's any more."""
        is_done: bool = await self._database.write(end, (chunk, owner, at))
        return is_done

    async def owners(self, job: str) -> list[str]:
        """Return who holds chunks or leases of a job, or its discovery."""
        return await self._database.read(lambda connection: chunk_owners(connection, job))

    async def progress(self, job: str) -> ChunkProgress:
        """Return how many chunks of a job stand where."""
        return await self._database.read(lambda connection: _progress(connection, job))

    async def standing(self, job: str) -> ClusterJobStatus:
        """Return what has to be known to say whether a job can go on.

        Raises:
            UnknownJob: there is no such job.
        """
        return await self._database.read(lambda connection: look_at(connection, job))

    async def without_finder(self, at: float, before: float) -> list[str]:
        """Return the jobs that run, began before a moment, and nobody finds items for."""
        return await self._database.read(lambda connection: without_finder(connection, at, before))

    async def release_dead_discoverer(
        self, job: str, owner: str, at: float, *, is_of_it: bool
    ) -> int:
        """Let another discover after one that was killed; `is_of_it`: by that, as far as is known.

        Returns how many have died of it in this run; 0 when it was not this one who discovered.
        """
        deaths: int = await self._database.write(
            release_dead_discoverer, (job, owner, at, is_of_it)
        )
        return deaths

    async def over(self) -> list[str]:
        """Return the jobs that run although all their items are found and finished."""
        return await self._database.read(over)

    async def last_finish(self, job: str) -> float | None:
        """Return when an item of a job was finished last; None when none was."""
        return await self._database.read(lambda connection: last_finish(connection, job))


# ---------------------------------------------------------------- offering

_DUE = (
    select(items.c.domain, items.c.deaths)
    .where(
        items.c.job_id == bindparam("b_job"),
        items.c.state == ItemState.QUEUED,
        items.c.due_at <= bindparam("b_at"),
    )
    .limit(bindparam("b_most"))  # more than the chunks that may be open need not be counted
    .subquery()
)
_NEEDS = select(
    _DUE.c.domain,
    func.sum(case((_DUE.c.deaths == 0, 1), else_=0)),
    func.sum(case((_DUE.c.deaths > 0, 1), else_=0)),
).group_by(_DUE.c.domain)


def _offer(connection: Connection, argument: tuple[str, float, int, int]) -> list[int]:
    job, at, size, most = argument
    # Whoever holds the job's row counts alone: two would both offer what is missing.
    state = connection.scalar(
        select(jobs.c.state).where(jobs.c.id == job).with_for_update(key_share=True)
    )
    if state != JobState.RUNNING:
        return []
    is_open = (chunks.c.job_id == job) & (chunks.c.state == ChunkState.OFFERED)
    offered = connection.scalar(select(func.count()).where(is_open)) or 0
    if offered > most // 2:
        return []
    wish = {"b_job": job, "b_at": at, "b_most": most * size}
    due = connection.execute(_NEEDS, wish).all()
    needed = sum(-(-ordinary // size) + suspects for _, ordinary, suspects in due)
    missing = min(needed, most) - offered
    # Sent in a moment; a message that is not is noticed as any that is lost.
    rows = [{"job_id": job, "state": ChunkState.OFFERED, "offered_at": at, "sent_at": at}] * missing
    if not rows:
        return []
    return sorted(connection.scalars(insert(chunks).values(rows).returning(chunks.c.id)))


def _sent(connection: Connection, argument: tuple[Sequence[int], float]) -> None:
    ids, at = argument
    connection.execute(update(chunks).where(chunks.c.id.in_(list(ids))).values(sent_at=at))


def _progress(connection: Connection, job: str) -> ChunkProgress:
    is_empty = (chunks.c.state == ChunkState.DONE) & (chunks.c["items"] == 0)
    query = (
        select(chunks.c.state, func.count().label("number"))
        .where(chunks.c.job_id == job, ~is_empty)
        .group_by(chunks.c.state)
    )
    found = {row.state: row.number for row in connection.execute(query)}
    done, offered, taken = (
        found.get(state, 0) for state in (ChunkState.DONE, ChunkState.OFFERED, ChunkState.TAKEN)
    )
    return ChunkProgress(done + offered + taken, done, offered, taken)
