"""longline demo, doctor, sandbox."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.log_options import Command, log_options_of
from longline.cli.options import (
    COUNT,
    RATE,
    SHARE,
    common_options,
    number,
    settings_given,
    settings_of,
    wants_json,
)
from longline.cli.output import SafeConsole, print_line, print_result
from longline.cli.progress import JobDisplay, print_summary, run_with_display
from longline.config.settings import Settings, prepare_home
from longline.core.errors import BadOption
from longline.engine.report import JobReport
from longline.export.export import ExportRequest, export
from longline.orchestrator import Orchestrator
from longline.sandbox.web import PracticeWeb, WebOptions
from longline.services.doctor.doctor import diagnose
from longline.services.doctor.findings import Finding, Verdict
from longline.sources.n8n.source import has_transcript_library
from longline.storage.query import RecordQuery

_RATE = 50.0
_BURST = 10
_PORT = 8765  # fixed, so that a second demo finds the records of the first
_PRIVATE = 0o600  # like all files of a home
_TIMEOUT = 5.0  # seconds; slow responses of the practice web would take minutes


_items_option = click.option("--items", type=COUNT, default=500, help="Number of templates.")
_seed_option = click.option("--seed", type=int, default=7, metavar="N", help="Random seed.")


def _share_option(name: str, default: float, what: str) -> Callable[[Command], Command]:
    return click.option(name, type=SHARE, default=default, help=f"Share of {what}.")


@click.command("demo")
@_items_option
@_share_option("--faults", 0.15, "URLs that fail at first")
@_share_option("--missing", 0.01, "templates that return 404")
@_seed_option
@click.option(
    "--serve",
    "is_serving",
    is_flag=True,
    help="Then run more sources, and serve the web interface until Ctrl-C.",
)
@common_options
def demo_command(*, is_serving: bool, **web: Any) -> None:
    """Scrape 500 templates from a local practice web with faults.

    The practice web runs on this machine, allows 50 requests per second, and has the faults of
    real sites. Data is stored in the folder `demo` of the home. With --serve, the practice web
    keeps running, so that sources can be run and retried in the web interface.
    """
    if is_serving and wants_json():
        raise click.UsageError("--serve prints a link, so it cannot be used with --json")
    settings = settings_of()
    prepare_home(settings)
    settings = settings.model_copy(update={"home": settings.home / "demo", "database_url": None})
    options = WebOptions(rate=_RATE, burst=_BURST, **web)
    sys.exit(asyncio.run(_demo(settings, options, is_serving=is_serving)))


async def _demo(settings: Settings, options: WebOptions, *, is_serving: bool) -> int:
    display = JobDisplay(is_quiet=wants_json())
    web = PracticeWeb(options, port=_PORT)
    try:
        await web.start()
    except OSError:
        web = PracticeWeb(options)  # the port is taken: use any free one
        await web.start()
    display.say(
        f"The practice web at {web.url} has {options.items} templates, allows {_RATE:g} "
        f"requests per second, and {options.faults:.0%} of its URLs fail at first.\n"
    )
    try:
        collected = await _collect(settings, web, display)
        if collected is None:
            return ExitCode.INTERRUPTED
        report, records = collected
        next_steps = {} if is_serving else _next_steps(settings.home)
        print_result(report.as_dict(), lambda: _print_demo(web, report, records, next_steps))
        return await _serve_demo(settings, web, display) if is_serving else report.exit_code
    finally:
        await web.stop()


async def _collect(
    settings: Settings, web: PracticeWeb, display: JobDisplay
) -> tuple[JobReport, int] | None:
    """Run the source of templates and export its records; None if it was stopped."""
    addresses = {
        "site_url": web.site_url,
        "api_url": web.api_url,
        "youtube_url": web.youtube_url,
        "transcripts": has_transcript_library(),
    }
    limits: dict[str, Any] = {
        "rate": _RATE,
        "burst": _BURST,
        "concurrency": 32,
        "timeout": _TIMEOUT,
    }
    orchestrator = Orchestrator("n8n", addresses, settings=settings, **limits)
    path = settings.home / "templates.jsonl"

    async def collect() -> tuple[JobReport, int]:
        report = await orchestrator.execute(on_progress=display.update)
        query = RecordQuery(job=report.job)
        request = ExportRequest(str(path), has_schema=False)
        done = export(request, lambda: orchestrator.store.records.stream(query))
        path.chmod(_PRIVATE)
        return replace(report, output=str(path)), done.records

    return await run_with_display(orchestrator, display, collect)


async def _serve_demo(settings: Settings, web: PracticeWeb, display: JobDisplay) -> int:
    """Run more sources, and serve the home of the demo until Ctrl-C."""
    # Heavy, and only for the web interface.
    from longline.cli.commands.scheduling.serve import open_web, run_server  # noqa: PLC0415
    from longline.server.demo_home import fill_demo, prepare_demo  # noqa: PLC0415
    from longline.server.serve import Server  # noqa: PLC0415
    from longline.server.web.part import WebAddressUnusable  # noqa: PLC0415

    settings = prepare_demo(settings, web.port)
    orchestrator = Orchestrator(settings=settings)

    async def fill() -> bool:
        await fill_demo(orchestrator)
        return True

    display.say("\nRunning more sources, which takes some seconds.")
    if await run_with_display(orchestrator, display, fill) is None:
        return ExitCode.INTERRUPTED
    try:
        listener, link = await open_web(settings)
    except WebAddressUnusable:
        free = settings.model_copy(update={"web_address": "127.0.0.1:0"})
        listener, link = await open_web(free)
    log = log_options_of(click.get_current_context())
    server = Server(settings, load=lambda: settings, log=log, listener=listener)
    try:
        await run_server(server, settings, link)
    except asyncio.CancelledError:  # a second signal
        return ExitCode.INTERRUPTED
    finally:
        listener.close()
    return ExitCode.OK


def _next_steps(home: Path) -> dict[str, str]:
    return {
        "list the records": f"longline records list --home {home}",
        "show one with its quality": f"longline records show KEY --home {home}",
        "export to a spreadsheet": f"longline export -o t.csv --home {home}",
        "report on the run": f"longline report --home {home}",
        "run again: records are unchanged": "longline demo",
        "serve a site with more faults": "longline sandbox --faults 0.3 --rate 2",
        "run your own source": "longline run --help",
        "see it in the browser, with more sources": "longline demo --serve",
    }


def _print_demo(
    web: PracticeWeb, report: JobReport, records: int, next_steps: Mapping[str, str]
) -> None:
    print_summary(report)
    tally = web.tally
    faults = ", ".join(f"{count} x {kind}" for kind, count in sorted(tally.faults.items()))
    requests = tally.requests + tally.youtube
    click.echo(f"  the site  received {requests} requests, returned {tally.rate_limited} 429s")
    click.echo(f"            and these faults: {faults or 'none'}")
    click.echo(f"  export    {records} records in {report.output}")
    if next_steps:
        click.echo("\nNext steps:")
    for purpose, command_line in next_steps.items():
        click.echo(f"  # {purpose}\n  {command_line}")


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

    Starts nothing, and changes nothing without --fix. Exits with 1 if there is a problem;
    warnings do not count.
    """
    given = settings_given()
    found = diagnose(given["home"], given["profile"], is_fixing=is_fixing)
    print_result([asdict(one) for one in found], lambda: _print_findings(found))
    is_failed = any(one.verdict is Verdict.PROBLEM for one in found)
    sys.exit(ExitCode.FAILED if is_failed else ExitCode.OK)


