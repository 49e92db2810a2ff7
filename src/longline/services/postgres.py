"""The PostgreSQL server of a home: on loopback, with a password, durable."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import stat
import time
from pathlib import Path
from typing import Any

import psutil
import psycopg
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from longline.services.processes import (
    LOOPBACK,
    PRIVATE,
    Launch,
    Service,
    StartFailed,
    StateFile,
    choose_port,
    launch,
    open_private,
    start_failed,
    stop_processes,
    wait_until_gone,
    wait_until_up,
)
from longline.services.programs import postgres_folders, postgres_version

INITDB = "initdb"
"""The recorded name of the process that creates the data folder."""
_ROLE = "longline"
_START_TIMEOUT = 120.0  # seconds; after a crash it replays its journal first
_INIT_TIMEOUT = 120.0
_ORPHANS_TIMEOUT = 15.0
_POLL_INTERVAL = 0.05
_RESPONSE_TIMEOUT = 3  # seconds
_CONNECTIONS = 200  # a child process of a worker holds about five


class PostgresService(Service):
    """The database of a home that has outgrown SQLite."""

    name = "postgres"
    # Fast shutdown rolls back open transactions; immediate shutdown is like a crash.
    stop_signals = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 5.0))

    def __init__(self, file: StateFile) -> None:
        super().__init__(file)
        self._folder = file.home / "postgres"
        self._data = self._folder / "data"
        self._log = file.home / "logs" / "postgres.log"

    @property
    def has_data(self) -> bool:
        """Whether this home has a PostgreSQL database."""
        return self._data.exists()

    @property
    def url(self) -> str:
        """The SQLAlchemy URL of the database."""
        port = self.entry.port if self.entry else None
        return f"postgresql+psycopg://{_ROLE}:{self._password()}@{LOOPBACK}:{port}/{_ROLE}"

    def is_healthy(self) -> bool:
        return super().is_healthy() and self.has_data and postgres_problem(self.url) is None

    def start(self) -> None:
        self.stop()
        self._wait_for_orphans()
        state = self._file.read()
        entry = state.entry(self.name)
        user = _server_user(self._folder)
        programs = self._programs()
        if not self.has_data:
            self._initialise(programs, user)
        # Clients reconnect when the new server has the address of the last one.
        last = make_url(state.database_url).port if state.database_url else None
        wanted = last or (entry.port if entry else None)
        port = choose_port(wanted)
        command = [str(programs / "postgres"), "-D", str(self._data), "-p", str(port)]
        command += ["-h", LOOPBACK, "-k", "", "-c", f"max_connections={_CONNECTIONS}"]
        plan = Launch(self.name, command, self._log, port, self._folder, user, umask=PRIVATE)
        started = launch(plan, self._file)
        maintenance = f"postgresql://{_ROLE}:{self._password()}@{LOOPBACK}:{port}/postgres"
        wait_until_up(started, lambda: postgres_problem(maintenance) is None, _START_TIMEOUT)
        with (
            contextlib.suppress(psycopg.errors.DuplicateDatabase),
            psycopg.connect(maintenance, autocommit=True) as connection,
        ):
            connection.execute(f"CREATE DATABASE {_ROLE}".encode())

    def stop(self) -> None:
        if (initdb := self._file.read().entry(INITDB)) is not None:
            stop_processes([initdb])  # its result is discarded
        super().stop()

    def version(self) -> str | None:
        return server_version(self.url)

    def _wait_for_orphans(self) -> None:
        """Wait until the children of a killed server have ended; the next one needs that."""
        data = str(self._data)
        deadline = time.monotonic() + _ORPHANS_TIMEOUT
        while time.monotonic() < deadline and any(
            one.info["cwd"] == data for one in psutil.process_iter(["cwd"])
        ):
            time.sleep(_POLL_INTERVAL)

    def _password(self) -> str:
        return (self._folder / "password").read_text("ascii").strip()

    def _programs(self) -> Path:
        """Return the folder of programs of the version that created the data."""
        folders = postgres_folders()
        if not self.has_data:
            return folders[0]
        version = (self._data / "PG_VERSION").read_text("ascii").strip()
        for folder in folders:
            if postgres_version(folder) == version:
                return folder
        problem = f"the data in {self._data} needs PostgreSQL {version}, which is not installed"
        raise StartFailed(self.name, problem)

    def _initialise(self, programs: Path, user: pwd.struct_passwd | None) -> None:
        """Create the data folder under another name and rename it when it is complete."""
        new = self._folder / "new"
        password = self._folder / "password"
        self._folder.mkdir(exist_ok=True, mode=0o700)
        shutil.rmtree(new, ignore_errors=True)
        with open_private(password) as file:
            file.write(secrets.token_urlsafe(32).encode())
        if user is not None:
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            os.chown(password, user.pw_uid, user.pw_gid)
        options = ["-D", str(new), "-U", _ROLE, f"--pwfile={password}", "-E", "UTF8"]
        options += ["--auth=scram-sha-256", "--locale=C.UTF-8"]
        done = self._folder / "done"
        done.unlink(missing_ok=True)
        command = ["/bin/sh", "-c", '"$@" && : >done', "sh", str(programs / "initdb"), *options]
        # Recorded like a server, since this process may be killed before it ends.
        entry = launch(
            Launch(INITDB, command, self._log, None, self._folder, user, umask=PRIVATE), self._file
        )
        has_ended = wait_until_gone([entry], _INIT_TIMEOUT)
        stop_processes([entry])
        self._file.write(self._file.read().without([entry]))
        if not has_ended or not done.exists():
            raise start_failed(entry, "it failed")
        done.unlink()
        new.rename(self._data)


# ---------------- The user of the server: PostgreSQL refuses to run as root

_USERS = ("postgres", "nobody")  # the first that exists is used


def _server_user(folder: Path) -> pwd.struct_passwd | None:
    """Return the user to run the server in a folder as; None: the current one.

    Raises:
        StartFailed: this is root, and there is no other user, or it cannot reach the folder.
    """
    if os.geteuid() != 0:
        return None
    try:
        if folder.exists() and folder.stat().st_uid != 0:
            user = pwd.getpwuid(folder.stat().st_uid)
        else:
            user = next(one for name in _USERS for one in pwd.getpwall() if one.pw_name == name)
    except (KeyError, StopIteration):
        problem = "it refuses to run as root, and there is no other user for it"
        raise StartFailed("postgres", problem) from None
    home = folder.parent
    mode = stat.S_IMODE(home.stat().st_mode)
    if mode & PRIVATE == 0:  # the user may pass through a private home, but not list it
        os.chown(home, -1, user.pw_gid)
        home.chmod(mode | stat.S_IXGRP)
    for parent in home.parents:
        if not parent.stat().st_mode & stat.S_IXOTH:
            problem = (
                f"it refuses to run as root, and the user {user.pw_name} cannot reach {folder} "
                f"through {parent}. Run chmod o+x {parent}, or use another home"
            )
            raise StartFailed("postgres", problem)
    return user


# ---------------- Any PostgreSQL server


def postgres_problem(url: str) -> str | None:
    """Return why the PostgreSQL at a URL cannot be used; None when it can."""
    try:
        with _connect(url) as connection:
            connection.execute("SELECT 1")
    except (ArgumentError, ValueError, psycopg.ProgrammingError):
        return "this is not a PostgreSQL URL"  # the texts of these errors may repeat the password
    except psycopg.Error as error:
        return str(error).strip()
    return None


def server_version(url: str) -> str | None:
    """Return the version of the server at a URL; None if unknown."""
    try:
        with _connect(url) as connection:
            row = connection.execute("SHOW server_version").fetchone()
    except (ArgumentError, ValueError, psycopg.Error):
        return None
    return None if row is None else str(row[0]).partition(" ")[0]


def _connect(url: str) -> psycopg.Connection[Any]:
    """Connect and fail fast, for health checks."""
    address = make_url(url)
    if address.get_backend_name() != "postgresql":
        raise ArgumentError
    plain = address.set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(plain, connect_timeout=_RESPONSE_TIMEOUT, autocommit=True)
