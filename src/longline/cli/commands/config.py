"""longline config: settings, manifests and job files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.options import (
    common_options,
    json_option,
    profile_option,
    settings_given,
    settings_of,
    wants_json,
)
from longline.cli.output import TextTable, print_json, print_note, print_result
from longline.cli.queries import with_store
from longline.config.documents import Document, parse_location, set_value, write_document
from longline.config.job_spec import JobSpec
from longline.config.settings import Settings, explain_settings
from longline.core.errors import BadFile, BadOption, ConfigError, StoreError, UnknownJob
from longline.core.output import count_text
from longline.http.proxies.configuration import check_proxy_settings
from longline.monitoring.alerts.configuration import alert_settings_in, check_alert_settings
from longline.monitoring.alerts.manifest_rules import source_rules_in
from longline.monitoring.reports.definitions import report_definitions_in, webhooks_in
from longline.scheduling.definitions import definitions_in, validate_home
from longline.services.doctor.findings import CheckContext
from longline.services.doctor.servers import ask_database
from longline.sources.loader import (
    SCHEMA_NAMES,
    diff_settings,
    explain_entry,
    find_entry,
    nothing_in,
    schema_of,
    survey,
)
from longline.storage.database import Database
from longline.storage.store import Store


@click.group("config")
def config_command() -> None:
    """Show, validate and edit settings, manifests and job files."""


@config_command.command("list")
@profile_option
@json_option
def list_files() -> None:
    """List manifests and job files.

    Searches the folders of the setting `sources`.
    """
    settings = settings_of()
    found = survey(settings)
    rows: list[dict[str, Any]] = [
        {"name": one.name, "kind": one.kind, "file": str(one.document.path), "about": one.about}
        for one in found.entries.values()
    ]
    rows += [
        {"name": None, "kind": "broken", "file": getattr(one, "path", None), "about": str(one)}
        for one in found.problems
    ]
    _print_rows(("name", "kind", "file", "about"), rows, empty=nothing_in(settings.sources))


@config_command.command("show")
@click.argument("name", required=False)
@common_options
def show_values(name: str | None) -> None:
    """Show all settings and where they come from.

    With NAME, the name or path of a manifest or job file, show its values instead.
    """
    if name is None:
        explained = explain_settings(**settings_given())
    else:
        explained = explain_entry(find_entry(name, settings_of()))
    _print_rows(("name", "value", "origin"), [asdict(one) for one in explained])


@config_command.command("validate")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option("--no-secrets", is_flag=True, help="Do not check that secrets and webhooks exist.")
@profile_option
@json_option
def validate_all(files: tuple[Path, ...], *, no_secrets: bool) -> None:
    """Validate FILEs, or all manifests, job files, flows and settings.

    Also checks that the sources and flows of schedules exist. Exits with 2 if any file is invalid.
    """
    settings = settings_of()
    check_alerts = partial(check_alert_settings, with_secrets=not no_secrets)
    check_proxies = partial(check_proxy_settings, with_secrets=not no_secrets)

    def check_token(_document: Document) -> None:
        if settings.monitoring_token is not None and not no_secrets:
            settings.monitoring_token.check()

    def check_webhooks(document: Document) -> None:
        is_known = not no_secrets and bool(webhooks_in(document))
        webhooks = _read_webhooks(settings) if is_known else None
        alert_settings_in(document, webhooks)
        report_definitions_in(document, webhooks)

    count, problems = validate_home(
        files,
        settings,
        with_secrets=not no_secrets,
        source_checks=(source_rules_in,),
        settings_checks=(check_token, check_alerts, check_webhooks, check_proxies),
    )
    if wants_json():
        print_json({"files": count, "problems": [_problem_json(one) for one in problems]})
    elif problems:
        click.echo("\n".join(f"longline: {one}" for one in problems), err=True)
    else:
        click.echo(f"{count_text(count, 'file is', 'files are')} valid")
    sys.exit(ExitCode.USAGE if problems else ExitCode.OK)


def _read_webhooks(settings: Settings) -> list[str] | None:
    """Return the names of the webhooks; None, with a note, if the database cannot be read."""

    async def read(opened: Database) -> list[str]:
        return [one.name for one in await Store(opened).webhooks.list()]

    try:
        found = ask_database(CheckContext(settings), read)
    except StoreError:
        found = None
    if found is None:
        print_note("webhooks were not checked, because the database cannot be read")
    return found


@config_command.command("set")
@click.argument("name")
@click.argument("key")
@click.argument("value")
@profile_option
@json_option
def set_field(name: str, key: str, value: str) -> None:
    """Set KEY of NAME to VALUE; comments are kept.

    NAME is the name or path of a manifest or job file. KEY is the path of a value, such as `rate`
    or `fields.price.type`. The file is not changed if the result would be invalid.
    """
    document = find_entry(name, settings_of()).document
    edited = set_value(document, parse_location(key), value, _check_edited)
    write_document(edited)
    changed = diff_settings(document.values, edited.values)
    lines = [
        f"{one['path']}: {_value_cell(one['before'])} -> {_value_cell(one['after'])}"
        for one in changed
    ]
    print_result(changed, lambda: click.echo("\n".join(lines) or "no change"))


def _check_edited(document: Document) -> None:
    definitions_in(document)
    source_rules_in(document)


@config_command.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@common_options
def diff_files(before: str, after: str) -> None:
    """Show the differences between A and B.

    A and B are files, names of manifests or job files, or jobs, whose settings are compared.
    """
    settings = settings_of()
    rows = diff_settings(_values_of(before, settings), _values_of(after, settings))
    _print_rows(("change", "path", "before", "after"), rows, empty="no differences")


@config_command.command("schema")
@click.argument("kind", type=click.Choice(SCHEMA_NAMES), default="html", metavar="[KIND]")
def print_schema(kind: str) -> None:
    """Print the JSON Schema of a KIND of file.

    KIND is html (the default), api, command, job or settings. Editors use the schema to validate
    and complete the file.
    """
    print_json(schema_of(kind))


def _print_rows(columns: tuple[str, ...], rows: list[dict[str, Any]], *, empty: str = "") -> None:
    table = TextTable(*columns)
    for row in rows:
        table.add(*(_value_cell(row[name]) for name in columns))
    print_result(rows, lambda: table.print(empty, is_whole=True))


def _value_cell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


# ---------------- Files, names and jobs


def _problem_json(error: ConfigError) -> dict[str, Any]:
    """Return what is wrong with a file, and where; line and column are 0 when unknown."""
    place: dict[str, Any] = {"file": "", "line": 0, "column": 0, "problem": str(error)}
    if isinstance(error, BadFile):
        place = {"file": error.path, "line": error.line, "column": error.column}
        place["problem"] = error.problem
    return {**place, "sentence": str(error)}


def _values_of(reference: str, settings: Settings) -> Mapping[str, Any]:
    """Return the values of a file, or the settings of a job.

    Raises:
        ConfigError: there is no such file, name or job.
    """
    try:
        entry = find_entry(reference, settings)
    except BadOption as error:
        try:
            job = with_store(lambda store: store.jobs.get(reference))
        except UnknownJob:
            problem = f"{reference!r} is not a file, a job, or the name of a manifest or job file"
            raise BadOption("config diff", problem) from error
        return job.settings.get("manifest") or job.settings
    # The settings of a job include the defaults, so it is compared with all of them.
    return entry.model.snapshot() if isinstance(entry.model, JobSpec) else entry.values
