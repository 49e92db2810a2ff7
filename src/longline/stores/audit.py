"""Questions about a finished job that only its report asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from longline.model import ItemState
from longline.stores.schema import events, items, records

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
