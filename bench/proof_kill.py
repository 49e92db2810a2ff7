"""The proof that a job survives any number of `kill -9` at any time."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from arrivals import Arrivals
from children import LONGLINE, environment, failures, run
from commands import run_n8n
from home import Home
from longline.sandbox.web import PracticeWeb, WebOptions
from proofs import Figure, Proof, Sizes, at_least, at_most, none, nothing_wrong, unjudged

NAME = "kill"
_CONCURRENCY = 4
_LATENCY = 0.2  # seconds that a response takes, so that a hundred processes do not finish the job
_WORK = 2.8  # seconds of work after which a process is killed at the latest
_EARLY = 5  # one kill in this many happens while the process starts
_START = 1.5  # seconds within which an early kill comes
_PATIENCE = 20.0  # seconds until a process must have sent its first request
_LAST_LIFE = 1200.0  # seconds that the last process may take to finish the job
_SOONEST = 3.0  # the bar: seconds from a restart to its first work


@dataclass(frozen=True, slots=True)
class Life:
    """One process, from its start to its kill; times are seconds of the monotonic clock."""

    started: float
    ended: float
    code: int


@dataclass(frozen=True, slots=True)
class Tale:
    """All processes of a job, and the requests that the server received."""

    lives: list[Life]
    arrivals: Arrivals
    is_over: bool

    @property
    def kills(self) -> int:
        """Number of killed processes."""
        return sum(life.code < 0 for life in self.lives)


def prove(sizes: Sizes) -> Proof:
    """Kill a job repeatedly, let it finish, and check the result."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name) / "home"
        tale = asyncio.run(_besiege(sizes, home))
        figures = [*_counted(tale, sizes, Home(home)), *_projected(home), *_timed(tale)]
    about = (
        f"`longline run n8n --rate unlimited --concurrency {_CONCURRENCY}` collects "
        f"{sizes.kill_items:,} templates from a practice web whose responses take {_LATENCY:g} s. "
        f"It is killed with SIGKILL at random times, up to {_WORK:g} s after its first request "
        f"(one in {_EARLY}: up to {_START:g} s after its start), started again with the same "
        f"command each time, and finally runs to its end. Seed {sizes.seed}."
    )
    return Proof(NAME, about, figures)


async def _besiege(sizes: Sizes, home: Path) -> Tale:
    draw = random.Random(sizes.seed)
    options = WebOptions(items=sizes.kill_items, latency=_LATENCY)
    async with PracticeWeb(options) as web:
        web.tally.hits = arrivals = Arrivals()
        command = run_n8n(web.url, home, "--rate", "unlimited", "--concurrency", str(_CONCURRENCY))
        lives: list[Life] = []
        while len(lives) < sizes.kills and (not lives or lives[-1].code < 0):
            lives.append(await _live(command, arrivals, draw))
            if len(lives) % 10 == 0:
                print(f"{len(lives)} kills, {len(arrivals.items_asked())} items requested")
        if lives[-1].code < 0:
            lives.append(await _live_on(command))
    return Tale(lives, arrivals, is_over=lives[-1].code == 0)


async def _live(command: list[str], arrivals: Arrivals, draw: random.Random) -> Life:
    arrivals.first = asyncio.Event()
    started = time.monotonic()
    process = await _start(command)
    try:
        async with asyncio.timeout(_PATIENCE + _WORK):
            if draw.randrange(_EARLY) == 0:
                await _until_end(process, draw.uniform(0, _START))
            else:
                await arrivals.first.wait()
                await _until_end(process, draw.uniform(0, _WORK))
    except TimeoutError:
        pass  # it sent no request; it is killed anyway, and counted
    finally:
        code = await _kill(process)
    return Life(started, time.monotonic(), code)


async def _live_on(command: list[str]) -> Life:
    started = time.monotonic()
    process = await _start(command)
    try:
        await _until_end(process, _LAST_LIFE)
    finally:
        code = await _kill(process)
    return Life(started, time.monotonic(), code)


async def _start(command: list[str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        env=environment(),
    )


async def _until_end(process: asyncio.subprocess.Process, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        return


async def _kill(process: asyncio.subprocess.Process) -> int:
    if process.returncode is None:
        process.kill()
    return await process.wait()


def _counted(tale: Tale, sizes: Sizes, home: Home) -> list[Figure]:
    asked = [tale.arrivals.items_between(life.started, life.ended) for life in tale.lives]
    total = sum(sum(one.values()) for one in asked)
    twice = sum(count > 1 for one in asked for count in one.values())
    tries = dict(home.query("SELECT key, tries FROM items"))
    hits = tale.arrivals.items_asked()
    beyond = sum(count > tries.get(key, 0) for key, count in hits.items())
    again = [_asked_again(asked, index) for index in range(len(asked) - 1)]
    return [
        at_least("kills", tale.kills, sizes.kills),
        nothing_wrong("the last process ended the job", [] if tale.is_over else ["it did not"]),
        nothing_wrong(
            f"{sizes.kill_items:,} items, each stored exactly once",
            home.problems(sizes.kill_items),
        ),
        none("items that one process requested twice", twice),
        none("items requested more often than leased", beyond),
        at_most(
            "refetches in total (limit: kills x concurrency)",
            total - len(hits),
            tale.kills * _CONCURRENCY,
        ),
        unjudged("most refetches after one kill", max(again, default=0)),
        unjudged("kills that cost no refetch", sum(count == 0 for count in again)),
    ]


def _projected(home: Path) -> list[Figure]:
    """Compare the projections with a replay of the events, and with the rows."""
    rows = Home(home)
    query = "SELECT projection, key, data FROM projection_rows WHERE stage = 'live' ORDER BY 1, 2"
    live = rows.query(query)
    ended = run([LONGLINE, "events", "rebuild", "all", "--home", str(home)], timeout=_LAST_LIFE)
    differing = sum(one != other for one, other in zip(live, rows.query(query), strict=True))
    counted = dict(rows.query("SELECT state, count(*) FROM items GROUP BY state"))
    (run_row,) = [json.loads(data) for name, _, data in live if name == "runs"]
    states = {state: count for state, count in run_row["items"].items() if count}
    problems = failures([ended]) + ([f"{states} and {counted}"] if states != counted else [])
    return [
        none("rows of projections that a replay of the events changes", differing),
        nothing_wrong("items by state, in the projection and in the rows", problems),
    ]


def _asked_again(asked: Sequence[Mapping[str, int]], index: int) -> int:
    """Return how many items of one process were fetched again by a later one."""
    later = {key for one in asked[index + 1 :] for key in one}
    return len(later & asked[index].keys())


def _timed(tale: Tale) -> list[Figure]:
    restarts = tale.lives[1:]
    requests = [
        first - life.started
        for life in restarts
        if (first := tale.arrivals.first_between(life.started, life.ended)) is not None
    ]
    items = [
        first - life.started
        for life in restarts
        if (first := tale.arrivals.first_item_between(life.started, life.ended)) is not None
    ]
    return [
        *_spread("from a restart to its first request", requests),
        *_spread("from a restart to its first item", items),
        unjudged("processes killed before their first request", len(restarts) - len(requests)),
    ]


def _spread(name: str, seconds: list[float]) -> list[Figure]:
    if not seconds:
        return [nothing_wrong(name, ["there was none"])]
    return [
        unjudged(f"{name}, median", f"{statistics.median(seconds):.2f} s"),
        at_most(f"{name}, longest", max(seconds), _SOONEST, "s"),
    ]
