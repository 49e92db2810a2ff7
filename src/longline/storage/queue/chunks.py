"""Chunks: published for the processes of a cluster, claimed by one of them, completed.

A chunk is a right to lease some due items, not a list of them: the claim selects the items. So a
message that is lost, late or duplicated costs time and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, case, exists, func, insert, or_, select, update

from longline.core.errors import UnknownJob
from longline.core.model import ChunkState, ItemState, JobState, Lease
from longline.storage.database import Repository, reads, writes
from longline.storage.events.events import append_events, event_row
from longline.storage.queue.queue import Claim, lease_domain, lease_owners, queued_domains
from longline.storage.schema import chunks, events, items, jobs

DISCOVERY_FAILED = "discovery.failed"
_DISCOVERY_KILLED = "discovery.killed"


@dataclass(frozen=True, slots=True)
class ChunkClaim:
    """A process claims chunks: up to `size` items of each are leased to `owner` until `until`.

    Each claim has an owner name of its own: a heartbeat must not renew leases that earlier work of
    the process left behind. `busy` are jobs and domains that the process works on already. Chunks
    published after `before` are left to idle processes. With `suspects_before`, a suspect is leased
    from a chunk published before then, when there is nothing else.
    """

    owner: str
    at: float
    until: float
    size: int
    before: float = 0.0
    busy: frozenset[tuple[str, str]] = frozenset()
    suspects_before: float | None = None

    def of_items(self, job: str) -> Claim:
        """Return the claim for items of a job."""
        return Claim(job, self.owner, self.size, self.at, self.until)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A claimed chunk and its leases, all of one domain; with `is_alone`, of one suspect.

    `run` is the run of the job: a process opens the job again for a new run.
    """

    id: int
    job: str
    owner: str
    leases: Sequence[Lease]
    is_alone: bool = False
    run: int = 0


@dataclass(frozen=True, slots=True)
class ChunkProgress:
    """How many chunks of a job are in each state; those without items are not counted."""

    total: int
    completed: int
    offered: int
    taken: int


@dataclass(frozen=True, slots=True)
class ClusterJobStatus:
    """What decides how a job continues.

    `begun_at` is when this run of the job began. `discoverer` owns the discovery until
    `discoverer_until`. `failure` is the data of the event that discovery failed in this run.
    """

    state: JobState
    is_discovered: bool
    discoverer: str | None
    discoverer_until: float | None
    leased: int
    begun_at: float
    failure: Mapping[str, Any] | None

    @property
    def is_discovering(self) -> bool:
        """Whether discovery can still find items."""
        return not self.is_discovered and self.failure is None

    def needs_discoverer(self, at: float, dead: Sequence[str] = ()) -> bool:
        """Return whether items are to be discovered and no live process does."""
        if self.state is not JobState.RUNNING or not self.is_discovering:
            return False
        owner = self.discoverer
        return owner is None or owner in dead or (self.discoverer_until or 0.0) < at


