"""The proof that two workers on two cores are faster than one engine on one; cost of a chunk."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from children import LONGLINE
from cluster_parts import Cluster, cpu_of, open_cluster
from nginx import Server, serving
from pages import SIZE_BYTES, write_pages
from proofs import Figure, Proof, Sizes, Skipped, at_least, at_most, nothing_wrong, unjudged

NAME = "cluster-throughput"
_BAR = 1.5
_CHUNK_BAR = 5.0  # milliseconds
_CONCURRENCY = 8
_SMALL, _LARGE = 10, 100  # the sizes of chunks whose costs are compared
_PATIENCE = 300.0
_CORES = 2


@dataclass(frozen=True, slots=True)
class _Round:
    """One job: seconds from its start to its last item, and CPU seconds by part."""

    seconds: float
    problems: list[str]
    used: dict[str, float]
    chunks: int = 0


def prove(sizes: Sizes) -> Proof | Skipped:
    """Run the engines in turns, then chunks of two sizes in turns."""
    if (os.cpu_count() or 1) < _CORES:
        return Skipped(NAME, "this machine has one core")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pages(folder / "site", sizes.throughput_items)
        with serving(folder / "site", folder / "nginx") as server:
            figures = [*_engines(sizes, server), *_chunks(sizes, server)]
    about = (
        f"{sizes.throughput_items:,} pages of {SIZE_BYTES // 1000} kB from nginx, no limit, "
        f"{_CONCURRENCY} concurrent items per process. The local engine is pinned to one core; "
        "two workers of one process each are pinned to one core each; both write to the same "
        "PostgreSQL. nginx, PostgreSQL and Redis run on the same two cores: with the local "
        "engine they have the other core, with two workers they share both. The time is from the "
        "start of the job to the commit of its last item, the median of "
        f"{sizes.throughput_rounds} rounds in turns after one warm-up round. The cost of a chunk "
        f"is (time with chunks of {_SMALL} - time with chunks of {_LARGE}) / difference in "
        "chunks, with one worker process on its own core."
    )
    return Proof(NAME, about, figures)


# ---------------------------------------------------------------- engines


def _engines(sizes: Sizes, server: Server) -> list[Figure]:
    local: list[_Round] = []
    spread: list[_Round] = []
    with open_cluster() as cluster:
        for core in range(_CORES):
            cluster.hire(f"w{core}", 1, cores=[core])
        cluster.await_workers()
        for number in range(sizes.throughput_rounds + 1):
            for is_local, rounds in ((True, local), (False, spread)):
                one = _collect(cluster, server, sizes.throughput_items, is_local=is_local)
                rounds.extend([one] if number else [])
    count = sizes.throughput_items
    slow, fast = (
        statistics.median(count / each.seconds for each in all_) for all_ in (local, spread)
    )
    return [
        nothing_wrong(
            "every round: each item stored exactly once",
            [text for each in (*local, *spread) for text in each.problems],
        ),
        unjudged("one local engine on one core, items/s", _spread(local, count)),
        unjudged("two workers on two cores, items/s", _spread(spread, count)),
        at_least("two workers / one local engine", round(fast / slow, 3), _BAR),
        unjudged("CPU time of an item, local", _bill(local, count)),
        unjudged("CPU time of an item, two workers", _bill(spread, count)),
    ]


def _collect(cluster: Cluster, server: Server, count: int, *, is_local: bool) -> _Round:
    # A record that is known and the same is not written again: each round begins with none.
    _forget(cluster)
    options = {"base_url": server.url, "count": count}
    with _measured(cluster) as used:
        job = _run_here(cluster, options, used) if is_local else _run_there(cluster, options)
    began, last = cluster.judge.query(
        "SELECT jobs.started_at, max(items.finished_at) FROM jobs JOIN items "
        "ON items.job_id = jobs.id WHERE jobs.id = ? GROUP BY jobs.started_at",
        job,
    )[0]
    rows = cluster.judge.query(
        "SELECT chunks.finished_at - chunks.taken_at FROM chunks "
        "WHERE job_id = ? AND chunks.items > 0 AND state = 'done'",
        job,
    )
    return _Round(last - began, cluster.judge.problems(job, count), dict(used), len(rows))


def _run_here(cluster: Cluster, options: dict[str, object], used: dict[str, float]) -> str:
    words = [text for name, value in options.items() for text in ("--set", f"{name}={value}")]
    command = ["taskset", "-c", "0", LONGLINE, "run", "page_source:Pages", "--engine", "local"]
    before = os.times()
    child = cluster.start(
        [
            *(*command, "--fresh", "--json", "--rate", "unlimited", *words),
            *("--concurrency", str(_CONCURRENCY)),
        ],
        # Alone on a core, it shares no limits with other processes.
        {"LONGLINE_REDIS_URL": ""},
    )
    ended = child.wait(_PATIENCE)
    after = os.times()
    used["local engine with its start"] = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return str(ended.json()["job"])


def _run_there(cluster: Cluster, options: dict[str, object]) -> str:
    job = cluster.submit("page_source:Pages", options, concurrency=_CONCURRENCY)
    cluster.judge.await_end(job, _PATIENCE)
    return job


def _forget(cluster: Cluster) -> None:
    if cluster.postgres is None:
        return
    cluster.postgres.execute("TRUNCATE records, record_versions CASCADE")


@contextmanager
def _measured(cluster: Cluster) -> Iterator[dict[str, float]]:
    """Fill in the CPU seconds of each part during the run."""
    used: dict[str, float] = {}
    before = _bills(cluster)
    yield used
    for part, seconds in _bills(cluster).items():
        used[part] = seconds - before[part]


def _bills(cluster: Cluster) -> dict[str, float]:
    pids = {
        "Redis": cluster.redis.process,
        "PostgreSQL": cluster.postgres and cluster.postgres.process,
    }
    bills = {name: cpu_of(process.pid) for name, process in pids.items() if process}
    nginx = [one.pid for one in psutil.Process().children() if "nginx" in one.name()]
    return bills | {"nginx": sum(map(cpu_of, nginx)), "workers": cluster.cpu_seconds()}


def _bill(rounds: list[_Round], count: int) -> str:
    parts = sorted({part for each in rounds for part in each.used})
    medians = {
        part: statistics.median(each.used.get(part, 0.0) for each in rounds) * 1000 / count
        for part in parts
    }
    return ", ".join(f"{part} {cost:.2f} ms" for part, cost in medians.items() if cost > 0.005)  # noqa: PLR2004  # less is nothing


def _spread(rounds: list[_Round], count: int) -> str:
    rates = sorted(count / each.seconds for each in rounds)
    return f"{statistics.median(rates):.0f} ({rates[0]:.0f} to {rates[-1]:.0f})"


# ---------------------------------------------------------------- chunks


def _chunks(sizes: Sizes, server: Server) -> list[Figure]:
    rounds: dict[int, list[_Round]] = {_SMALL: [], _LARGE: []}
    with ExitStack() as ends:
        clusters = {}
        for size in rounds:
            clusters[size] = cluster = ends.enter_context(open_cluster(chunk_size=size))
            cluster.hire(f"w{size}", 1, cores=[0])
            cluster.await_workers()
        for number in range(sizes.throughput_rounds + 1):
            for size, done in rounds.items():
                one = _collect(clusters[size], server, sizes.throughput_items, is_local=False)
                done.extend([one] if number else [])
    small, large = (_medians(rounds[size]) for size in (_SMALL, _LARGE))
    more = small["chunks"] - large["chunks"]
    if more <= 0:
        return [nothing_wrong("chunks of two sizes", ["they were as many"])]
    cost = (small["seconds"] - large["seconds"]) / more * 1000
    work = (small["workers"] - large["workers"]) / more * 1000
    return [
        unjudged(f"chunks of {_SMALL}", f"{small['chunks']:.0f} in {small['seconds']:.2f} s"),
        unjudged(f"chunks of {_LARGE}", f"{large['chunks']:.0f} in {large['seconds']:.2f} s"),
        at_most("cost of a chunk beyond its items", cost, _CHUNK_BAR, "ms"),
        unjudged("of that, CPU time of the worker and its parents", f"{work:.2f} ms"),
    ]


def _medians(rounds: list[_Round]) -> dict[str, float]:
    return {
        "seconds": statistics.median(each.seconds for each in rounds),
        "chunks": statistics.median(each.chunks for each in rounds),
        "workers": statistics.median(each.used.get("workers", 0.0) for each in rounds),
    }
