"""Fuzz the command line: `python bench/fuzz.py --count 1200 --seed 1`; exit with 1 on a failure."""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.command_tree import commands
from tests.fork_server import ForkServer
from tests.fuzzer import Case, Fuzzer
from tests.hostile_data import attacking_site, make_world


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """The result of many invocations."""

    invocations: int
    commands: int
    slowest: float
    seconds: float
    hangs: int
    problems: list[tuple[Case, list[str]]]
    codes: Counter[int] = field(default_factory=Counter)


def fuzz(count: int, seed: int, *, start: int = 0, tell: Callable[[str], None] = print) -> Fuzzed:
    """Run `count` invocations over all commands; return the failures."""
    begun = time.monotonic()
    wrong: list[tuple[Case, list[str]]] = []
    slowest, hangs, codes = 0.0, 0, Counter[int]()
    with (
        tempfile.TemporaryDirectory(prefix="longline-fuzz-") as folder,
        ForkServer() as server,
        attacking_site() as url,
    ):
        fuzzer = Fuzzer(seed, make_world(Path(folder), url, server), server)
        for case in fuzzer.cases(count, start):
            result, problems = fuzzer.run(case)
            slowest = max(slowest, result.seconds)
            hangs += result.is_hung
            codes[result.code] += 1
            if problems:
                wrong.append((case, problems))
                tell(f"{case}\n  {'; '.join(problems)}\n  {result.err.decode(errors='replace')}")
    seconds = time.monotonic() - begun
    return Fuzzed(count, len(commands()), slowest, seconds, hangs, wrong, codes)


@click.command()
@click.option("--count", type=click.IntRange(min=1), default=1200, help="Invocations.")
@click.option("--seed", type=int, default=1, help="Random seed.")
@click.option("--only", type=int, help="Run only the case with this number.")
def main(*, count: int, seed: int, only: int | None) -> None:
    """Run many odd invocations; exit with 1 on a traceback, a hang or an unknown exit code."""
    done = fuzz(1, seed, start=only) if only is not None else fuzz(count, seed)
    codes = ", ".join(f"{code}: {often}" for code, often in sorted(done.codes.items()))
    click.echo(
        f"{done.invocations} invocations of {done.commands} commands in {done.seconds:.0f} s, "
        f"slowest {done.slowest:.1f} s; exit codes {codes}; {done.hangs} hangs, "
        f"{len(done.problems)} with problems"
    )
    sys.exit(1 if done.problems else 0)


if __name__ == "__main__":
    main()
