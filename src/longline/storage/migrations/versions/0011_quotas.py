"""What the items of a job have used of a quota."""

from alembic import op
from sqlalchemy import Boolean, Column, Integer, Text

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "quotas",
        Column("job_id", Text, primary_key=True),
        Column("name", Text, primary_key=True),
        Column("used", Integer, nullable=False),
        Column("is_reported", Boolean, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("quotas")
