"""longline run: run one source, several, or all."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from longline.cli.exit_codes import ExitCode, worst_exit_code
from longline.cli.log_options import log_options
from longline.cli.options import (
    COUNT,
    SECONDS,
    Number,
    Size,
    engine_option,
    given_values,
    home_option,
    job_ignore_robots_option,
    json_option,
    settings_of,
    source_options,
    typed_values,
)
from longline.cli.output import print_json, print_line
from longline.cli.progress import (
    STOPPED,
    STOPPING,
    SiteRow,
    SitesDisplay,
    run_job,
    short_source,
    sites_table,
    with_source,
)
from longline.core.errors import BadOption, LonglineError, Unexpected
from longline.core.threads import use_daemon_threads
from longline.orchestrator import EngineName, NotStarted, Orchestrator, SiteEnd
from longline.sources.library import nothing_in


@click.command("run")
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@click.option(
    "--all",
    "is_all",
    is_flag=True,
    help="Run every manifest and job file in the folders of the setting `sources`.",
)
@click.option(
    "--parallel/--sequential",
    default=None,
    help="Run sources in parallel (default) or one after another.",
)
@click.option("--limit", type=COUNT, help="Maximum number of items.")
@source_options
@click.option("--timeout", type=SECONDS, metavar="SECONDS", help="Response timeout in seconds.")
@click.option(
    "--retries",
    type=Number(int, 0, 99),
    help="Retries of a failed request, besides the first attempt.",
)
@click.option("--cache/--no-cache", default=None, help="Use the HTTP cache.")
@click.option(
    "--archive/--no-archive",
    default=None,
    help="Archive every response (WARC), for `longline reextract`.",
)
@click.option(
    "--max-requests",
    type=COUNT,
    help="Budget of requests; when exhausted, the job ends as partial.",
)
@click.option("--max-bytes", type=Size(), help="Maximum bytes to receive, for example 50MB.")
@click.option("--max-seconds", type=float, metavar="SECONDS", help="Maximum duration in seconds.")
@engine_option("setting `engine`, or local")
@click.option(
    "--detach",
    is_flag=True,
    help="Submit the job to workers and exit (requires --engine celery).",
)
@click.option(
    "--export",
    metavar="FILE",
    help="Export the records of the job when it ends; on a cluster, a worker writes FILE.",
)
@job_ignore_robots_option
@click.option("--fresh", is_flag=True, help="Start a new job even if an unfinished one exists.")
@log_options
@home_option
@json_option
def command(
    sources: tuple[str, ...],
    *,
    is_all: bool,
    parallel: bool | None,
    engine: EngineName | None,
    detach: bool,
    export: str | None,
    fresh: bool,
    home: Path | None,
    as_json: bool,
    options: tuple[tuple[str, str], ...],
    params: tuple[tuple[str, str], ...],
    **given: Any,
) -> None:
    """Run SOURCE, or resume its unfinished job.

    SOURCE is a name (see `longline sources`), a manifest or job file (YAML), a Python file with a
    Source class, or a class, function or Scrapy spider: package.module:Name or file.py:name.

    Several sources run in parallel. Each has its own limits, and the failure of one does not
    affect the others.
    """
    if is_all == bool(sources):
        raise click.UsageError("Name at least one SOURCE, or use --all.")
    if export is not None and (is_all or len(sources) > 1):
        raise click.UsageError("--export requires a single SOURCE.")
    values = _job_values(given, options, params)
    settings = settings_of(home)
    orchestrator = Orchestrator(settings=settings)
    is_on_workers = (engine or settings.engine) == "celery"
    names = list(sources) or None
    how: dict[str, Any]
    if detach:
        if not is_on_workers:
            raise click.UsageError("--detach requires --engine celery.")
        how = {"fresh": fresh, "export": export}
        running = _submit(orchestrator, names, values, how, as_json=as_json)
    elif is_all or len(sources) > 1:
        how = {"params": values, "fresh": fresh, "engine": engine, "parallel": parallel}
        running = _run_sites(orchestrator, names, how, as_json=as_json)
    else:
        running = run_job(
            orchestrator,
            lambda hooks: orchestrator.execute(
                sources[0], values, fresh=fresh, engine=engine, export=export, **hooks
            ),
            as_json=as_json,
            is_on_workers=is_on_workers,
        )
    sys.exit(asyncio.run(running))


def _job_values(
    given: dict[str, Any],
    options: tuple[tuple[str, str], ...],
    params: tuple[tuple[str, str], ...],
) -> dict[str, Any]:
    """Return the fields of JobSpec that the options set."""
    values = given_values(given)
    budget = {name: values.pop(f"max_{name}", None) for name in ("requests", "bytes", "seconds")}
    if any(budget.values()):
        values["budget"] = {name: value for name, value in budget.items() if value is not None}
    if (retries := values.pop("retries", None)) is not None:
        values["retry"] = {"attempts": retries + 1}
    if options:
        values["set"] = dict(options)  # as text: the source's own model knows the types
    if params:
        values["params"] = typed_values(params)
    return values


async def _run_sites(
    orchestrator: Orchestrator,
    sources: Sequence[str] | None,
    how: Mapping[str, Any],
    *,
    as_json: bool,
) -> int:
    """Run several sources with live progress; return the exit code. None: all known sources."""
    use_daemon_threads()
    names = orchestrator.known_sites() if sources is None else sources
    display = SitesDisplay(names, is_quiet=as_json)
    for end in orchestrator.broken_sites() if sources is None else ():
        display.warn(str(end.error))
    try:
        async with orchestrator:
            with orchestrator.handling_signals(lambda: display.say(STOPPING)), display:
                ends = await orchestrator.scrape_all_sites(
                    sources, hooks_of=display.hooks_of, **how
                )
    except asyncio.CancelledError:
        click.echo(STOPPED, err=True)
        return ExitCode.INTERRUPTED
    code = worst_exit_code(end.exit_code for end in ends)
    if as_json:
        print_json({"sites": [_site_json(end) for end in ends], "exit_code": code})
    else:
        _print_sites(ends)
    return code


async def _submit(
    orchestrator: Orchestrator,
    sources: Sequence[str] | None,
    values: Mapping[str, Any],
    how: Mapping[str, Any],
    *,
    as_json: bool,
) -> int:
    """Submit sources to workers; return the exit code. None: all known sources."""
    names = orchestrator.known_sites() if sources is None else sources
    failed = orchestrator.broken_sites() if sources is None else []
    if not names and not failed:
        raise BadOption("--all", nothing_in(orchestrator.settings.sources))
    submitted: list[dict[str, Any]] = []
    async with orchestrator:
        for source in names:
            try:
                job = await orchestrator.submit(source, values, **how)
            except LonglineError as error:
                failed.append(SiteEnd(source, error=error))
            except Exception as error:  # noqa: BLE001  # the code of a source may raise anything
                failed.append(SiteEnd(source, error=Unexpected(repr(error))))
            else:
                submitted.append({"job": job.id, "source": job.source, "state": job.state.value})
    if as_json:
        rows = submitted + [_site_json(end) for end in failed]
        print_json(rows[0] if len(rows) == 1 else {"sites": rows})
    else:
        for row in submitted:
            click.echo(f"submitted {row['job']}")
        for end in failed:
            click.echo(f"longline: {end.error}", err=True)
        if submitted:
            click.echo("Watch progress with: longline top")
    return worst_exit_code(end.exit_code for end in failed)


def _site_json(end: SiteEnd) -> dict[str, Any]:
    if end.report is not None:
        return end.report.as_dict()
    return {"source": short_source(end.source), "state": "failed", "error": str(end.error)}


def _print_sites(ends: Sequence[SiteEnd]) -> None:
    problems: dict[str, list[str]] = {}
    rows = []
    for end in ends:
        name = short_source(end.source)
        if end.report is None and not isinstance(end.error, NotStarted):
            rows.append(SiteRow(name, "failed"))
        else:
            rows.append(SiteRow.of_run(name, end.report.progress if end.report else None))
        if problem := end.error or (end.report and end.report.reason):
            problems.setdefault(str(problem), []).append(name)
    sites_table(rows).print()
    for problem, names in problems.items():
        is_one = len(names) == 1
        print_line(with_source(names[0], problem) if is_one else f"{', '.join(names)}: {problem}")
