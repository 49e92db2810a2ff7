"""How a job is run here, whatever runs it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from longline.config.job_spec import JobSpec
from longline.config.settings import Settings

_PATIENCE = 900.0  # seconds without a finished item, all parked, until the job is paused


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a job is run here; none of it changes what is collected.

    `concurrency` is how many items of one domain are worked on at once.
    """

    concurrency: int = 8
    limit: int | None = None
    patience: float = _PATIENCE
    seconds: float | None = None
    """The budget of time; requests look at it themselves, and what is parked is given up then."""
    soft_limit: float = 600.0
    """Seconds that one item may take on a cluster, waits not counted."""


def options_of(settings: Settings, spec: JobSpec) -> RunOptions:
    """Return how a job is run on this machine."""
    return RunOptions(
        concurrency=spec.concurrency or settings.concurrency,
        limit=spec.limit,
        seconds=spec.budget.seconds,
        soft_limit=settings.soft_limit,
    )


# ---------------- What a process does differently with its memory while it runs a job

_COLLECT_AFTER = 20_000  # objects
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's, from malloc.h
_KEPT_BYTES = 16 * 1024 * 1024
_LARGE_BYTES = 4 * 1024 * 1024  # what is larger goes straight back to the system


@contextlib.contextmanager
def tuned_memory() -> Iterator[None]:
    """Collect garbage rarely, and keep freed memory at hand.

    Each item makes thousands of objects, nearly none of them in cycles; by default the collector
    walks through them after every 700, which cost a tenth of the throughput. The tree of a page is
    a quarter of a megabyte; by default the allocator gives it back to the system after each page
    and asks for it again before the next, which cost up to another tenth. What was there before
    the run, all modules above all, is not looked through meanwhile.
    """
    _keep_freed_memory()
    before = gc.get_threshold()
    gc.set_threshold(_COLLECT_AFTER, *before[1:])
    gc.freeze()
    try:
        yield
    finally:
        gc.collect(1)
        gc.unfreeze()
        gc.set_threshold(*before)


def _keep_freed_memory() -> None:
    if sys.platform != "linux":
        return
    # Only glibc has it; another C library does as it likes.
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
