"""Jobs as rows: created once, found again by identity, finished exactly once."""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, TypeVar

import orjson
from sqlalchemy import Connection, Row, and_, exists, func, insert, or_, select, tuple_, update

from longline.core.clock import utc_datetime
from longline.core.errors import FailureKind, UnknownJob
from longline.core.json import FieldDiff, diff_json
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
from longline.core.output import count_text
from longline.storage.backends import sanitize_text
from longline.storage.database import Repository, lock_job, lock_name, reads, writes
from longline.storage.events.events import append_events, event_row
from longline.storage.events.projections import Stage
from longline.storage.job_changes import (
    append_changes,
    is_incremental,
    lacks_steps,
    last_inventory,
    mark_gone,
    was_given_items,
)
from longline.storage.profiles import DriftResult, save_profile
from longline.storage.queue.queue import WAITS_FOR_EXECUTOR, counts
from longline.storage.queue.tasks import Task, TaskKind, place_task
from longline.storage.records import versions_by_id
from longline.storage.schema import chunks, events, items, jobs, projection_rows, records

T = TypeVar("T")
_MAX_CAVEATS = 20  # cuts, and warnings, in the event that ends a job
_MAX_NAMED = 3  # of them in the reason, which is one line
_MAX_NULLS = 20  # unexplained empty fields in a report
_GOOD = (ItemState.STORED, ItemState.UNCHANGED)
_BAD = (ItemState.FAILED, ItemState.QUARANTINED)
_UNFINISHED = (ItemState.QUEUED, ItemState.LEASED)


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to create. `identity` holds the settings that make two runs the same job."""

    source: str
    settings: Mapping[str, Any]
    identity: Mapping[str, Any]
    at: float


@dataclass(frozen=True, slots=True)
class JobFindings:
    """What the tables hold about a job, for its report."""

    seconds: tuple[float, ...]
    failures: tuple[tuple[str, str, str, str | None], ...]
    """State, kind, key and reason of each item that failed or was quarantined."""
    scores: tuple[float, ...]
    grades: dict[str, int]
    items_without_record: int
    keys_stored_twice: int | None
    """None: not known, since events of its items were pruned."""
    unexplained_nulls: tuple[str, ...]
    runs: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two jobs of a source; `older` is empty for its first run.

    `older_end` is when the older job ended, for records of items that it did not have.
    """

    source: str
    older: str
    newer: str
    older_end: float


@dataclass(frozen=True, slots=True)
class ItemResult:
    """How a run left an item."""

    state: ItemState
    at: float | None
    kind: FailureKind | None
    reason: str | None

    @property
    def is_good(self) -> bool:
        """Whether its record was stored or found unchanged."""
        return self.state in (ItemState.STORED, ItemState.UNCHANGED)


@dataclass(frozen=True, slots=True)
class ItemComparison:
    """One item in two runs; None for a run that did not have it.

    `was_known` says that its record existed when the older run was done with the item.
    `differences` are those of the record between the two runs, if both could see it.
    """

    key: str
    older: ItemResult | None
    newer: ItemResult | None
    was_known: bool
    differences: tuple[FieldDiff, ...] = ()


JobList = list[Job]  # spelled out here: `Jobs.list` hides the builtin below it


