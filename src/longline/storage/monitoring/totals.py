"""The totals of a home, read from one snapshot of its database; metrics are made of them.

Counters are sums that the commits have updated, so reading takes the same time however many items
and records there are. The number of sources and domains with their own totals is limited.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Column, ColumnElement, Connection, and_, case, exists, func, not_, select

from longline.core.model import OPEN_STATES, ItemState, JobState
from longline.storage.database import Repository, reads, size_of
from longline.storage.events.events import newest_event
from longline.storage.events.projections import ProjectionRow, Stage, read_rows
from longline.storage.events.subscribers import Subscriber, read_subscribers
from longline.storage.proxy_refresh import read_pool
from longline.storage.schema import (
    alerts,
    flow_runs,
    items,
    jobs,
    launches,
    leaders,
    occurrences,
    projection_rows,
    source_statistics,
)
from longline.storage.workers import IS_WORKER

OTHER = "other"
"""The name under which sources beyond the limit are summed."""
_HOUR = 3600.0
_MAX_RUNNING = 1000  # running jobs whose progress is read
_MAX_RULES = 100


@dataclass(slots=True)
class SourceTotals:
    """A source, or all beyond the limit.

    `counters` are those of `source_statistics`. `waiting_since` is when a running job that has due
    items last finished one, or was started; None: no item waits. `coverage` has the coverage of the
    fields of the last checked run, `drift` the number of its fields that have changed.
    """

    counters: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    open_jobs: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    exports: Counter[str] = field(default_factory=Counter)
    records: int = 0
    open_items: int = 0
    waiting_since: float | None = None
    last_good_at: float | None = None
    coverage: list[float] = field(default_factory=list)
    drift: int = 0


@dataclass(frozen=True, slots=True)
class DomainTotals:
    """A domain; `rate` is its learned, published or pinned rate limit, None if there is none."""

    is_open: bool
    bans: int
    refusals: int
    rate: float | None


@dataclass(frozen=True, slots=True)
class HomeTotals:
    """All totals of a home at one time.

    `hidden_sources` are summed as `OTHER`; `hidden_domains` have no totals of their own.
    `all_domains` counts domains, open breakers, trips, bans and refusals of all of them.
    `occurrences` counts those of the last hour by fate, and `schedule_lag` is the most seconds
    that one of these was late. `queued_since` and `due_since` are the times of the oldest
    occurrence and launch that wait. `alerts` are the firing ones by rule and severity, and
    `proxies` those of the pool by state.
    """

    at: float
    sources: Mapping[str, SourceTotals]
    hidden_sources: int
    domains: Mapping[str, DomainTotals]
    hidden_domains: int
    all_domains: Mapping[str, int]
    launches: Mapping[str, int]
    due_since: float | None
    flows: Mapping[str, int]
    occurrences: Mapping[str, int]
    schedule_lag: float
    queued_since: float | None
    newest_event: int
    subscribers: Sequence[Subscriber]
    workers: Mapping[bool, int]
    alerts: Mapping[tuple[str, str], int]
    size_bytes: int
    proxies: Mapping[str, int]


class Totals(Repository):
    """The totals of a home."""

    @reads
    def read(
        self, connection: Connection, at: float, *, max_sources: int = 80, max_domains: int = 200
    ) -> HomeTotals:
        """Return the totals at a time.

        The sources with their own totals are those whose first job is oldest, so that they stay the
        same. The domains are those with an open circuit breaker, then those that changed last.
        """
        names = _source_names(connection)
        chosen = names[:max_sources]
        domains = _count_domains(connection)
        shown = _read_domains(connection, max_domains)
        hour = _occurrences(connection, at - _HOUR)
        return HomeTotals(
            at=at,
            sources=_read_sources(connection, at, chosen, has_others=len(names) > len(chosen)),
            hidden_sources=len(names) - len(chosen),
            domains=shown,
            hidden_domains=domains["domains"] - len(shown),
            all_domains=domains,
            launches=_count_by(connection, launches.c.state),
            due_since=_oldest_launch(connection, at),
            flows=_count_by(connection, flow_runs.c.state),
            occurrences={fate: count for fate, (count, _) in hour.items()},
            schedule_lag=max([0.0, *(lag for _, lag in hour.values())]),
            queued_since=connection.scalar(
                select(func.min(occurrences.c.nominal_at)).where(occurrences.c.fate == "queued")
            ),
            newest_event=newest_event(connection),
            subscribers=read_subscribers(connection),
            workers=_count_workers(connection, at),
            alerts=_firing_alerts(connection),
            size_bytes=size_of(connection),
            proxies={} if (pool := read_pool(connection)) is None else pool.states,
        )


# ---------------- Sources


def _source_names(connection: Connection) -> list[str]:
    first = func.min(jobs.c.created_at)
    query = select(jobs.c.source).group_by(jobs.c.source).order_by(first, jobs.c.source)
    return list(connection.scalars(query))


def _read_sources(
    connection: Connection, at: float, chosen: Sequence[str], *, has_others: bool
) -> dict[str, SourceTotals]:
    own = {name: SourceTotals() for name in chosen}
    other = own.get(OTHER) or SourceTotals()
    for source, name, value in _counters(connection, chosen):
        own.get(source, other).counters[name] += value
    changed: dict[str, float] = {}
    for row in read_rows(connection, "sources"):
        _add_projection(own.get(row["source"], other), row)
        changed[row["job"]] = row["changed_at"] or 0.0
    for source, state, count, open_items in connection.execute(_OPEN_JOBS):
        one = own.get(source, other)
        one.open_jobs[state] += count
        one.open_items += open_items or 0
    for job, source, finished_at in _waiting(connection, at):
        one, since = own.get(source, other), max(finished_at, changed.get(job, 0.0))
        one.waiting_since = min(one.waiting_since or since, since)
    return {**own, OTHER: other} if has_others else own


def _counters(connection: Connection, chosen: Sequence[str]) -> Iterator[tuple[str, str, float]]:
    columns = source_statistics.c
    is_chosen = columns.source.in_(chosen)
    own = select(columns.source, columns.name, columns.value).where(is_chosen)
    yield from (tuple(row) for row in connection.execute(own))
    others = select(columns.name, func.sum(columns.value)).where(not_(is_chosen))
    for name, value in connection.execute(others.group_by(columns.name)):
        yield OTHER, name, value


def _add_projection(one: SourceTotals, row: ProjectionRow) -> None:
    one.runs.update(row["runs"])
    one.exports.update(row["exports"])
    one.records += row["records"]
    if row["last_good_at"] is not None:  # of several sources: the one that is most behind
        one.last_good_at = min(one.last_good_at or row["last_good_at"], row["last_good_at"])
    one.coverage += (row["coverage"] or {}).values()
    one.drift += len(row["drift"])


_open_items = projection_rows.c.data[("items", "open")].as_integer()
_OPEN_JOBS = (
    select(jobs.c.source, jobs.c.state, func.count(), func.sum(_open_items))
    .outerjoin(
        projection_rows,
        and_(
            projection_rows.c.stage == Stage.LIVE,
            projection_rows.c.projection == "runs",
            projection_rows.c.key == jobs.c.id,
        ),
    )
    .where(jobs.c.state.in_(OPEN_STATES))
    .group_by(jobs.c.source, jobs.c.state)
)


def _waiting(connection: Connection, at: float) -> list[tuple[str, str, float]]:
    """Return the running jobs that have due items, and when each last finished an item."""
    of_job = items.c.job_id == jobs.c.id
    finished = (
        select(func.max(items.c.finished_at))
        .where(of_job, items.c.finished_at.is_not(None))  # as the index
        .scalar_subquery()
    )
    is_due = exists().where(of_job, items.c.state == ItemState.QUEUED, items.c.due_at <= at)
    query = (
        select(jobs.c.id, jobs.c.source, jobs.c.created_at, jobs.c.started_at, finished)
        .where(jobs.c.state == JobState.RUNNING, is_due)
        .limit(_MAX_RUNNING)
    )
    rows = connection.execute(query).all()
    return [(job, source, max(one or 0.0 for one in times)) for job, source, *times in rows]


# ---------------- Domains

_IS_DOMAIN = and_(projection_rows.c.stage == Stage.LIVE, projection_rows.c.projection == "domains")
_IS_OPEN = projection_rows.c.data["breaker"].as_string() == "open"


def _count_domains(connection: Connection) -> dict[str, int]:
    def total(name: str) -> ColumnElement[int]:
        return func.coalesce(func.sum(projection_rows.c.data[name].as_integer()), 0).label(name)

    opened = func.coalesce(func.sum(case((_IS_OPEN, 1), else_=0)), 0).label("open")
    sums = [total(name) for name in ("trips", "bans", "refusals")]
    query = select(func.count().label("domains"), opened, *sums).where(_IS_DOMAIN)
    row = connection.execute(query).one()
    return {name: int(value) for name, value in row._mapping.items()}  # noqa: SLF001  # its name


def _read_domains(connection: Connection, limit: int) -> dict[str, DomainTotals]:
    newest = (
        select(projection_rows.c.data)
        .where(_IS_DOMAIN)
        .order_by(projection_rows.c.sort.desc(), projection_rows.c.key)
        .limit(limit)
    )
    rows = [*connection.scalars(newest.where(_IS_OPEN)), *connection.scalars(newest)]
    found = {str(row["domain"]): row for row in rows}
    return {
        domain: DomainTotals(row["breaker"] == "open", row["bans"], row["refusals"], row["rate"])
        for domain, row in list(found.items())[:limit]
    }


# ---------------- What else is running, or waits


def _count_by(connection: Connection, state: Column[str]) -> dict[str, int]:
    return dict(connection.execute(select(state, func.count()).group_by(state)).all())


def _oldest_launch(connection: Connection, at: float) -> float | None:
    """Return since when the oldest launch that is due waits."""
    since = case(
        (launches.c.due_at > launches.c.created_at, launches.c.due_at), else_=launches.c.created_at
    )
    is_due = and_(launches.c.state == "queued", launches.c.due_at <= at)
    oldest: float | None = connection.scalar(select(func.min(since)).where(is_due))
    return oldest


def _occurrences(connection: Connection, since: float) -> dict[str, tuple[int, float]]:
    """Return how many occurrences were decided since a time by fate, and the longest delay."""
    delay = case(
        (occurrences.c.kind == "scheduled", occurrences.c.decided_at - occurrences.c.nominal_at),
        else_=0.0,  # others have no time at which they should have been started
    )
    query = select(occurrences.c.fate, func.count(), func.max(delay))
    rows = connection.execute(
        query.where(occurrences.c.decided_at > since).group_by(occurrences.c.fate)
    )
    return {fate: (count, lag) for fate, count, lag in rows}


def _count_workers(connection: Connection, at: float) -> dict[bool, int]:
    """Return how many registered workers have renewed their leases in time, and how many not."""
    until = list(connection.scalars(select(leaders.c.until).where(IS_WORKER)))
    alive = sum(one >= at for one in until)
    return {True: alive, False: len(until) - alive}


def _firing_alerts(connection: Connection) -> dict[tuple[str, str], int]:
    query = (
        select(alerts.c.rule, alerts.c.severity, func.count())
        .where(alerts.c.state == "firing", alerts.c.resolved_at.is_(None))
        .group_by(alerts.c.rule, alerts.c.severity)
        .order_by(alerts.c.rule)
        .limit(_MAX_RULES)
    )
    return {(rule, severity): count for rule, severity, count in connection.execute(query)}
