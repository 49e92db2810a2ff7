"""longline demo: see it all work against a practice web."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click

from longline.cli.display import Display, print_summary
from longline.cli.options import COUNT, home_option, json_option, print_json, settings_of
from longline.config.settings import Settings, prepare_home
from longline.engine.report import INTERRUPTED, JobReport
from longline.export.export import export
from longline.export.request import ExportRequest
from longline.orchestrator import Orchestrator
from longline.sandbox.web import PracticeWeb, WebOptions
from longline.storage.records.records import RecordQuery

_RATE = 50.0
_BURST = 10
_PORT = 8765  # a fixed one, so that a second demo finds the records of the first
_TIMEOUT = 5.0  # seconds; the practice web's slow drips would take minutes


@click.command("demo")
@click.option("--items", type=COUNT, default=500, show_default=True)
@click.option("--faults", type=click.FloatRange(0, 1), default=0.15, show_default=True)
@click.option("--missing", type=click.FloatRange(0, 1), default=0.01, show_default=True)
@click.option("--seed", type=int, default=7, show_default=True)
@home_option
@json_option
def command(*, home: Path | None, as_json: bool, **web: Any) -> None:
    """See it all work: collect 500 templates from a practice web with faults.

    The practice web runs on this machine, allows 50 requests a second, and misbehaves as real
    sites do. Data goes to the folder demo in the home.
    """
    settings = settings_of(home)
    prepare_home(settings)
    settings = settings.model_copy(update={"home": settings.home / "demo", "database_url": None})
    options = WebOptions(rate=_RATE, burst=_BURST, **web)
    sys.exit(asyncio.run(_demo(settings, options, as_json=as_json)))


async def _demo(settings: Settings, options: WebOptions, *, as_json: bool) -> int:
    display = Display(is_quiet=as_json)
    async with _serving(options) as web:
        display.say(
            f"A practice web of {options.items} templates is at {web.url}: at most {_RATE:g} "
            f"requests a second, {options.faults:.0%} of its addresses misbehave at first.\n"
        )
        try:
            report, records = await _collect(settings, web, display)
        except asyncio.CancelledError:
            click.echo("stopped at once; run longline demo again to go on", err=True)
            return INTERRUPTED
    if as_json:
        print_json(report.as_dict())
    else:
        print_summary(report)
        _tell_more(web, report, records, settings)
    return report.exit_code


@asynccontextmanager
async def _serving(options: WebOptions) -> AsyncIterator[PracticeWeb]:
    web = PracticeWeb(options, port=_PORT)
    try:
        await web.start()
    except OSError:
        web = PracticeWeb(options)  # the port is taken: any free one will do
        await web.start()
    try:
        yield web
    finally:
        await web.stop()


async def _collect(settings: Settings, web: PracticeWeb, display: Display) -> tuple[JobReport, int]:
    addresses = {
        "site_url": web.site_url,
        "api_url": web.api_url,
        "youtube_url": web.youtube_url,
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

    def told_to_stop() -> None:
        display.say("finishing what is in flight; press ctrl-c again to stop at once")

    async with orchestrator:
        with orchestrator.handling_signals(told_to_stop), display:
            report = await orchestrator.execute(on_progress=display.update)
        path = settings.home / "templates.jsonl"
        query = RecordQuery(job=report.job)
        request = ExportRequest(str(path), has_schema=False)
        done = export(request, lambda: orchestrator.store.records.stream(query))
    return report.with_output(done.path), done.records


def _tell_more(web: PracticeWeb, report: JobReport, records: int, settings: Settings) -> None:
    tally = web.tally
    faults = ", ".join(f"{kind} {_times(count)}" for kind, count in sorted(tally.faults.items()))
    click.echo(f"  the site  saw {tally.requests + tally.youtube} requests and sent")
    click.echo(f"            {tally.rate_limited} answers of 429; faults: {faults or 'none'}")
    click.echo(f"  export    {records} records in {report.output}")
    click.echo("\nWhat to try next:")
    for command_line, purpose in _next_steps(settings.home):
        click.echo(f"  {command_line:<50} {purpose}")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _next_steps(home: Path) -> list[tuple[str, str]]:
    return [
        (f"longline records list --home {home}", "what was collected"),
        (f"longline records show KEY --home {home}", "one record, its quality explained"),
        (f"longline export -o t.csv --home {home}", "the same as a spreadsheet"),
        (f"longline report --home {home}", "figures and checks of the run"),
        ("longline demo", "again: now it says unchanged"),
        ("longline sandbox --faults 0.3 --rate 2", "a harsher web to collect from"),
        ("longline run --help", "a source of your own is 20 lines: README"),
    ]