_MARK = (
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
_COMPLETE = (
    update(chunks)
    .where(
        chunks.c.id == bindparam("b_chunk"),
        chunks.c.owner == bindparam("b_owner"),
        chunks.c.state == ChunkState.TAKEN,
    )
    .values(state=ChunkState.DONE, finished_at=bindparam("b_at"))
)
_PUBLISHED = (
    select(chunks.c.id, chunks.c.job_id, jobs.c.runs)
    .join(jobs, jobs.c.id == chunks.c.job_id)
    .where(chunks.c.state == ChunkState.OFFERED, jobs.c.state == JobState.RUNNING)
)
_OF_JOB = (
    _PUBLISHED.where(chunks.c.job_id == bindparam("b_job"))
    .order_by(chunks.c.id)
    .limit(bindparam("b_count"))
    .with_for_update(of=chunks, skip_locked=True)
)
_OLDEST = (
    _PUBLISHED.with_only_columns(func.min(chunks.c.id), chunks.c.job_id, jobs.c.runs)
    .where(chunks.c.offered_at <= bindparam("b_before"))
    .group_by(chunks.c.job_id, jobs.c.runs)
)
_DUE = (
    select(items.c.domain, items.c.deaths)
    .where(
        items.c.job_id == bindparam("b_job"),
        items.c.state == ItemState.QUEUED,
        items.c.due_at <= bindparam("b_at"),
    )
    .limit(bindparam("b_most"))  # items beyond the most chunks need not be counted
    .subquery()
)
_NEEDED = select(
    _DUE.c.domain,
    func.sum(case((_DUE.c.deaths == 0, 1), else_=0)),
    func.sum(case((_DUE.c.deaths > 0, 1), else_=0)),
).group_by(_DUE.c.domain)


class Chunks(Repository):
    """The chunks of all jobs in one database."""

    @writes
    def publish(
        self, connection: Connection, job: str, at: float, *, size: int, most: int = 64
    ) -> list[int]:
        """Publish chunks for all due items of a running job, up to `most`; return the new ones.

        While more than half of `most` are published, none is added.
        """
        # The lock on the job's row keeps two processes from publishing for the same items.
        state = connection.scalar(
            select(jobs.c.state).where(jobs.c.id == job).with_for_update(key_share=True)
        )
        if state != JobState.RUNNING:
            return []
        is_published = (chunks.c.job_id == job) & (chunks.c.state == ChunkState.OFFERED)
        published = connection.scalar(select(func.count()).where(is_published)) or 0
        if published > most // 2:
            return []
        values = {"b_job": job, "b_at": at, "b_most": most * size}
        needed = sum(
            -(-ordinary // size) + suspects
            for _, ordinary, suspects in connection.execute(_NEEDED, values)
        )
        # A message is sent after this; if it is not, the sweeper sends it as it does lost ones.
        row = {"job_id": job, "state": ChunkState.OFFERED, "offered_at": at, "sent_at": at}
        missing = min(needed, most) - published
        if missing <= 0:
            return []
        new = insert(chunks).values([row] * missing).returning(chunks.c.id)
        return sorted(connection.scalars(new))

    @writes
    def sent(self, connection: Connection, ids: Sequence[int], at: float) -> None:
        """Note that a message was sent for each of these chunks."""
        connection.execute(update(chunks).where(chunks.c.id.in_(ids)).values(sent_at=at))

    @reads
    def unanswered(self, connection: Connection, job: str, before: float) -> list[int]:
        """Return the published chunks whose last message was sent before then."""
        query = (
            select(chunks.c.id)
            .where(
                chunks.c.job_id == job,
                chunks.c.state == ChunkState.OFFERED,
                or_(chunks.c.sent_at.is_(None), chunks.c.sent_at < before),
            )
            .order_by(chunks.c.id)
        )
        return list(connection.scalars(query))

    @writes
    def claim(self, connection: Connection, chunk: int, claim: ChunkClaim) -> Chunk | None:
        """Claim the chunk of a message; None when it is claimed already or has nothing to lease.

        In the latter case it is completed. A suspect is leased last, and alone.
        """
        query = (
            select(chunks.c.job_id, jobs.c.state, jobs.c.runs)
            .join(jobs, jobs.c.id == chunks.c.job_id)
            .where(chunks.c.id == chunk, chunks.c.state == ChunkState.OFFERED)
            # Not skipped when locked: its sender may be noting that it was sent.
            .with_for_update(of=chunks)
        )
        row = connection.execute(query).one_or_none()
        if row is None:
            return None
        if row.state == JobState.RUNNING:
            for are_suspects in (False, True):
                found = _lease_chunk(
                    connection, claim, (chunk, row.job_id, row.runs), are_suspects=are_suspects
                )
                if found is not None:
                    return found
        connection.execute(_MARK, _mark_values(claim, chunk, ChunkState.DONE, 0))
        return None

    async def claim_any(self, claim: ChunkClaim) -> Chunk | None:
        """Claim a chunk of any job that no other process has claimed; None when there is none."""
        query, values = _OLDEST, {"b_before": claim.before}
        if not await self._database.read(
            lambda connection: connection.execute(query, values).first()
        ):
            return None
        return await self._claim_published(claim)

    @writes
    def _claim_published(self, connection: Connection, claim: ChunkClaim) -> Chunk | None:
        for before, are_suspects in ((claim.before, False), (claim.suspects_before, True)):
            if before is None:
                continue
            published = list(connection.execute(_OLDEST, {"b_before": before}))
            random.shuffle(published)  # so that no job always comes after the others
            for chunk, job, run in published:
                is_free = select(chunks.c.id).where(
                    chunks.c.id == chunk, chunks.c.state == ChunkState.OFFERED
                )
                if connection.scalar(is_free.with_for_update(skip_locked=True)) is None:
                    continue
                found = _lease_chunk(
                    connection, claim, (chunk, job, run), are_suspects=are_suspects
                )
                if found is not None:
                    return found
        return None

    @writes
    def claim_next(
        self,
        connection: Connection,
        job: str,
        domain: str,
        claim: ChunkClaim,
        *,
        count: int = 1,
        done: Sequence[tuple[int, str]] = (),
    ) -> list[Chunk]:
        """Complete chunks, and claim up to `count` others of the same job and domain.

        So a process does not wait for a message while there is more to do. `done` are pairs of
        chunk and owner.
        """
        _complete(connection, done, claim.at)
        published = connection.execute(_OF_JOB, {"b_job": job, "b_count": count}).all()
        if not published:
            return []
        size = claim.size
        leases = lease_domain(
            connection, claim.of_items(job), domain, size * len(published), are_suspects=False
        )
        parts = [leases[start : start + size] for start in range(0, len(leases), size)]
        found = [
            Chunk(row.id, job, claim.owner, part, run=row.runs)
            for row, part in zip(published, parts, strict=False)  # there may be fewer items
        ]
        if found:
            values = [
                _mark_values(claim, one.id, ChunkState.TAKEN, len(one.leases)) for one in found
            ]
            connection.execute(_MARK, values)
        return found

    @writes
    def complete(self, connection: Connection, done: Sequence[tuple[int, str]], at: float) -> int:
        """Complete chunks, given as pairs of chunk and owner; return how many.

        A chunk that belongs to another owner by now stays as it is.
        """
        return _complete(connection, done, at)

    @reads
    def owners(self, connection: Connection, job: str) -> list[str]:
        """Return the owners of chunks and leases of a job, and of its discovery."""
        query = select(chunks.c.owner).where(
            chunks.c.job_id == job, chunks.c.state == ChunkState.TAKEN
        )
        return sorted({*lease_owners(connection, job), *connection.scalars(query.distinct())})

    @reads
    def progress(self, connection: Connection, job: str) -> ChunkProgress:
        """Return how many chunks of a job are in each state."""
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

    # ------------------------------------------------------------ the jobs of a cluster

    @reads
    def status(self, connection: Connection, job: str) -> ClusterJobStatus:
        """Return what decides how a job continues.

        Raises:
            UnknownJob: there is no such job.
        """
        return _status(connection, job)

    @reads
    def undiscovered_jobs(self, connection: Connection, at: float, before: float) -> list[str]:
        """Return the running jobs that began before then and have no discoverer."""
        query = select(jobs.c.id).where(
            jobs.c.state == JobState.RUNNING,
            jobs.c.engine == "celery",
            jobs.c.is_discovered.is_(False),
            or_(jobs.c.discovery_owner.is_(None), jobs.c.discovery_until < at),
        )
        found = {job: _status(connection, job) for job in connection.scalars(query).all()}
        return [
            job
            for job, status in found.items()
            if status.begun_at <= before and status.needs_discoverer(at)
        ]

    @reads
    def finished_jobs(self, connection: Connection) -> list[str]:
        """Return the running jobs whose items are all discovered and finished."""
        unfinished = exists().where(
            items.c.job_id == jobs.c.id, items.c.state.in_([ItemState.QUEUED, ItemState.LEASED])
        )
        query = select(jobs.c.id).where(
            jobs.c.state == JobState.RUNNING,
            jobs.c.engine == "celery",
            jobs.c.is_discovered.is_(True),
            ~unfinished,
        )
        return list(connection.scalars(query))

    @reads
    def last_completion(self, connection: Connection, job: str) -> float | None:
        """Return when an item of a job was completed last; None when none was."""
        # The condition selects the partial index.
        query = select(func.max(items.c.finished_at)).where(
            items.c.job_id == job, items.c.finished_at.is_not(None)
        )
        found: float | None = connection.scalar(query)
        return found

    @writes
    def release_dead_discoverer(
        self, connection: Connection, job: str, owner: str, at: float, *, is_cause: bool
    ) -> int:
        """Release the discovery of a killed process; `is_cause`: discovery may have killed it.

        Returns how many deaths discovery has caused in this run; 0 when `owner` did not discover.
        """
        released = connection.execute(
            update(jobs)
            .where(
                jobs.c.id == job,
                jobs.c.is_discovered.is_(False),
                jobs.c.discovery_owner == owner,
            )
            .values(discovery_owner=None, discovery_until=None)
        )
        if not released.rowcount:
            return 0
        is_of_run = events.c.id > _run_start(connection, job)[0]
        is_death = (events.c.job_id == job) & (events.c.type == _DISCOVERY_KILLED)
        deaths = connection.scalar(select(func.count()).where(is_death, is_of_run)) or 0
        if is_cause:
            append_events(connection, [event_row(job, at, _DISCOVERY_KILLED, owner=owner)])
        return deaths + is_cause


def _complete(connection: Connection, done: Sequence[tuple[int, str]], at: float) -> int:
    values = [{"b_chunk": chunk, "b_owner": owner, "b_at": at} for chunk, owner in done]
    return sum(connection.execute(_COMPLETE, one).rowcount for one in values)


def _lease_chunk(
    connection: Connection,
    claim: ChunkClaim,
    published: tuple[int, str, int],
    *,
    are_suspects: bool,
) -> Chunk | None:
    """Lease items of one domain for a locked chunk, given by id, job and run."""
    chunk, job, run = published
    domains = queued_domains(connection, job)
    random.shuffle(domains)  # so that many processes spread over them
    for domain in domains:
        if not are_suspects and (job, domain) in claim.busy:
            continue
        count = 1 if are_suspects else claim.size
        leases = lease_domain(
            connection, claim.of_items(job), domain, count, are_suspects=are_suspects
        )
        if leases:
            values = _mark_values(claim, chunk, ChunkState.TAKEN, len(leases))
            connection.execute(_MARK, values)
            return Chunk(chunk, job, claim.owner, leases, are_suspects, run)
    return None


def _mark_values(claim: ChunkClaim, chunk: int, state: ChunkState, count: int) -> dict[str, Any]:
    return {
        "b_chunk": chunk,
        "b_state": state,
        "b_owner": claim.owner,
        "b_at": claim.at,
        "b_items": count,
        "b_end": claim.at if state is ChunkState.DONE else None,
    }


def _status(connection: Connection, job: str) -> ClusterJobStatus:
    row = connection.execute(select(jobs).where(jobs.c.id == job)).one_or_none()
    if row is None:
        raise UnknownJob(job)
    started, started_at = _run_start(connection, job)
    is_leased = (items.c.job_id == job) & (items.c.state == ItemState.LEASED)
    failures = (
        select(events.c.data)
        .where(events.c.job_id == job, events.c.type == DISCOVERY_FAILED, events.c.id > started)
        .order_by(events.c.id)
        .limit(1)
    )
    return ClusterJobStatus(
        state=JobState(row.state),
        is_discovered=row.is_discovered,
        discoverer=row.discovery_owner,
        discoverer_until=row.discovery_until,
        leased=connection.scalar(select(func.count()).where(is_leased)) or 0,
        begun_at=started_at or row.started_at or row.created_at,
        failure=connection.scalar(failures),
    )


def _run_start(connection: Connection, job: str) -> tuple[int, float | None]:
    """Return id and time of the event that began this run."""
    query = (
        select(events.c.id, events.c.at)
        .where(events.c.job_id == job, events.c.type.in_(("job.started", "job.resumed")))
        .order_by(events.c.id.desc())
        .limit(1)
    )
    found = connection.execute(query).one_or_none()
    return (found.id, found.at) if found else (0, None)
