"""Projections: read models that are computed from the events alone.

A projection maps an event to one of its rows and applies it there. The rows are updated in the
transaction that appends the events (`append_events`), so they are never behind; replaying the
events gives the same rows. Adding a projection: an entry in `PROJECTIONS`, a row in docs/events.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, delete, insert, literal, select, update

from longline.core.event_types import match_types
from longline.core.model import Event, JobState
from longline.storage.backends import BulkUpsert, as_json, sanitize_key
from longline.storage.schema import jobs, projection_rows

ProjectionRow = dict[str, Any]
_HOUR = 3600


class Stage(StrEnum):
    """Which copy of the rows of a projection."""

    LIVE = "live"  # what is read
    BASE = "base"  # up to the last deleted event; a replay starts from it
    NEW = "new"  # of a replay that is not finished


@dataclass(frozen=True, slots=True)
class Projection:
    """A read model: which row an event belongs to, and what it changes there.

    `version` grows when the rows of the same events change; the next start of longline then
    replays the events. `new` returns the row before its first event, and `order` names the field
    by which rows are listed. `key` returns None for an event that changes no row. The source is
    that of the event's job, "" when it has none.
    """

    name: str
    version: int
    meaning: str
    types: Sequence[str]
    order: str
    key: Callable[[Event, str], str | None]
    new: Callable[[Event, str], ProjectionRow]
    apply: Callable[[ProjectionRow, Event], None]


# ---------------- Runs: one row per job

_ENDS = ("complete", "partial", "failed", "cancelled")
_ITEM_STATES = ("stored", "unchanged", "skipped", "failed", "quarantined")


def _new_run(event: Event, source: str) -> ProjectionRow:
    return {
        "job": event.job,
        "source": source,
        "state": JobState.PENDING.value,
        "reason": None,
        "created_at": event.at,
        "started_at": None,
        "ended_at": None,
        "starts": 0,
        "engine": None,
        # Items that are queued or leased are open.
        "items": {"open": 0, **dict.fromkeys(_ITEM_STATES, 0)},
        "attempts": 0,
        "deferred": 0,
        "requests": 0,
        "seconds": 0.0,
        "failures": {},
    }


def _apply_to_run(row: ProjectionRow, event: Event) -> None:
    family, _, what = event.type.partition(".")
    if family == "item":
        _count_attempt(row, what, event.data)
    elif family == "items":
        items, count = row["items"], event.data["items"]
        items["open"] += count if what == "enqueued" else -count
        if what == "skipped":
            items["skipped"] += count
    else:
        _change_run(row, what, event)


def _change_run(row: ProjectionRow, what: str, event: Event) -> None:
    data = event.data
    if what == "counted":
        row |= data
    elif what in ("started", "resumed"):
        row["state"], row["reason"], row["engine"] = "running", None, data["engine"]
        row["started_at"] = row["started_at"] or event.at
        row["starts"] += 1
    elif what == "continued":
        row["state"], row["reason"] = "running", None
    elif what == "reopened":
        for state, count in data.get("states", {}).items():
            row["items"][state] -= count
            row["items"]["open"] += count
        if "reason" in data:  # it had ended
            row["state"], row["reason"], row["ended_at"] = "paused", data["reason"], None
    elif what != "created":
        row["state"], row["reason"] = what, data.get("reason")
        if what not in _ENDS:
            row["ended_at"] = None
        elif row["ended_at"] is None or "found_all" in data:  # not during a replay
            row["ended_at"] = event.at


def _count_attempt(row: ProjectionRow, state: str, data: Mapping[str, Any]) -> None:
    row["attempts"] += 1
    row["requests"] += data.get("requests", 0)
    if failure := data.get("failure"):
        row["failures"][failure] = row["failures"].get(failure, 0) + 1
    if state == "deferred":
        row["deferred"] += 1
        return
    row["items"][data.get("before", "open")] -= 1
    row["items"][state] += 1
    row["seconds"] += data.get("seconds", 0.0)


# ---------------- Sources: the latest state of each


def _source_of(event: Event, source: str) -> str:
    """Return the source of a record, or that of the event's job."""
    return str(event.data.get("source", source))


def _new_source(event: Event, source: str) -> ProjectionRow:
    return {
        "source": _source_of(event, source),
        "job": None,
        "state": None,
        "reason": None,
        "changed_at": None,
        "last_good_job": None,
        "last_good_at": None,
        "failures_in_a_row": 0,
        "runs": dict.fromkeys(_ENDS, 0),
        "records": 0,
        "record_changed_at": None,
        "coverage": None,
        "coverage_job": None,
        "is_sound": None,
        "drift": [],
        "exports": {"written": 0, "failed": 0},
    }


