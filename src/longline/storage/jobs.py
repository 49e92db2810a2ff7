"""The life of a job as rows: created once, found again, finished exactly once."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from sqlalchemy import Connection, Row, exists, func, insert, or_, select, update

from longline.core.clock import utc_datetime
from longline.core.errors import FailureKind
from longline.core.model import (
    CUT,
    OPEN_STATES,
    WARNING,
    Caveats,
    ChunkState,
    ItemState,
    Job,
    JobState,
)
from longline.storage.columns import decoding, kept_text
from longline.storage.database import Database
from longline.storage.errors import UnknownJob
from longline.storage.events import append, event_row
from longline.storage.queue.queue import counts
from longline.storage.queue.tasks import Task, TaskKind, place
from longline.storage.records.profiles import Ending, keep
from longline.storage.schema import chunks, events, items, jobs, records
from longline.storage.shared import lock_job, lock_name

_MOST_CAVEATS = 20  # cuts, and warnings, that the end of a job lists; the events have them all
_MOST_NAMED = 3  # of them that stand in the reason, which is one line


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be created. `identity` are the settings that make two runs the same job."""

    source: str
    settings: Mapping[str, Any]
    identity: Mapping[str, Any]
    at: float


JobList = list[Job]  # spelled out here, since `Jobs.list` hides the builtin below it


