"""longline sandbox: start a practice web to collect from."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click

from longline.cli.options import COUNT, Rate
from longline.core.errors import BadOption
from longline.sandbox.web import PracticeWeb, WebOptions


@click.command("sandbox")
@click.option("--items", type=COUNT, default=500, show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True)
@click.option(
    "--rate",
    type=Rate(),
    default="unlimited",
    show_default=True,
    help="Requests a second and client.",
)
@click.option("--burst", type=COUNT, default=5, show_default=True)
@click.option("--faults", type=click.FloatRange(0, 1), default=0.0, help="Share of bad addresses.")
@click.option("--missing", type=click.FloatRange(0, 1), default=0.0, help="Share of 404s.")
@click.option("--latency", type=click.FloatRange(min=0), default=0.0, help="Seconds an answer.")
@click.option("--validators", is_flag=True, help="Answers have ETags, and are 304 when known.")
@click.option("--disallow", is_flag=True, help="robots.txt closes the API.")
@click.option("--seed", type=int, default=7, show_default=True, help="The same seed, the same web.")
@click.option(
    "--corpus",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Serve the real templates of this file (JSON Lines, may be gzipped).",
)
def command(*, host: str, port: int, rate: float | str, **options: object) -> None:
    """Start a practice web to collect from.

    It serves a catalogue of n8n templates (generated, or real ones with --corpus) with honest
    limits and seeded faults, until it is interrupted. Beside it lie little sites for manifests:

    \b
    /quotes/      pages with a next link, authors as pages of their own
    /shop/        categories, numbered pages, offsets, load-more, two locales
    /rest/        a JSON API: five kinds of authentication and of pagination, children, changes
    /graphql      cursors, and errors in an answer with status 200
    /app/         200 items that only JavaScript shows
    /members/     a login form with a hidden token and a session that ends
    /news/        a sitemap index, JSON-LD, dates in German
    /generated/7/ a list and its details, another for every number
    /redesign/100/ lots whose markup changes after the 100th page
    /imoti/prodazhbi/, /homes/for-sale, /wohnen/
                  the same flats in Bulgarian, English and German; POST /listings/round/2
                  changes some, takes some away and adds some
    """  # noqa: D301  # click wants the sign itself, not a backslash
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
    click.echo(f"practice web at {web.url} with {len(web.catalogue.ids):,} templates; try:")
    click.echo(
        f"  longline run n8n --set site_url={web.site_url} --set api_url={web.api_url} "
        f"--set youtube_url={web.youtube_url}"
    )
    names = ", ".join(one.path for one in web.sites)
    click.echo(f"for manifests (see examples/): {names}")
    click.echo(f"what it saw: {web.url}/__practice__/tally   stop it with ctrl-c")
    await stop.wait()
    await web.stop()
    click.echo(f"{web.tally.requests} requests, {web.tally.rate_limited} of them answered 429")
