"""longline demo: scrape the practice web."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.options import COUNT, SHARE, home_option, json_option, settings_of
from longline.cli.output import print_json
from longline.cli.progress import STOPPED, STOPPING, JobDisplay, print_summary
from longline.config.settings import Settings, prepare_home
from longline.engine.report import JobReport
from longline.export.export import export
from longline.export.request import ExportRequest
from longline.orchestrator import Orchestrator
from longline.sandbox.web import PracticeWeb, WebOptions
from longline.sources.catalogue.n8n.source import has_transcript_library
from longline.storage.records.query import RecordQuery

_RATE = 50.0
_BURST = 10
_PORT = 8765  # fixed, so that a second demo finds the records of the first
_PRIVATE = 0o600  # like all files of a home
_TIMEOUT = 5.0  # seconds; slow responses of the practice web would take minutes


@click.command("demo")
@click.option("--items", type=COUNT, default=500, show_default=True, help="Number of templates.")
@click.option(
    "--faults",
    type=SHARE,
    default=0.15,
    show_default=True,
    help="Share of URLs that fail at first.",
)
@click.option(
    "--missing", type=SHARE, default=0.01, show_default=True, help="Share of URLs that return 404."
)
@click.option(
    "--seed", type=int, default=7, show_default=True, metavar="N", help="Seed of the random faults."
)
@home_option
@json_option
def command(*, home: Path | None, as_json: bool, **web: Any) -> None:
    """Scrape 500 templates from a local practice web with faults.

    The practice web runs on this machine, allows 50 requests per second, and fails as real sites
    do. Data is stored in the folder `demo` of the home.
    """
    settings = settings_of(home)
    prepare_home(settings)
    settings = settings.model_copy(update={"home": settings.home / "demo", "database_url": None})
    options = WebOptions(rate=_RATE, burst=_BURST, **web)
    sys.exit(asyncio.run(_demo(settings, options, as_json=as_json)))


async def _demo(settings: Settings, options: WebOptions, *, as_json: bool) -> int:
    display = JobDisplay(is_quiet=as_json)
    async with _serving(options) as web:
        display.say(
            f"The practice web at {web.url} has {options.items} templates, allows {_RATE:g} "
            f"requests per second, and {options.faults:.0%} of its URLs fail at first.\n"
        )
        try:
            report, records = await _collect(settings, web, display)
        except asyncio.CancelledError:
            click.echo(STOPPED, err=True)
            return ExitCode.INTERRUPTED
    if as_json:
        print_json(report.as_dict())
    else:
        print_summary(report)
        _print_more(web, report, records, settings)
    return report.exit_code


@asynccontextmanager
async def _serving(options: WebOptions) -> AsyncIterator[PracticeWeb]:
    web = PracticeWeb(options, port=_PORT)
    try:
        await web.start()
    except OSError:
        web = PracticeWeb(options)  # the port is taken: use any free one
        await web.start()
    try:
        yield web
    finally:
        await web.stop()


async def _collect(
    settings: Settings, web: PracticeWeb, display: JobDisplay
) -> tuple[JobReport, int]:
    addresses = {
        "site_url": web.site_url,
        "api_url": web.api_url,
        "youtube_url": web.youtube_url,
        "transcripts": has_transcript_library(),
    }
    orchestrator = Orchestrator(
        "n8n",
        addresses,
        settings=settings,
        rate=_RATE,
        burst=_BURST,
        concurrency=32,
        timeout=_TIMEOUT,
    )

    async with orchestrator:
        with orchestrator.handling_signals(lambda: display.say(STOPPING)), display:
            report = await orchestrator.execute(on_progress=display.update)
        path = settings.home / "templates.jsonl"
        query = RecordQuery(job=report.job)
        request = ExportRequest(str(path), has_schema=False)
        done = export(request, lambda: orchestrator.store.records.stream(query))
        path.chmod(_PRIVATE)
    return report.with_output(done.path), done.records


def _print_more(web: PracticeWeb, report: JobReport, records: int, settings: Settings) -> None:
    tally = web.tally
    faults = ", ".join(f"{count} x {kind}" for kind, count in sorted(tally.faults.items()))
    requests = tally.requests + tally.youtube
    click.echo(f"  the site  received {requests} requests, returned {tally.rate_limited} 429s")
    click.echo(f"            and these faults: {faults or 'none'}")
    click.echo(f"  export    {records} records in {report.output}")
    click.echo("\nNext steps:")
    for command_line, purpose in _next_steps(settings.home):
        click.echo(f"  # {purpose}\n  {command_line}")


def _next_steps(home: Path) -> list[tuple[str, str]]:
    return [
        (f"longline records list --home {home}", "list the records"),
        (f"longline records show KEY --home {home}", "show one with its quality"),
        (f"longline export -o t.csv --home {home}", "export to a spreadsheet"),
        (f"longline report --home {home}", "report on the run"),
        ("longline demo", "run again: records are unchanged"),
        ("longline sandbox --faults 0.3 --rate 2", "serve a site with more faults"),
        ("longline run --help", "run your own source"),
    ]
