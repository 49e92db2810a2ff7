"""The proof that a cluster survives `kill -9` of any of its parts, at any stage of a job."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from cluster_parts import (
    Cluster,
    children_of,
    is_alive,
    keep_logs,
    kill_server,
    open_cluster,
    parent_of,
    pid_of,
)
from judge import Standing
from proofs import Figure, Proof, Sizes, at_least, at_most, none, nothing_wrong, unjudged
from trial_server import TrialServer

NAME = "cluster-kill"
PARTS = ("worker child", "worker parent", "supervisor", "dispatcher", "redis-server", "PostgreSQL")
MOMENTS = ("discovering", "fetching", "before commit", "after commit", "finalising")
_WORKERS = ("one", "two")
_PROCESSES = 2
_CONCURRENCY = 2
_CHUNK = 10
_COUNT = 80
_LATENCY = 0.03
_MOMENT = 30.0  # seconds in which the job must reach the stage of a kill
_END = 90.0  # seconds after which a job that has not ended is a failed trial
_BACK = 20.0  # the bar
_LOOK = 0.002


@dataclass(frozen=True, slots=True)
class Trial:
    """One kill and its result; times are in seconds, None if nothing was measured.

    `goes_on` is from the part being back to the next committed item, or to the job's end when all
    were committed; `ends` is from there to the job's end.
    """

    number: int
    part: str
    moment: str
    is_met: bool
    goes_on: float | None
    ends: float | None
    problems: Sequence[str]


def prove(sizes: Sizes) -> Proof:
    """Kill every part at every stage, repeatedly and in random order."""
    draw = random.Random(sizes.seed)
    cells = list(product(PARTS, MOMENTS))
    plan: list[tuple[str, str]] = []
    while len(plan) < sizes.cluster_kills:
        plan += draw.sample(cells, len(cells))
    with TrialServer(latency=_LATENCY, list_latency=_LATENCY) as server:
        trials = _besiege(plan[: sizes.cluster_kills], sizes, server, draw)
    about = (
        f"Two workers of {_PROCESSES} processes each, {_CONCURRENCY} concurrent items per "
        f"process, chunks of {_CHUNK}, real Redis and PostgreSQL. Each trial is a job of {_COUNT} "
        f"items whose pages take {_LATENCY * 1000:g} ms and whose list has 8 pages. At a random "
        "time after the database shows that the job has reached a given stage, one part is "
        f"killed with SIGKILL: {', '.join(PARTS)}. The trial restarts a killed server or "
        "supervisor immediately; longline itself restarts children and parents. The time is from "
        "the restart by the trial, or else from the kill, to the next committed item, or to the "
        f"end of the job if all items were committed before. Seed {sizes.seed}."
    )
    return Proof(NAME, about, _figures(trials))


def _besiege(
    plan: Sequence[tuple[str, str]], sizes: Sizes, server: TrialServer, draw: random.Random
) -> list[Trial]:
    trials: list[Trial] = []
    left = list(plan)
    while left:  # a cluster that failed a trial is not used again
        with open_cluster(chunk_size=_CHUNK) as cluster:
            for name in _WORKERS:
                cluster.hire(name, _PROCESSES)
            cluster.await_workers()
            is_well = True
            while left and is_well:
                part, moment = left.pop(0)
                siege = _Siege(cluster, server, draw)
                trials.append(siege.run(len(trials), part, moment))
                is_well = not trials[-1].problems
                if not is_well:
                    _report(trials[-1], sizes.seed, cluster)
                if len(trials) % 10 == 0:
                    print(
                        f"{len(trials)} trials, {sum(bool(one.problems) for one in trials)} failed"
                    )
    return trials


def _report(trial: Trial, seed: int, cluster: Cluster) -> None:
    folder = keep_logs(f"kill-{seed}-{trial.number}", cluster.logs())
    for server, log in (("redis", "redis.log"), ("postgres", "postgres.log")):
        file = cluster.folder / server / log
        if file.is_file():
            (folder / log).write_bytes(file.read_bytes()[-100_000:])
    print(
        f"trial {trial.number} (seed {seed}): {trial.part} killed while {trial.moment}: "
        f"{'; '.join(trial.problems)}; logs in {folder}",
        file=sys.stderr,
    )


class _Siege:
    """One trial."""

    def __init__(self, cluster: Cluster, server: TrialServer, draw: random.Random) -> None:
        self._cluster = cluster
        self._server = server
        self._draw = draw
        self._job = ""
        self._finder: int | None = None

    def run(self, number: int, part: str, moment: str) -> Trial:
        trial = Trial(number, part, moment, False, None, None, ())
        try:
            return self._run(trial)
        except Exception as error:  # noqa: BLE001  # the edge of a trial: the others go on
            return replace(trial, problems=[f"{type(error).__name__}: {error}"])

    def _run(self, trial: Trial) -> Trial:
        marks = self._cluster.folder / "marks"
        name = f"k{trial.number:04}"
        options = {"base_url": self._server.url, "trial": name, "count": _COUNT}
        self._job = self._cluster.submit(
            "trial_source:Trials", options | {"marks": str(marks)}, concurrency=_CONCURRENCY
        )
        standing, is_met = self._await_moment(trial.moment)
        time.sleep(self._draw.uniform(0, 0.004 if "commit" in trial.moment else 0.05))
        back_at = self._kill(trial.part, standing)
        goes_on = self._next_commit(back_at)
        standing = self._cluster.judge.await_end(self._job, _END)
        ends = time.time() - back_at if standing.is_final else None
        problems = self._cluster.judge.problems(self._job, _COUNT)
        if (marks.read_text("utf-8").split() if marks.is_file() else []).count(name) > 1:
            problems.append("the source was notified twice of the end")
        if not self._cluster.workers.keys() >= set(_WORKERS):
            problems.append("a worker is gone")
        problems += [
            f"the worker {one} has ended"
            for one, child in self._cluster.workers.items()
            if not child.is_running
        ]
        return replace(trial, is_met=is_met, goes_on=goes_on, ends=ends, problems=problems)

    def _await_moment(self, moment: str) -> tuple[Standing, bool]:
        """Wait for a stage of the job; return False if it was missed."""
        is_now = _WHEN[moment]
        stored, sent = 0, self._server.last_sent
        until = time.monotonic() + _MOMENT
        while time.monotonic() < until:
            standing = self._cluster.judge.standing(self._job)
            self._finder = pid_of(standing.finder) or self._finder
            more = standing.stored > stored
            has_sent = self._server.last_sent > sent
            if is_now(standing, more, has_sent):
                return standing, True
            if standing.is_final:
                return standing, False
            stored, sent = standing.stored, self._server.last_sent
            time.sleep(_LOOK)
        message = f"the job did not reach the stage {moment} within {_MOMENT:g} s: {standing}"
        raise TimeoutError(message)

    def _kill(self, part: str, standing: Standing) -> float:
        """Kill a part; return the time at which it is restarted or starts to recover."""
        if part in ("redis-server", "PostgreSQL"):
            server = self._cluster.redis if part == "redis-server" else self._cluster.postgres
            assert server is not None  # noqa: S101  # this cluster has both
            kill_server(server)
            server.start()
            return time.time()
        name, child = self._victim(standing)
        supervisor = self._cluster.workers[name].process.pid
        if part == "dispatcher":
            child = self._finder if self._finder and is_alive(self._finder) else child
        pid = {"worker parent": parent_of(supervisor), "supervisor": supervisor}.get(part, child)
        with contextlib.suppress(ProcessLookupError):
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        if part == "supervisor":
            self._cluster.workers[name].process.wait()
            self._cluster.hire(name, _PROCESSES)
        return time.time()

    def _victim(self, standing: Standing) -> tuple[str, int | None]:
        """Return a worker and one of its children, preferably one with items in flight."""
        below = {
            name: children_of(child.process.pid) for name, child in self._cluster.workers.items()
        }
        busy = {pid_of(holder) for holder in standing.holders}
        choice = [(name, pid) for name, pids in below.items() for pid in pids]
        choice = [one for one in choice if one[1] in busy] or choice
        return self._draw.choice(choice) if choice else (self._draw.choice(_WORKERS), None)

    def _next_commit(self, back_at: float) -> float | None:
        """Return the time from `back_at` to the next commit; None if there was none in time."""
        until = time.monotonic() + _END
        while time.monotonic() < until:
            at = self._cluster.judge.number(
                "SELECT min(finished_at) FROM items WHERE job_id = ? AND finished_at > ?",
                self._job,
                back_at,
            )
            if at:
                return at - back_at
            ended = self._cluster.judge.number(
                "SELECT finished_at FROM jobs WHERE id = ?", self._job
            )
            if ended:
                return max(0.0, ended - back_at)
            time.sleep(0.02)
        return None


_WHEN: dict[str, Callable[[Standing, bool, bool], bool]] = {
    "discovering": lambda now, _more, _sent: now.finder is not None and 0 < now.items < _COUNT,
    "fetching": lambda now, _more, _sent: _COUNT / 10 < now.stored < _COUNT * 0.7,
    "before commit": lambda now, _more, sent: sent and now.stored < _COUNT * 0.8,
    "after commit": lambda now, more, _sent: more and now.stored < _COUNT * 0.8,
    "finalising": lambda now, _more, _sent: now.is_discovered and now.finished == _COUNT,
}


def _figures(trials: Sequence[Trial]) -> list[Figure]:
    failed = [f"{one.part} while {one.moment}" for one in trials if one.problems]
    figures = [
        at_least("trials", len(trials), 100),
        nothing_wrong(f"{_COUNT} items stored exactly once and one end, in every trial", failed),
        unjudged("kills at the intended stage", sum(one.is_met for one in trials)),
        *_spread("from the restart of the part to the next commit", trials),
    ]
    for part in PARTS:
        these = [one for one in trials if one.part == part]
        figures += _spread(f"{part} ({len(these)})", these)
    ends = [one.ends for one in trials if one.ends is not None]
    if ends:
        figures.append(
            unjudged(
                "from the restart of the part to the end of the job, longest", f"{max(ends):.1f} s"
            )
        )
    counted = Counter(one.moment for one in trials)
    figures.append(
        unjudged("trials by stage", ", ".join(f"{name} {counted[name]}" for name in MOMENTS))
    )
    never = sum(one.goes_on is None for one in trials)
    return [*figures, none("trials in which nothing more was committed", never)]


def _spread(name: str, trials: Sequence[Trial]) -> list[Figure]:
    seconds = [one.goes_on for one in trials if one.goes_on is not None]
    if not seconds:
        return []
    return [
        unjudged(f"{name}, median", f"{statistics.median(seconds):.2f} s"),
        at_most(f"{name}, longest", max(seconds), _BACK, "s"),
    ]
