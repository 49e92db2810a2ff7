"""Collect from several sites in one process, one job each; print the results."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click

from children import peak_memory
from longline import Cursor, Item, Options, Orchestrator, Source, Visit, layer


class SiteOptions(Options):
    """The site and the number of items."""

    site: str
    count: int = 10


class Site(Source):
    """/item/0, /item/1, … of a site."""

    name = "site"
    Options = SiteOptions

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the items; their addresses are known."""
        del visit
        for number in range(self.options.count):
            yield Item(str(number), f"{self.options.site}/item/{number}")

    @layer()
    async def page(self, visit: Visit) -> dict[str, Any]:
        """Read the heading."""
        return {"title": (await visit.fetch(visit.item.url)).first_text("h1")}


@click.command()
@click.argument("home", type=click.Path(path_type=Path))
@click.argument("sites", nargs=-1)
@click.option("--rate", type=float, required=True)
@click.option("--timeout", type=float, required=True)
def main(home: Path, sites: tuple[str, ...], *, rate: float, timeout: float) -> None:
    """Collect from SITES, each written as name=count=address."""
    print(json.dumps(asyncio.run(_collect(home, sites, rate, timeout))))


async def _collect(
    home: Path, sites: tuple[str, ...], rate: float, seconds: float
) -> dict[str, Any]:
    wanted = [site.split("=", 2) for site in sites]
    spec = {"rate": rate, "burst": 5, "timeout": seconds}
    ends = await asyncio.gather(
        *(_job(home / name, url, int(count), spec) for name, count, url in wanted)
    )
    results = {name: end for (name, _, _), end in zip(wanted, ends, strict=True)}
    return {"jobs": results, "peak_bytes": peak_memory()}


async def _job(home: Path, url: str, count: int, spec: dict[str, Any]) -> dict[str, Any]:
    options = {"site": url, "count": count}
    started = time.perf_counter()
    async with Orchestrator("hostile_jobs:Site", options, home=home, **spec) as longline:
        report = await longline.execute()
    return {**report.as_dict(), "took": time.perf_counter() - started}


if __name__ == "__main__":
    main()
