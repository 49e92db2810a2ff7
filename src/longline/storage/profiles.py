"""Profiles of what the records of each run looked like, and the items they are computed from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from operator import itemgetter
from typing import Any, TypeVar

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from longline.core.errors import FailureKind
from longline.core.model import ItemState
from longline.http.messages import origin_of
from longline.storage.database import Repository, reads, writes
from longline.storage.events.events import append_events, event_row
from longline.storage.schema import items, profiles, records

T = TypeVar("T")
_AT_FAULT = (FailureKind.INVALID, FailureKind.BUG)
_BAD = (ItemState.FAILED, ItemState.QUARANTINED)
_MAX_READ = 1000  # profiles of a source, of which those of one scope are chosen
_MAX_CHOSEN = 50
_RECORDS_PER_READ = 10
_TOO_FEW = frozenset({"@items", "@records"})  # what the drift check reports instead of a field


@dataclass(frozen=True, slots=True)
class CommittedItem:
    """A committed item of a job: the data of its record, or the reason why there is none."""

    key: str
    site: str
    at: float
    data: Mapping[str, Any] | None = None
    score: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class DriftResult:
    """What the drift check found at the end of a job.

    `drift` makes a job partial; `warnings` are reported and change nothing.
    """

    profile: Mapping[str, Any]
    drift: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def has_too_few(self) -> bool:
        """Whether a job has found far fewer items than before, or no record at all."""
        return not _TOO_FEW.isdisjoint(self.profile.get("drift", ()))


@dataclass(frozen=True, slots=True)
class StoredProfile:
    """The profile of one job."""

    job: str
    source: str
    at: float
    is_sound: bool
    profile: Mapping[str, Any]

    @property
    def is_accepted(self) -> bool:
        """Whether a person made it the baseline of later runs."""
        return bool(self.profile.get("accepted"))


_LAST = (
    select(profiles)
    .where(profiles.c.source == bindparam("b_source"))
    .order_by(profiles.c.at.desc(), profiles.c.job_id.desc())
    .limit(1)
)


class Profiles(Repository):
    """The profiles of all jobs."""

    @reads
    def baselines(
        self,
        connection: Connection,
        source: str,
        *,
        scope: str = "",
        but: str = "",
        is_comparable: Callable[[Mapping[str, Any]], bool] = lambda _: True,
    ) -> list[StoredProfile]:
        """Return the newest sound profiles of a source, none older than an accepted one.

        `scope` selects runs with the same options; `but` excludes the job that is judged;
        `is_comparable` decides about each profile.
        """
        query = (
            select(profiles)
            .where(profiles.c.source == source, profiles.c.job_id != but, profiles.c.is_sound)
            .order_by(profiles.c.at.desc(), profiles.c.job_id.desc())
            .limit(_MAX_READ)
        )
        found: list[StoredProfile] = []
        # A few at a time, since the first few are mostly enough.
        with connection.execute(query.execution_options(yield_per=_MAX_CHOSEN)) as rows:
            for one in (StoredProfile(*row) for row in rows):
                if one.profile.get("scope", "") != scope:
                    continue
                if is_comparable(one.profile):
                    found.append(one)
                # An accepted profile replaces all before it.
                if one.is_accepted or len(found) == _MAX_CHOSEN:
                    break
        return found

    @reads
    def last(self, connection: Connection, sources: Sequence[str]) -> list[StoredProfile]:
        """Return the profiles of the last runs of these sources, sound or not, if there are any."""
        # Of all profiles of a source, the index finds the last one without reading the others.
        found = (
            connection.execute(_LAST, {"b_source": source}).one_or_none() for source in sources
        )
        return [StoredProfile(*row) for row in found if row]

    @reads
    def sources(self, connection: Connection) -> list[str]:
        """Return all sources with a profile, the one whose last run is newest first."""
        newest = func.max(profiles.c.at).desc()
        query = select(profiles.c.source).group_by(profiles.c.source).order_by(newest)
        return [*connection.scalars(query)]

    @reads
    def find(self, connection: Connection, job: str) -> StoredProfile | None:
        """Return the profile of a job that has ended."""
        query = select(profiles).where(profiles.c.job_id == job)
        row = connection.execute(query).one_or_none()
        return StoredProfile(*row) if row else None

    @writes
    def accept(
        self, connection: Connection, job: str, profile: Mapping[str, Any], at: float
    ) -> None:
        """Make the profile of a job the baseline of later runs, instead of all before it."""
        connection.execute(
            update(profiles)
            .where(profiles.c.job_id == job)
            .values(is_sound=True, profile={**profile, "accepted": True})
        )
        append_events(connection, [event_row(job, at, "drift.accepted")])

    @reads
    def extent(self, connection: Connection, job: str) -> tuple[int, int]:
        """Return how many items a job has found, and how many of them a budget has skipped."""
        every = select(func.count()).where(items.c.job_id == job)
        skipped = every.where(items.c.kind == FailureKind.BUDGET)
        return connection.scalar(every) or 0, connection.scalar(skipped) or 0

    async def committed(
        self, job: str, read: Callable[[CommittedItem], T], *, most: int
    ) -> list[T]:
        """Return `read(item)` of the items that a job has committed, in their order.

        Of more than `most`, an even sample. Few records are in memory at the same time.
        """
        return await self._database.read(
            lambda connection: _read_committed(connection, job, read, most)
        )


def save_profile(
    connection: Connection, job: str, source: str, at: float, result: DriftResult
) -> DriftResult:
    """Save the profile of a job that ends; return the result that counts.

    A job that has ended before may have been accepted, and stays so.
    """
    old = connection.execute(select(profiles).where(profiles.c.job_id == job)).one_or_none()
    profile = dict(result.profile)
    if old is not None and old.profile.get("accepted"):
        quiet = sorted({*old.profile.get("quiet", ()), *profile.get("quiet", ())})
        profile |= {"accepted": True, "quiet": quiet, "drift": {}}
        result = replace(result, profile=profile, drift=())
    # Later runs may be compared with it only if most of what it found became records.
    is_sound = not result.drift and profile["records"] > profile.get("invalid", 0)
    row = {
        "job_id": job,
        "source": source,
        "at": at if old is None else old.at,
        "is_sound": bool(profile.get("accepted")) or is_sound,
        "profile": profile,
    }
    connection.execute(delete(profiles).where(profiles.c.job_id == job))
    connection.execute(insert(profiles), row)
    event = event_row(
        job,
        at,
        "source.profiled",
        source=source,
        records=profile["records"],
        invalid=profile.get("invalid", 0),
        coverage=_coverage(profile),
        is_sound=row["is_sound"],
        drift=list(result.drift),
    )
    append_events(connection, [event])
    return result


def _coverage(profile: Mapping[str, Any]) -> dict[str, float]:
    """Return the share of the records in which each field is filled.

    Fields of nested objects are left out: keys that are data make thousands of them.
    """
    count = profile["records"]
    fields = profile.get("fields", {}) if count else {}
    return {
        name: round(one["filled"] / count, 4)
        for name, one in sorted(fields.items())
        if not name.startswith("@") and "." not in name  # @score is not a field
    }


def _read_committed(
    connection: Connection, job: str, read: Callable[[CommittedItem], T], most: int
) -> list[T]:
    stored = records.c.job_id == job
    failed = (items.c.job_id == job) & items.c.state.in_(_BAD) & items.c.kind.in_(_AT_FAULT)
    total = sum(
        connection.scalar(select(func.count()).where(condition)) or 0
        for condition in (stored, failed)
    )
    step = -(-total // most) or 1  # the same for both, so that their shares stay the same
    own = (items.c.job_id == job) & (items.c.key == records.c.key)
    of_records = (
        select(records.c.key, records.c.url, records.c.seen_at, records.c.data, records.c.score)
        .add_columns(items.c.id.label("place"))
        .join(items, own, isouter=True)
        .where(stored, records.c.id % step == 0)
    )
    columns = (items.c.id, items.c.key, items.c.domain, items.c.finished_at, items.c.reason)
    of_failures = select(*columns).where(failed, items.c.id % step == 0)
    found = []
    options = {"yield_per": _RECORDS_PER_READ}
    for row in connection.execute(of_records, execution_options=options):
        item = CommittedItem(row.key, origin_of(row.url)[1], row.seen_at, row.data, row.score)
        found.append((inf if row.place is None else row.place, item.at, read(item)))
    for row in connection.execute(of_failures):
        at = row.finished_at or 0.0
        item = CommittedItem(row.key, row.domain, at, reason=row.reason or "")
        found.append((row.id, at, read(item)))
    # By position, not by end: items that were fixed later all ended late.
    found.sort(key=itemgetter(0, 1))
    return [one for _, _, one in found]
