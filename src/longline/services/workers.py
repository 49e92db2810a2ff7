"""`longline worker` processes of a home, and what workers say of themselves in Redis."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
from redis.exceptions import RedisError

from longline.config.settings import Settings
from longline.engine.owner import this_host
from longline.services.base import Part, last_lines
from longline.services.errors import StartFailed
from longline.services.processes import Launch, end, launch, living, memory_of
from longline.services.record import Entry, RecordFile
from longline.services.redis import connected

PREFIX = "worker-"
# As in cluster/presence.py, which would bring all of Celery with it.
_WORKER = "longline:worker:"
_PROGRAM = (sys.executable, "-m", "longline")
# They finish what is in flight; what has not begun is handed back at once.
ENDING = ((signal.SIGTERM, 30.0),)
_REGISTER = 30.0  # seconds
_LOOK = 0.05


class WorkerService:
    """One `longline worker` with its children."""

    def __init__(
        self, settings: Settings, file: RecordFile, number: int, processes: int | None = None
    ) -> None:
        self.name = f"{PREFIX}{number}"
        self._settings = settings
        self._file = file
        self._processes = processes

    def is_healthy(self) -> bool:
        entry = self._file.read().entry(self.name)
        return entry is not None and living(entry) is not None

    def start(self) -> None:
        self.stop()
        command = [*_PROGRAM, "worker", "--home", str(self._file.home), *self._options()]
        log = self._file.home / "logs" / f"{self.name}.log"
        plan = Launch(self.name, command, log, variables=variables_of(self._settings))
        launch(plan, self._file)

    def stop(self) -> None:
        end([one for one in self._file.read().processes if one.name == self.name], *ENDING)

    def describe(self) -> Part:
        entry = self._file.read().entry(self.name)
        is_healthy = self.is_healthy()
        return Part(
            self.name,
            is_healthy=is_healthy,
            is_ours=True,
            address="",
            since=entry.start_time if entry and is_healthy else None,
            pid=entry.pid if entry and is_healthy else None,
            memory_bytes=None if entry is None else memory_of(entry),
            log=None if entry is None else entry.log,
        )

    def _options(self) -> tuple[str, ...]:
        if self._processes is not None:
            return ("--processes", str(self._processes))
        last = self._file.read().entry(self.name)
        return () if last is None else last.command[len(_PROGRAM) + 3 :]  # those it had before


def workers_among(entries: Iterable[Entry]) -> list[Entry]:
    """Return those processes that are workers."""
    return [one for one in entries if one.name.startswith(PREFIX)]


def wait_until_registered(redis_url: str, entries: Iterable[Entry]) -> None:
    """Wait until workers have said in Redis that they are there.

    Raises:
        StartFailed: one ended, or says nothing; with the last lines of its log.
    """
    for one in silent_among(redis_url, entries, _REGISTER)[:1]:
        problem = f"it has not registered in Redis within {_REGISTER:g} s"
        problem = problem if living(one) else "it ended at once"
        raise StartFailed(one.name, problem, one.log, last_lines(one.log))


def silent_among(redis_url: str, entries: Iterable[Entry], seconds: float) -> list[Entry]:
    """Return the workers that have ended, or else those that say nothing in this time."""
    deadline = time.monotonic() + seconds
    left = list(entries)
    while True:
        present = presences(redis_url) or {}
        left = [one for one in left if presence_of(one, present) is None]
        dead = [one for one in left if living(one) is None]
        if dead or not left or time.monotonic() > deadline:
            return dead or left
        time.sleep(_LOOK)


def presences(redis_url: str) -> dict[str, dict[str, str]] | None:
    """Return what the workers on a Redis say of themselves, by their keys; None: it is away."""
    try:
        with connected(redis_url) as redis:
            found = {key: redis.hgetall(key) for key in sorted(redis.scan_iter(f"{_WORKER}*"))}
            return {key: told for key, told in found.items() if told}
    except (RedisError, OSError, ValueError):
        return None


def presence_of(entry: Entry, present: dict[str, dict[str, str]]) -> str | None:
    """Return the key under which a worker says that it is there; None when it does not."""
    here = (this_host(), str(entry.pid))
    keys = (key for key, told in present.items() if (told.get("host"), told.get("pid")) == here)
    return next(keys, None)


def is_over(told: dict[str, str]) -> bool:
    """Say whether a worker of this machine is gone that was killed before it could say so."""
    pid = told.get("pid", "")
    if told.get("host") != this_host() or not pid.isdigit():
        return False
    try:
        return psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def variables_of(settings: Settings) -> dict[str, str]:
    """Return the settings as variables, so that a worker has those of whoever starts it."""
    given = settings.model_fields_set - {"home"}
    return {
        f"LONGLINE_{name.upper()}": _written(getattr(settings, name))
        for name in sorted(given)
        if getattr(settings, name) is not None
    }


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return os.pathsep.join(str(Path(one)) for one in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
