"""The proof that an undeclared limit is learned, stored, and not exceeded in the next run."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from children import Children, failures
from commands import run_pages
from nginx import Arrival, Limit, Server, serving
from pages import write_pages
from proofs import Figure, Proof, Sizes, at_most, exactly, none, nothing_wrong

NAME = "learning"
_RATE = 10
_BURST = 10
_LIMIT = Limit(_RATE, _BURST - 1, retry_after=1)
_AUTO = ("--rate", "auto")
_DECLARED = ("--rate", str(_RATE), "--burst", str(_BURST))
_LONGEST = 1.3
_MOST_REFUSALS = 10
_OK = 200
_TOO_MANY = 429


@dataclass(frozen=True, slots=True)
class _Run:
    """One command, and the maximum number of refusals."""

    title: str
    options: Sequence[str]
    home: str
    most_refusals: int


_RUNS = (
    _Run("first run", _AUTO, "learning", _MOST_REFUSALS),
    _Run("second run", _AUTO, "learning", 0),
    _Run("limit declared", _DECLARED, "declared", 0),
)


def prove(sizes: Sizes) -> Proof:
    """Run the same job twice without a limit, and once with it."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pages = sizes.learning
        write_pages(folder / "site", len(_RUNS) * pages)
        with serving(folder / "site", folder / "nginx", limit=_LIMIT, has_log=True) as server:
            for number, run in enumerate(_RUNS):
                figures += _judge(run, server, folder / run.home, number * pages, pages)
    about = (
        f"nginx `limit_req` allows {_RATE} requests per second after a burst of {_BURST} and "
        f"returns 429 with `Retry-After: 1` beyond that. {sizes.learning} pages are collected "
        f"with `--rate auto`, which does not know the limit; then {sizes.learning} others from "
        "the same home; then, from a new home, with the limit declared. Requests and 429s are "
        "counted in nginx's log; the time is from the first to the last of them, compared with "
        f"the shortest that the limit allows, (pages - {_BURST}) / {_RATE}."
    )
    return Proof(NAME, about, figures)


def _judge(run: _Run, server: Server, home: Path, before: int, pages: int) -> list[Figure]:
    seen = len(server.arrivals())
    with Children() as children:
        command = run_pages(server.url, home, *run.options, first=before + 1, count=pages)
        ended = children.start(command).wait(10 * pages / _RATE + 60)
    return _figures(run, server.arrivals()[seen:], pages, failures([ended]))


def _figures(run: _Run, arrivals: Sequence[Arrival], pages: int, failed: list[str]) -> list[Figure]:
    seconds = arrivals[-1].at - arrivals[0].at
    shortest = (pages - _BURST) / _RATE
    refused = sum(arrival.status == _TOO_MANY for arrival in arrivals)
    sent = {arrival.path for arrival in arrivals if arrival.status == _OK}
    refusals = f"{run.title}: responses with 429"
    return [
        exactly(f"{run.title}: pages sent", len(sent), pages),
        at_most(refusals, refused, run.most_refusals)
        if run.most_refusals
        else none(refusals, refused),
        nothing_wrong(f"{run.title}: the process exited with 0", failed),
        at_most(
            f"{run.title}: {seconds:.2f} s for at least {shortest:.2f} s",
            seconds / shortest,
            _LONGEST,
            "times",
        ),
    ]
