"""The cost of logging per page: the same pages with and without it, in turns, in one process.

    python bench/logging_cost.py --pages 1000 --rounds 12

At the default level, a page logs nothing, and logging must cost at most 2 % of its CPU time. The
cost of one warning per page, stored in the database besides stderr, is printed for comparison. It
exits with 1 when the limit is exceeded.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from children import exit_on_sigterm
from longline import Orchestrator, Visit, layer
from longline.config.settings import Settings
from longline.core.logging import ROOT, LogOptions, configure_logging, reset_logging
from longline.monitoring.log_store import LogStoreHandler
from nginx import HINT, find_nginx, serving
from page_source import Pages
from pages import write_pages

MOST = 1.02
_CONCURRENCY = 16
_LOG = logging.getLogger("longline.bench")
_QUIET, _NOISY = "page_source:Pages", "logging_cost:NoisyPages"


class NoisyPages(Pages):
    """The same pages, each with a warning."""

    @layer()
    async def product(self, visit: Visit) -> dict[str, Any]:
        """Read the fields, and warn."""
        _LOG.warning("the price of %s is odd", visit.item.key, extra={"price": 5})
        return await super().product(visit)


@click.command()
@click.option("--pages", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option("--rounds", type=click.IntRange(2, 100), default=12, show_default=True)
def main(pages: int, rounds: int) -> None:
    """Measure and print; exit with 1 when logging at the default level costs too much."""
    exit_on_sigterm()
    if find_nginx() is None:
        click.echo(HINT, err=True)
        sys.exit(2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pages(folder / "site", pages)
        with serving(folder / "site", folder / "nginx") as server:
            quiet = _compare(folder, server.url, pages, rounds, source=_QUIET)
            noisy = _compare(folder, server.url, pages, max(2, rounds // 3), source=_NOISY)
    click.echo(f"default level, nothing logged: {_ratios(quiet)} (at most {MOST:g})")
    click.echo(f"one warning per page, stored:  {_ratios(noisy)}")
    sys.exit(0 if statistics.median(quiet) <= MOST else 1)


def _compare(folder: Path, url: str, pages: int, rounds: int, *, source: str) -> list[float]:
    """Return CPU time with logging divided by that without, of each round but the first.

    A round is with, without, without, with, or the reverse: what changes slowly affects both.
    """
    ratios = []
    for number in range(rounds + 1):
        seconds = {True: 0.0, False: 0.0}
        first = number % 2 == 0
        for is_logged in (first, not first, not first, first):
            seconds[is_logged] += _measure(folder, url, pages, source=source, is_logged=is_logged)
        ratios.append(seconds[True] / seconds[False])
    return ratios[1:]


def _measure(folder: Path, url: str, pages: int, *, source: str, is_logged: bool) -> float:
    with tempfile.TemporaryDirectory(dir=folder) as home, _logging(is_shown=source == _QUIET):
        gc.collect()
        return asyncio.run(_collect(Path(home), url, pages, source, is_logged=is_logged))


async def _collect(home: Path, url: str, pages: int, source: str, *, is_logged: bool) -> float:
    settings = Settings(home=home, concurrency=_CONCURRENCY)
    async with Orchestrator(settings=settings) as longline:
        if not is_logged:
            _detach()
        if not is_logged and source == _QUIET:
            logging.disable(logging.CRITICAL)
        used = _cpu()
        params = {"set": {"base_url": url, "count": pages}, "rate": "unlimited"}
        report = await longline.execute(source, params)
        logging.disable(logging.NOTSET)
        if report.exit_code:
            message = f"the job is {report.state.value}: {report.reason}"
            raise RuntimeError(message)
        return _cpu() - used


def _detach() -> None:
    logger = logging.getLogger(ROOT)
    for handler in [one for one in logger.handlers if isinstance(one, LogStoreHandler)]:
        logger.removeHandler(handler)


@contextlib.contextmanager
def _logging(*, is_shown: bool) -> Iterator[None]:
    """Log as a command does, to stderr; unless it is shown, that goes nowhere."""
    with contextlib.ExitStack() as ends:
        if not is_shown:
            nowhere = ends.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
            ends.enter_context(contextlib.redirect_stderr(nowhere))
        configure_logging(LogOptions())
        ends.callback(reset_logging)
        yield


def _ratios(ratios: list[float]) -> str:
    low, high = min(ratios), max(ratios)
    return f"{statistics.median(ratios):.3f} times the CPU time ({low:.3f} to {high:.3f})"


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
