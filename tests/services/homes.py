"""A home as tests of its services use it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from redis import Redis

from longline.config.settings import Settings
from longline.services.cluster import ClusterOptions, StartedCluster, down, status, up
from longline.services.processes import (
    ProcessEntry,
    ServicesState,
    ServiceStatus,
    StateFile,
    find_process,
)
from tests.servers import until

COMMAND = (sys.executable, "-c", "from longline.cli.main import main; main()")


class Home:
    """A home folder and the services in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = StateFile(path)
        self.steps: list[tuple[str, str]] = []

    @property
    def record(self) -> ServicesState:
        return self.file.read()

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.record.processes]

    def settings(self, **values: Any) -> Settings:
        return Settings(home=self.path, **values)

    def up(
        self,
        *,
        workers: int = 0,
        with_postgres: bool = False,
        with_executor: bool = False,
        **values: Any,
    ) -> StartedCluster:
        options = ClusterOptions(workers, 1, with_postgres, with_executor)
        return up(self.settings(**values), options, lambda *step: self.steps.append(step))

    def down(self) -> tuple[ProcessEntry, ...]:
        return down(self.settings(), lambda *step: self.steps.append(step))

    def status(self, **values: Any) -> dict[str, ServiceStatus]:
        return {one.name: one for one in status(self.settings(**values))}

    def entry(self, name: str) -> ProcessEntry:
        found = self.record.entry(name)
        assert found is not None
        return found

    def kill(self, name: str) -> ProcessEntry:
        """Kill one of its processes with SIGKILL."""
        entry = self.entry(name)
        os.kill(entry.pid, signal.SIGKILL)
        until(lambda: find_process(entry) is None, f"the end of {name}")
        return entry

    def answers(self) -> bool:
        """Return whether the recorded Redis responds."""
        assert self.record.redis_url is not None
        with Redis.from_url(self.record.redis_url) as redis:
            return bool(redis.ping())

    def command(self, *words: str) -> subprocess.Popen[str]:
        """Start a command in a process of its own."""
        return subprocess.Popen(
            [*COMMAND, *words, "--home", str(self.path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def has_started(self, name: str) -> bool:
        return self.path.exists() and self.record.entry(name) is not None


@contextmanager
def new_home() -> Iterator[Home]:
    """Give a home that is stopped and removed at the end.

    It is not among pytest's folders: those are for one user, and root has another one run
    PostgreSQL.
    """
    with TemporaryDirectory(prefix="longline-") as folder:
        Path(folder).chmod(0o755)
        home = Home(Path(folder).resolve() / "home")
        try:
            yield home
        finally:
            home.down()


def is_listening(port: int | None) -> bool:
    return any(
        one.laddr and one.laddr.port == port and one.status == psutil.CONN_LISTEN
        for one in psutil.net_connections("tcp")
    )


def working_for(home: Path) -> list[int]:
    """Return the pids of other processes that use a home."""
    return [
        one.pid
        for one in psutil.process_iter(["cmdline", "cwd"])
        if one.pid != os.getpid()
        and (str(home) in " ".join(one.info["cmdline"] or ()) or str(home) in str(one.info["cwd"]))
    ]
