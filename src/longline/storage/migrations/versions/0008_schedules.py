"""Schedules and their occurrences, launches, flows and their steps."""

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

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_IS_QUEUED = text("fate = 'queued'")

Id = BigInteger().with_variant(Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "schedules",
        Column("name", Text, primary_key=True),
        Column("definition", JSON, nullable=False),
        Column("origin", Text, nullable=False),
        Column("created_at", Double, nullable=False),
        Column("decided_until", Double, nullable=False),
        Column("paused_at", Double),
        Column("pause_reason", Text),
        Column("failures", Integer, nullable=False, server_default="0"),
        Column("removed_at", Double),
    )
    op.create_table(
        "occurrences",
        Column("schedule", Text, primary_key=True),
        Column("nominal_at", Double, primary_key=True),
        Column("kind", Text, nullable=False),
        Column("fate", Text, nullable=False),
        Column("reason", Text),
        Column("decided_at", Double, nullable=False),
        Column("launch_id", Id),
    )
    op.create_index(
        "ix_occurrences_queued",
        "occurrences",
        ["schedule"],
        sqlite_where=_IS_QUEUED,
        postgresql_where=_IS_QUEUED,
    )
    op.create_index("ix_occurrences_decided_at", "occurrences", ["decided_at"])
    op.create_table(
        "launches",
        Column("id", Id, primary_key=True),
        Column("key", Text),
        Column("kind", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("spec", JSON, nullable=False),
        Column("origin", Text, nullable=False),
        Column("priority", Integer, nullable=False),
        Column("state", Text, nullable=False),
        Column("due_at", Double, nullable=False),
        Column("created_at", Double, nullable=False),
        Column("started_at", Double),
        Column("ended_at", Double),
        Column("target", Text),
        Column("owner", Text),
        Column("until", Double),
        Column("deaths", Integer, nullable=False, server_default="0"),
        Column("result", Text),
        Column("reason", Text),
        UniqueConstraint("key"),
    )
    op.create_index("ix_launches_state", "launches", ["state", "priority"])
    op.create_index("ix_launches_origin", "launches", ["origin"])
    op.create_index("ix_launches_target", "launches", ["target"])
    op.create_table(
        "flow_runs",
        Column("id", Text, primary_key=True),
        Column("key", Text),
        Column("root", Text, nullable=False),
        Column("flow", Text, nullable=False),
        Column("is_undoable", Boolean, nullable=False),
        Column("definition", JSON, nullable=False),
        Column("hash", Text, nullable=False),
        Column("params", JSON, nullable=False),
        Column("origin", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("reason", Text),
        Column("stop", Text),
        Column("created_at", Double, nullable=False),
        Column("started_at", Double),
        Column("ended_at", Double),
        Column("due_at", Double),
        Column("owner", Text),
        Column("until", Double),
        Column("fence", Integer, nullable=False, server_default="0"),
        UniqueConstraint("key"),
    )
    op.create_index("ix_flow_runs_state", "flow_runs", ["state"])
    op.create_index("ix_flow_runs_root", "flow_runs", ["root"])
    op.create_index("ix_flow_runs_flow", "flow_runs", ["flow", "created_at"])
    op.create_index("ix_flow_runs_is_undoable", "flow_runs", ["flow", "is_undoable"])
    op.create_table(
        "flow_steps",
        Column("run_id", Text, ForeignKey("flow_runs.id"), primary_key=True),
        Column("step", Text, primary_key=True),
        Column("state", Text, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("starts", Integer, nullable=False),
        Column("due_at", Double, nullable=False),
        Column("input_hash", Text),
        Column("output", JSON),
        Column("reason", Text),
        Column("started_at", Double),
        Column("ended_at", Double),
        Column("undo", JSON),
        Column("undo_state", Text),
        Column("undo_attempt", Integer, nullable=False, server_default="0"),
        Column("undo_reason", Text),
    )


def downgrade() -> None:
    for table in ("flow_steps", "flow_runs", "launches", "occurrences", "schedules"):
        op.drop_table(table)
