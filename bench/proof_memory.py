"""The proof that a long queue is not held in memory."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from children import Child, Children
from commands import run_n8n, sandbox
from home import Home
from proofs import Proof, Sizes, at_most, exactly, unjudged

NAME = "memory"
_PATIENCE = 600.0
_AFTERWARDS = 5.0  # seconds of collecting from the full queue
_LARGEST = 250.0
_INTERRUPTED = 130


def prove(sizes: Sizes) -> Proof:
    """Enqueue all items, collect a few, stop, and check the peak memory."""
    with tempfile.TemporaryDirectory() as name, sandbox("--items", str(sizes.queued)) as url:
        home = Path(name) / "home"
        with Children() as children:
            child = children.start(run_n8n(url, home, "--rate", "20"))
            seconds = _until_queued(child, Home(home))
            _watch(child, _AFTERWARDS)
            child.interrupt()
            ended = child.wait(_PATIENCE)
        queued = sum(Home(home).states().values())
        stored = Home(home).states()["stored"]
    figures = [
        exactly("queued", queued, sizes.queued),
        at_most("peak memory", (ended.peak_bytes or 0) / 1e6, _LARGEST, "MB"),
        exactly("exit code after ctrl-c", ended.code, _INTERRUPTED),
        unjudged("all queued after", f"{seconds:.1f} s"),
        unjudged("stored by then", stored),
    ]
    about = (
        f"`longline run n8n --rate 20` discovers {sizes.queued:,} templates in a sitemap and "
        f"collects from the full queue for {_AFTERWARDS:g} s; then it is interrupted."
    )
    return Proof(NAME, about, figures)


def _until_queued(child: Child, home: Home) -> float:
    started = time.monotonic()
    while child.is_running and not home.query("SELECT 1 FROM jobs WHERE is_discovered"):
        if time.monotonic() - started > _PATIENCE:
            message = f"discovery did not end within {_PATIENCE:g} s"
            raise TimeoutError(message)
        time.sleep(0.25)
    return time.monotonic() - started


def _watch(child: Child, seconds: float) -> None:
    until = time.monotonic() + seconds
    while child.is_running and time.monotonic() < until:
        time.sleep(0.05)
