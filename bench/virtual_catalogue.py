"""Collects a whole catalogue in virtual time; prints the virtual and the real duration."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from children import BENCH, peak_memory
from longline import Orchestrator
from memory_web import SITE, MemoryWeb

sys.path.append(str(BENCH.parent))
from tests.virtual import VirtualClock, VirtualLoop

_RATE = 2.0
_BURST = 5
# Transcripts come through threads that wait for the loop, and virtual time is careful with those:
# it would wait a quarter of a real second for each.
_OPTIONS = {"site_url": SITE, "api_url": f"{SITE}/api", "transcripts": False}


@click.command()
@click.argument("items", type=int)
@click.argument("home", type=click.Path(path_type=Path))
def main(items: int, home: Path) -> None:
    """Collect ITEMS templates into HOME at two requests per second."""
    started = time.monotonic()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        results = runner.run(_collect(items, home))
    results |= {"real_seconds": time.monotonic() - started, "peak_bytes": peak_memory()}
    click.echo(json.dumps(results))


async def _collect(items: int, home: Path) -> dict[str, Any]:
    clock = VirtualClock()
    web = MemoryWeb(items, rate=_RATE, burst=_BURST, clock=clock)
    async with Orchestrator("n8n", _OPTIONS, home=home, clock=clock, transport=web) as longline:
        report = await longline.execute(params={"rate": _RATE, "burst": _BURST})
    return {
        **report.as_dict(),
        "server_requests": web.requests,
        "server_rate_limited": web.rate_limited,
    }


if __name__ == "__main__":
    main()