def _apply_to_source(row: ProjectionRow, event: Event) -> None:
    family, _, what = event.type.partition(".")
    data = event.data
    if family == "record":
        row["records"] += {"created": 1, "returned": 1, "gone": -1}.get(what, 0)
        row["record_changed_at"] = event.at
    elif event.type == "source.counted":
        row["records"] = data["records"]
    elif event.type == "source.profiled":
        row["coverage"], row["coverage_job"] = data["coverage"], event.job
        row["is_sound"], row["drift"] = data["is_sound"], data["drift"]
    elif event.type == "drift.accepted":
        if row["coverage_job"] == event.job:
            row["is_sound"], row["drift"] = True, []
    elif family == "export":
        row["exports"]["written" if what == "written" else "failed"] += 1
    else:
        _apply_job_state(row, event, what)


_STATE_AFTER = {
    "created": "pending",
    "started": "running",
    "resumed": "running",
    "continued": "running",
    "reopened": "paused",
}


def _apply_job_state(row: ProjectionRow, event: Event, what: str) -> None:
    if what == "created":
        row["job"] = event.job
    if what in _ENDS:
        row["runs"][what] += 1
        if what == "complete":
            row["last_good_job"], row["last_good_at"] = event.job, event.at
        row["failures_in_a_row"] = 0 if what == "complete" else row["failures_in_a_row"] + 1
    is_unchanged = what == "reopened" and "reason" not in event.data  # the job had not ended
    if row["job"] != event.job or is_unchanged:  # the latest state is that of the newest job
        return
    row["state"], row["reason"] = _STATE_AFTER.get(what, what), event.data.get("reason")
    row["changed_at"] = event.at


# ---------------- Domains: limit, breaker and ban of each


def _new_domain(_event: Event, _source: str) -> ProjectionRow:
    return {
        "domain": None,
        "changed_at": None,
        "breaker": "closed",
        "breaker_reason": None,
        "breaker_since": None,  # over failed probes, until it is closed
        "breaker_until": None,
        "trips": 0,
        "bans": 0,
        "banned_at": None,
        "ban_evidence": None,
        "rate": None,
        "rate_origin": None,
        "refusals": 0,
        "refused_at": None,
        "robots_rate": None,
        "robots_problem": None,
        "auth_problem": None,
    }


def _apply_to_domain(row: ProjectionRow, event: Event) -> None:  # noqa: C901  # one branch per type
    data = event.data
    row["domain"] = data.get("domain", data.get("host"))
    row["changed_at"] = event.at
    match event.type:
        case "breaker.opened":
            row["breaker"], row["breaker_reason"] = "open", data["reason"]
            row["breaker_since"] = row["breaker_since"] or event.at
            row["breaker_until"] = data["until"]
            row["trips"] += 1
        case "breaker.closed":
            row["breaker"], row["breaker_reason"] = "closed", None
            row["breaker_since"] = row["breaker_until"] = None
        case "domain.blocked":
            row["bans"] += 1
            row["banned_at"], row["ban_evidence"] = event.at, data["evidence"]
        case "limit.learned" | "limit.pinned":
            row["rate"], row["rate_origin"] = data["rate"], event.type.removeprefix("limit.")
        case "limit.published":
            if data["limit"] and data["window"]:
                row["rate"], row["rate_origin"] = data["limit"] / data["window"], "published"
        case "limit.forgotten":
            row["rate"], row["rate_origin"] = None, None
        case "limit.refused":
            row["refusals"] += 1
            row["refused_at"] = event.at
        case "robots.rate":
            row["robots_rate"], row["robots_problem"] = data["rate"], None
        case "robots.unreachable":
            row["robots_problem"] = data["reason"]
        case "auth.failed":
            row["auth_problem"] = data["problem"]
        case "auth.login" | "auth.token":
            row["auth_problem"] = None


# ---------------- Hours: statistics of each source and hour


