"""A server with many schedules: its CPU time while none is due, and how late a due run starts."""

from __future__ import annotations

import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import psutil
from sqlalchemy import Select, create_engine, select
from sqlalchemy.exc import OperationalError

from children import LONGLINE, Child, environment, exit_on_sigterm
from longline.storage.schema import jobs, launches, occurrences, schedules

_MOST_SHARE = 0.03  # of a core
_MOST_DELAY = 2.0  # seconds
_READY = 60.0  # seconds for the server to read all schedules
_PATIENCE = 60.0  # seconds until a due run has started
_AHEAD = timedelta(seconds=5)
_POLL = 0.1
_MANIFEST = """\
manifest: html
name: shop-{number}
start: https://shop.test/
items: h3 a
fields: {{title: h1}}
fresh: 300d
schedule: {{cron: "{minute} 3 1 1 *", timezone: Europe/Sofia}}
"""
_SOURCE = '''"""A source without a web."""
from longline import Item, Source, layer


class One(Source):
    """One thing."""

    name = "one"

    async def discover(self, visit):
        yield Item("1", "https://one.test/1")

    @layer()
    async def page(self, visit):
        return {"title": "one"}
'''


@click.command()
@click.option(
    "--schedules", "count", default=1000, help="Half are in manifests, half in longline.yaml."
)
@click.option("--seconds", default=60.0, help="Duration of the idle measurement.")
@click.option("--runs", default=10, help="Due runs whose start is measured.")
def main(count: int, seconds: float, runs: int) -> None:
    """Measure; exit with 1 when a limit is exceeded."""
    exit_on_sigterm()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        one = _write_files(Path(folder), count)
        variables = {**environment(), "LONGLINE_HOME": str(home)}
        variables["LONGLINE_CONFIG"] = str(Path(folder) / "longline.yaml")
        variables["LONGLINE_SOURCES"] = str(Path(folder) / "sources")
        server = Child([LONGLINE, "serve", "--no-web"], variables)
        try:
            _await_schedules(home, count)
            share = _measure_idle(server, seconds)
            delays = [_start_one(home, one, number, variables) for number in range(runs)]
        finally:
            server.end()
    delays.sort()
    print(f"idle with {count:,} schedules: {share:.2%} of a core over {seconds:g} s")
    middle, worst = delays[len(delays) // 2], delays[-1]
    print(f"due runs started after {middle:.2f} s (median), {worst:.2f} s (worst of {runs})")
    if share > _MOST_SHARE or worst > _MOST_DELAY:
        raise SystemExit(1)


def _write_files(folder: Path, count: int) -> Path:
    sources = folder / "sources"
    sources.mkdir()
    for number in range(count // 2):
        text = _MANIFEST.format(number=number, minute=number % 60)
        (sources / f"shop-{number}.yaml").write_text(text, "utf-8")
    lines = ["schedules:"]
    one = folder / "one.py"
    one.write_text(_SOURCE, "utf-8")
    lines += [
        f"  yearly-{number}: {{source: {one}, cron: '0 4 1 1 *'}}"
        for number in range(count - count // 2)
    ]
    (folder / "longline.yaml").write_text("\n".join([*lines, ""]), "utf-8")
    return one


def _await_schedules(home: Path, count: int) -> None:
    """Wait until the server has read all schedules and rests."""
    until = time.monotonic() + _READY
    while len(_read(home, select(schedules.c.name))) < count:
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(_POLL)
    time.sleep(_AHEAD.total_seconds())


def _measure_idle(server: Child, seconds: float) -> float:
    used = _cpu(server)
    time.sleep(seconds)
    return (_cpu(server) - used) / seconds


def _cpu(server: Child) -> float:
    process = psutil.Process(server.process.pid)
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def _start_one(home: Path, source: Path, number: int, variables: dict[str, str]) -> float:
    """Add a schedule that is due soon; return how many seconds late its job was started."""
    due = (datetime.now(UTC) + _AHEAD).replace(microsecond=0)
    words = ["schedule", "add", f"soon-{number}", "--source", str(source), "--at", due.isoformat()]
    ended = Child([LONGLINE, *words], variables).wait(_PATIENCE)
    if ended.code:
        raise RuntimeError(ended.errors)
    query = (
        select(jobs.c.started_at)
        .join(launches, launches.c.target == jobs.c.id)
        .join(occurrences, occurrences.c.launch_id == launches.c.id)
        .where(occurrences.c.schedule == f"soon-{number}", jobs.c.started_at.is_not(None))
    )
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        time.sleep(_POLL)
        if found := _read(home, query):
            return found[0] - due.timestamp()
    raise TimeoutError


def _read(home: Path, query: Select[Any]) -> list[Any]:
    file = home / "longline.sqlite"
    if not file.exists():
        return []
    engine = create_engine(f"sqlite:///{file}")
    try:
        with engine.connect() as connection:
            return list(connection.scalars(query))
    except OperationalError:  # it is being created
        return []
    finally:
        engine.dispose()


if __name__ == "__main__":
    main()
