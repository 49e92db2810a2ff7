"""Start time of the command line, compared with Python and click alone."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from children import LONGLINE, environment


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds until `longline --help` and `import click` are done, in the median."""

    longline: float
    click: float

    @property
    def ratio(self) -> float:
        """How many times as long longline takes."""
        return self.longline / self.click


def measure_start(times: int = 10) -> Start:
    """Start both in turns."""
    ours, theirs = [], []
    for _ in range(times):
        ours.append(_seconds([LONGLINE, "--help"]))
        theirs.append(_seconds([sys.executable, "-c", "import click"]))
    return Start(statistics.median(ours), statistics.median(theirs))


def _seconds(command: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment(), timeout=60)
    return time.perf_counter() - started
