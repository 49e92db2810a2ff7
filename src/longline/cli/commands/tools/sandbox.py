"""longline sandbox: serve the practice web."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click

from longline.cli.options import COUNT, SHARE, Number, Rate
from longline.core.errors import BadOption
from longline.sandbox.web import PracticeWeb, WebOptions


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
def command(*, host: str, port: int, rate: float | str, **options: object) -> None:
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
