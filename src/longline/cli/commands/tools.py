"""longline demo, doctor, sandbox."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.options import (
    COUNT,
    SHARE,
    Number,
    Rate,
    common_options,
    home_given,
    profile_given,
    settings_of,
    wants_json,
)
from longline.cli.output import print_result, stdout_console
from longline.cli.progress import STOPPED, STOPPING, JobDisplay, print_summary
from longline.config.settings import Settings, prepare_home
from longline.core.errors import BadOption
from longline.core.output import sanitize
from longline.engine.report import JobReport
from longline.export.export import ExportRequest, export
from longline.orchestrator import Orchestrator
from longline.sandbox.web import PracticeWeb, WebOptions
from longline.services.doctor.doctor import diagnose, fix
from longline.services.doctor.findings import Finding, Verdict
from longline.sources.n8n.source import has_transcript_library
from longline.storage.query import RecordQuery

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
@common_options
def demo_command(**web: Any) -> None:
    """Scrape 500 templates from a local practice web with faults.

    The practice web runs on this machine, allows 50 requests per second, and fails as real sites
    do. Data is stored in the folder `demo` of the home.
    """
    settings = settings_of()
    prepare_home(settings)
    settings = settings.model_copy(update={"home": settings.home / "demo", "database_url": None})
    options = WebOptions(rate=_RATE, burst=_BURST, **web)
    sys.exit(asyncio.run(_demo(settings, options)))


async def _demo(settings: Settings, options: WebOptions) -> int:
    display = JobDisplay(is_quiet=wants_json())
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
    print_result(report.as_dict(), lambda: _print_demo(web, report, records, settings))
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


def _print_demo(web: PracticeWeb, report: JobReport, records: int, settings: Settings) -> None:
    print_summary(report)
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


# ---------------- doctor

_SYMBOLS = {Verdict.OK: "✓", Verdict.WARNING: "!", Verdict.PROBLEM: "✗"}
_COLOURS = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.PROBLEM: "red"}


@click.command("doctor")
@click.option(
    "--fix", "is_fixing", is_flag=True, help="Remove the permissions of other users from the home."
)
@common_options
def doctor_command(*, is_fixing: bool) -> None:
    """Check this installation and suggest fixes.

    Starts nothing, and changes nothing without --fix. Exits with 1 if there is a problem, not for
    warnings.
    """
    done = fix(home_given(), profile_given()) if is_fixing else []
    found = [*done, *diagnose(home_given(), profile_given())]
    print_result([asdict(one) for one in found], lambda: _print_findings(found))
    is_failed = any(one.verdict is Verdict.PROBLEM for one in found)
    sys.exit(ExitCode.FAILED if is_failed else ExitCode.OK)


def _print_findings(findings: Sequence[Finding]) -> None:
    console = stdout_console(soft_wrap=True)
    for one in findings:
        symbol = _SYMBOLS[one.verdict] if console.is_terminal else f"{one.verdict.value:8}"
        console.print(symbol, style=_COLOURS[one.verdict], end=" ")
        console.print(sanitize(f"{one.about:16} {one.sentence}", is_line=True))
        if one.remedy is not None:
            remedy = sanitize(one.remedy, is_line=True)
            console.print(f"{'':{len(symbol)}} {'':16} → {remedy}")


# ---------------- sandbox


@click.command("sandbox")
@click.option("--items", type=COUNT, default=500, show_default=True, help="Number of templates.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on.",
)
@click.option(
    "--port",
    type=Number(int, 0, 65535),
    default=8765,
    show_default=True,
    help="Port to listen on; 0 for any free one.",
)
@click.option(
    "--rate",
    type=Rate(),
    default="unlimited",
    show_default=True,
    help="Maximum requests per second per client.",
)
@click.option("--burst", type=COUNT, default=5, show_default=True, help="Requests in a burst.")
@click.option("--faults", type=SHARE, default=0.0, help="Share of URLs that fail at first.")
@click.option("--missing", type=SHARE, default=0.0, help="Share of URLs that return 404.")
@click.option(
    "--latency",
    type=Number(float, 0),
    default=0.0,
    metavar="SECONDS",
    help="Delay of each response in seconds.",
)
@click.option("--validators", is_flag=True, help="Send ETags, and 304 for known ones.")
@click.option("--disallow", is_flag=True, help="Disallow the API in robots.txt.")
@click.option(
    "--seed",
    type=int,
    default=7,
    show_default=True,
    metavar="N",
    help="Seed of the random content.",
)
@click.option(
    "--corpus",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Serve the real templates of this file (JSON Lines, may be gzipped).",
)
def sandbox_command(*, host: str, port: int, rate: float | str, **options: object) -> None:
    """Serve the practice web.

    Serves a catalogue of n8n templates (generated, or real ones with --corpus) with rate limits
    and seeded faults, until Ctrl-C. It also serves small sites to write manifests for:

    \b
    /quotes/        pages with a next link, authors on separate pages
    /shop/          categories, numbered pages, offsets, load-more, two locales
    /rest/          JSON API: five kinds of authentication and pagination
    /graphql        cursors, and errors in responses with status 200
    /app/           200 items rendered by JavaScript
    /members/       a login form with a hidden token, and expiring sessions
    /news/          a sitemap index, JSON-LD, dates in German
    /generated/7/   a list with detail pages, different for every number
    /redesign/100/  listings whose markup changes after page 100
    /imoti/prodazhbi/, /homes/for-sale, /wohnen/
                    the same flats in Bulgarian, English and German; POST
                    /listings/round/2 changes, removes and adds some
    """  # noqa: D301  # click needs the character itself
    limit = None if isinstance(rate, str) else rate
    web = PracticeWeb(WebOptions(rate=limit, **options), host=host, port=port)  # type: ignore[arg-type]  # click has checked them
    asyncio.run(_serve(web))


async def _serve(web: PracticeWeb) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    try:
        await web.start()
    except OSError as error:
        raise BadOption("--port", f"cannot listen there ({error.strerror})") from error
    click.echo(f"The practice web is at {web.url} with {len(web.catalogue.ids):,} templates. Try:")
    click.echo(
        f"  longline run n8n --set site_url={web.site_url} --set api_url={web.api_url} "
        f"--set youtube_url={web.youtube_url}"
    )
    names = ", ".join(one.path for one in web.sites)
    click.echo(f"Sites for manifests (see examples/): {names}")
    click.echo(f"Statistics: {web.url}/__practice__/tally   Press Ctrl-C to stop.")
    await stop.wait()
    await web.stop()
    click.echo(f"{web.tally.requests} requests, {web.tally.rate_limited} answered with 429")
