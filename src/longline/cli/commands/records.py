"""longline records: query records, their history and their quality."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table as Grid
from rich.text import Text

from longline.analysis.changes import ChangeKind, RunChanges, compare_runs
from longline.analysis.statistics import (
    DatasetStatistics,
    QualityStatistics,
    dataset_statistics,
    quality_statistics,
)
from longline.cli.commands.enrich import print_enrichments
from longline.cli.options import (
    COUNT,
    common_options,
    home_or_server_options,
    key_options,
    wants_json,
)
from longline.cli.output import (
    MISSING,
    SafeConsole,
    TextTable,
    diff_sides,
    iso_time,
    number_text,
    one_line,
    print_heading,
    print_json,
    print_line,
    print_note,
    print_result,
    time_text,
    value_text,
)
from longline.cli.queries import (
    check_source,
    checked_query,
    filter_options,
    find_record,
    possible_names,
    query_options,
    time_option,
    uses_store,
)
from longline.cli.remote import first, or_on_server, page_size
from longline.core.errors import BadOption, UnknownRecord
from longline.core.json import as_text, json_value_at
from longline.core.output import sanitize
from longline.export.columns import export_row
from longline.storage.query import OWN_FIELDS, Condition, RecordQuery, path_of
from longline.storage.records import FieldValue, VersionDiff
from longline.storage.store import Store

if TYPE_CHECKING:
    from longline.client.client import Client
    from longline.server import models

_LISTED = 20  # records, unless --limit says otherwise
_SHOWN_CHANGES = 20  # of each kind
_SHOWN_REASONS = 15
_LINE = 100  # characters of a value of `show`
_VALUE = 60  # characters of a value in a table


@click.group("records")
def records_command() -> None:
    """Query records, their history and their quality.

    With --json, each command prints one value; `list`, `search` and `changes --since` print one
    object per line (JSON Lines).
    """


# ---------------- list, search, count

_columns_option = click.option(
    "--columns",
    metavar="A,B.C",
    help="Fields to show, separated by commas; @score is a built-in column.",
)


async def _list_on_server(
    client: Client,
    *,
    columns: str | None,
    limit: int | None,
    where: tuple[Condition, ...],
    since: float | None,
    **filters: Any,
) -> None:
    most, names = limit or _LISTED, _parse_columns(columns)
    for name in ("as_of", "order"):
        if filters.pop(name):
            raise BadOption(f"--{name.replace('_', '-')}", "cannot be used with --server")
    listed = client.each(
        client.list_records,
        search=filters.pop("text"),
        where=[_condition_text(one) for one in where],
        since=iso_time(since),
        state="any",  # as a home lists them
        limit=page_size(most),
        **filters,
    )
    _print_list([_row_of(one) for one in await first(listed, most)], names)


def _condition_text(condition: Condition) -> str:
    """Return a condition as `parse_condition` reads it."""
    value = "" if condition.test == "?" else as_text(condition.value)
    return f"{condition.field}{condition.test}{value}"


def _row_of(record: models.Record) -> dict[str, Any]:
    """Return a record of a server as the database has it."""
    row = record.model_dump()
    times = {name: at.timestamp() for name, at in row.items() if name.endswith("_at") and at}
    return row | times


@records_command.command("list")
@_columns_option
@query_options(_LISTED)
@home_or_server_options
@or_on_server(_list_on_server)
@uses_store
async def list_records(store: Store, *, columns: str | None, **filters: Any) -> None:
    """List records, optionally filtered."""
    await _list(store, columns, filters)


@records_command.command("search")
@click.argument("text")
@_columns_option
@filter_options(_LISTED)
@home_or_server_options
@or_on_server(_list_on_server)
@uses_store
async def search(store: Store, *, columns: str | None, **filters: Any) -> None:
    """List records that contain TEXT in their data, key or URL."""
    await _list(store, columns, filters)


async def _list(store: Store, columns: str | None, filters: dict[str, Any]) -> None:
    query = RecordQuery(**{**filters, "limit": filters["limit"] or _LISTED})
    names = _parse_columns(columns)
    _print_list(await store.records.list(await checked_query(store, query, names)), names)


def _print_list(rows: list[dict[str, Any]], names: tuple[str, ...]) -> None:
    if wants_json():
        for row in rows:
            own = {"source": row["source"], "key": row["key"]}
            picked = own | {name: _value_of(row, name) for name in names}
            print_json(picked if names else export_row(row))
    else:
        (_columns_table(rows, names) if names else _records_table(rows)).print("no records match")


def _records_table(rows: list[dict[str, Any]]) -> TextTable:
    table = TextTable("key", "title", "score", "grade", "version", "changed")
    for row in map(export_row, rows):
        title = row["data"].get("title") or row["data"].get("name") or row["url"]
        table.add(
            f"{row['source']}/{row['key']}",
            one_line(str(title), _VALUE),
            None if row["score"] is None else f"{row['score']:.1f}",
            row["grade"],
            row["version"],
            row["changed_at"][:16],
        )
    return table


def _columns_table(rows: list[dict[str, Any]], names: tuple[str, ...]) -> TextTable:
    table = TextTable("key", *names)
    for row in rows:
        values = (one_line(value_text(_value_of(row, name)), _VALUE) for name in names)
        table.add(f"{row['source']}/{row['key']}", *values)
    return table


def _parse_columns(text: str | None) -> tuple[str, ...]:
    """Return the fields of a list such as `title,address.city,@score`.

    Raises:
        BadOption: one of them is not a field.
    """
    names = () if text is None else tuple(dict.fromkeys(map(str.strip, text.split(","))))
    for name in names:
        if name.startswith("@") and name[1:] not in OWN_FIELDS:
            known = ", ".join(f"@{own}" for own in OWN_FIELDS)
            raise BadOption("--columns", f"there is no column {name}; known columns: {known}")
        path_of(name)
    return names


def _value_of(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of a field of a record, or of a built-in column such as `@score`."""
    if not name.startswith("@"):
        return json_value_at(row["data"], path_of(name))
    value = row[name[1:]]
    return iso_time(value) if name.endswith("_at") else value


