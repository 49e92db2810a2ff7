"""The proof that the workers of a cluster together respect a site's limit, by nginx's log."""

from __future__ import annotations

import tempfile
import time
from itertools import pairwise
from pathlib import Path

from cluster_parts import Cluster, open_cluster
from nginx import Arrival, Limit, serving
from pages import write_pages
from proofs import Figure, Proof, Sizes, at_most, exactly, none, nothing_wrong, unjudged
from trial_server import TrialServer

NAME = "cluster-zero-429"
_RATE = 2
_BURST = 5
_PROCESSES = 4
_CONCURRENCY = 8
_CHUNK = 10  # small, so that every process has some of the job
_LONGEST = 1.03
_MANY = 10  # workers of the second trial
_MINUTE = 60.0
_TOO_MANY = 429
_OK = 200


def prove(sizes: Sizes) -> Proof:
    """Run both trials, each on its own cluster."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pages(folder / "site", max(sizes.cluster_requests, 200))
        figures += _limited(folder, sizes.cluster_requests, nginx_burst=4)
        figures += _limited(folder, sizes.cluster_requests, nginx_burst=5)
        figures += _a_minute(folder)
    about = (
        f"First: {_PROCESSES} worker processes with {_CONCURRENCY} concurrent items each and "
        f"`--rate {_RATE} --burst {_BURST}`, against nginx `limit_req` of {_RATE} requests per "
        f"second with `burst=4` (an exact bucket of {_BURST}) and `burst=5` (one more). The time "
        "is from the first to the last request in nginx's log, compared with the shortest that "
        f"the limit allows, (requests - {_BURST}) / {_RATE}. Then: {_MANY} workers of one process "
        "each, one job with 10 requests per minute and `--burst 1`, nginx without a limit: "
        "requests in the first minute of its log are counted, including robots.txt. A Redis that "
        "has just started grants no burst before a full wait, so a small job on another site "
        f"runs first. Chunks have {_CHUNK} items, so that every process has some."
    )
    return Proof(NAME, about, figures)


def _limited(folder: Path, requests: int, *, nginx_burst: int) -> list[Figure]:
    title = f"burst={nginx_burst}"
    site, own = folder / "site", folder / f"nginx-{nginx_burst}"
    with (
        serving(site, own, limit=Limit(_RATE, nginx_burst), has_log=True) as server,
        open_cluster(chunk_size=_CHUNK) as cluster,
    ):
        cluster.hire("one", _PROCESSES)
        cluster.await_workers()
        _let_redis_settle(cluster)
        count = requests - 1  # robots.txt is asked for, too
        job = cluster.submit(
            "page_source:Pages",
            {"base_url": server.url, "count": count},
            rate=_RATE,
            burst=_BURST,
            concurrency=_CONCURRENCY,
        )
        cluster.judge.await_end(job, 3 * requests / _RATE + 60)
        problems = cluster.judge.problems(job, count)
        arrivals = server.arrivals()
        processes = _holders(cluster, job)
    return [
        *_figures(title, arrivals, problems, count),
        unjudged(f"{title}: processes that took part", processes),
    ]


def _let_redis_settle(cluster: Cluster) -> None:
    """Run a small job on another site, so that the epoch of Redis has started and buckets fill."""
    with TrialServer() as elsewhere:
        options = {"base_url": elsewhere.url, "trial": "warm", "count": 20, "pages": 1}
        cluster.judge.await_end(cluster.submit("trial_source:Trials", options), 60)
    time.sleep(_BURST / _RATE + 1)


def _holders(cluster: Cluster, job: str) -> int:
    owners = cluster.judge.query("SELECT DISTINCT owner FROM chunks WHERE job_id = ?", job)
    return len({":".join(row[0].split(":")[:3]) for row in owners if row[0]})


def _figures(title: str, arrivals: list[Arrival], problems: list[str], count: int) -> list[Figure]:
    seconds = arrivals[-1].at - arrivals[0].at
    shortest = (len(arrivals) - _BURST) / _RATE
    sent = [one.path for one in arrivals if one.status == _OK]
    return [
        unjudged(f"{title}: requests, with robots.txt", len(arrivals)),
        exactly(f"{title}: different pages sent", len(set(sent)), count),
        none(f"{title}: responses with 429", sum(one.status == _TOO_MANY for one in arrivals)),
        nothing_wrong(f"{title}: {count} items stored exactly once", problems),
        at_most(
            f"{title}: {seconds:.2f} s for at least {shortest:.2f} s",
            seconds / shortest,
            _LONGEST,
            "times",
        ),
    ]


def _a_minute(folder: Path) -> list[Figure]:
    title = f"{_MANY} workers, 10 per minute"
    with (
        serving(folder / "site", folder / "nginx-minute", has_log=True) as server,
        open_cluster(chunk_size=_CHUNK) as cluster,
    ):
        for number in range(_MANY):
            cluster.hire(f"w{number}", 1)
        cluster.await_workers()
        job = cluster.submit(
            "page_source:Pages",
            {"base_url": server.url, "count": 100},
            rate=10 / _MINUTE,
            burst=1,
            concurrency=_CONCURRENCY,
        )
        until = time.monotonic() + 2 * _MINUTE
        while not server.arrivals() and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(_MINUTE + 1)
        arrivals = server.arrivals()
        workers = _holders(cluster, job)
    first = arrivals[0].at
    gaps = [b.at - a.at for a, b in pairwise(arrivals)]
    return [
        exactly(
            f"{title}: requests in the first minute",
            sum(one.at - first < _MINUTE for one in arrivals),
            10,
        ),
        unjudged(f"{title}: shortest time between two", f"{min(gaps):.3f} s"),
        unjudged(f"{title}: processes that took part", workers),
    ]
