"""A PostgreSQL of a home: on loopback, with a password, and durable."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from longline.services.base import LOOPBACK, Part, last_lines, on_a_port
from longline.services.errors import StartFailed
from longline.services.processes import (
    PRIVATE,
    Launch,
    end,
    launch,
    living,
    memory_of,
    postgres_folders,
    postgres_version,
    wait_until_gone,
    wait_until_up,
)
from longline.services.record import Entry, RecordFile

# ---------------- Who runs PostgreSQL, which refuses to be run by root

_ALL_OTHERS = 0o077
_USERS = ("postgres", "nobody")  # of a machine, the first that is there


def other_user(folder: Path) -> str | None:
    """Return the user who is to own a folder of the server; None when we may do so ourselves.

    Raises:
        StartFailed: nobody but root is known here.
    """
    if os.geteuid() != 0:
        return None
    if folder.exists() and folder.stat().st_uid != 0:
        return _name(folder.stat().st_uid)
    known = {one.pw_name for one in pwd.getpwall()}
    for name in _USERS:
        if name in known:
            return name
    raise StartFailed("postgres", f"root may not run it, and there is no user {_USERS[-1]}")


def hand_over(path: Path, user: str | None) -> None:
    """Give a file or folder to the user who runs the server."""
    if user is not None:
        found = pwd.getpwnam(user)
        os.chown(path, found.pw_uid, found.pw_gid)


def let_through(home: Path, user: str | None) -> None:
    """Let the user who runs the server pass through a home that is closed to all others.

    He may not list it; its files and other folders stay closed to him.
    """
    if user is None:
        return
    found, mode = pwd.getpwnam(user), stat.S_IMODE(home.stat().st_mode)
    if mode & _ALL_OTHERS == 0:
        os.chown(home, -1, found.pw_gid)
        home.chmod(mode | stat.S_IXGRP)


def check_way(folder: Path, user: str | None) -> None:
    """See that a user gets to a folder at all.

    Raises:
        StartFailed: one of the folders above is closed to others.
    """
    if user is None:
        return
    found = pwd.getpwnam(user)
    for parent in folder.parents:
        if not _is_passable(parent.stat(), found):
            problem = (
                f"root may not run it, and the user {user} cannot get to {folder}, because {parent}"
                f" is closed to others: chmod o+x {parent}, or use a home elsewhere"
            )
            raise StartFailed("postgres", problem)


def _is_passable(found: os.stat_result, user: pwd.struct_passwd) -> bool:
    if found.st_uid == user.pw_uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == user.pw_gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise StartFailed("postgres", f"its folder belongs to the unknown user {uid}") from None


INITDB = "initdb"
"""The name on record of what makes the data of a new server."""
_ROLE = "longline"
_START = 120.0  # seconds; after a crash it reads its journal first
_INIT = 120.0
_ORPHANS = 15.0
_LOOK = 0.05
_ANSWER = 3  # seconds
_CONNECTIONS = 200  # a worker's child holds about five
# Fast: open transactions are undone; immediate: as after a crash.
ENDING = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 5.0))


class PostgresService:
    """The truth about jobs and records of a home that has outgrown SQLite."""

    name = "postgres"

    def __init__(self, file: RecordFile) -> None:
        self._file = file
        self._folder = file.home / "postgres"
        self._data = self._folder / "data"
        self._log = file.home / "logs" / "postgres.log"

    @property
    def has_data(self) -> bool:
        """Whether the home has a PostgreSQL of its own."""
        return self._data.exists()

    @property
    def url(self) -> str:
        """The SQLAlchemy address of its database."""
        entry = self._file.read().entry(self.name)
        port = None if entry is None else entry.port
        return f"postgresql+psycopg://{_ROLE}:{self._password()}@{LOOPBACK}:{port}/{_ROLE}"

    def is_healthy(self) -> bool:
        entry = self._file.read().entry(self.name)
        if entry is None or living(entry) is None or not self.has_data:
            return False
        return problem_of(self.url) is None

    def start(self) -> None:
        self.stop()
        self._wait_for_orphans()
        record = self._file.read()
        entry = record.entry(self.name)
        user = other_user(self._folder)
        let_through(self._file.home, user)
        check_way(self._folder, user)
        programs = self._programs()
        if not self.has_data:
            self._initialise(programs, user)
        # Whoever holds the address of the last one finds this one there too.
        last = make_url(record.database_url).port if record.database_url else None
        wanted = last or (entry.port if entry else None)
        on_a_port(wanted, lambda port: self._start_on(port, programs, user))
        self._create_database()

    def stop(self) -> None:
        entries = self._file.read().processes
        end([one for one in entries if one.name == INITDB])  # what it has made is thrown away
        end([one for one in entries if one.name == self.name], *ENDING)

    def describe(self) -> Part:
        entry = self._file.read().entry(self.name)
        is_healthy = self.is_healthy()
        is_there = entry is not None and living(entry) is not None
        return Part(
            self.name,
            is_healthy=is_healthy,
            is_ours=True,
            address=f"{LOOPBACK}:{entry.port}" if entry else LOOPBACK,
            since=entry.start_time if entry and is_there else None,
            pid=entry.pid if entry and is_there else None,
            port=None if entry is None else entry.port,
            version=version_of(self.url) if is_healthy else None,
            memory_bytes=None if entry is None else memory_of(entry),
            log=None if entry is None else entry.log,
        )

    def _wait_for_orphans(self) -> None:
        """Let the children of a killed server end, which they do by themselves.

        Until then the next one refuses to start.
        """
        data = str(self._data)
        deadline = time.monotonic() + _ORPHANS
        while time.monotonic() < deadline and any(map(_is_in(data), psutil.process_iter(["cwd"]))):
            time.sleep(_LOOK)

    def _password(self) -> str:
        return (self._folder / "password").read_text("ascii").strip()

    def _programs(self) -> Path:
        """Return the folder of programs that understand our data."""
        folders = postgres_folders()
        if not self.has_data:
            return folders[0]
        made_by = (self._data / "PG_VERSION").read_text("ascii").strip()
        for folder in folders:
            if postgres_version(folder) == made_by:
                return folder
        problem = f"the data in {self._data} needs version {made_by}, which is not installed"
        raise StartFailed(self.name, problem)

    def _initialise(self, programs: Path, user: str | None) -> None:
        """Make the data beside its place and move it there, so that half of it never counts."""
        new = self._folder / "new"
        password = self._folder / "password"
        self._folder.mkdir(exist_ok=True, mode=0o700)
        shutil.rmtree(new, ignore_errors=True)
        password.unlink(missing_ok=True)
        with os.fdopen(os.open(password, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32))
        hand_over(self._folder, user)
        hand_over(password, user)
        words = ["-D", str(new), "-U", _ROLE, f"--pwfile={password}", "-E", "UTF8"]
        words += ["--auth=scram-sha-256", "--locale=C.UTF-8"]
        self._run([str(programs / "initdb"), *words], user)
        new.rename(self._data)

    def _run(self, words: list[str], user: str | None) -> None:
        """Run a program to its end, on record like a server: we may be killed before it ends."""
        done = self._folder / "done"
        done.unlink(missing_ok=True)
        command = ["/bin/sh", "-c", '"$@" && : >done', "sh", *words]
        entry = launch(
            Launch(INITDB, command, self._log, None, self._folder, user, umask=PRIVATE), self._file
        )
        has_ended = wait_until_gone([entry], _INIT)
        end([entry])
        self._file.write(self._file.read().without([entry]))
        if not has_ended or not done.exists():
            log = str(self._log)
            raise StartFailed(self.name, "its data could not be made", log, last_lines(log))
        done.unlink()

    def _start_on(self, port: int, programs: Path, user: str | None) -> Entry:
        command = [str(programs / "postgres"), "-D", str(self._data), "-p", str(port)]
        command += ["-h", LOOPBACK, "-k", "", "-c", f"max_connections={_CONNECTIONS}"]
        plan = Launch(self.name, command, self._log, port, self._folder, user, umask=PRIVATE)
        entry = launch(plan, self._file)
        wait_until_up(entry, lambda: problem_of(self._maintenance(port)) is None, _START)
        return entry

    def _maintenance(self, port: int) -> str:
        return f"postgresql://{_ROLE}:{self._password()}@{LOOPBACK}:{port}/postgres"

    def _create_database(self) -> None:
        entry = self._file.read().entry(self.name)
        assert entry is not None  # noqa: S101  # it was started a moment ago
        assert entry.port is not None  # noqa: S101  # and on a port
        with (
            contextlib.suppress(psycopg.errors.DuplicateDatabase),
            psycopg.connect(self._maintenance(entry.port), autocommit=True) as connection,
        ):
            connection.execute(f"CREATE DATABASE {_ROLE}".encode())


def problem_of(url: str) -> str | None:
    """Return why the PostgreSQL at an address does not answer; None when it does."""
    try:
        with _connected(url) as connection:
            connection.execute("SELECT 1")
    except (ArgumentError, ValueError, psycopg.ProgrammingError):
        return "that is not an address of PostgreSQL"  # their texts repeat it, password and all
    except psycopg.Error as error:
        return str(error).strip()
    return None


def version_of(url: str) -> str | None:
    """Return the version of the server at an address; None when it does not say."""
    try:
        with _connected(url) as connection:
            row = connection.execute("SHOW server_version").fetchone()
    except (ArgumentError, ValueError, psycopg.Error):
        return None
    return None if row is None else str(row[0]).partition(" ")[0]


def _connected(url: str) -> psycopg.Connection[tuple[str]]:
    address = make_url(url)
    if address.get_backend_name() != "postgresql":
        raise ArgumentError
    plain = address.set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(plain, connect_timeout=_ANSWER)


def _is_in(folder: str) -> Callable[[psutil.Process], bool]:
    return lambda process: process.info["cwd"] == folder
