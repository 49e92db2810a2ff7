"""The proof that a hostile site ends in a correct state and does not slow down a healthy one."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from children import BENCH, run
from hostile_trials import (
    HEALTHY_ITEMS,
    LONGEST_RUN,
    LONGEST_STOP,
    LOWEST_RATE,
    MOST_MEMORY_MB,
    Verdict,
    run_all,
)
from longline.sandbox.hostile import HostileSite, Temper
from proofs import Figure, Proof, Sizes, at_least, at_most, exactly, nothing_wrong, unjudged

NAME = "hostile"
_PATIENCE = 600.0
_RATE = 20.0
_TIMEOUT = 5.0
_COUNTS = {
    Temper.HEALTHY: 600,
    Temper.BANNING: 60,
    Temper.FAILING: 60,
    Temper.DRIPPING: 3,
    Temper.CHALLENGING: 60,
    Temper.CIRCLING: 5,
    Temper.BOMBING: 3,
}
_ENDS = {
    Temper.HEALTHY: "complete",
    Temper.BANNING: "paused",
    Temper.FAILING: "complete",
    Temper.DRIPPING: "failed",
    Temper.CHALLENGING: "paused",
    Temper.CIRCLING: "failed",
    Temper.BOMBING: "failed",
}
_FEWEST_BEHAVIOURS = 100


def prove(sizes: Sizes) -> Proof:
    """Collect from a healthy site alone, then together with six hostile ones, in one process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _serving() as sites:
            alone = _collect(folder / "alone", {Temper.HEALTHY: sites[Temper.HEALTHY]})
        with _serving() as sites:
            beside = _collect(folder / "beside", sites)
            hits = {temper: dict(site.hits) for temper, site in sites.items()}
    about = (
        f"Seven jobs in one process at {_RATE:g} requests per second each, with a response "
        f"timeout of {_TIMEOUT:g} s: a healthy site, one that bans after 30 requests, one that "
        "fails for 20 s, one that sends one byte per second, one that returns a challenge with "
        "status 200, one that redirects endlessly, one that sends 10 GB of zeros as 10 MB of "
        "gzip. Before that, the healthy site alone. Then every behaviour of bench/hostile_web.py "
        f"next to a healthy site of {HEALTHY_ITEMS} items through the command line, several in "
        "one process: once to the end, and once with SIGINT at a random time. If several "
        "together miss a target, each is tried alone."
    )
    verdicts = run_all(seed=sizes.seed)
    return Proof(NAME, about, [*_figures(alone, beside, hits), *_behaviour_figures(verdicts)])


def _behaviour_figures(verdicts: list[Verdict]) -> list[Figure]:
    count = sum(len(one.names) for one in verdicts)
    slowest = max(one.seconds for one in verdicts)
    slowest_stop = max(one.stop_seconds for one in verdicts)
    problems = [f"{'+'.join(one.names)}: {text}" for one in verdicts for text in one.problems]
    return [
        at_least("hostile behaviours", count, _FEWEST_BEHAVIOURS),
        at_most("longest run", slowest, LONGEST_RUN, "s"),
        at_most("longest time from SIGINT to exit", slowest_stop, LONGEST_STOP, "s"),
        at_least("lowest rate of the healthy site", _lowest_rate(verdicts), LOWEST_RATE),
        at_most("most memory", max(one.peak_mb for one in verdicts), MOST_MEMORY_MB, "MB"),
        nothing_wrong("no traceback, no kind `bug`, no item lost, counts add up", problems),
    ]


def _lowest_rate(verdicts: list[Verdict]) -> float:
    return round(min(one.healthy_rate for one in verdicts), 2)


def _figures(
    alone: dict[str, Any], beside: dict[str, Any], hits: dict[Temper, dict[int, int]]
) -> list[Figure]:
    jobs = beside["jobs"]
    ratio = jobs["healthy"]["took"] / alone["jobs"]["healthy"]["took"]
    return [
        at_most("healthy site: time with the others / alone", ratio, 1.05),
        exactly("healthy site: stored", jobs["healthy"]["stored"], _COUNTS[Temper.HEALTHY]),
        *(_state(temper, jobs[temper.value]) for temper in Temper),
        *(unjudged(f"{one.value}: reason", _reason(jobs[one.value])) for one in Temper),
        at_most("banning: responses after the ban", hits[Temper.BANNING].get(403, 0), 8),
        at_most("challenging: pages requested", hits[Temper.CHALLENGING][200], 8),
        at_most("peak memory of the process", beside["peak_bytes"] / 1e6, MOST_MEMORY_MB, "MB"),
        unjudged("total time", f"{max(job['took'] for job in jobs.values()):.0f} s"),
    ]


def _state(temper: Temper, job: dict[str, Any]) -> Figure:
    wanted = _ENDS[temper]
    found = f"{job['state']} after {job['took']:.1f} s, {job['stored']} stored"
    return Figure(f"{temper.value}: ended as", found, wanted, job["state"] == wanted)


def _reason(job: dict[str, Any]) -> str:
    return str(job["reason"] or "no reason").replace("127.0.0.1", "the site")


def _collect(home: Path, sites: dict[Temper, HostileSite]) -> dict[str, Any]:
    wanted = [f"{temper.value}={_COUNTS[temper]}={site.url}" for temper, site in sites.items()]
    command = [sys.executable, str(BENCH / "hostile_jobs.py"), str(home), *wanted]
    ended = run([*command, f"--rate={_RATE}", f"--timeout={_TIMEOUT}"], timeout=_PATIENCE)
    answer: dict[str, Any] = ended.json()
    return answer


@contextlib.contextmanager
def _serving() -> Iterator[dict[Temper, HostileSite]]:
    """Serve a site of each kind from a thread of this process."""
    sites = {temper: HostileSite(temper) for temper in Temper}
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def do(work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result()

    for site in sites.values():
        do(site.__aenter__())
    sites[Temper.FAILING].reopen()  # the bomb took its time to pack
    try:
        yield sites
    finally:
        for site in sites.values():
            do(site.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
