"""The result of a bench, as data and as the document docs/performance.md."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contest import Standing
from machine import sentence
from starting import Start

OF_BARE = 0.75
OF_SCRAPY = 6.0
OF_CLICK = 3.0
OF_CORE = 0.85
OF_PYTHON = 0.75


@dataclass(frozen=True, slots=True)
class Result:
    """All measurements of one benchmark."""

    standings: Mapping[str, Standing]
    start: Start
    pages: int
    concurrency: int
    rounds: int
    about: dict[str, Any]

    def ratio(self, other: str, of: str = "longline") -> float:
        """Return how many times as fast `of` is: the median of the ratios of their common rounds.

        A machine that is faster in one round than in the next is so for all contestants.
        """
        ours, theirs = self.standings[of].scores, self.standings[other].scores
        return statistics.median(
            ours[number].speed / theirs[number].speed for number in ours.keys() & theirs.keys()
        )

    def best_ratio(self, other: str) -> float:
        """Return how many times as fast longline was, each in its best round."""
        return self.standings["longline"].best / self.standings[other].best

    @property
    def bars(self) -> list[tuple[str, float, str, bool]]:
        """Each target: its name, the measured value, the limit, and whether it was met."""
        said = [
            ("longline / bare loop", self.ratio("bare loop"), OF_BARE),
            ("longline / Scrapy", self.ratio("Scrapy"), OF_SCRAPY),
            ("every middleware, cold cache / longline", self._of("every middleware"), OF_CORE),
            ("every middleware and archive / longline", self._of("and archive"), OF_CORE),
            ("a manifest / the same source in Python", self._of("manifest"), OF_PYTHON),
        ]
        speeds = [(f"pages per second, {w}", r, f"≥ {bar:g}", r >= bar) for w, r, bar in said]
        start = self.start.ratio
        return [
            *speeds,
            (
                "start of `longline --help` / `import click`",
                start,
                f"≤ {OF_CLICK:g}",
                start <= OF_CLICK,
            ),
        ]

    def _of(self, one: str) -> float:
        return self.ratio("longline", of=one)

    @property
    def is_good(self) -> bool:
        """Whether every target was met."""
        return all(kept for _, _, _, kept in self.bars)

    def as_dict(self) -> dict[str, Any]:
        """Return the measurements as JSON values."""
        return {
            "pages": self.pages,
            "concurrency": self.concurrency,
            "rounds": self.rounds,
            "contestants": {name: _figures(one) for name, one in self.standings.items()},
            "bars": [
                {"what": what, "seen": round(seen, 3), "bar": bar, "kept": kept}
                for what, seen, bar, kept in self.bars
            ],
            "about": self.about,
        }


def table(result: Result) -> str:
    """Return the standings as a Markdown table."""
    lines = [
        (
            "| | pages/s, median | best | longline / this row, median | best | peak memory "
            "| start and end |"
        ),
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, one in result.standings.items():
        ratios = (result.ratio(name), result.best_ratio(name))
        median, best = ("—", "—") if name == "longline" else (f"{r:.2f}" for r in ratios)
        lines.append(
            f"| {name} | {one.median:,.0f} | {one.best:,.0f} | {median} | {best} "
            f"| {one.peak_bytes / 1e6:.0f} MB | {one.start:.2f} s |"
        )
    return "\n".join(lines)


def verdicts(result: Result) -> str:
    """Return the targets as a Markdown table."""
    lines = ["| target | measured | limit | |", "|---|--:|--:|---|"]
    lines += [
        f"| {what} | {seen:.2f} | {bar} | {'met' if kept else '**missed**'} |"
        for what, seen, bar, kept in result.bars
    ]
    return "\n".join(lines)


def document(result: Result) -> str:
    """Return the whole page."""
    return f"""# Performance

Written by `make bench`; do not edit. {sentence(result.about)}

{result.pages:,} pages of 13 kB from one local nginx, {result.concurrency} concurrent requests,
{result.rounds} rounds. The contestants took turns in changing order (Scrapy in every second round),
each in a separate process. All stored the same pages with the same seven fields; the benchmark
compares a hash of all values.

{table(result)}

Targets apply to the median of the ratios of each round, because other load on the machine affects
all contestants of a round.

{verdicts(result)}

## Contestants

- **longline** runs a job as `longline run` does, with `--rate unlimited` and otherwise its
  defaults: every page is enqueued, leased, fetched through the whole request chain (robots.txt,
  circuit breaker, timeout, retries), parsed, validated by a pydantic model, fingerprinted, scored,
  and committed with its event and statistics.
- **every middleware** adds the middlewares that are off by default: an empty HTTP cache, in which
  every page is looked up and stored, budgets for the job and its domain, and headers of the source.
  **and archive** also stores every response as WARC, compressed and indexed before its item is
  committed.
- **manifest** extracts the same fields with `bench/pages.yaml`, a source without Python.
- **bare loop** is aiohttp, selectolax and one `INSERT` per page, committed immediately (WAL,
  NORMAL). It does not resume, retry or validate.
- **Scrapy** has a JOBDIR, so that it can resume, and uses its own selectors; items go to JSON
  Lines. No delay, no AutoThrottle, no robots.txt; only errors are logged.

Pages per second are those of the run alone. The last column is the remaining time of the process:
start of Python, imports, opening files, and exit. Peak memory is the highest of all rounds.

`longline --help` took {result.start.longline * 1000:.0f} ms, `python -c "import click"`
{result.start.click * 1000:.0f} ms (median of 10, in turns).
"""


def _figures(one: Standing) -> dict[str, Any]:
    return {
        "median": round(one.median, 1),
        "best": round(one.best, 1),
        "rounds": {number: round(score.speed, 1) for number, score in one.scores.items()},
        "peak_bytes": one.peak_bytes,
        "start": round(one.start, 3),
    }
