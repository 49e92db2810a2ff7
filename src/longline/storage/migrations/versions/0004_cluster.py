"""Chunks of work for a cluster, values and duties that its processes share."""

from alembic import op
from sqlalchemy import JSON, BigInteger, Column, Double, ForeignKey, Integer, Text

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

Id = BigInteger().with_variant(Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("jobs", Column("engine", Text, nullable=False, server_default="local"))
    op.add_column("jobs", Column("runs", Integer, nullable=False, server_default="0"))
    op.create_index("ix_jobs_state", "jobs", ["state"])
    op.add_column("items", Column("deaths", Integer, nullable=False, server_default="0"))
    op.add_column("records", Column("changed_by", Text))
    # Until now, they named the job that had seen a version last, which others took for its maker.
    op.execute("UPDATE record_versions SET job_id = NULL")
    op.create_table(
        "chunks",
        Column("id", Id, primary_key=True),
        Column("job_id", Text, ForeignKey("jobs.id"), nullable=False),
        Column("state", Text, nullable=False),
        Column("offered_at", Double, nullable=False),
        Column("sent_at", Double),
        Column("owner", Text),
        Column("taken_at", Double),
        Column("items", Integer, nullable=False, server_default="0"),
        Column("finished_at", Double),
    )
    op.create_index("ix_chunks_job_id_state", "chunks", ["job_id", "state"])
    op.create_index("ix_chunks_state_job_id", "chunks", ["state", "job_id"])
    op.create_table(
        "cells",
        Column("room", Text, primary_key=True),
        Column("name", Text, primary_key=True),
        Column("state", JSON, nullable=False),
    )
    op.create_table(
        "leaders",
        Column("name", Text, primary_key=True),
        Column("owner", Text, nullable=False),
        Column("until", Double, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.create_table(
            "writers",
            Column("name", Text, primary_key=True),
            Column("word", Text, nullable=False),
            Column("until", Double, nullable=False),
        )


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.drop_table("writers")
    for table in ("leaders", "cells", "chunks"):
        op.drop_table(table)
    op.drop_column("records", "changed_by")
    op.drop_column("items", "deaths")
    op.drop_index("ix_jobs_state", "jobs")
    op.drop_column("jobs", "runs")
    op.drop_column("jobs", "engine")
