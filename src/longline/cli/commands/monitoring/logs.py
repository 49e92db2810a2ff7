"""longline logs: the warnings and errors of all processes, as they were stored."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

import click

from longline.cli.options import COUNT, common_options, wants_json
from longline.cli.output import iso_time, print_json, print_line, print_result, time_text
from longline.cli.queries import check_source, time_option, uses_store
from longline.core.clock import SystemClock
from longline.core.errors import BadOption, UnknownJob
from longline.core.json import as_text
from longline.monitoring.log_store import follow_logs
from longline.storage.monitoring.logs import LogFilter, LogLine
from longline.storage.store import Store

_LEVELS = {"warning": logging.WARNING, "error": logging.ERROR}
_SHOWN = ("job", "source", "domain", "item", "flow", "worker")  # after the message


@click.command("logs")
@click.argument("target", metavar="[JOB|SOURCE]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Print new lines until interrupted.")
@click.option("--level", type=click.Choice(list(_LEVELS)), default="warning", help="Minimum level.")
@click.option("--grep", "text", metavar="TEXT", help="Only lines that contain TEXT, ignoring case.")
@click.option("--domain", metavar="HOST", help="Only lines about this domain.")
@click.option("--item", metavar="KEY", help="Only lines about this item.")
@time_option("--since", "Only lines since TIME")
@time_option("--until", "Only lines before TIME")
@click.option("--limit", type=COUNT, default=100, help="Maximum number of stored lines to print.")
@common_options
@uses_store
async def logs_command(
    store: Store, target: str | None, *, follow: bool, level: str, limit: int, **wanted: Any
) -> None:
    """Show warnings and errors of all processes.

    The newest lines are last. With JOB or SOURCE, shows only the lines of that job or source. With
    --follow and --json, prints one object per line.
    """
    if follow and wanted["until"] is not None:
        raise BadOption("--until", "cannot be combined with --follow")
    about = await _find_target(store, target) if target is not None else {}
    filter_ = LogFilter(**about, **wanted, level=_LEVELS[level])
    lines, cursor = await store.logs.search(filter_, limit=limit)
    if not follow:
        print_result([_log_json(line) for line in lines], lambda: _print_lines(lines, about))
        return
    for line in lines:
        _print_followed(line)
    async for line in follow_logs(store.logs, SystemClock(), filter_, cursor):
        _print_followed(line)


async def _find_target(store: Store, name: str) -> dict[str, Any]:
    """Return the filter for a source, by its name, or for a job, by its id or a prefix of it.

    Raises:
        BadOption: there is neither.
        UnknownJob: it is a prefix of several ids.
    """
    if await store.logs.names_source(name) or await store.jobs.list(limit=1, source=name):
        return {"source": name}
    try:
        if name:
            return {"job": (await store.jobs.get(name)).id}
    except UnknownJob as error:
        if error.fitting:
            raise
    try:
        await check_source(store, name)
    except BadOption as error:
        raise BadOption("JOB|SOURCE", f"there is no such job, and {error.problem}") from error
    return {"source": name}


def _print_lines(lines: list[LogLine], about: dict[str, Any]) -> None:
    for line in lines:
        _print_log(line)
    if not lines:
        print_line("no warnings or errors")
        if "job" in about:
            print_line(f"To list failed items, run: longline failures {about['job']}")


def _print_followed(line: LogLine) -> None:
    if wants_json():
        print_json(_log_json(line))
    else:
        _print_log(line)


def _print_log(line: LogLine) -> None:
    context = {name: getattr(line, name) for name in _SHOWN}
    fields = [
        f" {name}={value if isinstance(value, str) else as_text(value)}"
        for name, value in {**context, **line.fields}.items()
        if value is not None
    ]
    level = logging.getLevelName(line.level)
    style = "red" if line.level >= logging.ERROR else ""
    text = f"{time_text(line.at, seconds=True)} {level} {line.message}{''.join(fields)}"
    print_line(text, style)
    for part in (line.exception or "").splitlines():
        print_line(f"  {part}")


def _log_json(line: LogLine) -> dict[str, Any]:
    return {
        **asdict(line),
        "at": iso_time(line.at),
        "level": logging.getLevelName(line.level).lower(),
    }
