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
    """All that one bench has measured."""

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
        """Each promise: what, the figure seen, the bar, and whether it was kept."""
        said = [
            ("longline / bare loop", self.ratio("bare loop"), OF_BARE),
            ("longline / Scrapy", self.ratio("Scrapy"), OF_SCRAPY),
            ("every link on and the cache cold / longline", self._of("every link"), OF_CORE),
            ("with the archive on top / longline", self._of("and archive"), OF_CORE),
            ("a manifest / the same source in Python", self._of("manifest"), OF_PYTHON),
        ]
        speeds = [(f"pages a second, {w}", r, f"≥ {bar:g}", r >= bar) for w, r, bar in said]
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
        """Whether every bar was kept."""
        return all(kept for _, _, _, kept in self.bars)

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON knows them."""
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
        "| | pages/s, median | best | longline / it, median | best | peak memory | start and end |",
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
    """Return the bars as a Markdown table."""
    lines = ["| promise | seen | bar | |", "|---|--:|--:|---|"]
    lines += [
        f"| {what} | {seen:.2f} | {bar} | {'kept' if kept else '**missed**'} |"
        for what, seen, bar, kept in result.bars
    ]
    return "\n".join(lines)


def document(result: Result) -> str:
    """Return the whole page."""
    return f"""# Performance

Written by `make bench`; do not edit. {sentence(result.about)}

{result.pages:,} pages of 13 kB from one local nginx, {result.concurrency} requests at once,
{result.rounds} rounds in which the contestants took turns, another one first each time (Scrapy in
every second), each in a process of its own. All stored the same pages with the same seven fields;
the bench compares a hash of all values.

{table(result)}

The ratio that counts is the median of the ratios of each round, since a busy machine is busy for
all that take their turn in it.

{verdicts(result)}

## Who they are

- **longline** runs a job as `longline run` does, with `--rate unlimited` and otherwise its
  defaults: every page is queued, leased, fetched through the whole chain (robots, breaker,
  deadline, retries), parsed, checked by a pydantic model, fingerprinted, scored, and committed
  with its event and its statistics.
- **every link** is the same with all that is off unless asked for: an HTTP cache that is cold, so
  every page is looked up and stored, budgets for the job and its domain, headers of the source.
  **and archive** keeps every answer as WARC besides, compressed and indexed before its item is
  committed.
- **manifest** reads the same fields with `bench/pages.yaml`, a source without a line of Python.
- **bare loop** is aiohttp, selectolax and one `INSERT` a page, committed at once (WAL, NORMAL).
  It cannot resume, retries nothing and checks nothing.
- **Scrapy** has a JOBDIR, so it could resume, too; its own selectors, items to JSON Lines, no
  delay, no AutoThrottle, no robots.txt, quiet log.

Pages a second count the run alone. The last column is what a process needs around it: start
Python, import, open its files, and leave. Peak memory is the highest of all rounds.

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
