"""A cluster for proofs: real servers, real workers and a database, always ended and removed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from children import BENCH, LONGLINE, Child, environment
from judge import Judge
from longline import Orchestrator
from longline.config.settings import Settings

sys.path.append(str(BENCH.parent))
from tests.servers import PostgresServer, RedisServer, free_port  # noqa: F401  # not installed; used by proofs

_REAP = 20.0
_BEGIN = 90.0  # seconds for workers to begin on a busy machine
_LOOK = 0.05
_BEGUN = ": starting "


class Cluster:
    """Redis, PostgreSQL (or a SQLite home) and workers; use `open_cluster`."""

    def __init__(
        self,
        folder: Path,
        redis: RedisServer,
        postgres: PostgresServer | None,
        *,
        chunk_size: int = 50,
        redis_url: str | None = None,
    ) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(exist_ok=True)
        self.redis = redis
        self.redis_url = redis_url or redis.url
        self.postgres = postgres
        self.workers: dict[str, Child] = {}
        self._others: list[Child] = []
        self._hired: list[tuple[str, Child]] = []
        self._chunk_size = chunk_size
        self._pids: set[psutil.Process] = set()
        file = self.home / "longline.sqlite"
        self.judge = Judge(file if postgres is None else postgres.url())

    @property
    def variables(self) -> dict[str, str]:
        """The settings of workers and clients."""
        own = {
            "LONGLINE_HOME": str(self.home),
            "LONGLINE_REDIS_URL": self.redis_url,
            "LONGLINE_CHUNK_SIZE": str(self._chunk_size),
        }
        return own if self.postgres is None else own | {"LONGLINE_DATABASE_URL": self.database_url}

    @property
    def database_url(self) -> str:
        """The address of the database on PostgreSQL."""
        assert self.postgres is not None  # noqa: S101  # a SQLite home has none
        return str(self.postgres.url())

    def start(self, command: Sequence[str], more: Mapping[str, str] | None = None) -> Child:
        """Start a command of longline with the settings of this cluster."""
        child = Child(command, {**environment(), **self.variables, **(more or {})})
        self._others.append(child)
        return child

    def hire(
        self,
        name: str,
        processes: int,
        *,
        cores: Sequence[int] = (),
        more: Mapping[str, str] | None = None,
    ) -> Child:
        """Start a worker; `await_workers` waits until it is ready."""
        words = [LONGLINE, "worker", "-n", str(processes), "--name", name]
        pinned = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
        child = Child([*pinned, *words], {**environment(), **self.variables, **(more or {})})
        self._others.append(child)
        self._hired.append((name, child))
        self.workers[name] = child
        return child

    def await_workers(self) -> None:
        """Wait until every worker has a Celery worker with all its children.

        Raises:
            RuntimeError: one has ended.
            TimeoutError: one is not ready in time.
        """
        until = time.monotonic() + _BEGIN
        for name, child in self.workers.items():
            while not (_BEGUN in child.errors() and children_of(child.process.pid)):
                if not child.is_running:
                    message = f"{name} has ended: {child.errors()[-500:]}"
                    raise RuntimeError(message)
                if time.monotonic() > until:
                    message = f"{name} has not begun: {child.errors()[-500:]}"
                    raise TimeoutError(message)
                time.sleep(_LOOK)
            self.remember()

    def remember(self) -> None:
        """Record all descendants of this process, to end those left over."""
        for child in self._others:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._pids.update(psutil.Process(child.process.pid).children(recursive=True))

    def submit(self, source: str, options: Mapping[str, Any], **params: Any) -> str:
        """Submit a new job to the workers, as `longline run --detach` does; return its id."""
        return asyncio.run(self.submit_soon(source, options, **params))

    async def submit_soon(self, source: str, options: Mapping[str, Any], **params: Any) -> str:
        """Submit a new job from a running event loop."""
        async with self.orchestrator() as longline:
            wanted = {"set": dict(options), "rate": "unlimited", **params}
            return (await longline.submit(source, wanted, fresh=True)).id

    def orchestrator(self) -> Orchestrator:
        """Return a client of this cluster."""
        own: dict[str, Any] = {"home": self.home, "redis_url": self.redis_url}
        if self.postgres is not None:
            own["database_url"] = self.database_url
        return Orchestrator(settings=Settings(**own, engine="celery", chunk_size=self._chunk_size))

    def logs(self) -> dict[str, str]:
        """Return the logs of the workers, including killed ones, by number and name."""
        return {f"{n}-{name}": child.errors() for n, (name, child) in enumerate(self._hired)}

    def cpu_seconds(self) -> float:
        """Return the CPU time of workers and all their children so far."""
        return sum(cpu_of(child.process.pid) for child in self.workers.values())

    def end_workers(self) -> None:
        """End every worker and client: SIGTERM first, then SIGKILL."""
        self.remember()
        for child in self._others:
            with contextlib.suppress(ProcessLookupError):
                child.process.terminate()
        until = time.monotonic() + _REAP
        while time.monotonic() < until and any(child.is_running for child in self._others):
            time.sleep(_LOOK)
        for child in self._others:
            child.end()
        for process in self._pids:
            with contextlib.suppress(psutil.NoSuchProcess):  # which knows a number used again
                process.kill()
        self.workers.clear()
        self._hired.clear()
        self._others.clear()
        self._pids.clear()


@contextmanager
def open_cluster(
    *, has_postgres: bool = True, chunk_size: int = 50, redis_options: tuple[str, ...] = ()
) -> Iterator[Cluster]:
    """Start servers in a folder of their own; all of it is ended and removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="longline-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # started by root, PostgreSQL runs as another user
        for part in ("redis", "postgres"):
            (folder / part).mkdir()
        redis = RedisServer(folder / "redis", options=redis_options)
        postgres = PostgresServer(folder / "postgres") if has_postgres else None
        cluster = Cluster(folder, redis, postgres, chunk_size=chunk_size)
        try:
            redis.start()
            if postgres:
                postgres.start()
            cluster.judge.prepare(cluster.orchestrator)
            yield cluster
        finally:
            cluster.end_workers()
            cluster.judge.close()
            redis.kill()
            if postgres:
                kill_server(postgres)


