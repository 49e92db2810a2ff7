"""longline config: settings, manifests and job files in one place."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from longline.cli.format import plain_console
from longline.cli.opening import with_store
from longline.cli.options import (
    home_option,
    json_option,
    print_json,
    profile_given,
    profile_option,
    settings_of,
)
from longline.config.documents import nearest
from longline.config.editing import location_of, set_value, write_document
from longline.config.job_spec import JobSpec
from longline.config.settings import Explained, Settings, explain_settings
from longline.core.errors import BadFile, BadOption, ConfigError
from longline.sources.job_files import read_job_file
from longline.sources.library import (
    SUFFIXES,
    Difference,
    Entry,
    check_secrets,
    differences,
    explain_entry,
    parse_entry,
    read_entry,
    survey,
    yaml_files,
)
from longline.sources.loader import load_source
from longline.sources.schemas import SCHEMA_NAMES, schema_of
from longline.storage.errors import UnknownJob

# ---------------- What the config command works on: files by path or name, and what jobs ran with


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a file, and where; line and column are 0 when unknown."""

    file: str
    line: int
    column: int
    problem: str
    sentence: str


def entry_of(reference: str, settings: Settings) -> Entry:
    """Return a manifest or a job file by its path or its name.

    Raises:
        ConfigError: there is none, or it is broken.
    """
    if reference.endswith(SUFFIXES):
        return read_entry(Path(reference))
    found = survey(settings)
    if reference in found.entries:
        return found.entries[reference]
    # A broken file may be the one that is meant: it is told what is wrong with it.
    for problem in found.problems:
        if isinstance(problem, BadFile) and Path(problem.path).stem == reference:
            raise problem
    meant = nearest(reference, found.entries)
    hint = f"did you mean {meant!r}? " if meant else ""
    known = ", ".join(found.entries) or "none"
    raise BadOption("NAME", f"there is no {reference!r} here; {hint}known are: {known}")


def problems_of(
    files: tuple[Path, ...], settings: Settings, *, with_secrets: bool
) -> tuple[int, list[Problem]]:
    """Return how many files there are, and what is wrong with them: one problem a file."""
    paths = list(files or yaml_files(settings.sources))
    found = [problem for path in paths if (problem := _problem(path, with_secrets=with_secrets))]
    if not files and not found:  # files that are sound each may still be called the same
        found = [_told(problem) for problem in survey(settings).problems]
    return len(paths), found


def set_in_file(reference: str, key: str, value: str, settings: Settings) -> list[Difference]:
    """Set one value in a file and return what that changed.

    Raises:
        ConfigError: there is no such file or place, or the file would be broken by it.
    """
    document = entry_of(reference, settings).document
    edited = set_value(document, location_of(key), value, parse_entry)
    write_document(edited)
    return differences(document.values, edited.values)


def values_behind(reference: str, settings: Settings, home: Path | None) -> Mapping[str, Any]:
    """Return what a file says, or what a job ran with.

    Raises:
        ConfigError: there is no such file, name or job.
    """
    try:
        entry = entry_of(reference, settings)
    except BadOption as error:
        try:
            job = with_store(home, lambda store: store.jobs.get(reference))
        except UnknownJob:
            problem = f"{reference!r} is no file, no job, and not the name of a manifest"
            raise BadOption("config diff", problem) from error
        return job.settings.get("manifest") or job.settings
    # What a job keeps has the defaults in it, so that it can only be compared with all of them.
    return entry.model.snapshot() if isinstance(entry.model, JobSpec) else entry.values


def _problem(path: Path, *, with_secrets: bool) -> Problem | None:
    try:
        entry = read_entry(path)
        _check_source(entry)
        if with_secrets:
            check_secrets(entry)
    except ConfigError as error:
        return _told(error)
    return None


