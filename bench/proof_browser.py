"""The proof that a browser does not leak memory and never outlives its process."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from children import LONGLINE, Child, Children, Ended, failures
from commands import sandbox
from home import Home
from proofs import Figure, Proof, Sizes, at_most, exactly, none, nothing_wrong, unjudged

NAME = "browser"
_PAGES = 200
_SETTLED = 50  # pages after which memory must no longer grow
_WINDOW = 50  # pages over which memory is averaged: a context lives as long
_GROWTH = 1.15  # the bar: memory at the end against memory after the first pages
_PATIENCE = 600.0
_GOODBYE = 15.0  # seconds until every process of a killed run must be gone
_KILLED_AFTER = 20  # pages
_STOPPED_AFTER = 20
_LOOK = 0.25
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory in bytes after a number of stored pages: of our process, and of its children."""

    stored: int
    own: int
    others: int


def prove(sizes: Sizes) -> Proof:
    """Open 200 pages in one life; then again in three, two of which end by a signal."""
    del sizes
    with tempfile.TemporaryDirectory() as name, sandbox("--items", "10") as url:
        samples, ended = _whole(url, Path(name) / "whole")
        figures = [
            exactly("pages stored", Home(Path(name) / "whole").states()["stored"], _PAGES),
            nothing_wrong("the process exited with 0", failures([ended])),
            *_memory(samples),
            *_killed(url, Path(name) / "killed"),
        ]
    about = (
        f"`longline run browser_source:AppPages` opens {_PAGES} pages of the practice web in "
        f"Chromium; each is empty without its script. Memory is the mean over {_WINDOW} pages, "
        f"after the first {_SETTLED} and at the end. A second run is killed with SIGKILL after "
        f"{_KILLED_AFTER} pages, resumed, ended with SIGTERM, and resumed to its end. Afterwards, "
        "none of the processes that it started may be left."
    )
    return Proof(NAME, about, figures)


def _command(url: str, home: Path) -> list[str]:
    return [
        *(LONGLINE, "run", "browser_source:AppPages", "--home", str(home), "--json"),
        *("--set", f"base_url={url}", "--set", f"count={_PAGES}"),
        *("--rate", "unlimited", "--concurrency", "2"),
    ]


def _whole(url: str, home: Path) -> tuple[list[Sample], Ended]:
    samples: list[Sample] = []
    with Children() as children:
        child = children.start(_command(url, home))
        until = time.monotonic() + _PATIENCE
        while child.is_running and time.monotonic() < until:
            with contextlib.suppress(psutil.Error):
                samples.append(_sample(child, Home(home).states()["stored"]))
            time.sleep(_LOOK)
        return samples, child.wait(_GOODBYE)


def _sample(child: Child, stored: int) -> Sample:
    process = psutil.Process(child.process.pid)
    others = sum(_held(one) for one in process.children(recursive=True))
    return Sample(stored, process.memory_info().rss, others)


def _held(process: psutil.Process) -> int:
    # Chromium's processes share most of what they map; each is given its part of that.
    with contextlib.suppress(psutil.Error):
        return int(process.memory_full_info().pss)
    return 0


def _memory(samples: list[Sample]) -> list[Figure]:
    early = [one for one in samples if _SETTLED <= one.stored < _SETTLED + _WINDOW]
    late = [one for one in samples if _PAGES - _WINDOW <= one.stored < _PAGES]
    if not early or not late:
        return [nothing_wrong("memory was measured", ["too few samples"])]
    figures = []
    for name in ("own", "others"):
        first = statistics.mean(getattr(one, name) for one in early) / 1e6
        last = statistics.mean(getattr(one, name) for one in late) / 1e6
        whose = "our process" if name == "own" else "the browser and its driver"
        figures += [
            unjudged(f"memory of {whose}, first and last", f"{first:.0f} MB, {last:.0f} MB"),
            at_most(f"growth of {whose}", last / first, _GROWTH, "times"),
        ]
    return figures


def _killed(url: str, home: Path) -> list[Figure]:
    after_kill, _code = _life(url, home, signal.SIGKILL, _KILLED_AFTER)
    after_term, code = _life(url, home, signal.SIGTERM, _KILLED_AFTER + _STOPPED_AFTER)
    with Children() as children:
        ended = children.start(_command(url, home)).wait(_PATIENCE)
    return [
        none("processes left after SIGKILL", after_kill),
        none("processes left after SIGTERM", after_term),
        exactly("exit code after SIGTERM", code, _INTERRUPTED),
        exactly("exit code of the last process", ended.code, 0),
        nothing_wrong("each page stored exactly once", Home(home).problems(_PAGES)),
    ]


def _life(url: str, home: Path, number: signal.Signals, pages: int) -> tuple[int, int]:
    """Run until `pages` pages are stored, send a signal, and count the processes left over."""
    with Children() as children:
        child = children.start(_command(url, home))
        _until(lambda: not child.is_running or Home(home).states()["stored"] >= pages, _PATIENCE)
        if not child.is_running:
            message = f"a run ended by itself: {child.errors()[-500:]}"
            raise RuntimeError(message)
        family = psutil.Process(child.process.pid).children(recursive=True)
        os.kill(child.process.pid, number)
        code = child.wait(_PATIENCE).code
        _until(lambda: not any(_is_alive(one) for one in family), _GOODBYE)
        return sum(_is_alive(one) for one in family), code


def _until(holds: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not holds() and time.monotonic() < until:
        time.sleep(_LOOK)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