class Jobs(Repository):
    """All jobs."""

    @writes
    def create(self, connection: Connection, new: NewJob) -> Job:
        """Create a job."""
        return _create(connection, new)

    @writes
    def find_or_create(self, connection: Connection, new: NewJob) -> tuple[Job, bool]:
        """Return the unfinished job of the same identity, or a new one; True when it is new."""
        identity = _hash_identity(new)
        lock_name(connection, f"job {identity}")  # of two concurrent callers, the second finds it
        query = (
            select(*_JOB_COLUMNS)
            .where(jobs.c.identity == identity, jobs.c.state.in_(OPEN_STATES))
            .order_by(jobs.c.created_at.desc())
            .limit(1)
        )
        found = connection.execute(query).one_or_none()
        return (_job_of(found), False) if found else (_create(connection, new), True)

    @reads
    def get(self, connection: Connection, job: str) -> Job:
        """Return a job by its id, or by a prefix of it that only one job has.

        Raises:
            UnknownJob: no job or several jobs match.
        """
        query = select(*_JOB_COLUMNS)
        exact = connection.execute(query.where(jobs.c.id == job)).one_or_none()
        if exact is not None:
            return _job_of(exact)
        # Ids alone: rows are large, and a short prefix may fit all jobs.
        begin = select(jobs.c.id).where(jobs.c.id.startswith(job, autoescape=True))
        ids = connection.scalars(begin).all()
        if len(ids) != 1:
            raise UnknownJob(job, len(ids))
        return _job_of(connection.execute(query.where(jobs.c.id == ids[0])).one())

    @reads
    def list(
        self,
        connection: Connection,
        *,
        limit: int | None = 50,
        is_open: bool = False,
        source: str | None = None,
    ) -> JobList:
        """Return the newest jobs first; with `is_open` or `source`, only such ones."""
        query = select(*_JOB_COLUMNS).order_by(jobs.c.created_at.desc(), jobs.c.id).limit(limit)
        if is_open:
            query = query.where(jobs.c.state.in_(OPEN_STATES))
        if source is not None:
            query = query.where(jobs.c.source == source)
        return [_job_of(row) for row in connection.execute(query)]

    @reads
    def page(
        self,
        connection: Connection,
        *,
        source: str | None = None,
        states: Sequence[JobState] = (),
        before: tuple[float, str] | None = None,
        limit: int = 50,
    ) -> JobList:
        """Return a page of jobs, the newest first.

        Args:
            connection: the transaction.
            source: only jobs of this source.
            states: only jobs in these states; empty is any.
            before: creation time and id of the last known job.
            limit: how many.
        """
        if source is None and not states:
            # In the order of an index: rows of jobs are large, and have none for this.
            at, name = projection_rows.c.sort, projection_rows.c.key
            query = select(name).where(
                projection_rows.c.stage == Stage.LIVE, projection_rows.c.projection == "runs"
            )
        else:
            at, name = jobs.c.created_at, jobs.c.id
            query = select(name)
            query = query if source is None else query.where(jobs.c.source == source)
            query = query.where(jobs.c.state.in_(states)) if states else query
        if before is not None:
            query = query.where(at <= before[0], tuple_(at, name) < before)
        ids = connection.scalars(query.order_by(at.desc(), name.desc()).limit(limit)).all()
        rows = connection.execute(select(*_JOB_COLUMNS).where(jobs.c.id.in_(ids)))
        found = {row.id: _job_of(row) for row in rows}
        return [found[one] for one in ids if one in found]

    @writes
    def start(
        self, connection: Connection, /, job: str, at: float, *, engine: str = "local", **data: Any
    ) -> None:
        """Mark a job as running on an engine; `data` goes into the event."""
        lock_job(connection, job)
        first, settings = connection.execute(
            select(jobs.c.started_at, jobs.c.settings).where(jobs.c.id == job)
        ).one()
        if overrides := data.get("ignore_robots"):
            # Permissions given on the way belong to the job, so that a resumption has them.
            known = settings.get("ignore_robots", ())
            settings = {**settings, "ignore_robots": [*dict.fromkeys([*known, *overrides])]}
        started = connection.execute(
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
        if started.rowcount:  # it may have been cancelled just before
            kind = "job.resumed" if first else "job.started"
            append_events(connection, [event_row(job, at, kind, engine=engine, **data)])

    @writes
    def lease_discovery(
        self,
        connection: Connection,
        job: str,
        owner: str,
        *,
        at: float,
        until: float,
        dead: Sequence[str],
    ) -> bool:
        """Lease the discovery of a job; False when a live process has it or it is done."""
        leased = connection.execute(
            update(jobs)
            .where(
                jobs.c.id == job,
                jobs.c.is_discovered.is_(False),
                or_(
                    jobs.c.discovery_owner.is_(None),
                    jobs.c.discovery_owner == owner,
                    jobs.c.discovery_owner.in_([*dead]),
                    jobs.c.discovery_until < at,
                ),
            )
            .values(discovery_owner=owner, discovery_until=until)
        )
        return leased.rowcount == 1

    @writes
    def release_discovery(self, connection: Connection, job: str, owner: str) -> None:
        """Release the discovery of a job if `owner` has it."""
        connection.execute(
            update(jobs)
            .where(jobs.c.id == job, jobs.c.discovery_owner == owner)
            .values(discovery_owner=None, discovery_until=None)
        )

    @writes
    def pause_if_idle(self, connection: Connection, job: str, at: float, reason: str) -> None:
        """Pause a job unless other processes work on it or it has ended."""
        leased = exists().where(items.c.job_id == job, items.c.state == ItemState.LEASED)
        if not connection.scalar(select(leased)):
            _set_end_state(connection, job, at, JobState.PAUSED, reason)

    @writes
    def pause(self, connection: Connection, job: str, at: float, reason: str) -> bool:
        """Pause a job on all workers; False when it is neither running nor about to be resumed."""
        state, before = _locked_state(connection, job)
        is_waiting = state is JobState.PAUSED and before == WAITS_FOR_EXECUTOR
        if not is_waiting and state not in (JobState.PENDING, JobState.RUNNING):
            return False
        return _set_end_state(connection, job, at, JobState.PAUSED, reason)

    @writes
    def expect_resume(self, connection: Connection, job: str, at: float) -> None:
        """Note that an executor is to resume a paused job, even if a user has paused it."""
        state, reason = _locked_state(connection, job)
        if state is JobState.PAUSED and reason != WAITS_FOR_EXECUTOR:
            _set_end_state(connection, job, at, JobState.PAUSED, WAITS_FOR_EXECUTOR)

    @writes
    def cancel(self, connection: Connection, job: str, at: float, reason: str) -> bool:
        """End a job before its work is done; False when it has ended already."""
        return cancel_job(connection, job, at, reason)

    @writes
    def fail(self, connection: Connection, job: str, at: float, reason: str) -> None:
        """End a job that could not do its work."""
        _set_end_state(connection, job, at, JobState.FAILED, reason)

    @writes
    def finish(
        self, connection: Connection, job: str, at: float, drift: DriftResult | None = None
    ) -> JobState | None:
        """End a job whose items are all finished; None when some are not, or it has ended.

        A paused job ends as well: one process may have paused it while another went on.
        """
        return finish_job(connection, job, at, drift)

    @reads
    def caveats(self, connection: Connection, job: str) -> Caveats:
        """Return cuts, warnings and limit of a job; for an open job, those known so far."""
        return caveats_of(connection, job)

    @reads
    def is_over(self, connection: Connection, job: str) -> bool:
        """Return whether `finish` would end a job: all items are discovered and finished."""
        return _is_over(connection, job)

    @reads
    def was_given_items(self, connection: Connection, job: str) -> bool:
        """Return whether all items were queued before the job started, and none discovered."""
        return was_given_items(connection, job)

    @reads
    def findings(self, connection: Connection, job: str, source: str) -> JobFindings:
        """Return what the report of a job needs, from one snapshot."""
        mine = items.c.job_id == job
        seconds = select(items.c.seconds).where(mine, items.c.seconds.is_not(None))
        failures = (
            select(items.c.state, items.c.kind, items.c.key, items.c.reason)
            .where(mine, items.c.state.in_(_BAD))
            .order_by(items.c.id)
        )
        same = (records.c.source == source) & (records.c.key == items.c.key)
        lost = (
            select(func.count())
            .select_from(items.outerjoin(records, same))
            .where(mine, items.c.state.in_(_GOOD), records.c.id.is_(None))
        )
        stored = [f"item.{state.value}" for state in _GOOD]
        ends = (
            select(func.count().label("times"))
            .where(events.c.job_id == job, events.c.type.in_(stored))
            .group_by(events.c.key)
            .subquery()
        )
        finished = connection.scalar(select(func.count()).where(mine, items.c.state.in_(_GOOD)))
        known, twice = connection.execute(
            select(func.count(), func.count().filter(ends.c.times > 1)).select_from(ends)
        ).one()
        runs = select(events.c.data).where(events.c.job_id == job, events.c.type == "run.ended")
        scored = connection.execute(
            select(records.c.score, records.c.grade).where(records.c.job_id == job)
        ).all()
        return JobFindings(
            seconds=tuple(sorted(connection.scalars(seconds))),
            failures=tuple(
                (row[0], row[1], row[2], row[3]) for row in connection.execute(failures)
            ),
            scores=tuple(score for score, _ in scored if score is not None),
            grades=dict(Counter(grade or "unscored" for _, grade in scored)),
            items_without_record=connection.scalar(lost) or 0,
            keys_stored_twice=twice if known >= (finished or 0) else None,
            unexplained_nulls=tuple(_unexplained_nulls(connection, job)),
            runs=tuple(connection.scalars(runs)),
        )

    async def compare_items(
        self, pair: RunPair, consume: Callable[[Iterable[ItemComparison]], T]
    ) -> T:
        """Pass the items of two jobs to `consume`, in bounded memory and on one snapshot.

        The items of the newer job come first, then those of the older one alone.
        """
        return await self._database.read(
            lambda connection: consume(_compare_items(connection, pair))
        )


def cancel_job(connection: Connection, job: str, at: float, reason: str) -> bool:
    """Cancel a job in the caller's transaction, as `Jobs.cancel` does."""
    return _set_end_state(connection, job, at, JobState.CANCELLED, reason)


def finish_job(
    connection: Connection, job: str, at: float, drift: DriftResult | None
) -> JobState | None:
    """End a job in the caller's transaction; None when some items are not finished."""
    lock_job(connection, job)  # of several callers, the others find that it has ended
    if not _is_over(connection, job):
        return None
    row = connection.execute(select(jobs).where(jobs.c.id == job)).one()
    states = counts(connection, job)
    caveats = _reported_caveats(connection, job, row.settings.get("limit"))
    cuts = [*([row.shortfall] if row.shortfall else []), *caveats.cuts]
    skipped = (
        select(items.c.reason, func.count())
        .where(items.c.job_id == job, items.c.kind == FailureKind.BUDGET)
        .group_by(items.c.reason)
    )
    missing = list(_first_few(cuts, _MAX_NAMED))
    missing += [
        f"{count_text(count, 'item')} {reason}" for reason, count in connection.execute(skipped)
    ]
    is_listed = not missing and caveats.limit is None  # as far as is known here
    warnings = list(caveats.warnings)
    if drift is not None:
        drift = save_profile(connection, job, row.source, at, drift)
        is_listed = is_listed and not drift.has_too_few
        missing += [f"drift: {'; '.join(drift.drift)}"] if drift.drift else []
        warnings = [*drift.warnings, *warnings]
    total, bad = sum(states.values()), [one for one in _BAD if states[one]]
    state = JobState.PARTIAL if bad or missing else JobState.COMPLETE
    if bad and sum(states[one] for one in bad) == total:
        state = JobState.FAILED
    limit = caveats.limit
    reasons = [
        *([_bad_items_text(states, total)] if bad else []),
        *missing,
        *([] if limit is None else [f"limited to {count_text(limit, 'item')}"]),
        *_first_few(warnings, _MAX_NAMED),
    ]
    caveats = replace(caveats, cuts=tuple(cuts), warnings=_first_few(warnings, _MAX_CAVEATS))
    inventory = last_inventory(connection, row)
    found_all = (
        is_listed
        and not is_incremental(row.settings)
        and not was_given_items(connection, job)
        and not lacks_steps(connection, job, inventory)
    )
    mark_gone(connection, row, at, inventory if found_all else None)
    connection.execute(update(jobs).where(jobs.c.id == job).values(found_all=found_all))
    data = {**caveats.as_dict(), "found_all": found_all}
    _set_end_state(connection, job, at, state, "; ".join(reasons) or None, data=data)
    append_changes(connection, row, at, state)
    if state is JobState.COMPLETE and row.engine == "celery" and row.settings.get("limit") is None:
        # The process that ends it may be killed before it notifies the source; a task survives.
        place_task(connection, Task(job, TaskKind.FINISHED, at))
    return state


def caveats_of(connection: Connection, job: str) -> Caveats:
    """Return cuts, warnings and limit of a job; for an open job, those known so far."""
    row = connection.execute(select(jobs.c.state, jobs.c.settings).where(jobs.c.id == job)).one()
    ended = (
        select(events.c.data)
        .where(events.c.job_id == job, events.c.type == f"job.{row.state}")
        .order_by(events.c.id.desc())
        .limit(1)
    )
    data = connection.scalar(ended) if JobState(row.state) not in OPEN_STATES else None
    if data and "cuts" in data:
        return Caveats(tuple(data["cuts"]), tuple(data["warnings"]), data["limited_to"])
    return _reported_caveats(connection, job, row.settings.get("limit"))


_JOB_COLUMNS = [jobs.c[one.name] for one in fields(Job)]


def _job_of(row: Row[Any]) -> Job:
    return Job(**{**row._asdict(), "state": JobState(row.state)})


def _hash_identity(new: NewJob) -> str:
    text = orjson.dumps([new.source, new.identity], option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.sha256(text).hexdigest()[:16]


def _create(connection: Connection, new: NewJob) -> Job:
    prefix = f"{new.source}-{utc_datetime(new.at):%Y%m%d-%H%M%S}"
    name = f"{prefix}-{secrets.token_hex(2)}"
    while connection.scalar(select(jobs.c.id).where(jobs.c.id == name)) is not None:
        name = f"{prefix}-{secrets.token_hex(2)}"
    row = {
        "id": name,
        "source": new.source,
        "identity": _hash_identity(new),
        "state": JobState.PENDING,
        "settings": dict(new.settings),
        "created_at": new.at,
        "is_discovered": False,
    }
    connection.execute(insert(jobs), row)
    settings = row["settings"]
    event = event_row(name, new.at, "job.created", source=new.source, settings=settings)
    append_events(connection, [event])
    return _job_of(connection.execute(select(*_JOB_COLUMNS).where(jobs.c.id == name)).one())


def _locked_state(connection: Connection, job: str) -> tuple[JobState | None, str | None]:
    """Return state and reason of a job, locked; None: it was deleted."""
    query = select(jobs.c.state, jobs.c.reason).where(jobs.c.id == job)
    row = connection.execute(query.with_for_update(key_share=True)).one_or_none()
    return (None, None) if row is None else (JobState(row.state), row.reason)


def _set_end_state(
    connection: Connection,
    job: str,
    at: float,
    state: JobState,
    reason: str | None,
    *,
    data: Mapping[str, Any] = MappingProxyType({}),
) -> bool:
    """Set the state of an open job; False when it has ended. `data` goes into the event."""
    if reason is not None:
        reason = sanitize_text(reason).replace("\x00", "\ufffd")  # as in the data of the event
    ended = connection.execute(
        update(jobs)
        .where(jobs.c.id == job, jobs.c.state.in_(OPEN_STATES))
        .values(
            state=state,
            reason=reason,
            finished_at=None if state in OPEN_STATES else at,
            discovery_owner=None,
            discovery_until=None,
        )
    )
    if not ended.rowcount:
        return False
    # A resumed job offers its chunks again.
    is_offered = (chunks.c.job_id == job) & (chunks.c.state == ChunkState.OFFERED)
    connection.execute(
        update(chunks).where(is_offered).values(state=ChunkState.LOST, finished_at=at)
    )
    append_events(connection, [event_row(job, at, f"job.{state.value}", reason=reason, **data)])
    return True


def _bad_items_text(states: Mapping[ItemState, int], total: int) -> str:
    """Return how many items failed or were quarantined, as a reason of the job's state."""
    failed, quarantined = states[ItemState.FAILED], states[ItemState.QUARANTINED]
    of = f"of {count_text(total, 'item')}"
    verb = "was" if quarantined == 1 else "were"
    if not failed:
        return f"{quarantined:,} {of} {verb} quarantined"
    more = f" and {quarantined:,} {verb} quarantined" if quarantined else ""
    return f"{failed:,} {of} failed{more}"


def _is_over(connection: Connection, job: str) -> bool:
    query = select(jobs.c.state, jobs.c.is_discovered).where(jobs.c.id == job)
    row = connection.execute(query).one_or_none()
    if row is None or JobState(row.state) not in OPEN_STATES or not row.is_discovered:
        return False
    # Checked after nearly every chunk: the index finds one unfinished item without counting.
    left = exists().where(items.c.job_id == job, items.c.state.in_(_UNFINISHED))
    return not connection.scalar(select(left))


def _reported_caveats(connection: Connection, job: str, limit: int | None) -> Caveats:
    """Return what discovery reported, and whether the limit of the job was reached."""
    is_limited = limit is not None and sum(counts(connection, job).values()) >= limit
    reported = []
    for kind in (CUT, WARNING):
        query = select(events.c.data).where(events.c.job_id == job, events.c.type == kind)
        # A list may be cut below each of a million records: the first few show the cause.
        found = connection.scalars(query.order_by(events.c.id).limit(1000))
        reasons = [*dict.fromkeys(str(data.get("reason")) for data in found)]
        reported.append(_first_few(reasons, _MAX_CAVEATS))
    cuts, warnings = reported
    return Caveats(cuts, warnings, limit if is_limited else None)


def _first_few(texts: Sequence[str], most: int) -> tuple[str, ...]:
    if len(texts) <= most:
        return tuple(texts)
    return (*texts[:most], f"and {len(texts) - most} more")


def _unexplained_nulls(connection: Connection, job: str) -> list[str]:
    """Return "key.field" of the first empty fields that have no note."""
    query = select(records.c.key, records.c.data, records.c.about).where(records.c.job_id == job)
    found: list[str] = []
    with connection.execute(query.execution_options(yield_per=200)) as rows:
        for key, data, about in rows:
            noted = {note["field"] for note in about.get("notes", [])}
            empty = [name for name, value in data.items() if value is None and name not in noted]
            found += [f"{key}.{name}" for name in empty]
            if len(found) >= _MAX_NULLS:
                break
    return found[:_MAX_NULLS]


# ---------------- The items of two runs


def _compare_items(connection: Connection, pair: RunPair) -> Iterator[ItemComparison]:
    """Yield the items of the newer job, then those of the older one alone."""
    newer, older = items.alias("newer"), items.alias("older")
    columns = [
        table.c[name].label(f"{table.name}_{name}")
        for table in (older, newer)
        for name in ("state", "finished_at", "kind", "reason")
    ]
    present = [records.c.id.label("record"), records.c.first_seen_at, records.c.changed_at]
    sides = ((newer, pair.newer, older, pair.older), (older, pair.older, newer, pair.newer))
    for main, main_job, other, other_job in sides:
        same = and_(other.c.job_id == other_job, other.c.key == main.c.key)
        is_record = and_(records.c.source == pair.source, records.c.key == main.c.key)
        query = (
            select(main.c.key, *present, *columns)
            .select_from(main.outerjoin(other, same).outerjoin(records, is_record))
            .where(main.c.job_id == main_job)
            .order_by(main.c.id)
        )
        if main is older:
            query = query.where(other.c.id.is_(None))
        with connection.execute(query.execution_options(yield_per=500)) as result:
            for rows in result.mappings().partitions():
                yield from _compare_items_of(connection, pair, rows)


def _compare_items_of(
    connection: Connection, pair: RunPair, rows: Sequence[Any]
) -> Iterator[ItemComparison]:
    seen_at: dict[str, float] = {}  # when the older run was done with each item
    for row in rows:
        at = row["older_finished_at"]
        seen_at[row["key"]] = pair.older_end if at is None else at
    known = {
        row["key"]
        for row in rows
        if row["record"] is not None and row["first_seen_at"] <= seen_at[row["key"]]
    }
    changed = [
        row["record"]
        for row in rows
        if row["key"] in known and row["changed_at"] > seen_at[row["key"]]
    ]
    versions = versions_by_id(connection, changed) if changed else {}
    for row in rows:
        key, newer = row["key"], _item_result(row, "newer")
        diffs: tuple[FieldDiff, ...] = ()
        if newer is not None and newer.at is not None:
            ends = (seen_at[key], newer.at)
            found = versions.get(row["record"], [])
            before, after = ([one for one in found if one.since <= end] for end in ends)
            if before and after and before[-1].fingerprint != after[-1].fingerprint:
                diffs = diff_json(before[-1].data, after[-1].data)
        yield ItemComparison(key, _item_result(row, "older"), newer, key in known, diffs)


def _item_result(row: Any, side: str) -> ItemResult | None:
    state, kind = row[f"{side}_state"], row[f"{side}_kind"]
    if state is None:
        return None
    return ItemResult(
        ItemState(state),
        row[f"{side}_finished_at"],
        FailureKind(kind) if kind else None,
        row[f"{side}_reason"],
    )