def kill_server(server: RedisServer | PostgresServer) -> None:
    """Kill a server with -9; return once its children are gone, too, so that it can start again."""
    if server.process is None or server.process.poll() is not None:
        return
    below = psutil.Process(server.process.pid).children(recursive=True)
    server.kill()
    _, left = psutil.wait_procs(below, timeout=10.0)
    for one in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()


def parent_of(supervisor: int) -> int | None:
    """Return the current Celery worker of a supervisor."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in psutil.Process(supervisor).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "longline.distributed.celery_worker" in one.cmdline():
                    return int(one.pid)
    return None


def children_of(supervisor: int) -> list[int]:
    """Return the child processes of a supervisor that process items."""
    parent = parent_of(supervisor)
    with contextlib.suppress(psutil.NoSuchProcess):
        if parent is not None:
            return [one.pid for one in psutil.Process(parent).children() if one.is_running()]
    return []


def cpu_of(pid: int) -> float:
    """Return the CPU time of a process and all its descendants so far, in seconds."""
    total = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                used = one.cpu_times()
                # The times of reaped children are counted in their parent.
                total += used.user + used.system + used.children_user + used.children_system
    return total


def pid_of(owner: str | None) -> int | None:
    """Return the process of the owner of a lease; None if it is on another machine."""
    parts = (owner or "").split(":")
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else None


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def keep_logs(name: str, logs: Mapping[str, str]) -> Path:
    """Write logs to a folder that is kept, for diagnosis; return its path."""
    folder = Path(tempfile.gettempdir()) / f"longline-proof-{os.getpid()}" / name
    folder.mkdir(parents=True, exist_ok=True)
    for part, text in logs.items():
        (folder / f"{part}.log").write_text(text, "utf-8")
    return folder
