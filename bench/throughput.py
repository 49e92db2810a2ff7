"""Pages per second of longline, a bare loop and Scrapy on the same pages, in one run."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import click

from children import BENCH, exit_on_sigterm
from contest import compete
from machine import describe
from nginx import HINT, find_nginx, serving
from pages import write_pages
from performance_page import Result, document, table, verdicts
from starting import measure_start

DOCUMENT = BENCH.parent / "docs" / "performance.md"


@click.command()
@click.option("--pages", type=click.IntRange(min=1), default=6000, show_default=True)
@click.option("--rounds", type=click.IntRange(1, 50), default=8, show_default=True)
@click.option("--concurrency", type=click.IntRange(1, 1000), default=16, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--write/--no-write", default=True, help="Write docs/performance.md.")
def main(*, pages: int, rounds: int, concurrency: int, as_json: bool, write: bool) -> None:
    """Measure, print, write docs/performance.md; exit with 1 when a bar is missed."""
    exit_on_sigterm()
    if find_nginx() is None:
        click.echo(HINT, err=True)
        sys.exit(2)
    result = _measure(pages, rounds, concurrency)
    if write:
        DOCUMENT.write_text(document(result), "utf-8")
    if as_json:
        click.echo(json.dumps(result.as_dict()))
    else:
        click.echo(f"{table(result)}\n\n{verdicts(result)}")
    sys.exit(0 if result.is_good else 1)


def _measure(pages: int, rounds: int, concurrency: int) -> Result:
    about = describe()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pages(folder / "site", pages)
        with serving(folder / "site", folder / "nginx") as server:
            standings = compete(server.url, pages=pages, concurrency=concurrency, rounds=rounds)
    return Result(standings, measure_start(), pages, concurrency, rounds, about)


if __name__ == "__main__":
    main()
