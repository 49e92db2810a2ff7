"""The contestant longline: a job with the default settings, without a rate limit.

With `--every-middleware`, the middlewares that are off by default are on: cache, budgets, headers.
With `--archive`, every response is archived as well. With `--manifest`, the source is a manifest
instead of Python.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import click

from children import BENCH, peak_memory
from contest import Score
from home import Home
from longline import Orchestrator
from pages import digest

EVERY_MIDDLEWARE = {
    "cache": True,
    "headers": {"Accept-Language": "en"},
    "budget": {"requests": 1_000_000, "bytes": "100GB", "seconds": 86_400},
    "budget_per_domain": {"requests": 1_000_000},
}


@click.command()
@click.argument("url")
@click.argument("count", type=int)
@click.argument("concurrency", type=int)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--every-middleware", is_flag=True)
@click.option("--archive", is_flag=True)
@click.option("--manifest", is_flag=True)
def main(
    url: str,
    count: int,
    concurrency: int,
    folder: Path,
    *,
    every_middleware: bool,
    archive: bool,
    manifest: bool,
) -> None:
    """Collect COUNT pages below URL into a home in FOLDER."""
    added = EVERY_MIDDLEWARE if every_middleware else {}
    more = {**added, "archive": archive, "concurrency": concurrency}
    source = str(BENCH / "pages.yaml") if manifest else "page_source:Pages"
    asyncio.run(_collect(source, url, count, folder, more))


async def _collect(source: str, url: str, count: int, folder: Path, more: dict[str, Any]) -> None:
    async with Orchestrator(home=folder / "home") as longline:
        started = time.perf_counter()
        await longline.execute(
            source,
            {"set": {"base_url": url, "count": count}, "rate": "unlimited", **more},
        )
        seconds = time.perf_counter() - started
        peak = peak_memory()
    rows = Home(folder / "home").records()
    Score(len(rows), seconds, peak, digest(rows)).print_json()


if __name__ == "__main__":
    main()