def _hour_of(event: Event) -> int:
    return int(event.at // _HOUR) * _HOUR


def _new_hour(event: Event, source: str) -> ProjectionRow:
    return {
        "source": _source_of(event, source),
        "hour": _hour_of(event),
        "items": {**dict.fromkeys(_ITEM_STATES, 0), "deferred": 0},
        "requests": 0,
        "seconds": 0.0,
        "records": {"created": 0, "changed": 0, "gone": 0, "returned": 0},
        "jobs": dict.fromkeys(_ENDS, 0),
    }


def _apply_to_hour(row: ProjectionRow, event: Event) -> None:
    family, _, what = event.type.partition(".")
    if family == "item":
        row["items"][what] += 1
        row["requests"] += event.data.get("requests", 0)
        row["seconds"] += event.data.get("seconds", 0.0)
    elif family == "items":
        row["items"][what] += event.data["items"]
    else:
        row["records" if family == "record" else "jobs"][what] += 1


# ---------------- Failures: by source and kind


def _key_of_failure(event: Event, source: str) -> str | None:
    kind = event.data.get("failure")
    return f"{source} {kind}" if kind else None


def _new_failure(event: Event, source: str) -> ProjectionRow:
    return {
        "source": source,
        "kind": event.data["failure"],
        "attempts": {"deferred": 0, "failed": 0, "quarantined": 0, "skipped": 0},
        "first_at": event.at,
        "last_at": event.at,
        "last_job": None,
        "last_key": None,
        "last_reason": None,
    }


def _apply_to_failure(row: ProjectionRow, event: Event) -> None:
    what = event.type.partition(".")[2]
    row["attempts"][what] = row["attempts"].get(what, 0) + event.data.get("items", 1)
    row["last_at"], row["last_job"], row["last_key"] = event.at, event.job, event.key
    row["last_reason"] = event.data.get("reason")


_JOB_STATES = tuple(f"job.{state}" for state in ("created", "started", "resumed", "continued"))
_JOB_STATES += tuple(f"job.{state}" for state in ("paused", "reopened", *_ENDS))
_DOMAIN_TYPES = ("breaker.*", "domain.*", "limit.*", "robots.*", "auth.*")
PROJECTIONS: Mapping[str, Projection] = {
    one.name: one
    for one in (
        Projection(
            "runs",
            1,
            "Each job: its state, its items by state, its attempts and failures.",
            (*_JOB_STATES, "job.counted", "item.*", "items.*"),
            "created_at",
            lambda event, _source: event.job,
            _new_run,
            _apply_to_run,
        ),
        Projection(
            "sources",
            2,
            "Each source: its latest state, last complete run, records, exports, field coverage.",
            (
                *(*_JOB_STATES, "record.*", "export.*"),
                *("source.profiled", "source.counted", "drift.accepted"),
            ),
            "changed_at",
            _source_of,
            _new_source,
            _apply_to_source,
        ),
        Projection(
            "domains",
            2,
            "Each domain: its rate limit, circuit breaker, bans and refusals.",
            _DOMAIN_TYPES,
            "changed_at",
            lambda event, _source: str(event.data.get("domain", event.data.get("host"))),
            _new_domain,
            _apply_to_domain,
        ),
        Projection(
            "hours",
            1,
            "Each source and hour: outcomes, requests, changes of records, ended jobs.",
            ("item.*", "items.skipped", "record.*", *(f"job.{state}" for state in _ENDS)),
            "hour",
            lambda event, source: f"{_source_of(event, source)} {_hour_of(event)}",
            _new_hour,
            _apply_to_hour,
        ),
        Projection(
            "failures",
            1,
            "Each source and kind of failure: how often, and the last one.",
            ("item.deferred", "item.failed", "item.quarantined", "item.skipped", "items.skipped"),
            "last_at",
            _key_of_failure,
            _new_failure,
            _apply_to_failure,
        ),
    )
}


def _consumers() -> dict[str, list[Projection]]:
    """Return which projections apply the events of each type."""
    found: dict[str, list[Projection]] = {}
    for one in PROJECTIONS.values():
        for name in match_types(one.types):
            found.setdefault(name, []).append(one)
    return found


_CONSUMERS = _consumers()


# ---------------- Applying events

_SAVE = BulkUpsert(
    projection_rows,
    ("stage", "key", "projection", "sort", "data"),
    key=("stage", "key", "projection"),
)
_KNOWN = select(projection_rows.c.projection, projection_rows.c.key, projection_rows.c.data).where(
    projection_rows.c.stage == bindparam("b_stage"),
    projection_rows.c.key.in_(bindparam("b_keys", expanding=True)),
)
_SOURCES = select(jobs.c.id, jobs.c.source).where(
    jobs.c.id.in_(bindparam("b_jobs", expanding=True))
)
_MAX_KEYS = 5000  # per query; SQLite allows 32,766 variables
_MAX_REMEMBERED = 1000  # sources of jobs, per connection


def consumed_types(names: Collection[str]) -> list[str]:
    """Return the types of the events that these projections apply."""
    return match_types([pattern for name in names for pattern in PROJECTIONS[name].types])


def is_consumed(name: str) -> bool:
    """Return whether a projection applies events of this type."""
    return name in _CONSUMERS


def apply_events(
    connection: Connection,
    events: Sequence[Event],
    *,
    stage: Stage = Stage.LIVE,
    only: Collection[str] | None = None,
) -> None:
    """Apply events to the rows of projections, all or `only` some, in the caller's transaction.

    The caller passes events in the order of their ids and keeps other transactions from applying
    events to the same rows.
    """
    sources = sources_of(connection, {one.job for one in events if one.job is not None})
    # By projection and key, in the order of the first event: most events of a batch share few rows.
    changes: dict[tuple[str, str], list[Event]] = {}
    found: dict[tuple[str, str | None], list[Event]] = {}  # the same lists, by keys as they are
    for event in events:
        source = sources.get(event.job, "")
        for one in _CONSUMERS.get(event.type, ()):
            if only is not None and one.name not in only:
                continue
            key = one.key(event, source)
            of_row = found.get((one.name, key))
            if of_row is None:
                if key is None:
                    continue
                of_row = changes.setdefault((one.name, sanitize_key(key)), [])
                found[one.name, key] = of_row
            of_row.append(event)
    rows = _load_rows(connection, stage, {key for _, key in changes})
    changed: dict[tuple[str, str], ProjectionRow] = {}
    for place, of_row in changes.items():
        one, first = PROJECTIONS[place[0]], of_row[0]
        row = rows.get(place) or one.new(first, sources.get(first.job, ""))
        for event in of_row:
            one.apply(row, event)
        changed[place] = row
    _SAVE.run(
        connection,
        [
            {
                "stage": stage,
                "key": key,
                "projection": name,
                "sort": row[PROJECTIONS[name].order] or 0.0,
                "data": as_json(row),
            }
            for (name, key), row in changed.items()
        ],
    )


def sources_of(connection: Connection, names: Collection[str]) -> dict[str | None, str]:
    """Return the sources of jobs; a job that does not exist is left out."""
    # The source of a job never changes, so it may be read from its row, and remembered.
    known: dict[str | None, str] = connection.info.setdefault("sources of jobs", {})
    if len(known) > _MAX_REMEMBERED:
        known.clear()
    if missing := sorted(name for name in names if name not in known):
        known |= {row.id: row.source for row in connection.execute(_SOURCES, {"b_jobs": missing})}
    return {name: known[name] for name in names if name in known}


def _load_rows(
    connection: Connection, stage: Stage, keys: Iterable[str]
) -> dict[tuple[str, str], ProjectionRow]:
    found: dict[tuple[str, str], ProjectionRow] = {}
    wanted = sorted(keys)
    for start in range(0, len(wanted), _MAX_KEYS):
        some = {"b_stage": stage, "b_keys": wanted[start : start + _MAX_KEYS]}
        found |= {(row.projection, row.key): row.data for row in connection.execute(_KNOWN, some)}
    return found


def read_rows(
    connection: Connection,
    name: str,
    *,
    keys: Collection[str] | None = None,
    since: float | None = None,
    where: ColumnElement[bool] | None = None,
    limit: int | None = None,
) -> list[ProjectionRow]:
    """Return rows of a projection, the newest first; by `keys`, from a time on, or a condition."""
    columns = projection_rows.c
    query = select(columns.data, columns.sort, columns.key).where(
        columns.stage == Stage.LIVE, columns.projection == name
    )
    if since is not None:
        query = query.where(columns.sort >= since)
    if where is not None:
        query = query.where(where)
    if keys is None:
        query = query.order_by(columns.sort.desc(), columns.key).limit(limit)
        return list(connection.scalars(query))
    # Sorted here: for the order, SQLite would read all rows by the index on it.
    query = query.where(columns.key.in_([sanitize_key(key) for key in keys]))
    rows = sorted(connection.execute(query), key=lambda row: (-row.sort, row.key))
    return [row.data for row in rows[:limit]]


def copy_stage(connection: Connection, name: str, *, source: Stage, target: Stage) -> None:
    """Replace the rows of one stage of a projection by those of another."""
    columns = projection_rows.c
    drop_stage(connection, [name], target)
    rows = select(
        literal(target.value), columns.key, columns.projection, columns.sort, columns.data
    ).where(columns.stage == source, columns.projection == name)
    names = ("stage", "key", "projection", "sort", "data")
    connection.execute(insert(projection_rows).from_select(names, rows))


def move_stage(connection: Connection, name: str, *, source: Stage, target: Stage) -> None:
    """Make the rows of one stage of a projection those of another."""
    columns = projection_rows.c
    drop_stage(connection, [name], target)
    connection.execute(
        update(projection_rows)
        .where(columns.stage == source, columns.projection == name)
        .values(stage=target)
    )


def drop_stage(connection: Connection, names: Collection[str], stage: Stage) -> None:
    """Delete the rows of one stage of projections."""
    columns = projection_rows.c
    connection.execute(
        delete(projection_rows).where(columns.stage == stage, columns.projection.in_(names))
    )
