"""The Celery worker and its children as processes: start, reports, drain and kill."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from longline.config.settings import Settings
from longline.core.logging import LogOptions
from longline.engine.worker import AttemptLog

STARTED, CLAIMED, ALIVE, ENDED = "started", "claimed", "alive", "ended"
_ITEM_BEGUN, _ITEM_ENDED = "+", "-"  # before the id of an item
_MAX_KNOWN = 10_000  # items; far more than a child has in flight
_DEAF_AFTER = 30.0  # seconds in which a message waits although a child is idle
_PR_SET_PDEATHSIG = 1


class Reports(AttemptLog):
    """The children's end of the pipe to the supervisor."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._is_silent = False
        self._begun: deque[int] = deque(maxlen=_MAX_KNOWN)
        os.set_blocking(pipe, False)

    def fall_silent(self) -> None:
        """Send nothing more, because this process ends.

        Otherwise its cancelled attempts would count as ended, and the item that ends processes
        would be started again forever.
        """
        self._is_silent = True

    def send(self, word: str) -> None:
        """Send one report; a full pipe does not block."""
        if not self._is_silent:
            with contextlib.suppress(OSError):  # a short line is written completely or not at all
                os.write(self._pipe, f"{word} {os.getpid()}\n".encode())

    def message_started(self) -> None:
        """Report that work begins; nothing is in flight yet."""
        self._begun.clear()
        self.send(STARTED)

    def items_claimed(self, items: Collection[int]) -> None:
        """Note that these items, by their ids, are not begun (again)."""
        kept = [item for item in self._begun if item not in items]
        self._begun = deque(kept, maxlen=_MAX_KNOWN)

    def chunk_claimed(self) -> None:
        """Report that a chunk was claimed."""
        self.send(CLAIMED)

    def item_begun(self, item: int) -> None:
        """Report an item in flight, which may end this process."""
        self._begun.append(item)
        self.send(f"{_ITEM_BEGUN}{item}")

    def item_ended(self, item: int) -> None:
        """Report that an item has not ended this process."""
        self.send(f"{_ITEM_ENDED}{item}")

    def begun_last(self) -> set[int]:
        """Return the items that were begun for this message."""
        return set(self._begun)


class ReportReader:
    """The supervisor's end of the pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._rest = b""
        self._busy: dict[int, float] = {}
        self.in_flight: dict[int, set[int]] = {}
        """The items that each child attempts, or attempted when it died."""
        self.chunks = 0
        """How many were claimed."""
        self.last_started: float | None = None
        self.last_claimed: float | None = None
        os.set_blocking(pipe, False)

    def read(self, now: float) -> None:
        """Read all reports."""
        content = b""
        with contextlib.suppress(BlockingIOError):
            content = os.read(self._pipe, 1 << 16)
        *lines, self._rest = (self._rest + content).split(b"\n")
        for line in lines:
            word, _, number = line.decode().partition(" ")
            pid = int(number)
            if word == ENDED:
                self._busy.pop(pid, None)
                continue
            self._busy[pid] = now
            if word == STARTED:
                self.last_started = now
                self.in_flight[pid] = set()
            elif word == CLAIMED:
                self.last_claimed = now
                self.chunks += 1
            elif word[0] == _ITEM_BEGUN:
                self.in_flight.setdefault(pid, set()).add(int(word[1:]))
            elif word[0] == _ITEM_ENDED:
                self.in_flight.setdefault(pid, set()).discard(int(word[1:]))

    def busy(self) -> set[int]:
        """Return the live children that work on a message."""
        self._busy = {pid: at for pid, at in self._busy.items() if _is_alive(pid)}
        return set(self._busy)

    def silent(self, now: float, seconds: float) -> set[int]:
        """Return the busy children whose loop has sent no report for this long."""
        return {pid for pid in self.busy() if now - self._busy[pid] > seconds}

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._pipe)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The name of a worker, its number of processes, and the queues they serve."""

    name: str
    processes: int
    queues: tuple[str, ...]
    log: LogOptions = field(default_factory=LogOptions)


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """What a supervisor passes to its Celery worker; `reports` is the pipe of the children."""

    settings: dict[str, Any]
    name: str
    processes: int
    queues: tuple[str, ...]
    reports: int
    parent: int
    log: dict[str, Any]


class CeleryProcess:
    """One Celery worker and its children; one object per start."""

    def __init__(self, settings: Settings, options: WorkerOptions, now: float) -> None:
        self._options = options
        self._deaf_since: float | None = None
        self.started_at = now
        reading, writing = os.pipe()
        plan_reading, plan_writing = os.pipe()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "longline.distributed.celery_worker"],
                stdin=plan_reading,
                stdout=sys.stderr,
                pass_fds=[writing],
                process_group=0,  # the supervisor handles the Ctrl-C of a terminal
            )
        finally:
            os.close(writing)
            os.close(plan_reading)
        self.reports = ReportReader(reading)
        plan = WorkerPlan(
            settings.model_dump(mode="json"),
            options.name,
            options.processes,
            options.queues,
            writing,
            os.getpid(),
            asdict(options.log),
        )
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            os.write(plan_writing, orjson.dumps(asdict(plan)) + b"\n")
        os.close(plan_writing)

    def exit_code(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        if self.process.returncode is None:
            # Checked without reaping it: until then its process group keeps its number.
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            if os.waitid(os.P_PID, self.process.pid, options) is not None:
                self.kill()  # children that the kernel has not ended
        return self.process.poll()

    def drain(self) -> None:
        """Ask it to end: no more work is begun, items in flight are committed."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it and its children."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill what is left of it, and close the pipe."""
        self.kill()
        self.process.wait()
        self.reports.close()

    def read_reports(self, now: float) -> None:
        """Read the reports of the children."""
        before = self.reports.last_started
        self.reports.read(now)
        if self.reports.last_started != before:
            self._deaf_since = None

    def is_deaf(self, now: float, waiting: int) -> bool:
        """Return whether it has stopped consuming: messages wait although children are idle.

        After an outage of Redis it may be up, connected and deaf (celery #8030, #10205).
        """
        if not waiting or len(self.reports.busy()) >= self._options.processes:
            self._deaf_since = None
        elif self._deaf_since is None:
            self._deaf_since = now
        return self._deaf_since is not None and now - self._deaf_since > _DEAF_AFTER


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends.

    Only Linux can; elsewhere an orphan ends when its Celery worker gets no more messages, and its
    leases expire.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before
        os._exit(1)


class Drain:
    """A flag that a Celery worker and its children share: begin no more work.

    It is a byte of memory that is mapped before the fork. A signal may reach a child before it has
    a handler, and kill it.
    """

    def __init__(self) -> None:
        self._byte = mmap.mmap(-1, 1)

    def begin(self) -> None:
        """Set the flag; safe in a signal handler."""
        self._byte[0] = 1

    @property
    def has_begun(self) -> bool:
        """Whether the drain has begun: no more work is started."""
        return self._byte[0] == 1
