"""The tables; `migrations/` creates them.

Times are seconds since the epoch: a double that sorts, compares and adds the same way in SQLite,
PostgreSQL and Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

from longline.core.errors import FailureKind, StoreDamaged
from longline.core.model import ChunkState, ItemState, JobState, QuestionState

# ---------------- Column types that detect damaged values, and values made storable in every

_FIRST_TIME, _LAST_TIME = -62_135_596_800.0, 253_402_300_799.0  # the years 1 to 9999
_REMEDY = "Nothing was changed. Restore a backup of the database, or correct that value"
_SHOWN = 40  # characters of a damaged value


class DamagedValue(Exception):
    """A stored value that longline did not write; the message names its table and column."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f"{column} {problem}")

    def at(self, address: str) -> StoreDamaged:
        """Return the error for the database at an address."""
        return StoreDamaged(address, str(self), _REMEDY)


class Checked(TypeDecorator[Any]):
    """A column type whose values are checked when they are read."""

    impl: Any = Text
    cache_ok = True
    name = "a column"
    """Table and column, for messages."""

    def damaged(self, value: object, expected: str) -> DamagedValue:
        """Return the error for a value."""
        text = repr(value)
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        return DamagedValue(self.name, f"holds {shown}, which is not {expected}")


class Choice(Checked):
    """Text that is one of the values of an enumeration."""

    cache_ok = True

    def __init__(self, kind: type[StrEnum]) -> None:
        super().__init__()
        self.kind = kind
        self._allowed = frozenset(one.value for one in kind)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        del dialect
        if value is None or value in self._allowed:
            return value
        raise self.damaged(value, f"one of {', '.join(sorted(self._allowed))}")


class Number(Checked):
    """A number; SQLite would return text from such a column, too."""

    impl = Double
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        del dialect
        if value is None or isinstance(value, float | int):
            return value
        raise self.damaged(value, "a number")


class Time(Number):
    """Seconds since the epoch."""

    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        if (
            value is None
            or _FIRST_TIME <= super().process_result_value(value, dialect) <= _LAST_TIME
        ):
            return value
        raise self.damaged(value, "a time")


class Json(Checked):
    """JSON as text, so that objects keep the order of their keys; JSONB would sort them."""

    impl = JSON
    cache_ok = True

    def coerce_compared_value(self, op: Any, value: Any) -> Any:
        return self.impl_instance.coerce_compared_value(op, value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        load = super().result_processor(dialect, coltype)
        if load is None:
            return None

        def check(value: Any) -> Any:
            try:
                return load(value)
            except ValueError as error:
                raise DamagedValue(self.name, f"should be JSON and is not: {error}") from error

        return check


@contextmanager
def decoding(column: Column[Any]) -> Iterator[None]:
    """Build an object from the JSON in a column; a key or value that does not fit is damage.

    Raises:
        DamagedValue: the object cannot be built.
    """
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"does not have the expected content ({type(error).__name__}: {error})"
        raise DamagedValue(str(column), problem) from error


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite numbers rows automatically only in columns of its type Integer.
Id = BigInteger().with_variant(Integer(), "sqlite")

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("source", Text, nullable=False),
    Column("identity", Text, nullable=False),  # hash of source and settings
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
    Column("shortfall", Text),  # why discovery was incomplete, if known
    Column("engine", Text, nullable=False, server_default="local"),  # local or celery
    Column("runs", Integer, nullable=False, server_default="0"),  # how often it was started
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
    Column("raw", Json),  # material of a quarantined item
    Column("seconds", Number),
    Column("finished_at", Time),
    Column("domain", Text, nullable=False, server_default=""),  # host and port
    Column("requests", Integer, nullable=False, server_default="0"),  # of all attempts
    Column("status", Integer),  # of the last response
    Column("deaths", Integer, nullable=False, server_default="0"),  # of workers that had it leased
    UniqueConstraint("job_id", "key"),
)
# The next item to lease of a domain: by due time within a priority, so that deferred items are
# never scanned before queued ones.
Index(
    "ix_items_next",
    items.c.job_id,
    items.c.state,
    items.c.domain,
    items.c.priority.desc(),
    items.c.due_at,
)
# The last finished item. Unfinished items are left out, so that leases do not update it.
Index(
    "ix_items_finished",
    items.c.job_id,
    items.c.finished_at,
    sqlite_where=items.c.finished_at.is_not(None),
    postgresql_where=items.c.finished_at.is_not(None),
)

