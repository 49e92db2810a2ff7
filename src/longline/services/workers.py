"""The `longline worker` processes of a home, and the workers registered in Redis."""

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
from longline.services.base import ServiceStatus, last_lines
from longline.services.errors import StartFailed
from longline.services.processes import (
    Launch,
    find_process,
    launch,
    process_status,
    stop_processes,
)
from longline.services.redis import connect_redis
from longline.services.state import ProcessEntry, StateFile

PREFIX = "worker-"
# As in distributed/registry.py, which would import Celery.
_KEY_PREFIX = "longline:worker:"
_PROGRAM = (sys.executable, "-m", "longline")
# Workers finish items in flight and release the others.
STOP_SIGNALS = ((signal.SIGTERM, 30.0),)
_REGISTER_TIMEOUT = 30.0  # seconds
_POLL_INTERVAL = 0.05


class WorkerService:
    """One `longline worker` with its child processes."""

    def __init__(
        self, settings: Settings, file: StateFile, number: int, processes: int | None = None
    ) -> None:
        self.name = f"{PREFIX}{number}"
        self._settings = settings
        self._file = file
        self._processes = processes

    def is_healthy(self) -> bool:
        entry = self._file.read().entry(self.name)
        return entry is not None and find_process(entry) is not None

    def start(self) -> None:
        self.stop()
        command = [*_PROGRAM, "worker", "--home", str(self._file.home), *self._options()]
        log = self._file.home / "logs" / f"{self.name}.log"
        plan = Launch(self.name, command, log, variables=environment_of(self._settings))
        launch(plan, self._file)

    def stop(self) -> None:
        entries = self._file.read().processes
        stop_processes([one for one in entries if one.name == self.name], *STOP_SIGNALS)

    def describe(self) -> ServiceStatus:
        entry = self._file.read().entry(self.name)
        return process_status(self.name, entry, is_healthy=self.is_healthy())

    def _options(self) -> tuple[str, ...]:
        if self._processes is not None:
            return ("--processes", str(self._processes))
        last = self._file.read().entry(self.name)
        return () if last is None else last.command[len(_PROGRAM) + 3 :]  # as before


def workers_among(entries: Iterable[ProcessEntry]) -> list[ProcessEntry]:
    """Return the processes that are workers."""
    return [one for one in entries if one.name.startswith(PREFIX)]


def wait_until_registered(redis_url: str, entries: Iterable[ProcessEntry]) -> None:
    """Wait until workers have registered in Redis.

    Raises:
        StartFailed: one has exited or not registered; with the last lines of its log.
    """
    for one in unregistered_among(redis_url, entries, _REGISTER_TIMEOUT)[:1]:
        problem = f"it did not register in Redis within {_REGISTER_TIMEOUT:g} s"
        problem = problem if find_process(one) else "it exited immediately"
        raise StartFailed(one.name, problem, one.log, last_lines(one.log))


def unregistered_among(
    redis_url: str, entries: Iterable[ProcessEntry], seconds: float
) -> list[ProcessEntry]:
    """Return the workers that have exited, or else those not registered after `seconds`."""
    deadline = time.monotonic() + seconds
    left = list(entries)
    while True:
        registered = registered_workers(redis_url) or {}
        left = [one for one in left if registration_key(one, registered) is None]
        dead = [one for one in left if find_process(one) is None]
        if dead or not left or time.monotonic() > deadline:
            return dead or left
        time.sleep(_POLL_INTERVAL)


def registered_workers(redis_url: str) -> dict[str, dict[str, str]] | None:
    """Return the workers registered in Redis by key; None when Redis does not respond."""
    try:
        with connect_redis(redis_url) as redis:
            found = {key: redis.hgetall(key) for key in sorted(redis.scan_iter(f"{_KEY_PREFIX}*"))}
            return {key: values for key, values in found.items() if values}
    except (RedisError, OSError, ValueError):
        return None


def registration_key(entry: ProcessEntry, registered: dict[str, dict[str, str]]) -> str | None:
    """Return the key of a worker of this machine in Redis; None when it is not registered."""
    here = (this_host(), str(entry.pid))
    for key, worker in registered.items():
        if (worker.get("host"), worker.get("pid")) == here:
            return key
    return None


def is_dead(worker: dict[str, str]) -> bool:
    """Whether a registered worker of this machine was killed before it could unregister."""
    pid = worker.get("pid", "")
    if worker.get("host") != this_host() or not pid.isdigit():
        return False
    try:
        return psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def environment_of(settings: Settings) -> dict[str, str]:
    """Return the settings as environment variables of a worker."""
    given = settings.model_fields_set - {"home"}
    return {
        f"LONGLINE_{name.upper()}": _variable_text(getattr(settings, name))
        for name in sorted(given)
        if getattr(settings, name) is not None
    }


def _variable_text(value: Any) -> str:
    if isinstance(value, tuple):
        return os.pathsep.join(str(Path(one)) for one in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