def _print_findings(findings: Sequence[Finding]) -> None:
    is_terminal = SafeConsole().is_terminal
    for one in findings:
        symbol = _SYMBOLS[one.verdict] if is_terminal else f"{one.verdict.value:8}"
        print_line(symbol, _COLOURS[one.verdict], end=" ")
        print_line(f"{one.about:16} {one.sentence}")
        if one.remedy is not None:
            print_line(f"{'':{len(symbol)}} {'':16} → {one.remedy}")


# ---------------- sandbox


@click.command("sandbox")
@_items_option
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Address to listen on.")
@click.option(
    "--port", type=number(int, 0, 65535), default=_PORT, help="Port to listen on; 0 for any."
)
@click.option(
    "--rate", type=RATE, default="unlimited", help="Maximum requests per second per client."
)
@click.option("--burst", type=COUNT, default=5, help="Requests in a burst.")
@_share_option("--faults", 0.0, "URLs that fail at first")
@_share_option("--missing", 0.0, "templates that return 404")
@click.option(
    "--latency", type=number(float, 0), default=0.0, help="Delay of each response in seconds."
)
@click.option(
    "--validators",
    is_flag=True,
    help="Send ETags, and respond with 304 if the client's ETag matches.",
)
@click.option("--disallow", is_flag=True, help="Disallow the API in robots.txt.")
@_seed_option
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
    /redesign/100/  an auction whose markup changes once 100 lots have been shown
    /maze/          crawler traps: endless calendar, session ids, mirrored parameters
    /judge          echoes a request, to check proxies
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
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(one, stop.set)
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
    click.echo(f"{web.tally.requests} requests, {web.tally.rate_limited} responses with status 429")