chunks = Table(
    "chunks",  # units of work of a cluster: each message carries the id of one
    metadata,
    Column("id", Id, primary_key=True),
    Column("job_id", Text, ForeignKey("jobs.id"), nullable=False),
    Column("state", Choice(ChunkState), nullable=False),  # offered, taken, done, lost
    Column("offered_at", Time, nullable=False),
    Column("sent_at", Time),  # when its last message was sent
    Column("owner", Text),  # its items are leased to the same name
    Column("taken_at", Time),
    Column("items", Integer, nullable=False, server_default="0"),  # leased with it
    Column("finished_at", Time),
    Index("ix_chunks_job_id_state", "job_id", "state"),
    Index("ix_chunks_state_job_id", "state", "job_id"),  # offered chunks of all jobs
)

failures = Table(
    "failures",  # the failure log: every failed attempt
    metadata,
    Column("id", Id, primary_key=True),
    Column("job_id", Text, nullable=False),
    Column("key", Text),  # None: discovery
    Column("tries", Integer, nullable=False),
    Column("at", Time, nullable=False),
    Column("kind", Choice(FailureKind), nullable=False),
    Column("status", Integer),
    Column("step", Text, nullable=False),  # the retry decision
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
    Column("job_id", Text),  # the last job that saw it
    Column("version", Integer, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("score", Number),
    Column("grade", Text),
    Column("first_seen_at", Time, nullable=False),
    Column("changed_at", Time, nullable=False),
    Column("seen_at", Time, nullable=False),
    Column("data", Json, nullable=False),
    Column("about", Json, nullable=False),  # provenance, notes, layers, parts of the score
    Column("changed_by", Text),  # the job that wrote this version; None: manual edit, or unknown
    UniqueConstraint("source", "key"),
    Index("ix_records_job_id", "job_id"),
)

record_versions = Table(
    "record_versions",  # earlier versions of records; the present one is in records
    metadata,
    Column("record_id", Id, ForeignKey("records.id"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("job_id", Text),  # the job that wrote it; None: manual edit, or unknown
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

# ---------------- Duplicates

match_rules = Table(
    "match_rules",  # rules of the last search, by which decisions are judged
    metadata,
    Column("kind", Text, primary_key=True),
    Column("rules", Text, nullable=False),
    Column("at", Time, nullable=False),
)

match_records = Table(
    "match_records",  # which version of a record was compared
    metadata,
    Column("kind", Text, primary_key=True),  # the name of the rules
    Column("record_id", Id, ForeignKey("records.id"), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("rules", Text, nullable=False),  # hash of the rules; changed rules compare again
    Column("known", Integer, nullable=False),  # how many compared fields have a value
)

match_blocks = Table(
    "match_blocks",  # only records that share a block are compared
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
    Column("is_match", Boolean, nullable=False),  # by the rules
    Column("evidence", Json, nullable=False),  # field by field
    Column("decision", Text),  # of a person: confirmed or rejected
    Column("decided_at", Time),
    Column("at", Time, nullable=False),
    Index("ix_matches_kind_right_id", "kind", "right_id"),
)

# ---------------- Enrichment

questions = Table(
    "questions",  # one per text, however many records have it
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
    "enrichments",  # which question a record has
    metadata,
    Column("record_id", Id, ForeignKey("records.id"), primary_key=True),
    Column("task", Text, primary_key=True),
    Column("question_id", Text, ForeignKey("questions.id"), nullable=False),
    Column("version", Integer, nullable=False),  # of the record
    Index("ix_enrichments_question_id", "question_id"),
)

# ---------------- Drift and exports

profiles = Table(
    "profiles",  # profiles of the fields of a source in a job, for drift
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("source", Text, nullable=False),
    Column("at", Time, nullable=False),
    Column("is_sound", Boolean, nullable=False),  # false: it drifted, and is not a baseline
    Column("profile", Json, nullable=False),
    Index("ix_profiles_source_at", "source", "at"),
)

export_marks = Table(
    "export_marks",  # export cursors: which version of a record an export has written
    metadata,
    Column("name", Text, primary_key=True),  # of the export
    Column("record_id", Id, ForeignKey("records.id"), primary_key=True),
    Column("version", Integer, nullable=False),
)

# ---------------- Shared state

cells = Table(
    "cells",  # small values that processes share: learned limits, budgets, bookmarks
    metadata,
    Column("room", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("state", Json, nullable=False),
)

leaders = Table(
    "leaders",  # leader leases
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("until", Time, nullable=False),
)

# ---------------- PostgreSQL only: never copied

plumbing = MetaData(naming_convention=metadata.naming_convention)

writers = Table(
    "writers",  # the last transaction of each process, to find out whether it was committed
    plumbing,
    Column("name", Text, primary_key=True),
    Column("word", Text, nullable=False),
    Column("until", Time, nullable=False),
)

for _table in (*metadata.tables.values(), writers):
    for _column in _table.columns:
        if isinstance(_column.type, Checked):
            _column.type.name = str(_column)  # jobs.state
