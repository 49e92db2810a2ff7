"""What the records of each run looked like, and the evidence that this is told from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import inf
from operator import itemgetter
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, delete, func, insert, select, update

from longline.core.errors import FailureKind
from longline.core.model import ItemState
from longline.http.messages import origin_of
from longline.storage.database import Database
from longline.storage.events import append, event_row
from longline.storage.schema import items, jobs, profiles, records

_AT_FAULT = (FailureKind.INVALID, FailureKind.BUG)
_BAD = (ItemState.FAILED, ItemState.QUARANTINED)
_MOST_READ = 1000  # profiles, of which those of one scope are picked


_MOST = 50  # profiles that a measure is chosen from
_BEGAN = func.coalesce(jobs.c.started_at, jobs.c.created_at, profiles.c.at)
Fits = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class Sighting:
    """An item of a job as it was committed: the data of its record, or why there is none."""

    key: str
    site: str
    at: float
    data: Mapping[str, Any] | None = None
    score: float | None = None
    reason: str | None = None


T = TypeVar("T")
_TOGETHER = 10  # records that are read from the database at a time
_Placed = tuple[float, Sighting]  # where an item stands in its job


@dataclass(frozen=True, slots=True)
class Ending:
    """What the end of a job says beside its counts.

    `drift` are differences that make a job partial, `warnings` are told and change nothing.
    """

    profile: Mapping[str, Any]
    drift: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptProfile:
    """The profile of one job. `is_accepted` says that a person made it the measure of others."""

    job: str
    source: str
    at: float
    is_sound: bool
    profile: Mapping[str, Any]

    @property
    def is_accepted(self) -> bool:
        """Whether a person has said that this is how it looks now."""
        return bool(self.profile.get("accepted"))


class Profiles:
    """The profiles of all jobs in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def measure(
        self, source: str, *, scope: str = "", but: str = "", fits: Fits | None = None
    ) -> list[KeptProfile]:
        """Return the newest sound profiles of a source, none from before an accepted one.

        Args:
            source: its name.
            scope: only of runs whose profile says the same.
            but: the job that is measured, which may have left a profile when it ended before.
            fits: says whether a profile is a measure at all; without it, each of them is.
        """
        query = _newest_first().where(
            profiles.c.source == source, profiles.c.is_sound, profiles.c.job_id != but
        )
        return await self._database.read(
            lambda connection: _measure(connection, query.limit(_MOST_READ), scope, fits)
        )

    async def recent(self, source: str, *, scope: str = "", but: str = "") -> list[KeptProfile]:
        """Return the newest profiles of a source and scope, sound or not."""
        query = _newest_first().where(profiles.c.source == source, profiles.c.job_id != but)
        return await self._database.read(
            lambda connection: _measure(connection, query.limit(_MOST_READ), scope, None)
        )

    async def last(self, source: str) -> KeptProfile | None:
        """Return the profile of the run of a source that began last, sound or not."""
        query = select(profiles).join(jobs, jobs.c.id == profiles.c.job_id, isouter=True)
        newest = (_BEGAN.desc(), profiles.c.at.desc(), profiles.c.job_id.desc())
        query = query.where(profiles.c.source == source).order_by(*newest)
        found = await self._read(query.limit(1))
        return found[0] if found else None

    async def sources(self) -> list[str]:
        """Return the names of all sources with a profile, the one that began last first."""
        query = select(profiles.c.source).join(jobs, jobs.c.id == profiles.c.job_id, isouter=True)
        query = query.group_by(profiles.c.source).order_by(func.max(_BEGAN).desc())
        return await self._database.read(lambda connection: [*connection.scalars(query)])

    async def find(self, job: str) -> KeptProfile | None:
        """Return the profile that a job has left when it ended."""
        found = await self._read(select(profiles).where(profiles.c.job_id == job))
        return found[0] if found else None

    async def accept(self, job: str, profile: Mapping[str, Any], at: float) -> None:
        """Make the profile of a job the measure of later runs, in place of all before it."""
        await self._database.write(_accept, (job, profile, at))

    async def extent(self, job: str) -> tuple[int, int]:
        """Return how many items a job has found, and how many of them a budget has left out."""
        every = select(func.count()).where(items.c.job_id == job)
        left_out = every.where(items.c.kind == FailureKind.BUDGET)
        return await self._database.read(
            lambda connection: (connection.scalar(every) or 0, connection.scalar(left_out) or 0)
        )

    async def evidence(self, job: str, read: Callable[[Sighting], T], *, most: int) -> list[T]:
        """Return what `read` makes of what a job has committed, in the order of its items.

        Of more than `most`, an even sample. Records may be large: few are in memory together.
        """
        return await self._database.read(lambda connection: _evidence(connection, job, read, most))

    async def _read(self, query: Select[Any]) -> list[KeptProfile]:
        return await self._database.read(
            lambda connection: [KeptProfile(*row) for row in connection.execute(query)]
        )


