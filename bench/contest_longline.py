"""The contestant longline: the whole normal path of a job, only without a limit of pace."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import click

from children import peak_memory
from contest import Score
from home import Home
from longline import Orchestrator
from pages import digest


@click.command()
@click.argument("url")
@click.argument("count", type=int)
@click.argument("concurrency", type=int)
@click.argument("folder", type=click.Path(path_type=Path))
def main(url: str, count: int, concurrency: int, folder: Path) -> None:
    """Collect COUNT pages below URL into a home in FOLDER."""
    asyncio.run(_collect(url, count, concurrency, folder))


async def _collect(url: str, count: int, concurrency: int, folder: Path) -> None:
    async with Orchestrator(home=folder / "home") as longline:
        started = time.perf_counter()
        await longline.execute(
            "page_source:Pages",
            {
                "set": {"base_url": url, "count": count},
                "rate": "unlimited",
                "concurrency": concurrency,
            },
        )
        seconds = time.perf_counter() - started
        peak = peak_memory()
    rows = Home(folder / "home").records()
    Score(len(rows), seconds, peak, digest(rows)).tell()


if __name__ == "__main__":
    main()
