"""The filters of lists of records, which pages and the API share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longline.server.web.context import Web
from longline.storage.query import Condition, RecordQuery, parse_condition, parse_timestamp

_IS_GONE = {"present": False, "gone": True}


@dataclass(frozen=True, slots=True)
class RecordFilters:
    """Which records are wanted, as texts of a person or a program.

    `since` is a date or an age; `where` are conditions such as price>100. `state` is present, gone,
    or anything else for both.
    """

    source: str | None = None
    job: str | None = None
    search: str | None = None
    min_score: float | None = None
    grade: str | None = None
    since: str | None = None
    state: str = "present"
    where: Sequence[str] = ()


async def record_query(web: Web, wanted: RecordFilters) -> RecordQuery:
    """Return the query of some filters.

    Raises:
        BadOption: a filter is malformed.
        UnknownJob: no job, or several, match.
    """
    where = [parse_condition(text) for text in wanted.where]
    if wanted.state in _IS_GONE:
        where.append(Condition("@gone_at", "?", _IS_GONE[wanted.state]))
    now = web.clock.now()
    since = parse_timestamp(wanted.since, option="since", now=now) if wanted.since else None
    return RecordQuery(
        source=wanted.source or None,
        job=(await web.store.jobs.get(wanted.job)).id if wanted.job else None,
        text=wanted.search or None,
        min_score=wanted.min_score,
        grade=wanted.grade or None,
        since=since,
        where=tuple(where),
    )
