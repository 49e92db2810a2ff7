"""Events with type, version and subject, in the order of commits; subscribers and webhooks."""

from alembic import op
from sqlalchemy import JSON, BigInteger, Boolean, Column, Double, Integer, Text, text

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

Id = BigInteger().with_variant(Integer(), "sqlite")
_HAS_SUBJECT = text("subject IS NOT NULL")
_RENAMED = {"item.parked": "item.deferred", "robots.pace": "robots.rate"}


def upgrade() -> None:
    op.drop_index("ix_events_job_id_kind", "events")
    if op.get_bind().dialect.name == "sqlite":
        # Without AUTOINCREMENT, SQLite gives the number of a deleted event to another one.
        op.rename_table("events", "events_before")
        op.create_table(
            "events",
            Column("id", Id, primary_key=True),
            Column("job_id", Text),
            Column("at", Double, nullable=False),
            Column("type", Text, nullable=False),
            Column("version", Integer, nullable=False, server_default="1"),
            Column("subject", Text),
            Column("key", Text),
            Column("data", JSON, nullable=False),
            sqlite_autoincrement=True,
        )
        op.execute(
            "INSERT INTO events (id, job_id, at, type, key, data) "
            "SELECT id, job_id, at, kind, key, data FROM events_before"
        )
        op.drop_table("events_before")
    else:
        op.alter_column("events", "kind", new_column_name="type")
        op.alter_column("events", "job_id", nullable=True)
        op.add_column("events", Column("version", Integer, nullable=False, server_default="1"))
        op.add_column("events", Column("subject", Text))
    op.create_index("ix_events_job_id_type", "events", ["job_id", "type"])
    op.create_index(
        "ix_events_subject",
        "events",
        ["subject", "id"],
        sqlite_where=_HAS_SUBJECT,
        postgresql_where=_HAS_SUBJECT,
    )
    for before, after in _RENAMED.items():
        op.execute(f"UPDATE events SET type = '{after}' WHERE type = '{before}'")  # noqa: S608  # ours
    op.create_table(
        "subscribers",
        Column("name", Text, primary_key=True),
        Column("cursor", Id, nullable=False),
        Column("types", JSON, nullable=False),
        Column("filter", JSON, nullable=False),
        Column("is_enabled", Boolean, nullable=False),
        Column("created_at", Double, nullable=False),
        Column("moved_at", Double),
        Column("failures", Integer, nullable=False),
        Column("due_at", Double, nullable=False),
        Column("error", Text),
        Column("owner", Text),
        Column("until", Double),
    )
    op.create_table(
        "webhooks",
        Column("name", Text, primary_key=True),
        Column("url", Text, nullable=False),
        Column("secrets", JSON, nullable=False),
        Column("allows_private", Boolean, nullable=False),
        Column("is_enabled", Boolean, nullable=False),
        Column("created_at", Double, nullable=False),
        Column("disabled_reason", Text),
    )
    op.create_table(
        "webhook_deliveries",
        Column("id", Id, primary_key=True),
        Column("webhook", Text, nullable=False),
        Column("event_id", Id),
        Column("message_id", Text, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("at", Double, nullable=False),
        Column("status", Integer),
        Column("seconds", Double, nullable=False),
        Column("error", Text),
    )
    op.create_index("ix_webhook_deliveries_webhook_id", "webhook_deliveries", ["webhook", "id"])


def downgrade() -> None:
    op.drop_table("webhook_deliveries")
    op.drop_table("webhooks")
    op.drop_table("subscribers")
    op.drop_index("ix_events_subject", "events")
    op.drop_index("ix_events_job_id_type", "events")
    for before, after in _RENAMED.items():
        op.execute(f"UPDATE events SET type = '{before}' WHERE type = '{after}'")  # noqa: S608  # ours
    op.execute("DELETE FROM events WHERE job_id IS NULL")
    with op.batch_alter_table("events") as table:
        table.drop_column("subject")
        table.drop_column("version")
        table.alter_column("job_id", existing_type=Text(), nullable=False)
        table.alter_column("type", new_column_name="kind")
    op.create_index("ix_events_job_id_kind", "events", ["job_id", "kind"])