class Jobs:
    """All jobs in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, new: NewJob) -> Job:
        """Create a job."""
        job: Job = await self._database.write(_create, new)
        return job

    async def find_or_create(self, new: NewJob) -> tuple[Job, bool]:
        """Return the unfinished job of the same identity, or a new one; True when it is new."""
        found: tuple[Job, bool] = await self._database.write(_find_or_create, new)
        return found

    async def get(self, job: str) -> Job:
        """Return a job by its id, or by the beginning of it when only one job fits.

        Raises:
            UnknownJob: none or several fit.
        """
        rows = await self._read(select(jobs).where(jobs.c.id.startswith(job, autoescape=True)))
        exact = [row for row in rows if row.id == job]
        if len(exact or rows) != 1:
            raise UnknownJob(job, len(rows))
        return (exact or rows)[0]

    async def list(self, *, limit: int | None = 50, is_open: bool = False) -> JobList:
        """Return the newest jobs first."""
        query = select(jobs).order_by(jobs.c.created_at.desc(), jobs.c.id).limit(limit)
        return await self._read(query.where(jobs.c.state.in_(OPEN_STATES)) if is_open else query)

    async def start(self, job: str, at: float, *, engine: str = "local", **data: Any) -> None:
        """Say that work on a job begins, or goes on, and what does it."""
        await self._database.write(_start, (job, at, engine, data))

    async def take_discovery(
        self, job: str, owner: str, at: float, until: float, dead: Sequence[str]
    ) -> bool:
        """Become the one who discovers; False when somebody living is at it, or it is done."""
        taken: bool = await self._database.write(_take_discovery, (job, owner, at, until, dead))
        return taken

    async def leave_discovery(self, job: str, owner: str) -> None:
        """Let somebody else discover at once; nothing happens when another does."""
        await self._database.write(_leave_discovery, (job, owner))

    async def pause(self, job: str, at: float, reason: str) -> None:
        """Say that work stops for now, unless others go on with it or it has ended."""
        await self._database.write(_pause, (job, at, reason))

    async def halt(self, job: str, at: float, reason: str) -> bool:
        """Pause a job although others are at work on it, who notice; False when it does not run."""
        is_halted: bool = await self._database.write(_halt, (job, at, reason))
        return is_halted

    async def cancel(self, job: str, at: float, reason: str) -> bool:
        """End a job for good before its work is done; False when it has ended already."""
        argument = (job, at, JobState.CANCELLED, reason)
        is_cancelled: bool = await self._database.write(_end, argument)
        return is_cancelled

    async def fail(self, job: str, at: float, reason: str) -> None:
        """End a job that could not do its work."""
        await self._database.write(_end, (job, at, JobState.FAILED, reason))

    async def caveats(self, job: str) -> Caveats:
        """Return what was cut, warned of and limited; for an open job, what is known so far."""
        return await self._database.read(lambda connection: _caveats(connection, job))

    async def is_over(self, job: str) -> bool:
        """Say whether `finish` would end a job: all is found, and every item is finished."""
        return await self._database.read(lambda connection: _is_over(connection, job))

    async def finish(self, job: str, at: float, ending: Ending | None = None) -> JobState | None:
        """End a job whose items are all finished; None when some are not, or another was first.

        A paused one as well: of two processes one may have paused it while the other went on.
        `ending` is what its records say beside the counts; its profile is kept with the end.
        """
        state: JobState | None = await self._database.write(finish_job, (job, at, ending))
        return state

    async def _read(self, query: Any) -> JobList:
        return await self._database.read(
            lambda connection: [_job(row) for row in connection.execute(query)]
        )


def _job(row: Row[Any]) -> Job:
    return Job(
        id=row.id,
        source=row.source,
        state=JobState(row.state),
        settings=row.settings,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        reason=row.reason,
        cursor=row.cursor,
        is_discovered=row.is_discovered,
        shortfall=row.shortfall,
        engine=row.engine,
        runs=row.runs,
    )


def _hash(new: NewJob) -> str:
    text = orjson.dumps([new.source, new.identity], option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.sha256(text).hexdigest()[:16]


def _create(connection: Connection, new: NewJob) -> Job:
    name = _free_name(connection, f"{new.source}-{utc_datetime(new.at):%Y%m%d-%H%M%S}")
    row = {
        "id": name,
        "source": new.source,
        "identity": _hash(new),
        "state": JobState.PENDING,
        "settings": dict(new.settings),
        "created_at": new.at,
        "is_discovered": False,
    }
    connection.execute(insert(jobs), row)
    append(connection, [event_row(name, new.at, "job.created", settings=dict(new.settings))])
    return _job(connection.execute(select(jobs).where(jobs.c.id == name)).one())


def _free_name(connection: Connection, start: str) -> str:
    """Return a name that no job has: some are created in the same second."""
    while True:
        name = f"{start}-{secrets.token_hex(2)}"
        if connection.scalar(select(jobs.c.id).where(jobs.c.id == name)) is None:
            return name


def _find_or_create(connection: Connection, new: NewJob) -> tuple[Job, bool]:
    identity = _hash(new)
    lock_name(connection, f"job {identity}")  # of two who look at once, the second finds it
    query = (
        select(jobs)
        .where(jobs.c.identity == identity, jobs.c.state.in_(OPEN_STATES))
        .order_by(jobs.c.created_at.desc())
        .limit(1)
    )
    found = connection.execute(query).one_or_none()
    return (_job(found), False) if found else (_create(connection, new), True)


def _start(connection: Connection, argument: tuple[str, float, str, dict[str, Any]]) -> None:
    job, at, engine, data = argument
    lock_job(connection, job)
    first, settings = connection.execute(
        select(jobs.c.started_at, jobs.c.settings).where(jobs.c.id == job)
    ).one()
    if overrides := data.get("ignore_robots"):
        # What a person allows on the way belongs to the job: a resumption must know of it.
        known = settings.get("ignore_robots", ())
        settings = {**settings, "ignore_robots": list(dict.fromkeys([*known, *overrides]))}
    connection.execute(
        update(jobs)
        .where(jobs.c.id == job, jobs.c.state.in_(OPEN_STATES))
        .values(
            state=JobState.RUNNING,
            started_at=first or at,
            reason=None,
            settings=settings,
            engine=engine,
            runs=jobs.c.runs + 1,
        )
    )
    append(connection, [event_row(job, at, "job.resumed" if first else "job.started", **data)])


def _take_discovery(
    connection: Connection, argument: tuple[str, str, float, float, Sequence[str]]
) -> bool:
    job, owner, at, until, dead = argument
    taken = connection.execute(
        update(jobs)
        .where(
            jobs.c.id == job,
            jobs.c.is_discovered.is_(False),
            or_(
                jobs.c.discovery_owner.is_(None),
                jobs.c.discovery_owner == owner,
                jobs.c.discovery_owner.in_(list(dead)),
                jobs.c.discovery_until < at,
            ),
        )
        .values(discovery_owner=owner, discovery_until=until)
    )
    return taken.rowcount == 1


def _leave_discovery(connection: Connection, argument: tuple[str, str]) -> None:
    job, owner = argument
    connection.execute(
        update(jobs)
        .where(jobs.c.id == job, jobs.c.discovery_owner == owner)
        .values(discovery_owner=None, discovery_until=None)
    )


def _halt(connection: Connection, argument: tuple[str, float, str]) -> bool:
    job, at, reason = argument
    query = select(jobs.c.state).where(jobs.c.id == job).with_for_update(key_share=True)
    if connection.scalar(query) not in (JobState.PENDING, JobState.RUNNING):
        return False
    return _end(connection, (job, at, JobState.PAUSED, reason))


def _pause(connection: Connection, argument: tuple[str, float, str]) -> None:
    job, at, reason = argument
    others = connection.scalar(
        select(func.count()).where(items.c.job_id == job, items.c.state == ItemState.LEASED)
    )
    if not others:
        _end(connection, (job, at, JobState.PAUSED, reason))


def _end(
    connection: Connection,
    argument: tuple[str, float, JobState, str | None],
    caveats: Caveats | None = None,
) -> bool:
    job, at, state, reason = argument
    ended = connection.execute(
        update(jobs)
        .where(jobs.c.id == job, jobs.c.state.in_(OPEN_STATES))
        .values(
            state=state,
            reason=None if reason is None else kept_text(reason),
            finished_at=None if state in OPEN_STATES else at,
            discovery_owner=None,
            discovery_until=None,
        )
    )
    if not ended.rowcount:
        return False
    # Nobody is to come for what was offered: whoever goes on with the job offers anew.
    is_offered = (chunks.c.job_id == job) & (chunks.c.state == ChunkState.OFFERED)
    connection.execute(
        update(chunks).where(is_offered).values(state=ChunkState.LOST, finished_at=at)
    )
    said = {} if caveats is None else caveats.as_dict()
    append(connection, [event_row(job, at, f"job.{state.value}", reason=reason, **said)])
    return True


def _caveats(connection: Connection, job: str) -> Caveats:
    row = connection.execute(select(jobs.c.state, jobs.c.settings).where(jobs.c.id == job)).one()
    ended = (
        select(events.c.data)
        .where(events.c.job_id == job, events.c.kind == f"job.{row.state}")
        .order_by(events.c.id.desc())
        .limit(1)
    )
    said = connection.scalar(ended) if JobState(row.state) not in OPEN_STATES else None
    if said and "cuts" in said:
        with decoding(events.c.data):
            return Caveats(tuple(said["cuts"]), tuple(said["warnings"]), said["limited_to"])
    return _reported(connection, job, row.settings.get("limit"))


def _reported(connection: Connection, job: str, limit: int | None) -> Caveats:
    """Return what discovery reported, and whether the limit of the job was reached."""
    is_limited = limit is not None and sum(counts(connection, job).values()) >= limit
    cuts, warnings = (_reasons(connection, job, kind) for kind in (CUT, WARNING))
    return Caveats(cuts, warnings, limit if is_limited else None)


def _reasons(connection: Connection, job: str, kind: str) -> tuple[str, ...]:
    """Return the different reasons that events of a kind have, in the order they came."""
    found: dict[str, None] = {}
    query = select(events.c.data).where(events.c.job_id == job, events.c.kind == kind)
    # A list may be cut below each of a million records: the first few say what is wrong.
    for data in connection.scalars(query.order_by(events.c.id).limit(1000)):
        found[str(data.get("reason"))] = None
    return _first(list(found), _MOST_CAVEATS)


def _first(texts: Sequence[str], most: int) -> tuple[str, ...]:
    if len(texts) <= most:
        return tuple(texts)
    return (*texts[:most], f"and {len(texts) - most} more of the kind")


def _is_over(connection: Connection, job: str) -> bool:
    query = select(jobs.c.state, jobs.c.is_discovered).where(jobs.c.id == job)
    row = connection.execute(query).one_or_none()
    if row is None or JobState(row.state) not in OPEN_STATES or not row.is_discovered:
        return False
    # Asked after nearly every chunk: the index finds one that is left without counting the others.
    left = exists().where(
        items.c.job_id == job, items.c.state.in_([ItemState.QUEUED, ItemState.LEASED])
    )
    return not connection.scalar(select(left))


def finish_job(
    connection: Connection, argument: tuple[str, float, Ending | None]
) -> JobState | None:
    """End a job in the caller's transaction; None when some items are not finished."""
    job, at, ending = argument
    lock_job(connection, job)  # of many who end it at once, the others find that it has ended
    if not _is_over(connection, job):
        return None
    row = connection.execute(select(jobs).where(jobs.c.id == job)).one()
    found = counts(connection, job)
    caveats = _reported(connection, job, row.settings.get("limit"))
    cuts = [*([row.shortfall] if row.shortfall else []), *caveats.cuts]
    missing = [*_first(cuts, _MOST_NAMED), *_not_asked(connection, job)]
    warnings = list(caveats.warnings)
    if ending is not None:
        ending = keep(connection, job, row.source, at, ending)
        missing += [f"drift: {'; '.join(ending.drift)}"] if ending.drift else []
        warnings = [*ending.warnings, *warnings]
    state = _verdict(found, sum(found.values()), is_short=bool(missing))
    limited = [f"limited to {caveats.limit} items, as asked"] if caveats.limit is not None else []
    named = [*_explained(found), *missing, *limited, *_first(warnings, _MOST_NAMED)]
    caveats = replace(caveats, cuts=tuple(cuts), warnings=_first(warnings, _MOST_CAVEATS))
    _end(connection, (job, at, state, "; ".join(named) or None), caveats)
    if state is JobState.COMPLETE and row.engine == "celery" and row.settings.get("limit") is None:
        # Whoever ends it may be killed before the source knows: then another tells it.
        place(connection, Task(job, TaskKind.FINISHED, at))
    return state


