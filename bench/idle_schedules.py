"""The cost of a scheduler with many schedules, of which none is due, in real time."""

from __future__ import annotations

import asyncio
import resource
import tempfile
import time
from pathlib import Path

import click

from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.scheduling.schedule import make_schedule
from longline.scheduling.scheduler import Scheduler
from longline.storage.store import open_store

_MANIFEST = """\
manifest: html
name: shop-{number}
start: https://shop.test/
items: h3 a
fields: {{title: h1}}
fresh: 300d
schedule: {{cron: "{minute} 3 1 1 *", timezone: Europe/Sofia}}
"""


@click.command()
@click.option("--schedules", default=1000, help="Half of them are in files.")
@click.option("--seconds", default=30.0)
def main(schedules: int, seconds: float) -> None:
    """Print the time to load the schedules, and the share of a core that an idle scheduler uses."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(Path(folder), schedules, seconds))


async def _measure(folder: Path, count: int, seconds: float) -> None:
    sources = folder / "sources"
    sources.mkdir()
    for number in range(count // 2):
        text = _MANIFEST.format(number=number, minute=number % 60)
        (sources / f"shop-{number}.yaml").write_text(text, "utf-8")
    settings = Settings(home=folder, sources=(sources,))
    with open_store(f"sqlite:///{folder / 'longline.sqlite'}") as store:
        clock = SystemClock()
        for number in range(count - count // 2):
            values = {"name": f"yearly-{number}", "source": "n8n", "cron": "0 4 1 1 *"}
            await store.schedules.save(values["name"], make_schedule(values).stated(), clock.now())
        scheduler = Scheduler(store, clock, settings)
        started = time.monotonic()
        await scheduler.tick()
        print(f"first tick with {count:,} schedules: {time.monotonic() - started:.2f} s")
        used, ticks, end = _cpu(), 0, time.monotonic() + seconds
        while time.monotonic() < end:
            await clock.sleep(await scheduler.tick() or 0.0)
            ticks += 1
        share = (_cpu() - used) / seconds
        print(f"idle: {share:.2%} of a core in {ticks} ticks over {seconds:g} s")


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
