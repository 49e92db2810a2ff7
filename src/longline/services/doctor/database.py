"""Checks of the database: whether it is there, fit, and ours to write."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import psutil
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from longline.config.settings import is_read_only
from longline.core.errors import MissingExtra
from longline.core.redaction import redact_url
from longline.core.sqlite_files import undecodable_is_damage
from longline.services.doctor.base import Finding, Ground, ok, problem, warning
from longline.storage.migrate import NEWEST
from longline.storage.postgres import OLDEST, explained
from longline.storage.schema import metadata

T = TypeVar("T")
_ANSWER = 3  # seconds
_NETWORK = {"nfs", "nfs4", "cifs", "smbfs", "smb3", "afs", "9p", "glusterfs", "ceph", "fuse.sshfs"}
_NO_ROOM = ("disk I/O error", "disk is full")
_TABLES = "SELECT version_num FROM alembic_version"
_FACTS = """SELECT pg_database_size(current_database()), pg_is_in_recovery(),
    has_schema_privilege(current_schema(), 'CREATE'), to_regclass('alembic_version') IS NOT NULL"""
_CLOCK = "SELECT extract(epoch FROM clock_timestamp())"
_WRITABLE = """SELECT bool_and(has_table_privilege(oid, 'INSERT')
    AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')) FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relname = ANY(%s)"""


def database(ground: Ground) -> Iterator[Finding]:
    """See that the database can be used, and that its tables are ours and new enough."""
    url = _url(ground)
    if url is None:
        sentence = "the address of the database makes no sense"
        yield problem("database", sentence, "set LONGLINE_DATABASE_URL, or nothing for SQLite")
    elif url.drivername.startswith("sqlite"):
        yield from _sqlite(Path(url.database or ""))
    else:
        is_ours = ground.settings.database_url is None
        remedy = "`longline up` starts it" if is_ours else "start it, or mend LONGLINE_DATABASE_URL"
        yield from _postgres(url, remedy)


def network_files(ground: Ground) -> Iterator[Finding]:
    """See that no SQLite file is on a disk of another machine, whose locks often fail."""
    kind = file_system(ground.settings.home.absolute(), _mounts())
    if kind in _NETWORK:
        sentence = f"the home is on {kind}, where the locks of SQLite often fail"
        yield warning(
            "file system", sentence, "put LONGLINE_HOME on a local disk, or use PostgreSQL"
        )
    else:
        yield ok("file system", f"the home is on {kind or 'a disk of this machine'}")


def file_system(folder: Path, mounts: dict[str, str]) -> str | None:
    """Return the kind of file system that a folder is on, by where each is mounted."""
    above = (str(one) for one in (folder.resolve(), *folder.resolve().parents))
    return next((mounts[one] for one in above if one in mounts), None)


def tables_version(ground: Ground) -> str | None:
    """Return the version of the tables, without making any; None: there are none to be seen."""
    url = _url(ground)
    if url is None:
        return None
    if url.drivername.startswith("sqlite"):
        file = Path(url.database or "")
        return _seen_tables(file) if file.exists() else None
    return _quietly(url, _server_tables)


def database_time(ground: Ground) -> float | None:
    """Return what time it is for the database; None: it has our clock, or does not answer."""
    url = _url(ground)
    if url is None or url.drivername.startswith("sqlite"):
        return None
    return _quietly(url, _server_time)


def connect(url: URL) -> Any:
    """Return a connection to PostgreSQL that gives up soon.

    Raises:
        MissingExtra: its driver is not installed.
    """
    try:
        import psycopg  # noqa: PLC0415  # an optional part
    except ImportError as error:
        raise MissingExtra("postgres", "PostgreSQL as the database") from error
    address = url.set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(address, connect_timeout=_ANSWER, autocommit=True)


def _quietly(url: URL, ask: Callable[[Any], T]) -> T | None:
    """Return what a server answers; None when it does not, which the check of it tells."""
    try:
        with connect(url) as connection:
            return ask(connection)
    except Exception:  # noqa: BLE001  # psycopg's, which may not be there to be named
        return None


def _server_tables(connection: Any) -> str | None:
    has_tables = connection.execute(_FACTS).fetchone()[3]
    return str(connection.execute(_TABLES).fetchone()[0]) if has_tables else None


def _server_time(connection: Any) -> float:
    return float(connection.execute(_CLOCK).fetchone()[0])


def _url(ground: Ground) -> URL | None:
    try:
        return make_url(ground.settings.database)
    except (ArgumentError, ValueError):
        return None


def _sqlite(file: Path) -> Iterator[Finding]:
    if not file.exists():
        yield ok("database", f"SQLite {sqlite3.sqlite_version}; no job was run here yet")
        return
    if is_read_only(file):
        sentence = f"{file} is on a file system that may only be read"
        yield problem("database", sentence, "mount it for writing, or only look at what is there")
        return
    if not os.access(file, os.R_OK | os.W_OK):
        yield problem("database", f"{file} may not be written", f"chown it: chown $USER {file}")
        return
    try:
        version = _sqlite_tables(file)
    except sqlite3.Error as error:
        sentence = f"{file} cannot be read ({error})"
        remedy = "put a copy of it back, or move it away"
        if any(sign in str(error) for sign in _NO_ROOM):
            remedy = "make room on its disk, which SQLite needs to read as well"
        yield problem("database", sentence, remedy)
        return
    about = f"SQLite {sqlite3.sqlite_version}, {file.stat().st_size / 1e6:.1f} MB"
    yield _versioned(about, version)


def _seen_tables(file: Path) -> str | None:
    try:
        return _sqlite_tables(file)
    except sqlite3.Error:
        return None  # which the check of it tells


def _sqlite_tables(file: Path) -> str | None:
    address = f"file:{quote(str(file.absolute()))}?mode=ro"
    with (
        undecodable_is_damage(),
        closing(sqlite3.connect(address, uri=True, timeout=_ANSWER)) as connection,
    ):
        names = "SELECT count(*) FROM sqlite_master WHERE name = 'alembic_version'"
        if not connection.execute(names).fetchone()[0]:
            return None
        return str(connection.execute(_TABLES).fetchone()[0])


def _postgres(url: URL, remedy: str) -> Iterator[Finding]:
    shown = redact_url(url.render_as_string(hide_password=True))
    try:
        with connect(url) as connection:
            yield from _asked(connection, shown)
    except MissingExtra:
        raise
    except Exception as error:  # noqa: BLE001  # psycopg's, which may not be there to be named
        cause = explained(str(error), getattr(error, "sqlstate", None), url)
        yield problem("database", f"{shown} cannot be used: {cause}", remedy)


def _asked(connection: Any, shown: str) -> Iterator[Finding]:
    major = connection.info.server_version // 10000
    if major < OLDEST:
        sentence = f"PostgreSQL {major} at {shown} is too old, {OLDEST} is the oldest that will do"
        yield problem("database", sentence, "upgrade the server")
        return
    size, is_standby, may_create, has_tables = connection.execute(_FACTS).fetchone()
    if is_standby:
        sentence = f"{shown} is a standby, which may only be read"
        yield problem("database", sentence, "give the address of the primary")
        return
    version = connection.execute(_TABLES).fetchone()[0] if has_tables else None
    if version != NEWEST and not may_create:
        sentence = f"{connection.info.user} may not make tables at {shown}"
        grant = f"GRANT CREATE, USAGE ON SCHEMA public TO {connection.info.user}"
        yield problem("database", sentence, grant)
        return
    if has_tables and not connection.execute(_WRITABLE, [_names()]).fetchone()[0]:
        sentence = f"{connection.info.user} may not write all tables at {shown}"
        grant = f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {connection.info.user}"
        yield problem("database", sentence, grant)
        return
    yield _versioned(f"PostgreSQL {major} at {shown}, {size / 1e6:.1f} MB", version)


def _versioned(about: str, version: str | None) -> Finding:
    if version is None:
        return ok("database", f"{about}; its tables are made when they are first needed")
    if version > NEWEST:
        sentence = f"{about}: its tables are version {version}, newer than this longline ({NEWEST})"
        return problem("database", sentence, "upgrade longline")
    if version < NEWEST:
        sentence = f"{about}: its tables are version {version}; {NEWEST} is the newest"
        return warning("database", sentence, "the next command brings them up to date; back up now")
    return ok("database", f"{about}, tables up to date ({version})")


def _names() -> list[str]:
    return [str(table.name) for table in metadata.sorted_tables]


def _mounts() -> dict[str, str]:
    return {one.mountpoint: one.fstype for one in psutil.disk_partitions(all=True)}
