"""longline report, digest: reports of a job, and of all sources over a period."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import click

from longline.analysis.job_report import read_report
from longline.cli.exit_codes import ExitCode
from longline.cli.log_options import combine
from longline.cli.options import JOB, ParsedText, common_options, number, wants_json
from longline.cli.output import SafeConsole, print_line
from longline.cli.queries import uses_store
from longline.config.times import local_zone, parse_zone
from longline.core.errors import BadOption, NoJobsYet
from longline.export.atomic_files import atomic_write
from longline.monitoring.reports.digest import Period, last_days, read_digest
from longline.monitoring.reports.digest_page import digest_page
from longline.monitoring.reports.formats import ReportFormat, format_of_file, render
from longline.monitoring.reports.job_page import job_page
from longline.monitoring.reports.page import ReportPage
from longline.storage.query import parse_timestamp
from longline.storage.store import Store

_ZONE = ParsedText("ZONE", parse_zone)
_report_options = combine(
    click.option(
        "--format",
        "wanted",
        type=click.Choice([one.value for one in ReportFormat]),
        show_default="by the suffix of FILE, else text",
        help="Format of the report.",
    ),
    click.option(
        "--output",
        "-o",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Write the report to a file (.txt, .md, .html, .json).",
    ),
    click.option(
        "--timezone",
        type=_ZONE,
        show_default="time zone of this machine",
        help="Time zone, such as Europe/Sofia.",
    ),
)


@click.command("report")
@click.argument("job", type=JOB, required=False)
@_report_options
@common_options
@uses_store
async def report_command(
    store: Store, job: str | None, *, timezone: ZoneInfo | None, **how: Any
) -> None:
    """Report the result, checks, failures and history of a job.

    JOB defaults to the newest job. Exits with 3 if a check fails.
    """
    newest = await store.jobs.list(limit=1)
    if job is None and not newest:
        raise NoJobsYet
    found = newest[0] if job is None else await store.jobs.get(job)
    result = await read_report(store, found)
    page = job_page(result, await store.now(), timezone or local_zone())
    _write(page, result.as_dict(), f"the report of {result.job}", **how)
    sys.exit(ExitCode.OK if result.is_good else ExitCode.PARTIAL)


@click.command("digest")
@click.option(
    "--days",
    type=number(int, 1, 366),
    show_default="1",
    help="Number of days to cover, up to --until or now.",
)
@click.option("--since", metavar="TIME", help="Start of the period: a date, a time or an age (2d).")
@click.option("--until", metavar="TIME", help="End of the period.  [default: now]")
@_report_options
@common_options
@uses_store
async def digest_command(
    store: Store,
    *,
    days: int | None,
    since: str | None,
    until: str | None,
    timezone: ZoneInfo | None,
    **how: Any,
) -> None:
    """Report on all sources over a period: what needs attention, what ran, and trends.

    Times without an offset are in the zone of --timezone. A run belongs to the period in which it
    ended.
    """
    zone, now = timezone or local_zone(), await store.now()
    end = now if until is None else parse_timestamp(until, option="--until", now=now, zone=zone)
    if since is not None and days is not None:
        raise BadOption("--days", "it cannot be combined with --since")
    if since is None:
        days = days or 1
        period = last_days(end, days, zone)
    else:
        period = Period(parse_timestamp(since, option="--since", now=now, zone=zone), end)
    if period.seconds <= 0:
        raise BadOption("--since", "it must be earlier than --until")
    digest = await read_digest(store, period, days=days, zone=zone, now=now)
    _write(digest_page(digest), digest.as_dict(), "the digest", **how)


def _write(
    page: ReportPage, values: dict[str, Any], what: str, *, wanted: str | None, output: Path | None
) -> None:
    """Write a report to a file or print it; with `--json`, print its values in any case."""
    if output is not None:
        chosen = ReportFormat(wanted) if wanted else format_of_file(output.name)
        with atomic_write(output) as target:
            target.write(render(page, values, chosen).encode())
    if wants_json():
        click.echo(render(page, values, ReportFormat.JSON), nl=False)
    elif output is not None:
        print_line(f"wrote {what} to {output}")
    else:
        chosen = ReportFormat(wanted or "text")
        click.echo(render(page, values, chosen, width=_width()), nl=False)


def _width() -> int | None:
    console = SafeConsole()
    return console.width if console.is_terminal else None
