"""The proof that an item that kills its worker is quarantined and hardly delays others."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from cluster_parts import Cluster, open_cluster
from proofs import Figure, Proof, Sizes, at_most, exactly, nothing_wrong, unjudged
from trial_server import TrialServer

NAME = "cluster-poison"
_WORKERS = ("one", "two")
_PROCESSES = 2
_CONCURRENCY = 4
_LATENCY = 1.0
_DELIVERIES = 3
_LONGEST = 1.2
_PATIENCE = 240.0


@dataclass(frozen=True, slots=True)
class _Round:
    """One job; `seconds` is from its start to the last of the ordinary items."""

    seconds: float
    problems: list[str]
    deliveries: int
    deaths: int
    reason: str
    suspects: int


def prove(sizes: Sizes) -> Proof:
    """Run the job without and with the poison item, in turns."""
    without: list[_Round] = []
    deadly: list[_Round] = []
    with TrialServer(latency=_LATENCY) as server, open_cluster() as cluster:
        for name in _WORKERS:
            cluster.hire(name, _PROCESSES)
        cluster.await_workers()
        _job(cluster, server, "warm", 20, -1)  # the first job also opens what the others share
        for number in range(sizes.poison_rounds):
            without.append(_job(cluster, server, f"w{number}", sizes.poison_items, -1))
            middle = sizes.poison_items // 2
            deadly.append(_job(cluster, server, f"p{number}", sizes.poison_items, middle))
    about = (
        f"{sizes.poison_items} items, one of which (the poison item) kills its process with "
        f"SIGKILL whenever its page is received; two workers of {_PROCESSES} processes, "
        f"{_CONCURRENCY} concurrent items in each, pages that take {_LATENCY:g} s, chunks of 50. "
        f"The same job without the poison item runs in turns with it, {sizes.poison_rounds} times "
        "each. The time is from the start of the job to the commit of the last other item."
    )
    return Proof(NAME, about, _figures(without, deadly, sizes))


def _job(cluster: Cluster, server: TrialServer, name: str, count: int, poison: int) -> _Round:
    options = {"base_url": server.url, "trial": name, "count": count, "pages": 1, "poison": poison}
    job = cluster.submit("trial_source:Trials", options, concurrency=_CONCURRENCY)
    cluster.judge.await_end(job, _PATIENCE)
    key = f"{name}-{poison:05}"
    problems = cluster.judge.problems(job, count, quarantined=1 if poison >= 0 else 0)
    last = cluster.judge.number(
        "SELECT max(finished_at) FROM items WHERE job_id = ? AND key <> ?", job, key
    )
    began = cluster.judge.number("SELECT started_at FROM jobs WHERE id = ?", job)
    row = cluster.judge.query(
        "SELECT deaths, reason FROM items WHERE job_id = ? AND key = ?", job, key
    )
    suspects = int(
        cluster.judge.number(
            "SELECT count(*) FROM items WHERE job_id = ? AND key <> ? AND deaths > 0", job, key
        )
    )
    deaths, reason = row[0] if row else (0, "")
    deliveries = server.asked[f"/item/{key}"]
    return _Round(last - began, problems, deliveries, deaths, reason or "", suspects)


def _figures(without: list[_Round], deadly: list[_Round], sizes: Sizes) -> list[Figure]:
    plain = statistics.median(one.seconds for one in without)
    delayed = statistics.median(one.seconds for one in deadly)
    return [
        nothing_wrong(
            "without it: every item stored once", [text for one in without for text in one.problems]
        ),
        nothing_wrong(
            f"with it: {sizes.poison_items - 1} stored once, one in quarantine",
            [text for one in deadly for text in one.problems],
        ),
        *(
            exactly(f"deliveries of the poison item, round {number}", one.deliveries, _DELIVERIES)
            for number, one in enumerate(deadly, 1)
        ),
        unjudged("its reason", deadly[-1].reason or "none"),
        unjudged("others that were tried alone, in each round", [one.suspects for one in deadly]),
        unjudged("median without it", f"{plain:.2f} s"),
        unjudged("median with it", f"{delayed:.2f} s"),
        unjudged(
            "every round, without/with",
            ", ".join(
                f"{a.seconds:.1f}/{b.seconds:.1f}" for a, b in zip(without, deadly, strict=True)
            ),
        ),
        at_most("last other item, with / without", delayed / plain, _LONGEST, "times"),
    ]
