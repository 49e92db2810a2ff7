"""Tokens, sessions and one-time links of the web interface; keys of repeated requests."""

from alembic import op
from sqlalchemy import JSON, Column, Double, Integer, Text

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "credentials",
        Column("hash", Text, primary_key=True),
        Column("id", Text, nullable=False),
        Column("kind", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("role", Text, nullable=False),
        Column("parent", Text),
        Column("created_at", Double, nullable=False),
        Column("expires_at", Double),
        Column("revoked_at", Double),
    )
    op.create_index("ix_credentials_id", "credentials", ["id"])
    op.create_table(
        "idempotency_keys",
        Column("caller", Text, primary_key=True),
        Column("key", Text, primary_key=True),
        Column("request_hash", Text, nullable=False),
        Column("status", Integer),
        Column("body", JSON),
        Column("created_at", Double, nullable=False),
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"])


def downgrade() -> None:
    op.drop_table("idempotency_keys")
    op.drop_table("credentials")
