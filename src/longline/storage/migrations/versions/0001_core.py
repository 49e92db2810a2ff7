"""Jobs, items, records and their versions, events, statistics."""

from alembic import op
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Integer,
    Text,
    UniqueConstraint,
    text,
)

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

Id = BigInteger().with_variant(Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "jobs",
        Column("id", Text, primary_key=True),
        Column("source", Text, nullable=False),
        Column("identity", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("settings", JSON, nullable=False),
        Column("created_at", Double, nullable=False),
        Column("started_at", Double),
        Column("finished_at", Double),
        Column("reason", Text),
        Column("cursor", JSON),
        Column("is_discovered", Boolean, nullable=False),
        Column("discovery_owner", Text),
        Column("discovery_until", Double),
    )
    op.create_index("ix_jobs_identity", "jobs", ["identity", "created_at"])
    op.create_table(
        "items",
        Column("id", Id, primary_key=True),
        Column("job_id", Text, ForeignKey("jobs.id", name="fk_items_job_id"), nullable=False),
        Column("key", Text, nullable=False),
        Column("url", Text, nullable=False),
        Column("data", JSON, nullable=False),
        Column("priority", Integer, nullable=False),
        Column("state", Text, nullable=False),
        Column("due_at", Double, nullable=False),
        Column("tries", Integer, nullable=False),
        Column("lease_owner", Text),
        Column("lease_token", Integer, nullable=False),
        Column("lease_until", Double),
        Column("kind", Text),
        Column("reason", Text),
        Column("raw", JSON),
        Column("seconds", Double),
        Column("finished_at", Double),
        UniqueConstraint("job_id", "key", name="uq_items_job_id_key"),
    )
    op.create_index("ix_items_next", "items", ["job_id", "state", text("priority DESC"), "due_at"])
    op.create_table(
        "records",
        Column("id", Id, primary_key=True),
        Column("source", Text, nullable=False),
        Column("key", Text, nullable=False),
        Column("url", Text, nullable=False),
        Column("job_id", Text),
        Column("version", Integer, nullable=False),
        Column("fingerprint", Text, nullable=False),
        Column("score", Double),
        Column("grade", Text),
        Column("first_seen_at", Double, nullable=False),
        Column("changed_at", Double, nullable=False),
        Column("seen_at", Double, nullable=False),
        Column("data", JSON, nullable=False),
        Column("about", JSON, nullable=False),
        UniqueConstraint("source", "key", name="uq_records_source_key"),
    )
    op.create_index("ix_records_job_id", "records", ["job_id"])
    op.create_table(
        "record_versions",
        Column(
            "record_id",
            Id,
            ForeignKey("records.id", name="fk_record_versions_record_id"),
            primary_key=True,
        ),
        Column("version", Integer, primary_key=True),
        Column("job_id", Text),
        Column("fingerprint", Text, nullable=False),
        Column("score", Double),
        Column("since", Double, nullable=False),
        Column("until", Double, nullable=False),
        Column("data", JSON, nullable=False),
        Column("about", JSON, nullable=False),
    )
    op.create_table(
        "events",
        Column("id", Id, primary_key=True),
        Column("job_id", Text, nullable=False),
        Column("at", Double, nullable=False),
        Column("kind", Text, nullable=False),
        Column("key", Text),
        Column("data", JSON, nullable=False),
    )
    op.create_index("ix_events_job_id_kind", "events", ["job_id", "kind"])
    op.create_table(
        "statistics",
        Column("job_id", Text, primary_key=True),
        Column("name", Text, primary_key=True),
        Column("value", Double, nullable=False),
    )


def downgrade() -> None:
    for table in ("statistics", "events", "record_versions", "records", "items", "jobs"):
        op.drop_table(table)