@records_command.command("count")
@query_options()
@common_options
@uses_store
async def count(store: Store, **filters: Any) -> None:
    """Count records, optionally filtered."""
    found = await store.records.count(await checked_query(store, RecordQuery(**filters)))
    print_result({"records": found}, lambda: click.echo(found))


# ---------------- show, versions


async def _show_on_server(
    client: Client, key: str, *, source: str | None, as_of: float | None
) -> None:
    if as_of is not None:
        raise BadOption("--as-of", "cannot be used with --server")
    for of, wanted in possible_names(key, source):
        named = [_condition_text(Condition("@key", "=", wanted))]
        listed = client.each(client.list_records, source=of, where=named, state="any")
        if found := await first(listed, 1):
            _print_shown(_row_of(found[0]), {})
            return
    raise UnknownRecord(key)


@records_command.command("show")
@key_options
@time_option("--as-of", "The record as it was at TIME")
@home_or_server_options
@or_on_server(_show_on_server)
@uses_store
async def show_record(store: Store, key: str, *, source: str | None, as_of: float | None) -> None:
    """Show a record with its quality and enrichments."""
    row = await find_record(store, key, source, as_of=as_of)
    enrichments = (await store.questions.of_records([row["id"]])).get(row["id"], [])
    for one in enrichments:  # current is what belongs to the version shown, maybe an old one
        one["is_current"] = one["record_version"] == row["version"]
    _print_shown(row, {"enrichments": enrichments})


def _print_shown(row: Mapping[str, Any], added: Mapping[str, Any]) -> None:
    own = {"gone_at": iso_time(row["gone_at"]), "quality": row["about"].get("quality")}
    shown = {**export_row(row), **own, **added}
    print_result(shown, lambda: _print_record(shown))


def _print_record(shown: dict[str, Any]) -> None:
    print_line(f"{shown['source']}/{shown['key']}", "bold", end=" ")
    print_line(shown["url"])
    if shown["gone_at"]:
        print_line(f"gone from the source since {shown['gone_at'][:16].replace('T', ' ')} UTC")
    grid = Grid.grid(padding=(0, 2))
    for field, value in shown["data"].items():
        text = "null" if value is None else sanitize(value_text(value))
        cut = text if len(text) <= _LINE else f"{text[:_LINE]} … ({len(text)} characters)"
        grid.add_row(Text(sanitize(field, is_line=True)), Text(cut))
    SafeConsole().print(grid)
    if quality := shown["quality"]:
        print_heading(f"quality {quality['score']:.1f} ({quality['grade']})")
        for part in quality["parts"]:
            points = f"{part['earned']:.1f} of {part['weight']:.1f}"
            print_line(f"  {part['name']:<12} {points}  {'; '.join(part['reasons'])}")
        for conflict in quality["conflicts"]:
            print_line(f"  conflict: {conflict}")
    fields_by_origin: dict[str, list[str]] = {}
    for field, origin in shown["provenance"].items():
        fields_by_origin.setdefault(origin, []).append(field)
    if fields_by_origin:
        print_heading("origin of the fields")
    for origin, fields in fields_by_origin.items():
        print_line(f"  {origin}: {', '.join(fields)}")
    for note in shown["notes"]:
        print_line(f"  note on {note['field']}: {note['text']}")
    print_enrichments(shown.get("enrichments", []))