def _not_asked(connection: Connection, job: str) -> list[str]:
    """Return what was left out because a budget was spent, in words."""
    query = (
        select(items.c.reason, func.count())
        .where(items.c.job_id == job, items.c.kind == FailureKind.BUDGET)
        .group_by(items.c.reason)
    )
    return [f"{count} items {reason}" for reason, count in connection.execute(query)]


def _verdict(found: Mapping[ItemState, int], total: int, *, is_short: bool) -> JobState:
    bad = found[ItemState.FAILED] + found[ItemState.QUARANTINED]
    if bad and bad == total:
        return JobState.FAILED
    return JobState.PARTIAL if bad or is_short else JobState.COMPLETE


def _explained(found: Mapping[ItemState, int]) -> list[str]:
    states = (ItemState.FAILED, ItemState.QUARANTINED)
    parts = [f"{found[state]} {state.value}" for state in states if found[state]]
    return [f"{' and '.join(parts)} of {sum(found.values())} items"] if parts else []


# ---------------- Questions about a finished job that only its report asks

_ENOUGH_NULLS = 20


@dataclass(frozen=True, slots=True)
class Findings:
    """What the tables say about a job."""

    seconds: tuple[float, ...]
    failures: tuple[tuple[str, str, str, str | None], ...]
    """State, kind, key and reason of each item that failed or was quarantined."""
    scores: tuple[float, ...]
    grades: dict[str, int]
    items_without_record: int
    keys_stored_twice: int
    unexplained_nulls: tuple[str, ...]
    runs: tuple[dict[str, Any], ...]


