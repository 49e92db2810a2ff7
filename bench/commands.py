"""The commands of longline that the proofs start, as a user would type them."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

from children import LONGLINE, Child, Children

_ADDRESS = re.compile(r"practice web at (http://\S+) with")
_PATIENCE = 120.0


def run_pages(url: str, home: Path, *extra: str, first: int = 1, count: int = 100) -> list[str]:
    """Return the command that collects the pages of the benchmark."""
    return [
        *(LONGLINE, "run", "page_source:Pages", "--home", str(home), "--json"),
        *("--set", f"base_url={url}", "--set", f"first={first}", "--set", f"count={count}"),
        *extra,
    ]


def run_n8n(url: str, home: Path, *extra: str) -> list[str]:
    """Return the command that collects a practice web."""
    return [
        *(LONGLINE, "run", "n8n", "--home", str(home), "--json"),
        *("--set", f"site_url={url}", "--set", f"api_url={url}/api"),
        *("--set", f"youtube_url={url}/youtube"),
        *extra,
    ]


@contextlib.contextmanager
def sandbox(*options: str) -> Iterator[str]:
    """Start a practice web on a free port, in a separate process; yield its address.

    Raises:
        RuntimeError: it did not start.
    """
    with Children() as children:
        yield _address(children.start([LONGLINE, "sandbox", "--port", "0", *options]))


def _address(child: Child) -> str:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until and child.is_running:
        if found := _ADDRESS.search(child.output()):
            return found[1]
        time.sleep(0.05)
    message = f"the practice web did not start: {child.errors()[-500:]}"
    raise RuntimeError(message)
