"""The cost of many slow sources in one process: CPU time, threads, wakeups and memory.

nginx listens on one loopback address per source, enforces the limit of each and logs every
arrival. One `longline run` collects all sources; its counters are read from /proc before and after
a window of steady work.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from children import BENCH, LONGLINE, Child, Children, exit_on_sigterm
from nginx import HINT, Arrival, Limit, find_nginx, serving
from pages import write_pages

_BURST = 5
_PAGES = 200
_TOO_MANY = 429
_RATE_SHARE = 0.99
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Bars:
    """The maximum cost of a run."""

    core_percent: float
    cpu_ms_per_item: float
    threads: int
    memory_mb: float


_MANY = Bars(core_percent=25.0, cpu_ms_per_item=1.5, threads=25, memory_mb=170.0)
_ONE = Bars(core_percent=1.5, cpu_ms_per_item=1e9, threads=25, memory_mb=170.0)


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of the kernel for a process."""

    at: float
    cpu_seconds: float
    switches: int
    threads: int
    memory_mb: float


@dataclass(frozen=True, slots=True)
class Result:
    """The cost of a run in its window; `slowest` is the lowest share of an allowed rate."""

    sources: int
    rate: float
    seconds: float
    items: int
    core_percent: float
    cpu_ms_per_item: float
    threads: int
    wakeups_per_second: float
    memory_mb: float
    refused: int
    slowest: float
    mean: float

    def misses(self, bars: Bars) -> list[str]:
        """Return descriptions of the missed targets."""
        checks = {
            f"{self.core_percent:.1f} % of a core > {bars.core_percent:g}": (
                self.core_percent > bars.core_percent
            ),
            f"{self.cpu_ms_per_item:.2f} ms an item > {bars.cpu_ms_per_item:g}": (
                self.cpu_ms_per_item > bars.cpu_ms_per_item
            ),
            f"{self.threads} threads > {bars.threads}": self.threads > bars.threads,
            f"{self.memory_mb:.0f} MB > {bars.memory_mb:g}": self.memory_mb > bars.memory_mb,
            f"{self.refused} responses with 429": self.refused > 0,
            f"the slowest source at {self.slowest:.3f} of its rate": self.slowest < _RATE_SHARE,
        }
        return [text for text, is_missed in checks.items() if is_missed]


@click.command()
@click.option("--sources", type=click.IntRange(1, 250), default=200, show_default=True)
@click.option("--rate", type=click.IntRange(1, 100), default=1, show_default=True)
@click.option("--seconds", type=float, default=60.0, show_default=True, help="Window length.")
@click.option("--warm-up", type=float, default=25.0, show_default=True, help="Seconds before it.")
@click.option("--one/--no-one", default=True, help="Also measure one source at 2 requests/s.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(
    *, sources: int, rate: int, seconds: float, warm_up: float, one: bool, as_json: bool
) -> None:
    """Measure and print; exit with 1 when a bar is missed."""
    exit_on_sigterm()
    if find_nginx() is None:
        click.echo(HINT, err=True)
        sys.exit(2)
    results = [(measure(sources, rate, seconds, warm_up), _MANY)]
    if one:
        results.append((measure(1, 2, seconds, warm_up), _ONE))
    misses = [miss for result, bars in results for miss in result.misses(bars)]
    if as_json:
        click.echo(json.dumps({"results": [asdict(one) for one, _ in results], "misses": misses}))
    else:
        for result, _ in results:
            click.echo(_line(result))
        click.echo("\n".join(f"missed: {miss}" for miss in misses) or "all bars are met")
    sys.exit(1 if misses else 0)


