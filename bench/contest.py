"""The result of a contestant, and the rounds in which contestants take turns."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from children import BENCH, run

_PATIENCE = 600.0


@dataclass(frozen=True, slots=True)
class Score:
    """One run: pages stored, seconds, and peak memory."""

    pages: int
    seconds: float
    peak_bytes: int | None
    digest: str

    @property
    def speed(self) -> float:
        """Pages per second."""
        return self.pages / self.seconds

    def print_json(self) -> None:
        """Print it as JSON for the parent process."""
        print(json.dumps(asdict(self)))


@dataclass(frozen=True, slots=True)
class Standing:
    """All runs of one contestant, by round; `start` is the time of a process outside the run."""

    name: str
    scores: Mapping[int, Score]
    start: float

    @property
    def best(self) -> float:
        """Pages per second in the best round."""
        return max(score.speed for score in self.scores.values())

    @property
    def median(self) -> float:
        """Pages per second in the median round."""
        return statistics.median(score.speed for score in self.scores.values())

    @property
    def peak_bytes(self) -> int:
        """Peak memory of all rounds."""
        return max(score.peak_bytes or 0 for score in self.scores.values())


CONTESTANTS = {
    "longline": ("contest_longline.py",),
    "every middleware": ("contest_longline.py", "--every-middleware"),
    "and archive": ("contest_longline.py", "--every-middleware", "--archive"),
    "manifest": ("contest_longline.py", "--manifest"),
    "bare loop": ("contest_bare.py",),
    "Scrapy": ("contest_scrapy.py",),
}


SLOW = "Scrapy"
"""It takes half of the time of a round, and differs so much that half of the rounds suffice."""


def compete(url: str, *, pages: int, concurrency: int, rounds: int) -> dict[str, Standing]:
    """Let the contestants take turns, round after round, each in a separate process.

    Raises:
        RuntimeError: one of them failed, or its values differ from those of the others.
    """
    scores: dict[str, dict[int, Score]] = {name: {} for name in CONTESTANTS}
    starts: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for number in range(1, rounds + 1):
        for name in turns(number):
            score, around = _turn(name, url, pages, concurrency)
            scores[name][number] = score
            starts[name].append(around)
            print(f"round {number}: {name:<11} {score.speed:7.0f} pages/s", file=sys.stderr)
    _require_the_same([one for several in scores.values() for one in several.values()], pages)
    return {
        name: Standing(name, scores[name], statistics.median(starts[name])) for name in CONTESTANTS
    }


def turns(number: int) -> list[str]:
    """Return the contestants of a round, in order.

    Another one begins each time, and every second round is in reverse order: an idle processor is
    faster for a while, so always following the slowest contestant would be an advantage.
    """
    is_odd = number % 2 == 1
    names = [name for name in CONTESTANTS if is_odd or name != SLOW]
    first = number // 2 % len(names)
    order = names[first:] + names[:first]
    return order if is_odd else order[::-1]


def _turn(name: str, url: str, pages: int, concurrency: int) -> tuple[Score, float]:
    with tempfile.TemporaryDirectory() as folder:
        program, *options = CONTESTANTS[name]
        command = [sys.executable, str(BENCH / program), *options]
        ended = run([*command, url, str(pages), str(concurrency), folder], timeout=_PATIENCE)
        print(ended.errors.strip()[-2000:], end="", file=sys.stderr)
        score = Score(**ended.json())
        return score, ended.seconds - score.seconds


def _require_the_same(scores: Sequence[Score], pages: int) -> None:
    if {score.pages for score in scores} != {pages} or len({s.digest for s in scores}) != 1:
        message = "the contestants did not store the same pages and fields"
        raise RuntimeError(message)
