"""The Celery worker as its supervisor sees it: started, listened to, asked to end, killed."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from longline.config.settings import Settings
from longline.core.logging import LogOptions
from longline.distributed.reports import Heard

# ---------------- What a supervisor tells its Celery worker to be


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """What a Celery worker is to do; `queues` by the names that people use."""

    settings: dict[str, Any]
    name: str
    processes: int
    queues: tuple[str, ...]
    reports: int
    """The pipe that children tell things through."""
    parent: int
    log: dict[str, Any]

    def line(self) -> bytes:
        """Return it as a line of JSON."""
        return orjson.dumps(asdict(self)) + b"\n"


_DEAF_AFTER = 30.0  # seconds in which a message waited, a child was idle, and did not take it


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What a worker is: its name, how many processes it has, and the queues they serve."""

    name: str
    processes: int
    queues: tuple[str, ...]
    log: LogOptions = field(default_factory=LogOptions)


class Consumer:
    """One Celery worker and its children; one object a start."""

    def __init__(self, settings: Settings, options: WorkerOptions, now: float) -> None:
        self._options = options
        self._deaf_since: float | None = None
        self.started_at = now
        listen, tell = os.pipe()
        read, told = os.pipe()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "longline.distributed.celery_worker"],
                stdin=read,
                stdout=sys.stderr,
                pass_fds=[tell],
                # A terminal's ctrl-c is meant for the supervisor, who passes it on in its way.
                process_group=0,
            )
        finally:
            os.close(tell)
            os.close(read)
        self.heard = Heard(listen)
        plan = WorkerPlan(
            settings.model_dump(mode="json"),
            options.name,
            options.processes,
            options.queues,
            tell,
            os.getpid(),
            asdict(options.log),
        )
        with contextlib.suppress(BrokenPipeError):  # it has ended already, which is noticed soon
            os.write(told, plan.line())
        os.close(told)

    def ended(self) -> int | None:
        """Return its exit code, negative for a signal, once it has ended; its children end too."""
        if self.process.returncode is None and self._is_gone():
            self.kill()  # children that the kernel has not ended, before the group's number is free
        return self.process.poll()

    def drain(self) -> None:
        """Ask it to end: nothing more is begun, what is in flight is committed."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it and its children at once."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill what is left of it, and let go of the pipe."""
        self.kill()
        self.process.wait()
        self.heard.close()

    def listen(self, now: float) -> None:
        """Take in what the children have told."""
        before = self.heard.last_came
        self.heard.listen(now)
        if self.heard.last_came != before:
            self._deaf_since = None

    def is_deaf(self, now: float, waiting: int) -> bool:
        """Say whether it has stopped consuming: messages wait although children are idle.

        After a Redis that went away it may be up, connected and deaf (celery #8030, #10205), so
        only what it takes counts.
        """
        if not waiting or len(self.heard.busy()) >= self._options.processes:
            self._deaf_since = None
        elif self._deaf_since is None:
            self._deaf_since = now
        return self._deaf_since is not None and now - self._deaf_since > _DEAF_AFTER

    def _is_gone(self) -> bool:
        # Looked at without being reaped: until then nobody else can get its number.
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.process.pid, options) is not None


# ---------------- How processes of a worker end: never after their parent, and by their own will

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, in whatever way.

    Only Linux knows of this; elsewhere an orphan ends when Redis tells its Celery worker nothing
    any more, and what it holds expires.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we could ask
        os._exit(1)


class Drain:
    """A word that a Celery worker and its children share: begin nothing more.

    It is a byte of memory that was mapped before they were forked. A signal may come to a child
    before it has a handler, and kill it; a file may be left over; this is neither.
    """

    def __init__(self) -> None:
        self._byte = mmap.mmap(-1, 1)

    def begin(self) -> None:
        """Tell everybody; may be called in a signal handler."""
        self._byte[0] = 1

    @property
    def has_begun(self) -> bool:
        """Whether nothing more is to be begun."""
        return self._byte[0] == 1