def measure(sources: int, rate: int, seconds: float, warm_up: float) -> Result:
    """Run `sources` sources in one process and return their cost in steady work."""
    hosts = [f"127.0.1.{number}" for number in range(1, sources + 1)]
    limit = Limit(rate, _BURST - 1)  # nginx counts those beyond the first
    with tempfile.TemporaryDirectory() as name, Children() as children:
        folder = Path(name)
        write_pages(folder / "site", _PAGES)
        serving_all = serving(
            folder / "site", folder / "nginx", limit=limit, has_log=True, hosts=hosts
        )
        with serving_all as server:
            count = int((warm_up + seconds + 60) * rate) + _BURST
            files = [_manifest(folder, host, server.port, min(count, _PAGES)) for host in hosts]
            command = [LONGLINE, "run", *files, "--home", str(folder / "home"), "--json"]
            child = children.start([*command, "--rate", str(rate), "--burst", str(_BURST)])
            _sleep(child, warm_up)
            before = counters(child.process.pid)
            _sleep(child, seconds)
            after = counters(child.process.pid)
            arrivals = server.arrivals()
            child.interrupt()
            child.wait(60.0)
    return _result(sources, rate, before, after, arrivals)


def counters(pid: int) -> Counters:
    """Return the counters of /proc for a process; wakeups are voluntary context switches."""
    stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    switches = sum(_field(task / "status", "voluntary_ctxt_switches") for task in tasks)
    return Counters(
        at=time.time(),
        cpu_seconds=(int(stat[11]) + int(stat[12])) / _TICKS,
        switches=switches,
        threads=len(tasks),
        memory_mb=_field(Path(f"/proc/{pid}/status"), "VmRSS") / 1024,
    )


def _field(status: Path, name: str) -> int:
    try:
        lines = status.read_text("ascii", "replace").splitlines()
    except OSError:  # a thread that has ended meanwhile
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def _result(
    sources: int, rate: float, before: Counters, after: Counters, arrivals: Sequence[Arrival]
) -> Result:
    seconds = after.at - before.at
    cpu = after.cpu_seconds - before.cpu_seconds
    window = [one for one in arrivals if before.at <= one.at <= after.at]
    hosts: dict[str, list[float]] = {}
    for one in window:
        hosts.setdefault(one.host, []).append(one.at)
    shares = [_share(times, rate) for times in hosts.values()] + [0.0] * (sources - len(hosts))
    return Result(
        sources=sources,
        rate=rate,
        seconds=round(seconds, 1),
        items=len(window),
        core_percent=round(100 * cpu / seconds, 2),
        cpu_ms_per_item=round(1000 * cpu / max(1, len(window)), 3),
        threads=max(before.threads, after.threads),
        wakeups_per_second=round((after.switches - before.switches) / seconds),
        memory_mb=round(after.memory_mb, 1),
        refused=sum(one.status == _TOO_MANY for one in arrivals),
        slowest=round(min(shares), 4),
        mean=round(sum(shares) / len(shares), 4),
    )


def _share(times: Sequence[float], rate: float) -> float:
    """Return the share of its rate that a source reached between its first and last arrival."""
    if len(times) < 2:  # noqa: PLR2004  # a rate needs an interval
        return 0.0
    return (len(times) - 1) / (times[-1] - times[0]) / rate


def _manifest(folder: Path, host: str, port: int, count: int) -> str:
    """Write the manifest of one source and return its path."""
    name = f"site_{host.rpartition('.')[2]}"
    text = (BENCH / "pages.yaml").read_text("utf-8")
    text = text.replace("name: pages", f"name: {name}")
    text = text.replace(
        "{about: where the pages are}", f'{{about: its address, default: "http://{host}:{port}"}}'
    )
    path = folder / f"{name}.yaml"
    path.write_text(text.replace("default: 2000", f"default: {count}"), "utf-8")
    return str(path)


def _sleep(child: Child, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if child.process.poll() is not None:
            message = f"longline ended early: {child.errors()[-2000:]}"
            raise RuntimeError(message)
        time.sleep(0.5)


def _line(result: Result) -> str:
    return (
        f"{result.sources} source(s) at {result.rate:g}/s for {result.seconds:g} s: "
        f"{result.core_percent:.1f} % of a core, {result.cpu_ms_per_item:.2f} ms CPU an item, "
        f"{result.threads} threads, {result.wakeups_per_second:.0f} wakeups/s, "
        f"{result.memory_mb:.0f} MB, {result.refused} responses with 429, "
        f"slowest source {result.slowest:.3f} of its rate (mean {result.mean:.3f})"
    )


if __name__ == "__main__":
    main()