def keep(connection: Connection, job: str, source: str, at: float, ending: Ending) -> Ending:
    """Keep the profile of a job that ends; return what is left to say of it.

    One that was ended before has left an older one, with what a person has said of it.
    """
    old = connection.execute(select(profiles).where(profiles.c.job_id == job)).one_or_none()
    if old is not None:
        ending = _after(old.profile, ending)
    connection.execute(delete(profiles).where(profiles.c.job_id == job))
    profile = dict(ending.profile)
    row = {
        "job_id": job,
        "source": source,
        "at": at if old is None else old.at,
        "is_sound": bool(profile.get("accepted")) or _is_sound(profile, ending),
        "profile": profile,
    }
    connection.execute(insert(profiles), row)
    return ending


def _after(old: Mapping[str, Any], ending: Ending) -> Ending:
    """Return the end of a job that has ended before: what was accepted stays so."""
    if old["records"] and not ending.profile["records"]:
        drift = ending.drift or tuple(old.get("drift", {}).values())
        ending = replace(ending, profile=old, drift=drift)
    if not old.get("accepted"):
        return ending
    quiet = sorted({*old.get("quiet", ()), *ending.profile.get("quiet", ())})
    profile = {**ending.profile, "accepted": True, "quiet": quiet, "drift": {}}
    return replace(ending, profile=profile, drift=())


def _is_sound(profile: Mapping[str, Any], ending: Ending) -> bool:
    """Say whether later runs may be measured by it: most of what it found became records."""
    return not ending.drift and profile["records"] > profile.get("invalid", 0)


def _newest_first() -> Select[Any]:
    return select(profiles).order_by(profiles.c.at.desc(), profiles.c.job_id.desc())


def _measure(
    connection: Connection, query: Select[Any], scope: str, fits: Fits | None
) -> list[KeptProfile]:
    found: list[KeptProfile] = []
    # A few at a time, since mostly the first few are enough.
    with connection.execute(query.execution_options(yield_per=_MOST)) as rows:
        for one in (KeptProfile(*row) for row in rows):
            if one.profile.get("scope", "") != scope:
                continue
            if fits is None or fits(one.profile):
                found.append(one)
            # Before what a person has accepted, it looked otherwise.
            if one.is_accepted or len(found) == _MOST:
                break
    return found


def _accept(connection: Connection, argument: tuple[str, Mapping[str, Any], float]) -> None:
    job, profile, at = argument
    connection.execute(
        update(profiles)
        .where(profiles.c.job_id == job)
        .values(is_sound=True, profile={**profile, "accepted": True})
    )
    append(connection, [event_row(job, at, "drift.accepted")])


def _evidence(
    connection: Connection, job: str, read: Callable[[Sighting], T], most: int
) -> list[T]:
    made = records.c.job_id == job
    failed = (items.c.job_id == job) & items.c.state.in_(_BAD) & items.c.kind.in_(_AT_FAULT)
    total = sum(
        connection.scalar(select(func.count()).where(condition)) or 0
        for condition in (made, failed)
    )
    step = -(-total // most) or 1  # the same for both, so that their shares stay what they are
    placed = chain(
        _made(connection, made & (records.c.id % step == 0), job),
        _failed(connection, failed & (items.c.id % step == 0)),
    )
    found = [(place, sighting.at, read(sighting)) for place, sighting in placed]
    # Where items stand in the list, not when they ended: what was mended came late, all together.
    found.sort(key=itemgetter(0, 1))
    return [one for _, _, one in found]


def _made(connection: Connection, wanted: ColumnElement[bool], job: str) -> Iterator[_Placed]:
    columns = (records.c.key, records.c.url, records.c.seen_at, records.c.data, records.c.score)
    own = (items.c.job_id == job) & (items.c.key == records.c.key)
    query = select(*columns, items.c.id.label("place")).join(items, own, isouter=True)
    for row in connection.execute(query.where(wanted).execution_options(yield_per=_TOGETHER)):
        sighting = Sighting(row.key, origin_of(row.url)[1], row.seen_at, row.data, row.score)
        yield (inf if row.place is None else row.place), sighting


def _failed(connection: Connection, wanted: ColumnElement[bool]) -> Iterator[_Placed]:
    columns = (items.c.id, items.c.key, items.c.domain, items.c.finished_at, items.c.reason)
    for row in connection.execute(select(*columns).where(wanted)):
        reason = row.reason or ""
        yield row.id, Sighting(row.key, row.domain, row.finished_at or 0.0, reason=reason)