def look_into(connection: Connection, job: str, source: str) -> Findings:
    """Read everything a report needs, on one snapshot."""
    good = (ItemState.STORED, ItemState.UNCHANGED)
    bad = (ItemState.FAILED, ItemState.QUARANTINED)
    mine = items.c.job_id == job
    seconds = select(items.c.seconds).where(mine, items.c.seconds.is_not(None))
    failures = (
        select(items.c.state, items.c.kind, items.c.key, items.c.reason)
        .where(mine, items.c.state.in_(bad))
        .order_by(items.c.id)
    )
    kept = (records.c.source == source) & (records.c.key == items.c.key)
    lost = (
        select(func.count())
        .select_from(items.outerjoin(records, kept))
        .where(mine, items.c.state.in_(good), records.c.id.is_(None))
    )
    finished = events.c.kind.in_([f"item.{state.value}" for state in good])
    twice = (
        select(events.c.key)
        .where(events.c.job_id == job, finished)
        .group_by(events.c.key)
        .having(func.count() > 1)
    )
    ended = select(events.c.data).where(events.c.job_id == job, events.c.kind == "run.ended")
    seen = select(records.c.score, records.c.grade).where(records.c.job_id == job)
    scored = connection.execute(seen).all()
    grades: dict[str, int] = {}
    for _, grade in scored:
        grades[grade or "unscored"] = grades.get(grade or "unscored", 0) + 1
    return Findings(
        seconds=tuple(sorted(connection.scalars(seconds))),
        failures=tuple((row[0], row[1], row[2], row[3]) for row in connection.execute(failures)),
        scores=tuple(score for score, _ in scored if score is not None),
        grades=grades,
        items_without_record=connection.scalar(lost) or 0,
        keys_stored_twice=len(connection.scalars(twice).all()),
        unexplained_nulls=tuple(_nulls(connection, job)),
        runs=tuple(connection.scalars(ended)),
    )


def _nulls(connection: Connection, job: str) -> list[str]:
    """Return "key.field" of empty fields that no note explains, the first of them."""
    query = select(records.c.key, records.c.data, records.c.about).where(records.c.job_id == job)
    found: list[str] = []
    for key, data, about in connection.execute(query.execution_options(yield_per=200)):
        noted = {note["field"] for note in about.get("notes", [])}
        found += [
            f"{key}.{name}" for name, value in data.items() if value is None and name not in noted
        ]
        if len(found) >= _ENOUGH_NULLS:
            break
    return found[:_ENOUGH_NULLS]
