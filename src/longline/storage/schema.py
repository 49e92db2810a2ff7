"""The tables of a new database; `migrations/` upgrades older ones to it.

Times are seconds since the epoch: a double that sorts, compares and adds the same way in SQLite,
PostgreSQL and Python. JSON is stored as text, so that objects keep the order of their keys; JSONB
would sort them.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

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
    Column("state", Text, nullable=False),
    Column("settings", JSON, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("finished_at", Double),
    Column("reason", Text),
    Column("cursor", JSON),
    Column("is_discovered", Boolean, nullable=False, default=False),
    Column("discovery_owner", Text),
    Column("discovery_until", Double),
    Column("shortfall", Text),  # why discovery was incomplete, if known
    Column("engine", Text, nullable=False, server_default="local"),  # local or celery
    Column("runs", Integer, nullable=False, server_default="0"),  # how often it was started
    Column("found_all", Boolean),  # whether it found all that its source lists; None: not known
    Index("ix_jobs_identity", "identity", "created_at"),
    Index("ix_jobs_state", "state"),
    Index("ix_jobs_source", "source", "created_at"),
)

items = Table(
    "items",
    metadata,
    Column("id", Id, primary_key=True),
    Column("job_id", Text, ForeignKey("jobs.id"), nullable=False),
    Column("key", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("data", JSON, nullable=False),
    Column("priority", Integer, nullable=False, default=0),
    Column("state", Text, nullable=False),
    Column("due_at", Double, nullable=False, default=0.0),
    Column("tries", Integer, nullable=False, default=0),
    Column("lease_owner", Text),
    Column("lease_token", Integer, nullable=False, default=0),
    Column("lease_until", Double),
    Column("kind", Text),
    Column("reason", Text),
    Column("raw", JSON),  # material of a quarantined item
    Column("seconds", Double),
    Column("finished_at", Double),
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
    Column("state", Text, nullable=False),  # offered, taken, done, lost
    Column("offered_at", Double, nullable=False),
    Column("sent_at", Double),  # when its last message was sent
    Column("owner", Text),  # its items are leased to the same name
    Column("taken_at", Double),
    Column("items", Integer, nullable=False, server_default="0"),  # leased with it
    Column("finished_at", Double),
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
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("status", Integer),
    Column("step", Text, nullable=False),  # the retry decision
    Column("seconds", Double, nullable=False),
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
    Column("score", Double),
    Column("grade", Text),
    Column("first_seen_at", Double, nullable=False),
    Column("changed_at", Double, nullable=False),
    Column("seen_at", Double, nullable=False),
    Column("data", JSON, nullable=False),
    Column("about", JSON, nullable=False),  # provenance, notes, layers, parts of the score
    Column("changed_by", Text),  # the job that wrote this version; None: manual edit, or unknown
    Column("gone_at", Double),  # when its source was found not to have it any more
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
    Column("score", Double),
    Column("since", Double, nullable=False),
    Column("until", Double, nullable=False),
    Column("data", JSON, nullable=False),
    Column("about", JSON, nullable=False),
)

events = Table(
    "events",  # the log of record: numbered in the order of commits, never changed
    metadata,
    Column("id", Id, primary_key=True),
    Column("job_id", Text),  # None: it is not about a job
    Column("at", Double, nullable=False),
    Column("type", Text, nullable=False),
    Column("version", Integer, nullable=False, server_default="1"),  # of the type
    Column("subject", Text),  # such as domain/HOST; None: the job
    Column("key", Text),  # of an item or a record
    Column("data", JSON, nullable=False),
    Index("ix_events_job_id_type", "job_id", "type"),
    sqlite_autoincrement=True,  # else SQLite gives the number of a deleted event to another one
)
Index(
    "ix_events_subject",
    events.c.subject,
    events.c.id,
    sqlite_where=events.c.subject.is_not(None),
    postgresql_where=events.c.subject.is_not(None),
)

subscribers = Table(
    "subscribers",  # who reads the events, and how far
    metadata,
    Column("name", Text, primary_key=True),
    Column("cursor", Id, nullable=False),  # the last event that was handled
    Column("types", JSON, nullable=False),  # names; empty: all
    Column("filter", JSON, nullable=False),  # job, source, subject
    Column("is_enabled", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("moved_at", Double),  # when the cursor last moved
    Column("failures", Integer, nullable=False),  # in a row
    Column("due_at", Double, nullable=False),  # when to try again
    Column("error", Text),  # of the last failure
    Column("owner", Text),  # the process that reads for it
    Column("until", Double),
)

projections = Table(
    "projections",  # read models of the events: which version of each the rows are
    metadata,
    Column("name", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("base", Id, nullable=False),  # the event up to which the stage `base` has its rows
    Column("starts_after", Id, nullable=False),  # events up to this one are not counted: deleted
    Column("rebuilt_at", Double),
    Column("rebuild", Text),  # names the replay that is running
    Column("position", Id),  # the last event that it has applied
)

projection_rows = Table(
    "projection_rows",
    metadata,
    Column("stage", Text, primary_key=True),  # live, base or new
    Column("key", Text, primary_key=True),
    Column("projection", Text, primary_key=True),
    Column("sort", Double, nullable=False),  # rows are listed by it
    Column("data", JSON, nullable=False),
    Index("ix_projection_rows_stage_projection_sort", "stage", "projection", "sort"),
)

webhooks = Table(
    "webhooks",  # where events are sent; the subscriber `webhook/NAME` has the cursor and filter
    metadata,
    Column("name", Text, primary_key=True),
    Column("url", Text, nullable=False),
    Column("secrets", JSON, nullable=False),  # references, newest first; never the secrets
    Column("allows_private", Boolean, nullable=False),
    Column("is_enabled", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("disabled_reason", Text),
)

webhook_deliveries = Table(
    "webhook_deliveries",  # attempts to send an event; the newest of each webhook or channel
    metadata,
    Column("id", Id, primary_key=True),
    Column("webhook", Text, nullable=False),  # or a channel of alerts, such as mail:ops
    Column("event_id", Id),  # null: a test, which is not in the event log
    Column("message_id", Text, nullable=False),
    Column("attempt", Integer, nullable=False),  # from 1, for each message
    Column("at", Double, nullable=False),
    Column("status", Integer),  # null: no response
    Column("seconds", Double, nullable=False),
    Column("error", Text),  # null: delivered
    Index("ix_webhook_deliveries_webhook_id", "webhook", "id"),
)

statistics = Table(
    "statistics",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", Double, nullable=False),
)

quotas = Table(
    "quotas",  # what the items of a job have used of a quota
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("used", Integer, nullable=False),
    Column("is_reported", Boolean, nullable=False),  # that it left out an item
)

source_statistics = Table(
    "source_statistics",  # the sums of all jobs of a source
    metadata,
    Column("source", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", Double, nullable=False),
)

# ---------------- Monitoring

logs = Table(
    "logs",  # warnings and errors of all processes
    metadata,
    Column("id", Id, primary_key=True),
    Column("at", Double, nullable=False),
    Column("level", Integer, nullable=False),  # as in the module logging
    Column("logger", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("exception", Text),
    Column("job_id", Text),
    Column("source", Text),
    Column("domain", Text),
    Column("key", Text),  # of an item
    Column("flow", Text),  # the id of a flow run
    Column("worker", Text),
    Column("fields", JSON, nullable=False),  # further fields of the line
    Index("ix_logs_at", "at"),
    Index("ix_logs_job_id", "job_id", "id"),
    Index("ix_logs_source", "source", "id"),
    sqlite_autoincrement=True,  # readers follow the ids
)

alerts = Table(
    "alerts",  # what rules have found wrong
    metadata,
    Column("id", Id, primary_key=True),
    Column("rule", Text, nullable=False),
    Column("subject", Text, nullable=False),  # such as source/NAME
    Column("state", Text, nullable=False),  # pending, firing, resolved
    Column("severity", Text, nullable=False),  # warning or critical
    Column("summary", Text, nullable=False),
    Column("evidence", JSON, nullable=False),
    Column("action", Text, nullable=False),
    Column("since", Double, nullable=False),
    Column("seen_at", Double, nullable=False),  # when it was last found
    Column("fired_at", Double),
    Column("resolved_at", Double),
    Column("notified_at", Double),
    Column("escalated_at", Double),
    Index("ix_alerts_since", "since"),
)
# Of one rule and subject, one alert is open.
Index(
    "ix_alerts_open",
    alerts.c.rule,
    alerts.c.subject,
    unique=True,
    sqlite_where=alerts.c.resolved_at.is_(None),
    postgresql_where=alerts.c.resolved_at.is_(None),
)

silences = Table(
    "silences",  # alerts that are not notified
    metadata,
    Column("id", Id, primary_key=True),
    Column("rule", Text),  # null: any
    Column("subject", Text),  # a pattern; null: any
    Column("until", Double, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at", Double, nullable=False),
)

reports = Table(
    "reports",  # scheduled reports that were made
    metadata,
    Column("name", Text, primary_key=True),
    Column("nominal_at", Double, primary_key=True),  # with it, a report is made once
    Column("made_at", Double, nullable=False),
    Column("content", JSON, nullable=False),
)

# ---------------- Duplicates

match_rules = Table(
    "match_rules",  # rules of the last search, by which decisions are judged
    metadata,
    Column("kind", Text, primary_key=True),
    Column("rules", Text, nullable=False),
    Column("at", Double, nullable=False),
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
    Column("score", Double, nullable=False),
    Column("is_match", Boolean, nullable=False),  # by the rules
    Column("evidence", JSON, nullable=False),  # field by field
    Column("decision", Text),  # of a person: confirmed or rejected
    Column("decided_at", Double),
    Column("at", Double, nullable=False),
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
    Column("asked", JSON, nullable=False),
    Column("state", Text, nullable=False),  # queued, leased, answered, failed, skipped
    Column("answer", JSON),
    Column("reason", Text),
    Column("tries", Integer, nullable=False, default=0),
    Column("due_at", Double, nullable=False, default=0.0),
    Column("lease_owner", Text),
    Column("lease_until", Double),
    Column("tokens", Integer, nullable=False, default=0),
    Column("created_at", Double, nullable=False),
    Column("finished_at", Double),
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
    Column("at", Double, nullable=False),
    Column("is_sound", Boolean, nullable=False),  # false: it drifted, and is not a baseline
    Column("profile", JSON, nullable=False),
    Index("ix_profiles_source_at", "source", "at"),
)

export_marks = Table(
    "export_marks",  # export cursors: which version of a record an export has written
    metadata,
    Column("name", Text, primary_key=True),  # of the export
    Column("record_id", Id, ForeignKey("records.id"), primary_key=True),
    Column("version", Integer, nullable=False),
)

# ---------------- Schedules, launches and flows

schedules = Table(
    "schedules",  # what runs by itself, and when
    metadata,
    Column("name", Text, primary_key=True),
    Column("definition", JSON, nullable=False),
    Column("origin", Text, nullable=False),  # the file that defines it, or "command"
    Column("created_at", Double, nullable=False),
    Column("decided_until", Double, nullable=False),  # occurrences up to then have their fate
    Column("paused_at", Double),
    Column("pause_reason", Text),
    Column("failures", Integer, nullable=False, server_default="0"),  # in a row
    Column("removed_at", Double),  # null: it is in use; its occurrences stay
)

occurrences = Table(
    "occurrences",  # each time at which a schedule was due, and its fate
    metadata,
    Column("schedule", Text, primary_key=True),
    Column("nominal_at", Double, primary_key=True),  # with it, an occurrence fires once
    Column("kind", Text, nullable=False),  # scheduled, manual, backfill, after, event, fresh
    Column("fate", Text, nullable=False),  # fired, queued, skipped, missed
    Column("reason", Text),
    Column("decided_at", Double, nullable=False),
    Column("launch_id", Id),  # what it started
)
# Those that wait, among all that ever were.
Index(
    "ix_occurrences_queued",
    occurrences.c.schedule,
    sqlite_where=occurrences.c.fate == "queued",
    postgresql_where=occurrences.c.fate == "queued",
)
Index("ix_occurrences_decided_at", occurrences.c.decided_at)

launches = Table(
    "launches",  # runs of sources and flows that the executor starts and keeps alive
    metadata,
    Column("id", Id, primary_key=True),
    Column("key", Text),  # of two launches with the same key, only the first is placed
    Column("kind", Text, nullable=False),  # source or flow
    Column("name", Text, nullable=False),  # of the source or flow
    Column("spec", JSON, nullable=False),
    Column("origin", Text, nullable=False),  # such as schedule/NAME, flow/RUN/STEP, command
    Column("priority", Integer, nullable=False),
    Column("state", Text, nullable=False),  # queued, running, ended
    Column("due_at", Double, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("target", Text),  # the id of the job or of the flow run
    Column("owner", Text),
    Column("until", Double),
    Column("deaths", Integer, nullable=False, server_default="0"),  # of its process
    Column("result", Text),  # the final state of the job or flow run
    Column("reason", Text),
    UniqueConstraint("key"),
    Index("ix_launches_state", "state", "priority"),
    Index("ix_launches_origin", "origin"),
    Index("ix_launches_target", "target"),
)

flow_runs = Table(
    "flow_runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("key", Text),  # of two runs with the same key, only the first is created
    Column("root", Text, nullable=False),  # the run that contains it; its own id if none does
    Column("flow", Text, nullable=False),
    Column("is_undoable", Boolean, nullable=False),  # false after a later run was complete
    Column("definition", JSON, nullable=False),  # frozen when the run was created
    Column("hash", Text, nullable=False),  # of the definition
    Column("params", JSON, nullable=False),
    Column("origin", Text, nullable=False),  # such as schedule/NAME, flow/RUN/STEP, command
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("stop", Text),  # why it was cancelled; null: it was not
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("due_at", Double),  # of a waiting run: when to look at it again; null: never
    Column("owner", Text),
    Column("until", Double),
    Column("fence", Integer, nullable=False, server_default="0"),  # grows with each lease
    UniqueConstraint("key"),
    Index("ix_flow_runs_state", "state"),
    Index("ix_flow_runs_root", "root"),
    Index("ix_flow_runs_flow", "flow", "created_at"),
    Index("ix_flow_runs_is_undoable", "flow", "is_undoable"),
)

flow_steps = Table(
    "flow_steps",
    metadata,
    Column("run_id", Text, ForeignKey("flow_runs.id"), primary_key=True),
    Column("step", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("starts", Integer, nullable=False),  # of this attempt; more than 1 after crashes
    Column("due_at", Double, nullable=False),  # of the next attempt
    Column("input_hash", Text),
    Column("output", JSON),
    Column("reason", Text),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("undo", JSON),  # what undoing needs; written before the effect of the step
    Column("undo_state", Text),  # null: it is not to be undone
    Column("undo_attempt", Integer, nullable=False, server_default="0"),
    Column("undo_reason", Text),
)

# ---------------- Access to the server

credentials = Table(
    "credentials",  # tokens, sessions and one-time links; only their hashes
    metadata,
    Column("hash", Text, primary_key=True),
    Column("id", Text, nullable=False),
    Column("kind", Text, nullable=False),  # token, session or link
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("parent", Text),  # the token with which a session was opened
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Index("ix_credentials_id", "id"),
)

idempotency_keys = Table(
    "idempotency_keys",  # the response to a request, for repetitions of it
    metadata,
    Column("caller", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request_hash", Text, nullable=False),
    Column("status", Integer),  # null: it is being handled
    Column("body", JSON),
    Column("created_at", Double, nullable=False),
    Index("ix_idempotency_keys_created_at", "created_at"),
)

# ---------------- Shared state

cells = Table(
    "cells",  # small values that processes share: learned limits, budgets, bookmarks
    metadata,
    Column("room", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("state", JSON, nullable=False),
)

leaders = Table(
    "leaders",  # leases of roles: the leader of the sweepers, and each worker
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("until", Double, nullable=False),
)

# ---------------- PostgreSQL only: never copied

plumbing = MetaData(naming_convention=metadata.naming_convention)

writers = Table(
    "writers",  # the last transaction of each process, to find out whether it was committed
    plumbing,
    Column("name", Text, primary_key=True),
    Column("word", Text, nullable=False),
    Column("until", Double, nullable=False),
)
