"""Compares longline with scrapy-rotating-proxies and Crawlee on the proxies of `proof_proxies`.

Each contestant is a program of its own, run with the interpreter of a virtual environment that has
it. What it obtained is counted by the site and the proxies, not by itself.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from children import BENCH, LONGLINE
from proof_proxies import BURST, RATE, Web, add_proxies, serving

_TIMEOUT = 10


@click.command()
@click.option("--pages", default=500, help="Pages to collect.")
@click.option("--python", "other", default=sys.executable, help="Interpreter of the others.")
@click.option("--patience", default=300.0, help="Seconds after which a contestant is stopped.")
def main(*, pages: int, other: str, patience: float) -> None:
    """Run the contestants one after another, and print a row for each."""
    click.echo("contestant | pages | requests without a page | 429 | bans | seconds | ended")
    for name in "longline", "scrapy", "crawlee":
        with tempfile.TemporaryDirectory() as folder, serving() as web:
            command = _command(name, other, pages, web, Path(folder))
            began = time.monotonic()
            ended = _run(command, Path(folder), patience)
            took = time.monotonic() - began
            click.echo(_row(name, web.figures(), took, ended))


def _command(name: str, other: str, pages: int, web: Web, folder: Path) -> list[str]:
    addresses = web.addresses()
    if name != "longline":
        values = [web.url, str(pages), str(RATE), str(_TIMEOUT), ",".join(addresses)]
        return [other, str(BENCH / f"proxied_{name}.py"), *values]
    home = folder / "home"
    home.mkdir()
    add_proxies(home, addresses)
    return [
        *(LONGLINE, "run", "proxied_source:Proxied", "--home", str(home), "--concurrency", "32"),
        *("--set", f"base_url={web.url}", "--set", f"count={pages}", "--rate", str(RATE)),
        *("--burst", str(BURST), "--timeout", str(_TIMEOUT)),
    ]


def _run(command: list[str], folder: Path, patience: float) -> str:
    environment = {"PYTHONPATH": str(BENCH), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, timeout=patience, check=False
        )
    except subprocess.TimeoutExpired:
        return "stopped"
    return "by itself" if done.returncode == 0 else f"exit {done.returncode}"


def _row(name: str, site: Any, took: float, ended: str) -> str:
    wasted = site["through_proxies"] - site["pages"]
    statuses = site["statuses"]
    values = (site["pages"], wasted, statuses.get("429", 0), statuses.get("403", 0))
    return f"{name} | {' | '.join(map(str, values))} | {took:.0f} | {ended}"


if __name__ == "__main__":
    main()
