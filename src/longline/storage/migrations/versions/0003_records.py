"""Duplicates across sites, enrichment, profiles of fields, marks of incremental exports."""

from alembic import op
from sqlalchemy import JSON, BigInteger, Boolean, Column, Double, ForeignKey, Integer, Text

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

Id = BigInteger().with_variant(Integer(), "sqlite")


def upgrade() -> None:
    _create_matches()
    _create_enrichments()
    op.create_table(
        "profiles",
        Column("job_id", Text, primary_key=True),
        Column("source", Text, nullable=False),
        Column("at", Double, nullable=False),
        Column("is_sound", Boolean, nullable=False),
        Column("profile", JSON, nullable=False),
    )
    op.create_index("ix_profiles_source_at", "profiles", ["source", "at"])
    op.create_table(
        "export_marks",
        Column("name", Text, primary_key=True),
        Column("record_id", Id, ForeignKey("records.id"), primary_key=True),
        Column("version", Integer, nullable=False),
    )


def _create_matches() -> None:
    op.create_table(
        "match_rules",
        Column("kind", Text, primary_key=True),
        Column("rules", Text, nullable=False),
        Column("at", Double, nullable=False),
    )
    op.create_table(
        "match_records",
        Column("kind", Text, primary_key=True),
        Column("record_id", Id, ForeignKey("records.id"), primary_key=True),
        Column("version", Integer, nullable=False),
        Column("rules", Text, nullable=False),
        Column("known", Integer, nullable=False),
    )
    op.create_table(
        "match_blocks",
        Column("kind", Text, primary_key=True),
        Column("block", Text, primary_key=True),
        Column("record_id", Id, ForeignKey("records.id"), primary_key=True),
    )
    op.create_index("ix_match_blocks_kind_record_id", "match_blocks", ["kind", "record_id"])
    op.create_table(
        "matches",
        Column("kind", Text, primary_key=True),
        Column("left_id", Id, ForeignKey("records.id"), primary_key=True),
        Column("right_id", Id, ForeignKey("records.id"), primary_key=True),
        Column("score", Double, nullable=False),
        Column("is_match", Boolean, nullable=False),
        Column("evidence", JSON, nullable=False),
        Column("decision", Text),
        Column("decided_at", Double),
        Column("at", Double, nullable=False),
    )
    op.create_index("ix_matches_kind_right_id", "matches", ["kind", "right_id"])


def _create_enrichments() -> None:
    op.create_table(
        "questions",
        Column("id", Text, primary_key=True),
        Column("task", Text, nullable=False),
        Column("version", Text, nullable=False),
        Column("model", Text, nullable=False),
        Column("asked", JSON, nullable=False),
        Column("state", Text, nullable=False),
        Column("answer", JSON),
        Column("reason", Text),
        Column("tries", Integer, nullable=False),
        Column("due_at", Double, nullable=False),
        Column("lease_owner", Text),
        Column("lease_until", Double),
        Column("tokens", Integer, nullable=False),
        Column("created_at", Double, nullable=False),
        Column("finished_at", Double),
    )
    op.create_index("ix_questions_task_state", "questions", ["task", "state", "due_at"])
    op.create_table(
        "enrichments",
        Column("record_id", Id, ForeignKey("records.id"), primary_key=True),
        Column("task", Text, primary_key=True),
        Column("question_id", Text, ForeignKey("questions.id"), nullable=False),
        Column("version", Integer, nullable=False),
    )
    op.create_index("ix_enrichments_question_id", "enrichments", ["question_id"])


def downgrade() -> None:
    for table in (
        *("export_marks", "profiles", "enrichments", "questions"),
        *("matches", "match_blocks", "match_records", "match_rules"),
    ):
        op.drop_table(table)
