"""longline schedule: what runs by itself, when, and what happened to each occurrence."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from longline.cli.options import (
    COUNT,
    PAIR,
    common_options,
    home_or_server_options,
    number,
    settings_of,
    typed_values,
)
from longline.cli.output import (
    MISSING,
    TextTable,
    duration_text,
    iso_time,
    print_facts,
    print_heading,
    print_line,
    print_note,
    print_result,
    time_text,
)
from longline.cli.queries import uses_store
from longline.cli.remote import iso_text, or_on_server
from longline.config.validation import describe_error
from longline.core.clock import utc_datetime
from longline.core.errors import BadOption, ConfigError
from longline.core.json import as_text
from longline.core.output import count_text
from longline.scheduling import changes
from longline.scheduling.definitions import (
    DefinitionFiles,
    absolute_reference,
    problem_text,
    sync_files,
)
from longline.scheduling.planning import Planned, next_planned, plan_next
from longline.scheduling.schedule import (
    Exclusion,
    MisfirePolicy,
    Overlap,
    Schedule,
    make_schedule,
    target_text,
    trigger_text,
)
from longline.scheduling.scheduler import launch_of
from longline.scheduling.triggers import occurrences
from longline.scheduling.upcoming import CLOCK_CHANGES, upcoming_runs, why_paused
from longline.storage.scheduling.schedules import COMMAND, StoredOccurrence, StoredSchedule
from longline.storage.store import Store

if TYPE_CHECKING:
    from longline.client.client import Client
    from longline.server import models

_MOST_BACKFILLED = 1000


@click.group("schedule")
def schedule_command() -> None:
    """Run sources and flows automatically.

    Schedules come from files (the key `schedule` of a manifest or job file, `schedules` of
    longline.yaml) and from `longline schedule add`. An executor starts them.
    """


# ---------------- What is defined


async def _list_on_server(client: Client) -> None:
    rows = [_remote_schedule_json(one) async for one in client.each(client.list_schedules)]
    print_result(rows, lambda: _print_schedules(rows))


@schedule_command.command("list")
@home_or_server_options
@or_on_server(_list_on_server)
@uses_store
async def list_schedules(store: Store) -> None:
    """List schedules, when each is due next, and where it is defined."""
    files = await _read_files(store)
    now = await store.now()
    rows = [_schedule_json(one, now, files) for one in await store.schedules.list()]
    print_result(rows, lambda: _print_schedules(rows))


@schedule_command.command("show")
@click.argument("name")
@common_options
@uses_store
async def show_schedule(store: Store, name: str) -> None:
    """Show the schedule NAME with its next and last occurrences."""
    files = await _read_files(store)
    now = await store.now()
    stored = await store.schedules.get(name)
    last = await store.schedules.history(name, limit=5)
    schedule = make_schedule(stored.definition)
    coming = [*itertools.islice(plan_next(schedule, utc_datetime(now), 366), 5)]
    row = {
        **_schedule_json(stored, now, files),
        "created_at": iso_time(stored.created_at),
        "definition": stored.definition,
        "coming": [_planned_json(name, one) for one in coming],
        "last": [_occurrence_json(one) for one in last],
    }
    print_result(row, lambda: _print_schedule(row, schedule, coming, last))


_TARGET_OPTIONS = (
    click.option("--source", help="Source to run: the name of a manifest, or any SOURCE of `run`."),
    click.option("--job", "job_file", metavar="FILE", help="Job file to run."),
    click.option("--flow", help="Flow to run: its name or file."),
    click.option(
        "--set",
        "options",
        type=PAIR,
        multiple=True,
        help="Set an option of the source. Repeatable.",
    ),
    click.option(
        "--param",
        "params",
        type=PAIR,
        multiple=True,
        help="Pass a value to a Python source or a flow. Repeatable.",
    ),
)
_TRIGGER_OPTIONS = (
    click.option("--cron", help="Cron expression, such as '30 3 * * *'."),
    click.option("--every", metavar="DURATION", help="Interval, such as 90m."),
    click.option("--calendar", help="Days and a time, such as 'first Monday 06:00'."),
    click.option("--at", metavar="TIME", help="Run once at this time, such as 2026-12-01T06:00."),
    click.option(
        "--after", metavar="NAME", help="Run after this source, or after a flow (flow:NAME)."
    ),
    click.option(
        "--states",
        type=click.Choice(["complete", "partial", "any"]),
        help="How the run of --after must end; partial includes complete.  [default: complete]",
    ),
    click.option(
        "--within", metavar="DURATION", help="Deadline for the run of --after, from when it is due."
    ),
    click.option(
        "--on", metavar="EVENT", help="Run on this event type or pattern, such as 'drift.*'."
    ),
    click.option("--on-source", metavar="NAME", help="With --on: only events of this source."),
    click.option(
        "--fresh", metavar="DURATION", help="Run when the data of the source is older than this."
    ),
)
_LIMIT_OPTIONS = (
    click.option(
        "--timezone", metavar="ZONE", help="Time zone, such as Europe/Sofia.  [default: UTC]"
    ),
    click.option("--start", metavar="TIME", help="No occurrences before TIME."),
    click.option(
        "--end", metavar="TIME", help="No occurrences after TIME; a date is the last day."
    ),
    click.option(
        "--exclude",
        metavar="DATE",
        multiple=True,
        help="Date without runs, or a window FROM..TO. Repeatable.",
    ),
    click.option(
        "--jitter",
        metavar="DURATION",
        help="Maximum delay of a start; the delay is derived from NAME.",
    ),
    click.option(
        "--overlap",
        type=click.Choice([one.value for one in Overlap]),
        help="What to do if the previous run has not ended.  [default: skip]",
    ),
    click.option(
        "--misfire",
        type=click.Choice([one.value for one in MisfirePolicy]),
        help="Which late occurrences to start.  [default: latest]",
    ),
    click.option("--max-age", metavar="DURATION", help="Maximum age of late occurrences to start."),
    click.option("--max-count", type=COUNT, help="Maximum number of late occurrences to start."),
    click.option("--pause-after-failures", type=COUNT, help="Pause after N failures in a row."),
    click.option("--priority", type=int, help="Runs with a higher priority start first."),
)


def _add_options(command: Any) -> Any:
    for option in reversed((*_TARGET_OPTIONS, *_TRIGGER_OPTIONS, *_LIMIT_OPTIONS)):
        command = option(command)
    return command


@schedule_command.command("add")
@click.argument("name")
@_add_options
@common_options
@uses_store
async def add_schedule(store: Store, name: str, **given: Any) -> None:
    """Add the schedule NAME, or change it.

    It has one target (--source, --job, --flow) and one trigger (--cron, --every, --calendar, --at,
    --after, --on, --fresh).
    """
    files = await _read_files(store)
    schedule = _make(name, given)
    now = await store.now()
    saved = await changes.add_schedule(store, files, schedule, now)
    row = _schedule_json(saved, now)
    print_result(row, lambda: print_line(f"{name}: {_next_text(row, schedule)}"))
    missing = await changes.missing_trigger(store, files, schedule)
    if missing is not None:
        print_note(f"{missing} is unknown; {name} waits until there is one that runs")


@schedule_command.command("remove")
@click.argument("name")
@common_options
@uses_store
async def remove_schedule(store: Store, name: str) -> None:
    """Remove the schedule NAME; its history stays.

    To remove a schedule that a file defines, edit the file.
    """
    await _read_files(store)
    await store.schedules.remove(name, await store.now())
    print_result({"removed": name}, lambda: print_line(f"removed {name}"))


async def _pause_on_server(client: Client, name: str, *, reason: str) -> None:
    from longline.server.models import SchedulePause  # noqa: PLC0415  # only for a server

    row = _remote_schedule_json(await client.pause_schedule(name, SchedulePause(reason=reason)))
    print_result(row, lambda: print_line(f"{name} is paused"))


@schedule_command.command("pause")
@click.argument("name")
@click.option("--reason", default="paused by the user", help="Reason, shown in the history.")
@home_or_server_options
@or_on_server(_pause_on_server)
@uses_store
async def pause_schedule(store: Store, name: str, *, reason: str) -> None:
    """Pause the schedule NAME: its occurrences are skipped."""
    await _read_files(store)
    now = await store.now()
    row = _schedule_json(await store.schedules.pause(name, now, reason), now)
    print_result(row, lambda: print_line(f"{name} is paused"))


async def _resume_on_server(client: Client, name: str) -> None:
    found = await client.resume_schedule(name)
    row = _remote_schedule_json(found)
    text = _next_text(row, make_schedule(found.definition))
    print_result(row, lambda: print_line(f"{name}: {text}"))


@schedule_command.command("resume")
@click.argument("name")
@home_or_server_options
@or_on_server(_resume_on_server)
@uses_store
async def resume_schedule(store: Store, name: str) -> None:
    """Resume the schedule NAME."""
    await _read_files(store)
    now = await store.now()
    stored = await store.schedules.resume(name, now)
    row = _schedule_json(stored, now)
    text = _next_text(row, make_schedule(stored.definition))
    print_result(row, lambda: print_line(f"{name}: {text}"))


# ---------------- What runs


async def _run_on_server(client: Client, name: str) -> None:
    started = await client.run_schedule(name)
    row = _occurrence_values(started, iso_text(started.nominal_at), iso_text(started.decided_at))
    print_result(row, lambda: print_line(f"{name}: launch {started.launch_id} is queued"))


@schedule_command.command("run")
@click.argument("name")
@home_or_server_options
@or_on_server(_run_on_server)
@uses_store
async def run_schedule(store: Store, name: str) -> None:
    """Run the schedule NAME now, in addition to its times.

    An executor starts the run, even if the schedule is paused.
    """
    files = await _read_files(store)
    started = await changes.run_now(store, files, name, await store.now())
    row = _occurrence_json(started)
    print_result(row, lambda: print_line(f"{name}: launch {started.launch_id} is queued"))


@schedule_command.command("next")
@click.argument("name", required=False)
@click.option(
    "--days", type=number(float, 0, 3660, above=True), default=7.0, help="Number of days to list."
)
@click.option("--limit", type=COUNT, default=100, help="Maximum number of occurrences.")
@common_options
@uses_store
async def list_next(store: Store, name: str | None, *, days: float, limit: int) -> None:
    """List the next occurrences, of NAME or of all schedules.

    Marks occurrences that a clock change shifts or repeats, and excluded ones.
    """
    await _read_files(store)
    stored = await store.schedules.list()
    if name is not None:
        stored = [await store.schedules.get(name)]
    now = utc_datetime(await store.now())
    found = [*itertools.islice(upcoming_runs(stored, now, days), limit + 1)]
    rows = [_planned_json(one.name, one.planned, paused=one.paused) for one in found[:limit]]
    print_result(rows, lambda: _print_planned(rows))
    if len(found) > limit:
        print_note(f"only the first {limit} are listed; use --limit for more")


@schedule_command.command("backfill")
@click.argument("name")
@click.option(
    "--from", "start", required=True, metavar="TIME", help="Start of the range: a time or a date."
)
@click.option(
    "--to", "end", required=True, metavar="TIME", help="End of the range: a time, or the last day."
)
@click.option("--dry-run", is_flag=True, help="List the occurrences without starting them.")
@common_options
@uses_store
async def backfill_schedule(
    store: Store, name: str, *, start: str, end: str, dry_run: bool
) -> None:
    """Start the occurrences of NAME in a range that were not fired.

    Times are in the time zone of the schedule.
    """
    files = await _read_files(store)
    schedule = make_schedule((await store.schedules.get(name)).definition)
    now = await store.now()
    nominals = _range_of(schedule, start, end, now)
    fates = await store.schedules.fates(name, nominals[0], nominals[-1]) if nominals else {}
    target = files.target_of(schedule)
    started: Sequence[float] = [
        one for one in nominals if fates.get(one) not in ("fired", "queued")
    ]
    if not dry_run and started:
        done = await store.schedules.start(
            name, now, lambda nominal: launch_of(schedule, target, nominal, now), started
        )
        started = sorted(one.nominal_at for one in done)
    rows = [
        {
            "nominal_at": iso_time(one),
            "before": fates.get(one),
            "action": "start" if one in started else "none",
        }
        for one in nominals
    ]
    print_result(rows, lambda: _print_backfill(rows, is_dry=dry_run))


@schedule_command.command("history")
@click.argument("name", required=False)
@click.option("--limit", type=COUNT, default=50, help="Maximum number of occurrences.")
@common_options
@uses_store
async def list_history(store: Store, name: str | None, *, limit: int) -> None:
    """List past occurrences with their fate and reason, newest first."""
    found = await store.schedules.history(name, limit=limit)
    rows = [_occurrence_json(one) for one in found]
    print_result(rows, lambda: _print_occurrences(found))


# ---------------- Values


async def _read_files(store: Store) -> DefinitionFiles:
    """Store what files define now; print a note for each invalid file."""
    files = DefinitionFiles(settings_of())
    for error in await sync_files(store, files, await store.now(), is_first=True):
        print_note(f"{error}; the previous schedules of this file stay in use")
    return files


def _make(name: str, given: Mapping[str, Any]) -> Schedule:
    """Return the schedule that options describe.

    Raises:
        BadOption: one is invalid, or they do not fit together; named as it was typed.
    """
    values = {key: value for key, value in given.items() if value not in (None, ())}
    values = {"name": name, **values}
    if "job_file" in values:
        values["job"] = values.pop("job_file")
    for key in ("source", "job", "flow"):
        if key in values:
            values[key] = absolute_reference(values[key], is_file=key == "job")
    if "options" in values:
        values["set"] = dict(values.pop("options"))
    if "params" in values:
        values["params"] = typed_values(values["params"])
    _nest(values, "after", _after_values(values.pop("after", None)), ("states", "within"))
    on = values.pop("on", None)
    _nest(values, "on", None if on is None else {"event": on}, ("on_source",), on_source="source")
    if "exclude" in values:
        values["exclude"] = [_exclusion(text) for text in values["exclude"]]
    misfire = values.pop("misfire", None)
    policy = {"policy": misfire} if misfire else {}
    has_limits = "max_age" in values or "max_count" in values
    _nest(values, "misfire", policy if policy or has_limits else None, ("max_age", "max_count"))
    try:
        return make_schedule(values)
    except BadOption as error:
        first = error.option.partition(".")[0]
        option = f"--{first.replace('_', '-')}" if first in {*values, "source"} else first
        raise BadOption("NAME" if first == "name" else option, error.problem) from error


def _nest(
    values: dict[str, Any],
    name: str,
    nested: dict[str, Any] | None,
    options: Iterable[str],
    **names: str,
) -> None:
    """Move options that belong to another one into its value."""
    for option in options:
        if option not in values:
            continue
        if nested is None:
            raise BadOption(f"--{option.replace('_', '-')}", f"it needs --{name}")
        nested[names.get(option, option)] = values.pop(option)
    if nested is not None:
        values[name] = nested


def _after_values(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    kind, colon, name = text.partition(":")
    return {"flow": name} if colon and kind == "flow" else {"source": text}


def _exclusion(text: str) -> dict[str, str]:
    start, dots, end = text.partition("..")
    return {"from": start, "to": end} if dots else {"date": text}


def _range_of(schedule: Schedule, start: str, end: str, now: float) -> list[float]:
    """Return the nominal times of a range, up to now."""
    if schedule.trigger is None:
        raise BadOption(
            "NAME", f"{schedule.name} is not time-based; run it with `longline schedule run`"
        )
    try:
        window = Exclusion.model_validate({"from": start, "to": end}).window(schedule.zone)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadOption(f"--{first['loc'][0]}", describe_error(first)) from None
    if window[1] <= window[0]:
        raise BadOption("--to", "it must be later than --from")
    tick = timedelta(microseconds=1)
    until = min(window[1] - tick, utc_datetime(now))
    chosen = (
        one.nominal.timestamp()
        for one in occurrences(schedule, window[0] - tick, until)
        if schedule.exclusion(one.nominal) is None
    )
    found = [*itertools.islice(chosen, _MOST_BACKFILLED + 1)]
    if len(found) > _MOST_BACKFILLED:
        problem = f"the range has more than {_MOST_BACKFILLED} occurrences; choose a shorter one"
        raise BadOption("--to", problem)
    return found


# ---------------- Output


def _schedule_json(
    stored: StoredSchedule, now: float, files: DefinitionFiles | None = None
) -> dict[str, Any]:
    """Return a schedule as JSON; with `files`, also why it cannot run as they are now."""
    row: dict[str, Any] = {
        "name": stored.name,
        "origin": stored.origin,
        "paused": why_paused(stored),
        "paused_at": iso_time(stored.paused_at),
        "failures": stored.failures,
    }
    try:
        schedule = make_schedule(stored.definition)
    except ConfigError as error:  # of another version of longline
        return {**row, **_invalid_values(str(error))}
    planned = next_planned(schedule, utc_datetime(now), 3660)
    starts = None if planned is None else planned.starts_at.timestamp()
    row |= _definition_values(schedule, iso_time(starts))
    if files is not None and schedule.enabled:
        try:
            files.target_of(schedule)
        except ConfigError as error:
            row["problem"] = problem_text(error)
    return row


def _remote_schedule_json(found: models.Schedule) -> dict[str, Any]:
    """Return a schedule of a server as `_schedule_json` does."""
    row: dict[str, Any] = {
        "name": found.name,
        "origin": found.origin,
        "paused": None if found.paused_at is None else found.pause_reason or "no reason given",
        "paused_at": iso_text(found.paused_at),
        "failures": found.failures,
    }
    try:
        schedule = make_schedule(found.definition)
    except ConfigError as error:  # of another version of longline
        return {**row, **_invalid_values(found.problem or str(error))}
    return {**row, **_definition_values(schedule, iso_text(found.next_at))}


def _invalid_values(problem: str) -> dict[str, Any]:
    return {"target": None, "trigger": None, "next": None, "problem": problem}


def _definition_values(schedule: Schedule, starts: str | None) -> dict[str, Any]:
    return {
        "enabled": schedule.enabled,
        "target": target_text(schedule),
        "trigger": trigger_text(schedule, duration_text),
        "timezone": schedule.timezone,
        "next": starts,
        "problem": None,
    }


def _next_text(row: Mapping[str, Any], schedule: Schedule) -> str:
    if schedule.fresh is not None:
        return f"runs when its data is older than {duration_text(schedule.fresh)}"
    if row["next"] is None:
        return f"runs {row['trigger']}"
    local = datetime.fromisoformat(row["next"]).astimezone(schedule.zone)
    return f"next run at {local:%Y-%m-%d %H:%M:%S %Z}"


def _state_text(row: Mapping[str, Any]) -> str:
    if row["problem"] is not None:
        return f"invalid: {row['problem']}"
    if row["paused"] is not None:
        return f"paused: {row['paused']}"
    if not row["enabled"]:
        return "disabled"
    return f"failures in a row: {row['failures']}" if row["failures"] else ""


def _print_schedules(rows: Sequence[dict[str, Any]]) -> None:
    table = TextTable("name", "runs", "when", "next (UTC)", "state", "origin", drop=("origin",))
    for row in rows:
        starts = datetime.fromisoformat(row["next"]).timestamp() if row["next"] else None
        upcoming = MISSING if starts is None else time_text(starts)
        when = row["trigger"] or MISSING
        origin = row["origin"] if row["origin"] == COMMAND else Path(row["origin"]).name
        table.add(row["name"], row["target"] or MISSING, when, upcoming, _state_text(row), origin)
    table.print("no schedules")


def _print_schedule(
    row: Mapping[str, Any],
    schedule: Schedule,
    coming: Sequence[Planned],
    last: Sequence[StoredOccurrence],
) -> None:
    facts = {
        "schedule": row["name"],
        "runs": row["target"],
        "when": f"{row['trigger']} ({row['timezone']})",
        "state": _state_text(row) or "active",
        "defined": "on the command line" if row["origin"] == COMMAND else f"in {row['origin']}",
    }
    shown = {"name", "source", "job", "flow", "timezone", *("cron", "every", "calendar", "at")}
    others = {key: value for key, value in schedule.stated().items() if key not in shown}
    print_facts(facts | {key: as_text(value) for key, value in others.items()}, width=20)
    if coming:
        print_heading("next")
        _print_planned([_planned_json(schedule.name, one) for one in coming])
    if last:
        print_heading("last")
        _print_occurrences(last)


def _planned_json(name: str, one: Planned, *, paused: str | None = None) -> dict[str, Any]:
    return {
        "schedule": name,
        "nominal_at": one.occurrence.nominal.isoformat(timespec="seconds"),
        "local": one.occurrence.local.isoformat(timespec="seconds"),
        "starts_at": one.starts_at.isoformat(timespec="seconds"),
        "clock_change": one.occurrence.change,
        "excluded": None if one.exclusion is None else one.exclusion.reason or "excluded",
        "paused": paused,
        "zone": str(one.occurrence.local.tzinfo),
    }


def _print_planned(rows: Sequence[dict[str, Any]]) -> None:
    table = TextTable("local time", "zone", "schedule", "UTC", "note", drop=("zone",))
    for row in rows:
        local = datetime.fromisoformat(row["local"])
        notes = []
        if row["clock_change"] is not None:
            notes.append(CLOCK_CHANGES[row["clock_change"]])
        if row["excluded"] is not None:
            notes.append(f"excluded: {row['excluded']}".removesuffix(": excluded"))
        if row["paused"] is not None:
            notes.append("paused")
        starts = datetime.fromisoformat(row["starts_at"]).timestamp()
        cells = (f"{local:%a %Y-%m-%d %H:%M}", row["zone"], row["schedule"])
        table.add(*cells, time_text(starts, seconds=True), "; ".join(notes))
    table.print("no upcoming occurrences")


def _print_backfill(rows: Sequence[dict[str, Any]], *, is_dry: bool) -> None:
    table = TextTable("nominal (UTC)", "before", "action")
    action = "would start" if is_dry else "started"
    for row in rows:
        at = datetime.fromisoformat(row["nominal_at"]).timestamp()
        table.add(time_text(at), row["before"] or "", action * (row["action"] == "start"))
    table.print("no occurrences in this range")
    count = sum(row["action"] == "start" for row in rows)
    print_line(f"{count_text(count, 'occurrence', 'occurrences')} {action}")


def _occurrence_json(one: StoredOccurrence) -> dict[str, Any]:
    return _occurrence_values(one, iso_time(one.nominal_at), iso_time(one.decided_at))


def _occurrence_values(
    one: StoredOccurrence | models.Occurrence, nominal_at: str | None, decided_at: str | None
) -> dict[str, Any]:
    return {
        "schedule": one.schedule,
        "nominal_at": nominal_at,
        "kind": one.kind,
        "fate": one.fate,
        "reason": one.reason,
        "decided_at": decided_at,
        "launch": one.launch_id,
        "target": one.target,
        "result": one.result or one.state,
    }


def _print_occurrences(found: Sequence[StoredOccurrence]) -> None:
    columns = ("nominal (UTC)", "schedule", "kind", "fate", "result", "job", "reason")
    table = TextTable(*columns, drop=("kind", "job"), note="reason")
    for one in found:
        at = time_text(one.nominal_at, seconds=bool(one.nominal_at % 60))
        result = one.result or one.state
        table.add(at, one.schedule, one.kind, one.fate, result, one.target, one.reason)
    table.print("no occurrences")
