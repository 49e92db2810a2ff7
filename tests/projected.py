"""The projections of a database, compared with the rows that they describe."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import Connection, func, select

from longline.storage.schema import items, jobs, projection_rows, records


def assert_projections_equal_the_rows(connection: Connection) -> None:
    """Compare states and counts in the projections with jobs, items and records."""
    _assert_runs_equal_the_rows(connection)
    _assert_sources_equal_the_rows(connection)


def _assert_runs_equal_the_rows(connection: Connection) -> None:
    """Compare the projection of runs with the jobs and items themselves."""
    columns = projection_rows.c
    is_run = (columns.stage == "live") & (columns.projection == "runs")
    runs = {row["job"]: row for row in connection.scalars(select(columns.data).where(is_run))}
    counted = select(items.c.job_id, items.c.state, func.count())
    states: dict[str, Counter[str]] = {job: Counter() for job in runs}
    for job, state, count in connection.execute(counted.group_by(items.c.job_id, items.c.state)):
        states[job]["open" if state in ("queued", "leased") else state] += count
    projected = {job: Counter(row["items"]) for job, row in runs.items()}
    assert projected == states, f"runs: {projected}, rows: {states}"
    stored = (jobs.c.id, jobs.c.source, jobs.c.state, jobs.c.reason, jobs.c.finished_at)
    ends = {
        job: (row["source"], row["state"], row["reason"], row["ended_at"])
        for job, row in runs.items()
    }
    rows = {row.id: tuple(row)[1:] for row in connection.execute(select(*stored))}
    assert ends == rows, f"runs: {ends}, rows: {rows}"


def _assert_sources_equal_the_rows(connection: Connection) -> None:
    """Compare the records that the projection of sources counts with the records themselves."""
    columns = projection_rows.c
    is_source = (columns.stage == "live") & (columns.projection == "sources")
    found = connection.scalars(select(columns.data).where(is_source))
    present = select(records.c.source, func.count()).where(records.c.gone_at.is_(None))
    counted: dict[str, int] = dict(connection.execute(present.group_by(records.c.source)).all())
    projected = {row["source"]: row["records"] for row in found if row["records"]}
    assert projected == counted, f"sources: {projected}, rows: {counted}"
