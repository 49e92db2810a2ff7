"""longline config: settings, manifests and job files."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.options import (
    home_option,
    json_option,
    profile_given,
    profile_option,
    settings_of,
)
from longline.cli.output import TextTable, count_text, print_json
from longline.cli.queries import with_store
from longline.config.documents import parse_location, set_value, write_document
from longline.config.job_spec import JobSpec
from longline.config.settings import Settings, explain_settings
from longline.config.validation_messages import nearest
from longline.core.errors import BadFile, BadOption, ConfigError, UnknownJob
from longline.sources.loader import (
    SCHEMA_NAMES,
    SUFFIXES,
    Entry,
    check_secrets,
    diff_settings,
    explain_entry,
    load_source,
    nothing_in,
    parse_entry,
    read_entry,
    read_job_file,
    schema_of,
    survey,
    yaml_files,
)


@click.group("config")
def config_command() -> None:
    """Show, validate and edit settings, manifests and job files."""


@config_command.command("list")
@profile_option
@json_option
def list_all(*, as_json: bool) -> None:
    """List manifests and job files.

    Searches the folders of the setting `sources`.
    """
    settings = settings_of()
    found = survey(settings)
    rows: list[dict[str, Any]] = [
        {
            "name": entry.name,
            "kind": entry.kind,
            "file": str(entry.document.path),
            "about": entry.about,
        }
        for entry in found.entries.values()
    ]
    rows += [
        {
            "name": None,
            "kind": "broken",
            "file": getattr(problem, "path", None),
            "about": str(problem),
        }
        for problem in found.problems
    ]
    if as_json:
        print_json(rows)
        return
    _print_rows(("name", "kind", "file", "about"), rows, nothing_in(settings.sources))


@config_command.command("show")
@click.argument("name", required=False)
@home_option
@json_option
def show_values(name: str | None, *, home: Path | None, as_json: bool) -> None:
    """Show all values and where they come from.

    Those of the settings, or of NAME: the name or path of a manifest or job file.
    """
    if name is None:
        explained = explain_settings(home=home, profile=profile_given())
    else:
        explained = explain_entry(_find_entry(name, settings_of(home)))
    rows = [asdict(one) for one in explained]
    if as_json:
        print_json(rows)
        return
    _print_rows(("name", "value", "origin"), rows, "")


@config_command.command("validate")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option("--no-secrets", is_flag=True, help="Do not check that secrets exist.")
@profile_option
@json_option
def validate(files: tuple[Path, ...], *, no_secrets: bool, as_json: bool) -> None:
    """Validate FILEs, or all manifests and job files.

    Exits with 2 if one is invalid.
    """
    settings = settings_of()
    count, problems = _validate(files, settings, with_secrets=not no_secrets)
    if as_json:
        print_json({"files": count, "problems": [asdict(one) for one in problems]})
    else:
        for one in problems:
            click.echo(f"longline: {one.sentence}", err=True)
        if not problems:
            click.echo(f"{count_text(count, 'file is', 'files are')} valid")
    sys.exit(ExitCode.USAGE if problems else ExitCode.OK)


@config_command.command("set")
@click.argument("name")
@click.argument("key")
@click.argument("value")
@profile_option
@json_option
def set_one(name: str, key: str, value: str, *, as_json: bool) -> None:
    """Set KEY of NAME to VALUE; comments are kept.

    NAME is the name or path of a manifest or job file, KEY is `rate` or
    `fields.price.type`. The file is not changed if the result would be invalid.
    """
    document = _find_entry(name, settings_of()).document
    edited = set_value(document, parse_location(key), value, parse_entry)
    write_document(edited)
    changed = diff_settings(document.values, edited.values)
    if as_json:
        print_json(changed)
        return
    for one in changed:
        click.echo(f"{one['path']}: {_value_cell(one['before'])} -> {_value_cell(one['after'])}")
    if not changed:
        click.echo("no change")


@config_command.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@home_option
@json_option
def diff(before: str, after: str, *, home: Path | None, as_json: bool) -> None:
    """Show the differences between A and B.

    Each is a file, the name of a manifest or job file, or a job, whose settings are compared.
    """
    settings = settings_of(home)
    old, new = (_values_of(one, settings, home) for one in (before, after))
    rows = diff_settings(old, new)
    if as_json:
        print_json(rows)
        return
    _print_rows(("change", "path", "before", "after"), rows, "no differences")


@config_command.command("schema")
@click.argument("kind", type=click.Choice(SCHEMA_NAMES), default="html", metavar="[KIND]")
def schema(kind: str) -> None:
    """Print the JSON Schema of a KIND of file.

    KIND is html (the default), api, command, job or settings. Editors use the schema to validate
    and complete the file.
    """
    print_json(schema_of(kind))


def _print_rows(columns: tuple[str, ...], rows: Iterable[dict[str, Any]], empty: str) -> None:
    table = TextTable(*columns, whole=columns, cell_length=1000)
    for row in rows:
        table.add(*(_value_cell(row[name]) for name in columns))
    if table:
        table.print()
    else:
        click.echo(empty)


def _value_cell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


# ---------------- Files by path or name, and the settings of jobs


@dataclass(frozen=True, slots=True)
class _Problem:
    """What is wrong with a file, and where; line and column are 0 when unknown."""

    file: str
    line: int
    column: int
    problem: str
    sentence: str

    @classmethod
    def of(cls, error: ConfigError) -> _Problem:
        if isinstance(error, BadFile):
            return cls(error.path, error.line, error.column, error.problem, str(error))
        return cls("", 0, 0, str(error), str(error))


def _find_entry(reference: str, settings: Settings) -> Entry:
    """Return a manifest or a job file by its path or its name.

    Raises:
        ConfigError: it does not exist, or is invalid.
    """
    if reference.endswith(SUFFIXES):
        return read_entry(Path(reference))
    found = survey(settings)
    if reference in found.entries:
        return found.entries[reference]
    # If the file of this name is broken, its problem is the answer.
    for problem in found.problems:
        if isinstance(problem, BadFile) and Path(problem.path).stem == reference:
            raise problem
    meant = nearest(reference, found.entries)
    hint = f"did you mean {meant!r}? " if meant else ""
    known = ", ".join(found.entries) or "none"
    raise BadOption("NAME", f"there is no {reference!r}; {hint}known names: {known}")


def _validate(
    files: tuple[Path, ...], settings: Settings, *, with_secrets: bool
) -> tuple[int, list[_Problem]]:
    """Return the number of files, and the first problem of each invalid one."""
    paths = list(files or yaml_files(settings.sources))
    problems = []
    for path in paths:
        try:
            entry = read_entry(path)
            _check_job_source(entry)
            if with_secrets:
                check_secrets(entry)
        except ConfigError as error:
            problems.append(_Problem.of(error))
    if not files and not problems:  # two valid files may have the same name
        problems = [_Problem.of(problem) for problem in survey(settings).problems]
    return len(paths), problems


def _check_job_source(entry: Entry) -> None:
    """Check that the source and the options of a job file can be used.

    Raises:
        ConfigError: they cannot; names the place in the file.
    """
    values = read_job_file(entry.document.path)
    if not isinstance(entry.model, JobSpec):
        return
    try:
        source = load_source(values["source"], values.get("manifest"))
    except BadFile:
        raise
    except ConfigError as error:
        raise entry.document.error(("source",), str(error)) from error
    try:
        source.with_options(values.get("set") or {})
    except ConfigError as error:
        raise entry.document.error(("set",), str(error)) from error


def _values_of(reference: str, settings: Settings, home: Path | None) -> Mapping[str, Any]:
    """Return the values of a file, or the settings of a job.

    Raises:
        ConfigError: there is no such file, name or job.
    """
    try:
        entry = _find_entry(reference, settings)
    except BadOption as error:
        try:
            job = with_store(home, lambda store: store.jobs.get(reference))
        except UnknownJob:
            problem = f"{reference!r} is not a file, a job, or the name of a manifest or job file"
            raise BadOption("config diff", problem) from error
        return job.settings.get("manifest") or job.settings
    # The settings of a job include the defaults, so it is compared with all of them.
    return entry.model.snapshot() if isinstance(entry.model, JobSpec) else entry.values
