"""The cost of a page in two versions of longline, in turns: CPU and time, and their ratios.

    git worktree add ../before COMMIT
    python bench/two_versions.py ../before/src src --rounds 9

Both collect the same pages from nginx, each time in a process of its own, with compiled modules.
Every second round is in reverse order. The result is the median of the ratios of the rounds.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import click

from children import BENCH, exit_on_sigterm
from nginx import serving
from pages import write_pages


@click.command()
@click.argument("before", type=click.Path(path_type=Path, exists=True))
@click.argument("after", type=click.Path(path_type=Path, exists=True))
@click.option("--pages", type=click.IntRange(min=1), default=4000, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=9, show_default=True)
@click.option("--concurrency", type=click.IntRange(min=1), default=32, show_default=True)
@click.option("--most", type=float, default=1.02, show_default=True, help="Largest ratio of CPU.")
def main(
    *, before: Path, after: Path, pages: int, rounds: int, concurrency: int, most: float
) -> None:
    """Compare the packages in the folders BEFORE and AFTER; exit with 1 if AFTER costs more."""
    exit_on_sigterm()
    ratios: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pages(folder / "site", pages)
        with serving(folder / "site", folder / "nginx") as server:
            for number in range(rounds):
                found = {}
                order = (before, after) if number % 2 else (after, before)
                for source in order:
                    found[source] = _collect(source, server.url, pages, concurrency)
                (old, old_wall), (new, new_wall) = found[before], found[after]
                ratios.append((new / old, new_wall / old_wall))
                each = f"{old / pages * 1e6:.0f} and {new / pages * 1e6:.0f} µs of CPU a page"
                print(f"round {number + 1}: {each}", file=sys.stderr)
    cpu, wall = (median(values) for values in zip(*ratios, strict=True))
    print(f"{rounds} rounds of {pages} pages: CPU ratio {cpu:.3f}, time ratio {wall:.3f}")
    sys.exit(0 if cpu <= most else 1)


def _collect(source: Path, url: str, pages: int, concurrency: int) -> tuple[float, float]:
    """Return the seconds of CPU and of time that one run took."""
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, str(BENCH / "contest_longline.py")]
        words = [url, str(pages), str(concurrency), folder]
        begun, used = os.times().elapsed, _children_cpu()
        variables = {**os.environ, "PYTHONPATH": str(source.resolve())}
        variables.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled
        subprocess.run([*program, *words], check=True, env=variables, stdout=subprocess.DEVNULL)
        return _children_cpu() - used, os.times().elapsed - begun


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
