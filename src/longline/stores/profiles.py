"""What the records of each run looked like, and the evidence that this is told from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, select, update

from longline.errors import FailureKind
from longline.fetching.messages import origin_of
from longline.model import ItemState
from longline.stores.database import Database
from longline.stores.journal import append, fact
from longline.stores.schema import items, profiles, records

_AT_FAULT = (FailureKind.INVALID, FailureKind.BUG)
_BAD = (ItemState.FAILED, ItemState.QUARANTINED)


@dataclass(frozen=True, slots=True)
class Sighting:
    """An item of a job as it was committed: the data of its record, or why there is none."""

    key: str
    site: str
    at: float
    data: Mapping[str, Any] | None = None
    score: float | None = None
    reason: str | None = None


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

    async def measure(self, source: str, *, but: str = "", most: int = 50) -> list[KeptProfile]:
        """Return the newest sound profiles of a source, none from before an accepted one.

        `but` is the job that is measured, which may have left a profile when it ended before.
        """
        query = _newest_first().where(
            profiles.c.source == source, profiles.c.is_sound, profiles.c.job_id != but
        )
        found = await self._read(query.limit(most))
        ends = [place for place, one in enumerate(found, 1) if one.is_accepted]
        return found[: ends[0]] if ends else found

    async def last(self, source: str) -> KeptProfile | None:
        """Return the profile of the run of a source that ended last, sound or not."""
        found = await self._read(_newest_first().where(profiles.c.source == source).limit(1))
        return found[0] if found else None

    async def sources(self) -> list[str]:
        """Return the names of all sources with a profile, the one that ended last first."""
        newest = func.max(profiles.c.at).desc()
        query = select(profiles.c.source).group_by(profiles.c.source).order_by(newest)
        return await self._database.read(lambda connection: [*connection.scalars(query)])

    async def find(self, job: str) -> KeptProfile | None:
        """Return the profile that a job has left when it ended."""
        found = await self._read(select(profiles).where(profiles.c.job_id == job))
        return found[0] if found else None

    async def accept(self, job: str, profile: Mapping[str, Any], at: float) -> None:
        """Make the profile of a job the measure of later runs, in place of all before it."""
        await self._database.write(_accept, (job, profile, at))

    async def evidence(self, job: str, *, most: int) -> list[Sighting]:
        """Return what a job has committed, in that order; of more than `most`, an even sample."""
        return await self._database.read(lambda connection: _evidence(connection, job, most))

    async def _read(self, query: Select[Any]) -> list[KeptProfile]:
        return await self._database.read(
            lambda connection: [KeptProfile(*row) for row in connection.execute(query)]
        )


def keep(connection: Connection, job: str, source: str, at: float, ending: Ending) -> None:
    """Keep the profile of a job that ends; one that was ended before has left an older one."""
    connection.execute(delete(profiles).where(profiles.c.job_id == job))
    row = {
        "job_id": job,
        "source": source,
        "at": at,
        "is_sound": not ending.drift,
        "profile": dict(ending.profile),
    }
    connection.execute(insert(profiles), row)


def _newest_first() -> Select[Any]:
    return select(profiles).order_by(profiles.c.at.desc(), profiles.c.job_id.desc())


def _accept(connection: Connection, argument: tuple[str, Mapping[str, Any], float]) -> None:
    job, profile, at = argument
    connection.execute(
        update(profiles)
        .where(profiles.c.job_id == job)
        .values(is_sound=True, profile={**profile, "accepted": True})
    )
    append(connection, [fact(job, at, "drift.accepted")])


def _evidence(connection: Connection, job: str, most: int) -> list[Sighting]:
    made = records.c.job_id == job
    failed = (items.c.job_id == job) & items.c.state.in_(_BAD) & items.c.kind.in_(_AT_FAULT)
    total = sum(
        connection.scalar(select(func.count()).where(condition)) or 0
        for condition in (made, failed)
    )
    step = -(-total // most) or 1  # the same for both, so that their shares stay what they are
    good = select(
        records.c.key, records.c.url, records.c.seen_at, records.c.data, records.c.score
    ).where(made, records.c.id % step == 0)
    bad = select(items.c.key, items.c.domain, items.c.finished_at, items.c.reason).where(
        failed, items.c.id % step == 0
    )
    found = [
        Sighting(row.key, origin_of(row.url)[1], row.seen_at, row.data, row.score)
        for row in connection.execute(good)
    ]
    found += [
        Sighting(row.key, row.domain, row.finished_at or 0.0, reason=row.reason or "")
        for row in connection.execute(bad)
    ]
    return sorted(found, key=lambda one: one.at)
