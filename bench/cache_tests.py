"""http-cache-tests through our request chain, and through hishel alone, in one run."""

from __future__ import annotations

import asyncio
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import click

from cache_contestants import hishel_alone, ours
from cache_page import HISHEL, OURS, Result, document, table
from cache_suite import Case, fetch_suite, origin, run_suite
from children import BENCH, exit_on_sigterm

DOCUMENT = BENCH.parent / "docs" / "http-cache.md"
REASONS = BENCH / "cache_reasons.json"
HINT = "node and npm are not on this machine; install them (Debian: apt install npm) and try again"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--write/--no-write", default=True, help="Write docs/http-cache.md.")
def main(*, as_json: bool, write: bool) -> None:
    """Run the suite, write docs/http-cache.md; exit with 1 when a bar is missed."""
    exit_on_sigterm()
    if not (shutil.which("node") and shutil.which("npm")):
        click.echo(HINT, err=True)
        sys.exit(2)
    result = _result()
    if write:
        DOCUMENT.write_text(document(result), "utf-8")
    if as_json:
        click.echo(json.dumps(result.as_dict()))
    else:
        click.echo(table(result, "role"))
        click.echo("\n".join(result.problems))
    sys.exit(1 if result.problems else 0)


def _result() -> Result:
    with tempfile.TemporaryDirectory() as name:
        cases = asyncio.run(_compete(Path(name)))
    node = subprocess.run(["node", "--version"], check=True, capture_output=True, text=True)
    versions = {
        "Python": platform.python_version(),
        **{name: version(name) for name in ("longline", "aiohttp", "hishel", "requests")},
        "Node": node.stdout.strip().removeprefix("v"),
    }
    reasons = json.loads(REASONS.read_text("utf-8"))
    return Result(cases, reasons, versions, datetime.now(UTC).strftime("%Y-%m-%d"))


async def _compete(folder: Path) -> dict[str, list[Case]]:
    package = fetch_suite(folder)
    contestants = {
        OURS: ours(folder),
        HISHEL: hishel_alone(folder),
    }
    cases: dict[str, list[Case]] = {}
    async with origin(package, folder) as site:
        for who, opened in contestants.items():
            async with opened as contestant:
                cases[who] = [
                    *await run_suite(package, site, contestant, "role"),
                    *await run_suite(package, site, contestant, "beyond"),
                ]
    return cases


if __name__ == "__main__":
    main()
