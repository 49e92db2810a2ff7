"""The proof that a site's limit is respected exactly, measured in the log of nginx."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from children import Children, failures
from commands import run_pages
from nginx import Arrival, Limit, serving
from pages import write_pages
from proofs import Figure, Proof, Sizes, at_most, exactly, none, nothing_wrong, unjudged

NAME = "zero-429"
_RATE = 2
_BURST = 5
_PACE = ("--rate", str(_RATE), "--burst", str(_BURST))
_LONGEST = 1.01
_LONGEST_TOGETHER = 1.05  # three processes wake one another a little late
_OK = 200
_TOO_MANY = 429
_TOGETHER = 3
_ROBOTS = 1  # each process asks for robots.txt once


@dataclass(frozen=True, slots=True)
class _Trial:
    """Concurrent commands against one server, each with its first page and its count."""

    title: str
    burst: int
    ranges: Sequence[tuple[int, int]]
    longest: float

    @property
    def items(self) -> int:
        """Number of pages to collect; equal ranges are one job."""
        return sum(count for _, count in set(self.ranges))


def prove(sizes: Sizes) -> Proof:
    """Run the trials one after another."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pages(folder / "site", sizes.requests)
        for number, trial in enumerate(_trials(sizes.requests)):
            figures += _judge(trial, folder / "site", folder / str(number))
    about = (
        f"nginx `limit_req` allows {_RATE} requests per second and returns 429 beyond that. Its "
        f"`burst=4` is an exact bucket of {_BURST}, its `burst=5` allows one more. Each process "
        f"runs with `--rate {_RATE} --burst {_BURST}`. Requests and 429s are counted in nginx's "
        "log; the time is from the first to the last of them, compared with the shortest that "
        f"the limit allows, (requests - {_BURST}) / {_RATE}."
    )
    return Proof(NAME, about, figures)


def _trials(requests: int) -> list[_Trial]:
    items = requests - _ROBOTS
    share = (requests - _TOGETHER * _ROBOTS) // _TOGETHER
    apart = [(1 + index * share, share) for index in range(_TOGETHER)]
    joined = [(1, requests - _TOGETHER * _ROBOTS)] * _TOGETHER
    return [
        _Trial("one process, burst=4", 4, [(1, items)], _LONGEST),
        _Trial("one process, burst=5", 5, [(1, items)], _LONGEST),
        _Trial("three concurrent jobs, one home", 4, apart, _LONGEST_TOGETHER),
        _Trial("one job, three processes", 4, joined, _LONGEST_TOGETHER),
    ]


def _judge(trial: _Trial, site: Path, folder: Path) -> list[Figure]:
    limit = Limit(_RATE, trial.burst)
    patience = 2 * trial.items / _RATE + 60
    with serving(site, folder, limit=limit, has_log=True) as server, Children() as children:
        home = folder / "home"
        running = [
            children.start(run_pages(server.url, home, *_PACE, first=first, count=count))
            for first, count in trial.ranges
        ]
        ended = [child.wait(patience) for child in running]
        arrivals = server.arrivals()
    return _figures(trial, arrivals, failures(ended))


def _figures(trial: _Trial, arrivals: Sequence[Arrival], failed: list[str]) -> list[Figure]:
    seconds = arrivals[-1].at - arrivals[0].at
    shortest = (len(arrivals) - _BURST) / _RATE
    refused = sum(arrival.status == _TOO_MANY for arrival in arrivals)
    sent = [arrival.path for arrival in arrivals if arrival.status == _OK]
    title = trial.title
    return [
        unjudged(f"{title}: requests, with robots.txt", len(arrivals)),
        exactly(f"{title}: pages sent", len(sent), trial.items),
        exactly(f"{title}: different pages sent", len(set(sent)), trial.items),
        none(f"{title}: responses with 429", refused),
        nothing_wrong(f"{title}: every process exited with 0", failed),
        at_most(
            f"{title}: {seconds:.2f} s for at least {shortest:.2f} s",
            seconds / shortest,
            trial.longest,
            "times",
        ),
    ]