@records_command.command("versions")
@key_options
@common_options
@uses_store
async def versions(store: Store, key: str, *, source: str | None) -> None:
    """List the earlier versions of a record."""
    row = await find_record(store, key, source)
    rows = await store.records.versions(row["key"], source=row["source"])
    lines = [
        f"version {row['version']}  {row['fingerprint']}"
        + (f"  job {row['job_id']}" if row["job_id"] else "")
        for row in rows
    ]
    print_result(rows, lambda: click.echo("\n".join(lines) or "the record has never changed"))


# ---------------- diff, history, changes


@records_command.command("diff")
@key_options
@click.option("--from", "older", type=COUNT, metavar="VERSION", help="Earlier version.")
@click.option("--to", "newer", type=COUNT, metavar="VERSION", help="Later version.")
@common_options
@uses_store
async def diff(store: Store, key: str, *, source: str | None, **versions: int | None) -> None:
    """Show what changed in a record between versions, field by field."""
    row = await find_record(store, key, source)
    steps = await store.history.diff(row["key"], source=row["source"], **versions)
    if wants_json():
        print_json([step.as_dict() for step in steps])
        return
    for step in steps:
        _print_step(step)
    if not steps:
        click.echo("the record has never changed")


def _print_step(step: VersionDiff) -> None:
    name = one_line(f"{step.source}/{step.key}", _VALUE)
    versions = "new" if step.older is None else f"version {step.older} to {step.newer}"
    job = f"  job {step.job}" if step.job else ""
    print_line(f"{name}  {versions}  {time_text(step.at)}{job}", "bold")
    if step.older is None:
        return
    if not step.differences:
        click.echo("  same data")
        return
    table = TextTable("field", "before", "after")
    for one in step.differences:
        table.add(one.field, *diff_sides(one))
    table.print()


@records_command.command("history")
@key_options
@click.argument("field")
@common_options
@uses_store
async def history(store: Store, key: str, field: str, *, source: str | None) -> None:
    """Show the values of a field over time, such as prices."""
    row = await find_record(store, key, source)
    points = await store.history.timeline(row["key"], field, source=row["source"])
    if all(point.value is None for point in points):
        print_note(f"no version of {key} has a value for {field}")
    print_result(
        [asdict(point) for point in points], lambda: _timeline_table(field, points).print()
    )


def _timeline_table(field: str, points: list[FieldValue]) -> TextTable:
    table = TextTable("since", "version", field, "change")
    before = None
    for point in points:
        value, change = point.value, ""
        if _is_plain_number(value) and _is_plain_number(before) and before:
            change = f"{(value - before) / abs(before):+.1%}"
        shown = one_line(value_text(value), _VALUE)
        table.add(time_text(point.since), point.version, shown, change)
        before = value
    return table


def _is_plain_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@records_command.command("changes")
@click.argument("source", required=False)
@click.option("--from", "older", metavar="JOB", help="Earlier run.")
@click.option("--to", "newer", metavar="JOB", help="Later run.")
@time_option("--since", "All changes since TIME, across all runs")
@click.option("--limit", type=COUNT, help="Maximum number of records of each kind of change.")
@common_options
@uses_store
async def changes(
    store: Store,
    source: str | None,
    *,
    older: str | None,
    newer: str | None,
    since: float | None,
    limit: int | None,
) -> None:
    """Show records that appeared, changed or disappeared.

    Compares two runs, by default the last two of SOURCE.
    """
    if since is not None:
        if older or newer:
            raise click.UsageError("--since cannot be combined with --from and --to.")
        await check_source(store, source)
        step = None
        for step in store.history.since(since, RecordQuery(source=source, limit=limit)):
            print_result(step.as_dict(), partial(_print_step, step))
        if step is None and not wants_json():
            click.echo("no changes")
        return
    most = limit if wants_json() else limit or _SHOWN_CHANGES
    found = await compare_runs(store, source, older, newer, most=most)
    print_result(found.as_dict(), lambda: _print_changes(found))


