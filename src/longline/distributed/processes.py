"""The Celery worker and its children as processes: start, liveness reports, drain and kill."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from longline.config.settings import Settings
from longline.core.logging import LogOptions
from longline.engine.worker import AttemptLog

CAME, TOOK, ALIVE, ENDED = "came", "took", "alive", "ended"
_BEGUN, _DONE = "+", "-"  # an item, by its id
_MOST_KNOWN = 10_000  # items; far more than a child has in flight


class Reports(AttemptLog):
    """The children's end of the pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._is_silent = False
        self._begun: deque[int] = deque(maxlen=_MOST_KNOWN)
        os.set_blocking(pipe, False)

    def fall_silent(self) -> None:
        """Tell nothing more: this process ends, and what it has in flight is to be known.

        Otherwise what is broken off on its way out would count as ended well, and be begun again
        for ever, whichever of it has brought about the end.
        """
        self._is_silent = True

    def tell(self, word: str) -> None:
        """Tell one thing; a supervisor that does not listen holds nobody up."""
        if self._is_silent:
            return
        with contextlib.suppress(OSError):  # so short a line is written whole, or not at all
            os.write(self._pipe, f"{word} {os.getpid()}\n".encode())

    def message_came(self) -> None:
        """Tell that work begins; what was begun for earlier messages is in nobody's hands here."""
        self._begun.clear()
        self.tell(CAME)

    def items_taken(self, items: Collection[int]) -> None:
        """Note that these, by their ids, are in hand and not begun, if they were before, too."""
        kept = [item for item in self._begun if item not in items]
        self._begun = deque(kept, maxlen=_MOST_KNOWN)

    def chunk_taken(self) -> None:
        """Tell that there is something to work on."""
        self.tell(TOOK)

    def item_begun(self, item: int) -> None:
        """Tell what is being worked on, so that it is known if this process dies of it."""
        self._begun.append(item)
        self.tell(f"{_BEGUN}{item}")

    def item_ended(self, item: int) -> None:
        """Tell that it has not died of this one."""
        self.tell(f"{_DONE}{item}")

    def begun_last(self) -> set[int]:
        """Return the items that were begun for this message, whatever has become of them."""
        return set(self._begun)


class Heard:
    """The supervisor's end: what children have told since the worker was started."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._rest = b""
        self._busy: dict[int, float] = {}
        self._in_flight: dict[int, set[int]] = {}
        self.chunks = 0
        """How many were taken."""
        self.last_came: float | None = None
        self.last_taken: float | None = None
        os.set_blocking(pipe, False)

    def listen(self, now: float) -> None:
        """Take in all that was told by now."""
        for word, pid in self._lines():
            if word == ENDED:
                self._busy.pop(pid, None)
                continue
            self._busy[pid] = now
            if word == CAME:
                self.last_came = now
                self._in_flight[pid] = set()
            elif word[0] in (_BEGUN, _DONE):
                self._note_item(pid, word)
            elif word == TOOK:
                self.last_taken = now
                self.chunks += 1

    def busy(self) -> set[int]:
        """Return the children that are at work, as far as they live."""
        self._busy = {pid: at for pid, at in self._busy.items() if _is_alive(pid)}
        return set(self._busy)

    def silent(self, now: float, seconds: float) -> set[int]:
        """Return the children at work whose loop has given no sign of life for so long."""
        return {pid for pid in self.busy() if now - self._busy[pid] > seconds}

    def in_flight(self) -> dict[int, set[int]]:
        """Return the items that each child works on, or worked on when it died."""
        return self._in_flight

    def _note_item(self, pid: int, word: str) -> None:
        items, item = self._in_flight.setdefault(pid, set()), int(word[1:])
        if word[0] == _BEGUN:
            items.add(item)
        else:
            items.discard(item)

    def close(self) -> None:
        """Let go of the pipe."""
        os.close(self._pipe)

    def _lines(self) -> Iterator[tuple[str, int]]:
        *lines, self._rest = (self._rest + self._read()).split(b"\n")
        for line in lines:
            word, _, pid = line.decode().partition(" ")
            yield word, int(pid)

    def _read(self) -> bytes:
        with contextlib.suppress(BlockingIOError):
            return os.read(self._pipe, 1 << 16)
        return b""


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


# ---------------- The Celery worker as its supervisor sees it: started, listened to, asked to

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