def _check_source(entry: Entry) -> None:
    """See that what a file names can be used: its source, its settings, the files beside it.

    Raises:
        ConfigError: it cannot; says where it is named.
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


def _told(error: ConfigError) -> Problem:
    if isinstance(error, BadFile):
        return Problem(error.path, error.line, error.column, error.problem, str(error))
    return Problem("", 0, 0, str(error), str(error))


@click.group("config")
def command() -> None:
    """Look at settings, manifests and job files, check them, or set a value."""


@command.command("list")
@profile_option
@json_option
def list_all(*, as_json: bool) -> None:
    """List the manifests and job files of the sources folder, the broken ones too."""
    settings = settings_of()
    found = survey(settings)
    rows = [*map(_row, found.entries.values()), *map(_broken, found.problems)]
    if as_json:
        print_json(rows)
        return
    where = ", ".join(map(str, settings.sources))
    _print(("name", "kind", "file", "about"), rows, f"there is no manifest or job file in {where}")


@command.command("show")
@click.argument("name", required=False)
@home_option
@json_option
def show(name: str | None, *, home: Path | None, as_json: bool) -> None:
    """Show every value of NAME, or of the settings, and where it comes from.

    NAME is that of a manifest or a job file, or the path of one.
    """
    told: list[Explained]
    if name is None:
        told = explain_settings(home=home, profile=profile_given())
    else:
        told = explain_entry(entry_of(name, settings_of(home)))
    rows = [asdict(one) for one in told]
    if as_json:
        print_json(rows)
        return
    _print(("name", "value", "origin"), rows, "")


@command.command("validate")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]…")
@click.option("--no-secrets", is_flag=True, help="Leave out whether every secret is there.")
@profile_option
@json_option
def validate(files: tuple[Path, ...], *, no_secrets: bool, as_json: bool) -> None:
    """Check FILEs, or everything there is; exit with 2 when something is broken."""
    settings = settings_of()
    count, problems = problems_of(files, settings, with_secrets=not no_secrets)
    if as_json:
        print_json({"files": count, "problems": [asdict(one) for one in problems]})
    else:
        _print_problems(count, problems)
    sys.exit(2 if problems else 0)


@command.command("set")
@click.argument("name")
@click.argument("key")
@click.argument("value")
@profile_option
@json_option
def set_one(name: str, key: str, value: str, *, as_json: bool) -> None:
    """Set KEY (rate, or fields.price.type) of NAME to VALUE; comments stay as they are.

    NAME is that of a manifest or a job file, or the path of one. Nothing is written when the file
    would be broken by it.
    """
    changed = set_in_file(name, key, value, settings_of())
    if as_json:
        print_json([asdict(one) for one in changed])
        return
    for one in changed:
        click.echo(f"{one.path}: {_words(one.before)} -> {_words(one.after)}")
    if not changed:
        click.echo("it said so before; nothing was changed")


@command.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@home_option
@json_option
def diff(before: str, after: str, *, home: Path | None, as_json: bool) -> None:
    """Show what B says differently from A.

    Each is a file, the name of a manifest or a job file, or a job: that is what it ran with.
    """
    settings = settings_of(home)
    old, new = (values_behind(one, settings, home) for one in (before, after))
    found = differences(old, new)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    rows = [asdict(one) for one in found]
    _print(("change", "path", "before", "after"), rows, "they say the same")


@command.command("schema")
@click.argument("kind", type=click.Choice(SCHEMA_NAMES), default="html")
def schema(kind: str) -> None:
    """Print the JSON Schema of a KIND of file, for editors that check and complete it."""
    print_json(schema_of(kind))


def _row(entry: Entry) -> dict[str, Any]:
    path = str(entry.document.path)
    return {"name": entry.name, "kind": entry.kind, "file": path, "about": entry.about}


def _broken(problem: ConfigError) -> dict[str, Any]:
    path = getattr(problem, "path", None)
    return {"name": None, "kind": "broken", "file": path, "about": str(problem)}


def _print(columns: tuple[str, ...], rows: Iterable[dict[str, Any]], empty: str) -> None:
    table = Table(*columns, box=None)
    for row in rows:
        table.add_row(*(_words(row[name]) for name in columns))
    plain_console(soft_wrap=True).print(table if table.row_count else empty)


def _print_problems(count: int, problems: list[Problem]) -> None:
    for one in problems:
        click.echo(f"longline: {one.sentence}", err=True)
    if not problems:
        click.echo(f"{count} files are sound" if count != 1 else "1 file is sound")


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
