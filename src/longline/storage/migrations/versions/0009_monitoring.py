"""Stored log lines, alerts and silences, reports, statistics of sources."""

from alembic import op
from sqlalchemy import JSON, BigInteger, Column, Double, Integer, Text, text

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_IS_OPEN = text("resolved_at IS NULL")

Id = BigInteger().with_variant(Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "logs",
        Column("id", Id, primary_key=True),
        Column("at", Double, nullable=False),
        Column("level", Integer, nullable=False),
        Column("logger", Text, nullable=False),
        Column("message", Text, nullable=False),
        Column("exception", Text),
        Column("job_id", Text),
        Column("source", Text),
        Column("domain", Text),
        Column("key", Text),
        Column("flow", Text),
        Column("worker", Text),
        Column("fields", JSON, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_logs_at", "logs", ["at"])
    op.create_index("ix_logs_job_id", "logs", ["job_id", "id"])
    op.create_index("ix_logs_source", "logs", ["source", "id"])
    op.create_table(
        "alerts",
        Column("id", Id, primary_key=True),
        Column("rule", Text, nullable=False),
        Column("subject", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("severity", Text, nullable=False),
        Column("summary", Text, nullable=False),
        Column("evidence", JSON, nullable=False),
        Column("action", Text, nullable=False),
        Column("since", Double, nullable=False),
        Column("seen_at", Double, nullable=False),
        Column("fired_at", Double),
        Column("resolved_at", Double),
        Column("notified_at", Double),
        Column("escalated_at", Double),
    )
    op.create_index(
        "ix_alerts_open",
        "alerts",
        ["rule", "subject"],
        unique=True,
        sqlite_where=_IS_OPEN,
        postgresql_where=_IS_OPEN,
    )
    op.create_index("ix_alerts_since", "alerts", ["since"])
    op.create_table(
        "silences",
        Column("id", Id, primary_key=True),
        Column("rule", Text),
        Column("subject", Text),
        Column("until", Double, nullable=False),
        Column("reason", Text, nullable=False),
        Column("created_at", Double, nullable=False),
    )
    op.create_table(
        "reports",
        Column("name", Text, primary_key=True),
        Column("nominal_at", Double, primary_key=True),
        Column("made_at", Double, nullable=False),
        Column("content", JSON, nullable=False),
    )
    op.create_table(
        "source_statistics",
        Column("source", Text, primary_key=True),
        Column("name", Text, primary_key=True),
        Column("value", Double, nullable=False),
    )
    op.execute(
        "INSERT INTO source_statistics (source, name, value) "
        "SELECT jobs.source, statistics.name, sum(statistics.value) "
        "FROM statistics JOIN jobs ON jobs.id = statistics.job_id "
        "GROUP BY jobs.source, statistics.name"
    )
    op.create_index("ix_jobs_source", "jobs", ["source", "created_at"])


def downgrade() -> None:
    op.drop_index("ix_jobs_source", "jobs")
    for table in ("source_statistics", "reports", "silences", "alerts", "logs"):
        op.drop_table(table)
