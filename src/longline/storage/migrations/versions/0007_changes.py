"""Every change is an event, and projections are computed from events; records may be gone.

Older events do not tell all: the state and counts of each job and source are appended once.
"""

from alembic import op
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    Integer,
    MetaData,
    Table,
    Text,
    func,
    insert,
    select,
    update,
)

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

Id = BigInteger().with_variant(Integer(), "sqlite")
_metadata = MetaData()
_events = Table(
    "events",
    _metadata,
    Column("id", Id, primary_key=True),
    Column("job_id", Text),
    Column("type", Text),
    Column("version", Integer),
    Column("data", JSON),
    Column("at", Double),
    Column("subject", Text),
)
_jobs = Table(
    "jobs",
    _metadata,
    Column("id", Text, primary_key=True),
    Column("source", Text),
    Column("state", Text),
    Column("reason", Text),
    Column("created_at", Double),
    Column("finished_at", Double),
)
_items = Table("items", _metadata, Column("job_id", Text), Column("state", Text))
_records = Table("records", _metadata, Column("source", Text), Column("changed_at", Double))
_FINAL = ("stored", "unchanged", "skipped", "failed", "quarantined")


def upgrade() -> None:
    op.add_column("records", Column("gone_at", Double))
    op.add_column("jobs", Column("found_all", Boolean))
    connection = op.get_bind()
    created = (
        select(_events.c.id, _events.c.data, _jobs.c.source)
        .join(_jobs, _jobs.c.id == _events.c.job_id)
        .where(_events.c.type == "job.created", _events.c.version == 1)
    )
    for event, data, source in connection.execute(created).all():
        _rewrite(event, {"source": source, **data}, version=2)
    _create_projections()
    _append_counts()


def _create_projections() -> None:
    op.create_table(
        "projections",
        Column("name", Text, primary_key=True),
        Column("version", Integer, nullable=False),
        Column("base", Id, nullable=False),
        Column("starts_after", Id, nullable=False),
        Column("rebuilt_at", Double),
        Column("rebuild", Text),
        Column("position", Id),
    )
    op.create_table(
        "projection_rows",
        Column("stage", Text, primary_key=True),
        Column("key", Text, primary_key=True),
        Column("projection", Text, primary_key=True),
        Column("sort", Double, nullable=False),
        Column("data", JSON, nullable=False),
    )
    op.create_index(
        "ix_projection_rows_stage_projection_sort",
        "projection_rows",
        ["stage", "projection", "sort"],
    )


def _append_counts() -> None:
    """Append the state and counts of each job, and the number of records of each source."""
    connection = op.get_bind()
    counted = select(_items.c.job_id, _items.c.state, func.count())
    counts: dict[str, dict[str, int]] = {}
    for job, state, count in connection.execute(counted.group_by("job_id", "state")):
        mine = counts.setdefault(job, {})
        name = state if state in _FINAL else "open"
        mine[name] = mine.get(name, 0) + count
    rows = []
    for job in connection.execute(select(_jobs)).all():
        items = {name: counts.get(job.id, {}).get(name, 0) for name in ("open", *_FINAL)}
        data = {"state": job.state, "reason": job.reason, "ended_at": job.finished_at}
        row = {"job_id": job.id, "at": job.finished_at or job.created_at, "subject": None}
        rows.append({**row, "type": "job.counted", "data": {**data, "items": items}})
    newest = func.max(_records.c.changed_at)
    present = select(_records.c.source, func.count(), newest).group_by("source")
    for source, count, at in connection.execute(present).all():
        row = {"job_id": None, "at": at, "subject": f"source/{source}", "type": "source.counted"}
        rows.append({**row, "data": {"source": source, "records": count}})
    if rows:
        connection.execute(insert(_events), [{**row, "version": 1} for row in rows])


def downgrade() -> None:
    connection = op.get_bind()
    created = select(_events.c.id, _events.c.data).where(
        _events.c.type == "job.created", _events.c.version > 1
    )
    for event, data in connection.execute(created).all():
        _rewrite(event, {name: data[name] for name in data if name != "source"}, version=1)
    op.execute("DELETE FROM events WHERE type IN ('job.counted', 'source.counted')")
    op.drop_table("projection_rows")
    op.drop_table("projections")
    op.drop_column("jobs", "found_all")
    op.drop_column("records", "gone_at")


def _rewrite(event: int, data: dict[str, object], *, version: int) -> None:
    changed = update(_events).where(_events.c.id == event).values(data=data, version=version)
    op.get_bind().execute(changed)
