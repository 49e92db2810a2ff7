"""The tables, as SQLAlchemy Core sees them; `migrations/` makes them.

Moments are seconds since the epoch: one double that sorts, compares and adds the same way in
SQLite, PostgreSQL and Python, and is read as a datetime where a person sees it.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

from longline.core.errors import FailureKind
from longline.core.model import ChunkState, ItemState, JobState, QuestionState
from longline.storage.columns import Checked, Choice, Json, Number, Time

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# Counted up for as long as the database lives; SQLite does so for columns of its Integer only.
Id = BigInteger().with_variant(Integer(), "sqlite")

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("source", Text, nullable=False),
    Column("identity", Text, nullable=False),  # hash of source and settings: finds the job again
    Column("state", Choice(JobState), nullable=False),
    Column("settings", Json, nullable=False),
    Column("created_at", Time, nullable=False),
    Column("started_at", Time),
    Column("finished_at", Time),
    Column("reason", Text),
    Column("cursor", Json),
    Column("is_discovered", Boolean, nullable=False, default=False),
    Column("discovery_owner", Text),
    Column("discovery_until", Time),
    Column("shortfall", Text),  # why not all could be found, when that is known
    Column("engine", Text, nullable=False, server_default="local"),  # who works on it
    Column("runs", Integer, nullable=False, server_default="0"),  # how often work on it has begun
    Index("ix_jobs_identity", "identity", "created_at"),
    Index("ix_jobs_state", "state"),
)

items = Table(
    "items",
    metadata,
    Column("id", Id, primary_key=True),
    Column("job_id", Text, ForeignKey("jobs.id"), nullable=False),
    Column("key", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("data", Json, nullable=False),
    Column("priority", Integer, nullable=False, default=0),
    Column("state", Choice(ItemState), nullable=False),
    Column("due_at", Time, nullable=False, default=0.0),
    Column("tries", Integer, nullable=False, default=0),
    Column("lease_owner", Text),
    Column("lease_token", Integer, nullable=False, default=0),
    Column("lease_until", Time),
    Column("kind", Choice(FailureKind)),
    Column("reason", Text),
    Column("raw", Json),  # what a quarantined item was made of
    Column("seconds", Number),
    Column("finished_at", Time),
    Column("domain", Text, nullable=False, server_default=""),  # whose workers it waits for
    Column("requests", Integer, nullable=False, server_default="0"),  # of all its tries
    Column("status", Integer),  # of the last answer
    Column("deaths", Integer, nullable=False, server_default="0"),  # of workers that had it in hand
    UniqueConstraint("job_id", "key"),
)
# What to lease next of a domain, read straight from the index: due first within a priority, so
# that items parked until later never stand in the way of fresh ones.
Index(
    "ix_items_next",
    items.c.job_id,
    items.c.state,
    items.c.domain,
    items.c.priority.desc(),
    items.c.due_at,
)
# Which was finished last, asked while others wait for an answer; what is not finished is left out,
# so that leases and what they put back do not touch it.
Index(
    "ix_items_finished",
    items.c.job_id,
    items.c.finished_at,
    sqlite_where=items.c.finished_at.is_not(None),
    postgresql_where=items.c.finished_at.is_not(None),
)

chunks = Table(
    "chunks",  # work that a cluster was told of: each message carries the id of one
    metadata,
    Column("id", Id, primary_key=True),
    Column("job_id", Text, ForeignKey("jobs.id"), nullable=False),
    Column("state", Choice(ChunkState), nullable=False),  # offered, taken, done, lost
    Column("offered_at", Time, nullable=False),
    Column("sent_at", Time),  # the last time that a message was sent for it
    Column("owner", Text),  # whoever took it; its items are leased to the same name
    Column("taken_at", Time),
    Column("items", Integer, nullable=False, server_default="0"),  # leased with it
    Column("finished_at", Time),
    Index("ix_chunks_job_id_state", "job_id", "state"),
    Index("ix_chunks_state_job_id", "state", "job_id"),  # what is offered, of all jobs
)

failures = Table(
    "failures",  # every attempt that failed; those that did not are counted in items
    metadata,
    Column("id", Id, primary_key=True),
    Column("job_id", Text, nullable=False),
    Column("key", Text),  # None: an attempt of discovery
    Column("tries", Integer, nullable=False),
    Column("at", Time, nullable=False),
    Column("kind", Choice(FailureKind), nullable=False),
    Column("status", Integer),
    Column("step", Text, nullable=False),  # what was done about it
    Column("seconds", Number, nullable=False),
    Column("url", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Index("ix_failures_job_id_key", "job_id", "key"),
)

records = Table(
    "records",
    metadata,
    Column("id", Id, primary_key=True),
    Column("source", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("job_id", Text),  # the job that saw it last
    Column("version", Integer, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("score", Number),
    Column("grade", Text),
    Column("first_seen_at", Time, nullable=False),
    Column("changed_at", Time, nullable=False),
    Column("seen_at", Time, nullable=False),
    Column("data", Json, nullable=False),
    Column("about", Json, nullable=False),  # provenance, notes, layers, parts of the score
    Column("changed_by", Text),  # the job that made this version; None: a person, or unknown
    UniqueConstraint("source", "key"),
    Index("ix_records_job_id", "job_id"),
)

record_versions = Table(
    "record_versions",  # what a record was before it changed; the present one stands in records
    metadata,
    Column("record_id", Id, ForeignKey("records.id"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("job_id", Text),  # the job that made it; None: a person, or unknown
    Column("fingerprint", Text, nullable=False),
    Column("score", Number),
    Column("since", Time, nullable=False),
    Column("until", Time, nullable=False),
    Column("data", Json, nullable=False),
    Column("about", Json, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("id", Id, primary_key=True),
    Column("job_id", Text, nullable=False),
    Column("at", Time, nullable=False),
    Column("kind", Text, nullable=False),
    Column("key", Text),
    Column("data", Json, nullable=False),
    Index("ix_events_job_id_kind", "job_id", "kind"),
)

statistics = Table(
    "statistics",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", Number, nullable=False),
)

# ---------------------------------------------------------------- the same thing on several sites

match_rules = Table(
    "match_rules",  # of the last search: what a person decides is looked at by the same rules
    metadata,
    Column("kind", Text, primary_key=True),
    Column("rules", Text, nullable=False),
    Column("at", Time, nullable=False),
)

match_records = Table(
    "match_records",  # which records were compared, by the version that was
    metadata,
    Column("kind", Text, primary_key=True),  # the name of the rules
    Column("record_id", Id, ForeignKey("records.id"), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("rules", Text, nullable=False),  # a hash of the rules: changed ones compare anew
    Column("known", Integer, nullable=False),  # how many of the compared fields it has
)

match_blocks = Table(
    "match_blocks",  # records that share a block are compared with each other, others never
    metadata,
    Column("kind", Text, primary_key=True),
    Column("block", Text, primary_key=True),
    Column("record_id", Id, ForeignKey("records.id"), primary_key=True),
    Index("ix_match_blocks_kind_record_id", "kind", "record_id"),
)

matches = Table(
    "matches",  # pairs of records that are, or may be, the same thing; left_id < right_id
    metadata,
    Column("kind", Text, primary_key=True),
    Column("left_id", Id, ForeignKey("records.id"), primary_key=True),
    Column("right_id", Id, ForeignKey("records.id"), primary_key=True),
    Column("score", Number, nullable=False),
    Column("is_match", Boolean, nullable=False),  # what the rules say
    Column("evidence", Json, nullable=False),  # field by field
    Column("decision", Text),  # what a person said: confirmed or rejected; stays whatever the rules
    Column("decided_at", Time),
    Column("at", Time, nullable=False),
    Index("ix_matches_kind_right_id", "kind", "right_id"),
)

# ---------------------------------------------------------------- what is added to records later

questions = Table(
    "questions",  # one a text, however many records have it; its answer is kept for ever
    metadata,
    Column("id", Text, primary_key=True),  # hash of model, prompt, schema and text
    Column("task", Text, nullable=False),
    Column("version", Text, nullable=False),  # of the prompt
    Column("model", Text, nullable=False),
    Column("asked", Json, nullable=False),
    Column(
        "state", Choice(QuestionState), nullable=False
    ),  # queued, leased, answered, failed, skipped
    Column("answer", Json),
    Column("reason", Text),
    Column("tries", Integer, nullable=False, default=0),
    Column("due_at", Time, nullable=False, default=0.0),
    Column("lease_owner", Text),
    Column("lease_until", Time),
    Column("tokens", Integer, nullable=False, default=0),
    Column("created_at", Time, nullable=False),
    Column("finished_at", Time),
    Index("ix_questions_task_state", "task", "state", "due_at"),
)

enrichments = Table(
    "enrichments",  # which question a record asked; the machine-made answer stands there
    metadata,
    Column("record_id", Id, ForeignKey("records.id"), primary_key=True),
    Column("task", Text, primary_key=True),
    Column("question_id", Text, ForeignKey("questions.id"), nullable=False),
    Column("version", Integer, nullable=False),  # of the record that asked
    Index("ix_enrichments_question_id", "question_id"),
)

# ---------------------------------------------------------------- what runs leave behind

profiles = Table(
    "profiles",  # what the fields of a source looked like in a job: what drift is told by
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("source", Text, nullable=False),
    Column("at", Time, nullable=False),
    Column("is_sound", Boolean, nullable=False),  # false: it drifted, and is no measure for others
    Column("profile", Json, nullable=False),
    Index("ix_profiles_source_at", "source", "at"),
)

export_marks = Table(
    "export_marks",  # which version of a record an incremental export has written
    metadata,
    Column("name", Text, primary_key=True),  # of the export
    Column("record_id", Id, ForeignKey("records.id"), primary_key=True),
    Column("version", Integer, nullable=False),
)

# ---------------------------------------------------------------- what processes share

cells = Table(
    "cells",  # small values that many processes change: learned limits, budgets, bookmarks
    metadata,
    Column("room", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("state", Json, nullable=False),
)

leaders = Table(
    "leaders",  # who does what only one may do; whoever does not renew it in time loses it
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("until", Time, nullable=False),
)

# ---------------------------------------------------------------- what belongs to a server alone

# Neither data nor state: never copied, and only PostgreSQL has it.
plumbing = MetaData(naming_convention=metadata.naming_convention)

writers = Table(
    "writers",  # the last transaction of each process: whether it is there, when no answer came
    plumbing,
    Column("name", Text, primary_key=True),
    Column("word", Text, nullable=False),
    Column("until", Time, nullable=False),
)

for _table in (*metadata.tables.values(), writers):
    for _column in _table.columns:
        if isinstance(_column.type, Checked):
            _column.type.name = str(_column)  # jobs.state
