"""The versions that records have had, the present one last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from longline.stores.schema import record_versions, records


@dataclass(frozen=True, slots=True)
class Version:
    """What a record was from `since` on; `until` is None for the present version.

    `job` has made it; None when a person did, or when that is not known any more.
    """

    version: int
    job: str | None
    fingerprint: str
    since: float
    until: float | None
    data: dict[str, Any]


def versions_of(connection: Connection, ids: Sequence[int]) -> dict[int, list[Version]]:
    """Return the versions of these records by their ids, oldest first, the present one last."""
    past = select(record_versions).where(record_versions.c.record_id.in_(ids))
    present = select(records).where(records.c.id.in_(ids))
    found: dict[int, list[Version]] = {}
    for row in connection.execute(past.order_by(record_versions.c.version)):
        version = Version(
            row.version, row.job_id, row.fingerprint, row.since, row.until, dict(row.data)
        )
        found.setdefault(row.record_id, []).append(version)
    for row in connection.execute(present):
        version = Version(
            row.version, row.changed_by, row.fingerprint, row.changed_at, None, dict(row.data)
        )
        found.setdefault(row.id, []).append(version)
    return found


def version_at(versions: Sequence[Version], moment: float) -> Version | None:
    """Return what a record was at a moment; None when it was not there yet."""
    begun = [one for one in versions if one.since <= moment]
    return begun[-1] if begun else None
