"""Domains of items, what each item cost, failed attempts, what a job is short of."""

from alembic import op
from sqlalchemy import BigInteger, Column, Double, Integer, Text, text

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

Id = BigInteger().with_variant(Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("items", Column("domain", Text, nullable=False, server_default=""))
    op.add_column("items", Column("requests", Integer, nullable=False, server_default="0"))
    op.add_column("items", Column("status", Integer))
    op.add_column("jobs", Column("shortfall", Text))
    op.drop_index("ix_items_next", "items")
    op.create_index(
        "ix_items_next", "items", ["job_id", "state", "domain", text("priority DESC"), "due_at"]
    )
    op.create_table(
        "failures",
        Column("id", Id, primary_key=True),
        Column("job_id", Text, nullable=False),
        Column("key", Text),
        Column("tries", Integer, nullable=False),
        Column("at", Double, nullable=False),
        Column("kind", Text, nullable=False),
        Column("status", Integer),
        Column("step", Text, nullable=False),
        Column("seconds", Double, nullable=False),
        Column("url", Text, nullable=False),
        Column("reason", Text, nullable=False),
    )
    op.create_index("ix_failures_job_id_key", "failures", ["job_id", "key"])


def downgrade() -> None:
    op.drop_table("failures")
    op.drop_index("ix_items_next", "items")
    op.create_index("ix_items_next", "items", ["job_id", "state", text("priority DESC"), "due_at"])
    op.drop_column("jobs", "shortfall")
    for column in ("status", "requests", "domain"):
        op.drop_column("items", column)