def _print_changes(found: RunChanges) -> None:
    before = f"compared with {found.older}" if found.older else "the first run"
    print_line(f"{found.newer}, {before}", "bold")
    counts = ", ".join(f"{found.counts[kind]:,} {kind.value}" for kind in ChangeKind)
    print_line(f"  {counts}")
    for caveat in found.caveats:
        print_line(f"  note: {caveat}")
    shown_kinds = (
        ChangeKind.APPEARED,
        ChangeKind.CHANGED,
        ChangeKind.DISAPPEARED,
        ChangeKind.UNKNOWN,
    )
    for kind in shown_kinds:
        shown = found.of(kind)
        if not shown:
            continue
        print_heading(kind.value)
        table = TextTable("key", "field", "before", "after")
        for change in shown:
            reason = f"  {one_line(change.reason, 200)}" if change.reason else ""
            if kind is not ChangeKind.CHANGED:
                print_line(f"  {one_line(change.key, _VALUE)}{reason}")
            for place, one in enumerate(change.differences):
                table.add("" if place else change.key, one.field, *diff_sides(one))
        if kind is ChangeKind.CHANGED:
            table.print()
        if (left := found.counts[kind] - len(shown)) > 0:
            click.echo(f"  … and {left:,} more; use --limit or --json")


# ---------------- stats, quality


@records_command.command("stats")
@click.argument("name", metavar="[SOURCE]", required=False)
@query_options()
@common_options
@uses_store
async def field_statistics(store: Store, name: str | None, **filters: Any) -> None:
    """Show statistics of every field of SOURCE.

    Without SOURCE or filters, show the number of records of each source.
    """
    if name is None and not any(filters.values()):
        rows = await store.records.statistics()
        print_result(rows, lambda: _sources_table(rows).print("no records yet; try: longline demo"))
        return
    query = RecordQuery(**{**filters, "source": name or filters["source"]})
    found = dataset_statistics(store.records.stream(await checked_query(store, query)))
    print_result({"source": query.source} | found.as_dict(), lambda: _print_fields(found))


@records_command.command("quality")
@click.argument("name", metavar="[SOURCE]", required=False)
@query_options()
@common_options
@uses_store
async def quality(store: Store, name: str | None, **filters: Any) -> None:
    """Show quality scores of records, and why they lose points."""
    query = RecordQuery(**{**filters, "source": name or filters["source"]})
    found = quality_statistics(store.records.stream(await checked_query(store, query)))
    print_result({"source": query.source} | found.as_dict(), lambda: _print_quality(found))


def _sources_table(rows: list[dict[str, Any]]) -> TextTable:
    table = TextTable("source", "records", "mean score", "grades")
    for row in rows:
        grades = ", ".join(f"{name} {count}" for name, count in sorted(row["grades"].items()))
        mean = None if row["mean_score"] is None else f"{row['mean_score']:.1f}"
        table.add(row["source"], row["records"], mean, grades)
    return table


def _print_fields(found: DatasetStatistics) -> None:
    if not found.records:
        click.echo("no records match")
        return
    click.echo(f"{found.records:,} records")
    table = TextTable("field", "filled", "types", "distinct", "min", "median", "max")
    for one in found.fields:
        types = ", ".join(f"{name} {count:,}" for name, count in one.types.items()) or MISSING
        if len(one.types) == 1:
            types = next(iter(one.types))
        filled = f"{one.share:.1%}"
        if filled == "100.0%":
            filled = "100%" if one.share == 1 else ">99.9%"  # only a whole share is 100%
        cells = ("", "", "")
        if (spread := one.numbers or one.lengths) is not None:
            median = f"{'~' if spread.is_sampled else ''}{number_text(spread.median)}"
            cells = (number_text(spread.smallest), median, number_text(spread.largest))
        distinct = f"{one.distinct:,}{'+' if one.is_distinct_capped else ''}"
        table.add(one.field, filled, types, distinct, *cells)
    table.print()
    click.echo("min to max: values of numbers, lengths of texts and lists; ~: estimated")
    if found.is_cut:
        click.echo(f"only the first {len(found.fields)} fields are shown")


def _print_quality(found: QualityStatistics) -> None:
    if not found.records:
        click.echo("no records match")
        return
    mean = "no scores" if found.mean is None else f"mean score {found.mean:.1f}"
    click.echo(f"{found.records:,} records, {mean}")
    table = TextTable("score", "records")
    width = 100 // len(found.histogram)
    for place, count in reversed(list(enumerate(found.histogram))):
        table.add(f"{place * width} to {(place + 1) * width}", count)
    table.print()
    click.echo("grades: " + ", ".join(f"{name} {count:,}" for name, count in found.grades.items()))
    if found.lost:
        parts = ", ".join(f"{name} {points:.1f}" for name, points in found.lost.items())
        click.echo(f"mean points lost: {parts}")
    reasons = TextTable("records", "part", "reason")
    for reason in found.reasons[:_SHOWN_REASONS]:
        reasons.add(reason.records, reason.part, reason.reason)
    if found.reasons:
        reasons.print()
    if found.other_reasons:
        click.echo(f"and {found.other_reasons:,} more reasons")
