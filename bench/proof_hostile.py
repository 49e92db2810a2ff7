"""The proof that a hostile site ends in an honest state and costs a healthy one nothing."""

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
from longline.sandbox.hostile import HostileSite, Temper
from proofs import Figure, Proof, Sizes, at_most, exactly, told

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
_MOST_MEMORY = 400.0


def prove(sizes: Sizes) -> Proof:
    """Collect from a healthy site alone, then beside six that misbehave, in one process."""
    del sizes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _serving() as sites:
            alone = _collect(folder / "alone", {Temper.HEALTHY: sites[Temper.HEALTHY]})
        with _serving() as sites:
            beside = _collect(folder / "beside", sites)
            hits = {temper: dict(site.hits) for temper, site in sites.items()}
    about = (
        f"Seven jobs in one process at {_RATE:g} requests a second each, with a deadline of "
        f"{_TIMEOUT:g} s an answer: a healthy site, one that bans after 30 requests, one that "
        "fails for 20 s, one that drips a byte a second, one that answers 200 with a challenge, "
        "one that redirects for ever, one that sends 10 GB of zeros as 10 MB of gzip. Before that, "
        "the healthy site alone."
    )
    return Proof(NAME, about, _figures(alone, beside, hits))


def _figures(
    alone: dict[str, Any], beside: dict[str, Any], hits: dict[Temper, dict[int, int]]
) -> list[Figure]:
    jobs = beside["jobs"]
    ratio = jobs["healthy"]["took"] / alone["jobs"]["healthy"]["took"]
    return [
        at_most("healthy site: time beside the others / alone", ratio, 1.05),
        exactly("healthy site: stored", jobs["healthy"]["stored"], _COUNTS[Temper.HEALTHY]),
        *(_state(temper, jobs[temper.value]) for temper in Temper),
        *(told(f"{one.value}: why", _reason(jobs[one.value])) for one in Temper),
        at_most("banning: answers after the ban", hits[Temper.BANNING].get(403, 0), 8),
        at_most("challenging: pages that were asked for", hits[Temper.CHALLENGING][200], 8),
        at_most("peak memory of the process", beside["peak_bytes"] / 1e6, _MOST_MEMORY, "MB"),
        told("the whole took", f"{max(job['took'] for job in jobs.values()):.0f} s"),
    ]


def _state(temper: Temper, job: dict[str, Any]) -> Figure:
    wanted = _ENDS[temper]
    found = f"{job['state']} after {job['took']:.1f} s, {job['stored']} stored"
    return Figure(f"{temper.value}: ended as", found, wanted, job["state"] == wanted)


def _reason(job: dict[str, Any]) -> str:
    return str(job["reason"] or "nothing to say").replace("127.0.0.1", "the site")


def _collect(home: Path, sites: dict[Temper, HostileSite]) -> dict[str, Any]:
    wanted = [f"{temper.value}={_COUNTS[temper]}={site.url}" for temper, site in sites.items()]
    command = [sys.executable, str(BENCH / "hostile_jobs.py"), str(home), *wanted]
    ended = run([*command, f"--rate={_RATE}", f"--timeout={_TIMEOUT}"], timeout=_PATIENCE)
    answer: dict[str, Any] = ended.json()
    return answer


@contextlib.contextmanager
def _serving() -> Iterator[dict[Temper, HostileSite]]:
    """Serve a site of each temper from a thread of this process."""
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
