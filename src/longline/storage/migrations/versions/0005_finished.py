"""An index of finished items by time, which finds the last one."""

from alembic import op
from sqlalchemy import text

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_IS_FINISHED = text("finished_at IS NOT NULL")


def upgrade() -> None:
    op.create_index(
        "ix_items_finished",
        "items",
        ["job_id", "finished_at"],
        sqlite_where=_IS_FINISHED,
        postgresql_where=_IS_FINISHED,
    )


def downgrade() -> None:
    op.drop_index("ix_items_finished", "items")
