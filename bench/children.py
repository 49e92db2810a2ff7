"""Child processes of a benchmark: monitored, measured, and always ended."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Any, Self

BENCH = Path(__file__).parent
LONGLINE = str(Path(sys.executable).parent / "longline")
_LOOK = 0.05
_GOODBYE = 5.0
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended. `peak_bytes` is its peak memory; None if unknown."""

    code: int
    seconds: float
    peak_bytes: int | None
    output: str
    errors: str

    def json(self) -> Any:
        """Return the last line of the output, which is one JSON object.

        Raises:
            RuntimeError: it printed none, or failed.
        """
        lines = self.output.strip().splitlines()
        if not lines or not lines[-1].startswith("{"):
            message = f"a process ended with {self.code}: {self.errors.strip()[-2000:]}"
            raise RuntimeError(message)
        return json.loads(lines[-1])


class Child:
    """A process and the files of its output."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        folder: Path | None = None,
    ) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # the same
        self._started = time.monotonic()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._errors,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
        self._peak: int | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        self._peak = peak_memory(self.process.pid) or self._peak
        return self.process.poll() is None

    def output(self) -> str:
        """Return what it has printed so far."""
        return _read(self._output)

    def errors(self) -> str:
        """Return what it has written to stderr so far."""
        return _read(self._errors)

    def interrupt(self) -> None:
        """Interrupt it, as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def wait(self, timeout: float) -> Ended:
        """Wait for its end.

        Raises:
            TimeoutError: it has not ended after `timeout` seconds.
        """
        until = time.monotonic() + timeout
        while self.is_running:
            if time.monotonic() > until:
                message = f"a process still ran after {timeout:g} s"
                raise TimeoutError(message)
            time.sleep(_LOOK)
        return Ended(
            self.process.returncode,
            time.monotonic() - self._started,
            self._peak,
            self.output(),
            self.errors(),
        )

    def end(self) -> None:
        """End it and its children: first with a signal that they can handle, then with SIGKILL."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_GOODBYE)


class Children:
    """Processes of one block of code; none outlives it."""

    def __init__(self) -> None:
        self._all: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in self._all:
            child.end()

    def start(self, command: Sequence[str]) -> Child:
        """Start a process."""
        child = Child(command, environment())
        self._all.append(child)
        return child


def run(command: Sequence[str], *, timeout: float) -> Ended:
    """Run a process to its end.

    Raises:
        TimeoutError: it has not ended after `timeout` seconds.
    """
    with Children() as children:
        return children.start(command).wait(timeout)


def failures(ended: Sequence[Ended]) -> list[str]:
    """Return the exit codes of failed processes, after printing their output."""
    bad = [one for one in ended if one.code != 0]
    for one in bad:
        print(one.errors.strip()[-2000:], file=sys.stderr)
    return [f"exit code {one.code}" for one in bad]


def environment() -> dict[str, str]:
    """Return the environment without settings of longline, with bench/ on the Python path."""
    plain = {name: text for name, text in os.environ.items() if not name.startswith("LONGLINE_")}
    path = os.pathsep.join(filter(None, (str(BENCH), plain.get("PYTHONPATH"))))
    return {**plain, "PYTHONPATH": path}


def peak_memory(pid: int | None = None) -> int | None:
    """Return the peak memory in bytes of a running process, or of this one; None if unknown."""
    try:
        text = Path(f"/proc/{pid or 'self'}/status").read_text("ascii", "replace")
    except OSError:
        return None
    found = _PEAK.search(text)
    return int(found[1]) * 1024 if found else None


def exit_on_sigterm() -> None:
    """Exit normally on SIGTERM, so that every child is ended."""

    def leave(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def _read(file: IO[bytes]) -> str:
    # The child writes through the same open file: reading must not move its place.
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode("utf-8", "replace")
