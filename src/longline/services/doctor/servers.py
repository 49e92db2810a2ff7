"""Checks of the database, of Redis, and of a cluster: processes, workers, clocks, waiting work."""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import psutil
from sqlalchemy import URL, Connection, create_engine, func, inspect, make_url, select, text
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.pool import NullPool

from longline.config.settings import is_read_only
from longline.core.errors import MissingExtra
from longline.core.model import JobState
from longline.core.redaction import redact_server_url, redact_url
from longline.core.sqlite_files import undecodable_is_damage
from longline.engine.owner import is_abandoned
from longline.services.doctor.findings import CheckContext, Finding, ok, problem, warning
from longline.services.processes import LOOPBACK, StateFile, find_process
from longline.services.programs import advisories_for
from longline.storage.backends import OLDEST, explain_failure
from longline.storage.database import NEWEST, Database, open_database
from longline.storage.events.events import wait_for_turn
from longline.storage.queue.tasks import TaskKind
from longline.storage.schema import chunks, jobs, metadata
from longline.storage.store import Store

T = TypeVar("T")
_RESPONSE_TIMEOUT = 3  # seconds
_LOCK_TIMEOUT = "55P03"  # SQLSTATE
_NETWORK_FILE_SYSTEMS = frozenset(
    ["nfs", "nfs4", "cifs", "smbfs", "smb3", "afs", "9p", "glusterfs", "ceph", "fuse.sshfs"]
)
_MAY_CREATE = "SELECT has_schema_privilege(current_schema(), 'CREATE')"
_MAY_WRITE = """SELECT bool_and(has_table_privilege(oid, 'INSERT')
    AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')) FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relname = ANY(:names)"""


# ---------------- The database


def database(context: CheckContext) -> Iterator[Finding]:
    """Check that the database can be read and written, and the version of its schema."""
    url = _parse_url(context)
    if url is None:
        sentence = "the database URL is invalid"
        yield problem("database", sentence, "fix LONGLINE_DATABASE_URL, or unset it to use SQLite")
    elif url.drivername.startswith("sqlite"):
        yield _check_sqlite(url, context.write_timeout)
    else:
        is_ours = context.settings.database_url is None
        remedy = "run `longline up`" if is_ours else "start it, or fix LONGLINE_DATABASE_URL"
        yield _check_postgres(url, remedy, context.write_timeout)


def network_files(context: CheckContext) -> Iterator[Finding]:
    """Check that SQLite files are not on a network file system."""
    mounts = {one.mountpoint: one.fstype for one in psutil.disk_partitions(all=True)}
    kind = file_system(context.settings.home.absolute(), mounts)
    if kind in _NETWORK_FILE_SYSTEMS:
        sentence = f"the home is on {kind}, where SQLite locks often fail"
        remedy = "move LONGLINE_HOME to a local disk, or use PostgreSQL"
        yield warning("file system", sentence, remedy)
    else:
        yield ok("file system", f"the home is on {kind or 'a local disk'}")


def file_system(folder: Path, mounts: dict[str, str]) -> str | None:
    """Return the type of the file system that a folder is on, by mount point."""
    above = (str(one) for one in (folder.resolve(), *folder.resolve().parents))
    return next((mounts[one] for one in above if one in mounts), None)


def _parse_url(context: CheckContext) -> URL | None:
    try:
        return make_url(context.settings.database)
    except (ArgumentError, ValueError):
        return None


@contextmanager
def _connected(url: URL) -> Iterator[Connection]:
    """Connect to a database without creating a file or a table."""
    options = {"connect_timeout": _RESPONSE_TIMEOUT}
    if url.drivername.startswith("sqlite"):
        path = quote(str(Path(url.database or "").absolute()))
        url = make_url(f"sqlite:///file:{path}?mode=ro&uri=true")
        options = {"timeout": _RESPONSE_TIMEOUT}
    else:
        url = url.set(drivername="postgresql+psycopg")
    try:
        engine = create_engine(url, poolclass=NullPool, connect_args=options)
    except ModuleNotFoundError as error:
        raise MissingExtra("postgres", "PostgreSQL as the database") from error
    with undecodable_is_damage(), engine.connect() as connection:
        yield connection


def _schema_version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return str(connection.scalar(text("SELECT version_num FROM alembic_version")))


def _ask(context: CheckContext, query: Callable[[Connection], T]) -> T | None:
    """Return the result of a query; None on errors, which the check of the database reports."""
    url = _parse_url(context)
    try:
        if url is not None:
            with _connected(url) as connection:
                return query(connection)
    except (DBAPIError, sqlite3.Error, MissingExtra):
        pass
    return None


def _check_sqlite(url: URL, seconds: float) -> Finding:
    file = Path(url.database or "")
    about = f"SQLite {sqlite3.sqlite_version}"
    if not file.exists():
        return ok("database", f"{about}; no job has been run yet")
    if is_read_only(file):
        sentence = f"{file} is on a read-only file system"
        remedy = "mount it for writing; until then data can only be read"
        return problem("database", sentence, remedy)
    if not os.access(file, os.R_OK | os.W_OK):
        return problem("database", f"{file} is not writable", f"chown $USER {file}")
    try:
        with _connected(url) as connection:
            version = _schema_version(connection)
    except (DBAPIError, sqlite3.Error) as error:
        cause = getattr(error, "orig", error)
        remedy = "restore a backup, or move the file away; if the disk is full, free some space"
        return problem("database", f"{file} cannot be read ({cause})", remedy)
    about = f"{about}, {file.stat().st_size / 1e6:.1f} MB"
    return _sqlite_lock_problem(file, seconds) or _schema_finding(about, version)


def _sqlite_lock_problem(file: Path, seconds: float) -> Finding | None:
    """Return why the lock that each writer needs cannot be taken; None: it was."""
    address = f"file:{quote(str(file.absolute()))}?mode=rw"
    try:
        with closing(sqlite3.connect(address, seconds, isolation_level=None, uri=True)) as opened:
            opened.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:
        if "locked" not in str(error):
            sentence, remedy = f"{file} cannot be written ({error})", "free some disk space"
        else:
            sentence = f"{file} has been locked by another process for over {seconds:g} s"
            remedy = f"`fuser {file}` lists the processes that have it open"
        return problem("database", sentence, remedy)
    return None


def _check_postgres(url: URL, remedy: str, seconds: float) -> Finding:
    shown = redact_url(url.render_as_string(hide_password=True))
    try:
        with _connected(url) as connection:
            return _check_server(connection, shown, seconds)
    except DBAPIError as error:
        cause = explain_failure(str(error.orig), getattr(error.orig, "sqlstate", None))
        return problem("database", f"{shown} cannot be used: {cause}", remedy)


def _check_server(connection: Connection, shown: str, seconds: float) -> Finding:
    major = int((connection.dialect.server_version_info or (0,))[0])
    if major < OLDEST:
        sentence = f"PostgreSQL {major} at {shown} is too old; {OLDEST} or newer is required"
        return problem("database", sentence, "upgrade the server")
    if connection.scalar(text("SELECT pg_is_in_recovery()")):
        return problem(
            "database", f"{shown} is a read-only standby", "use the address of the primary"
        )
    version = _schema_version(connection)
    user = connection.scalar(text("SELECT current_user"))
    if version != NEWEST and not connection.scalar(text(_MAY_CREATE)):
        sentence = f"{user} has no permission to create tables at {shown}"
        return problem("database", sentence, f"GRANT CREATE, USAGE ON SCHEMA public TO {user}")
    names = [str(table.name) for table in metadata.sorted_tables]
    if version is not None and not connection.scalar(text(_MAY_WRITE), {"names": names}):
        sentence = f"{user} has no permission to write all tables at {shown}"
        return problem("database", sentence, f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}")
    size = connection.scalar(text("SELECT pg_database_size(current_database())"))
    about = f"PostgreSQL {major} at {shown}, {size / 1e6:.1f} MB"
    return _server_lock_problem(connection, shown, seconds) or _schema_finding(about, version)


def _server_lock_problem(connection: Connection, shown: str, seconds: float) -> Finding | None:
    """Return why the lock that each writer needs cannot be taken; None: it was."""
    if connection.scalar(text("SHOW transaction_read_only")) == "on":
        sentence = f"{shown} allows only reading transactions"
        return problem("database", sentence, "unset default_transaction_read_only")
    connection.execute(text(f"SET LOCAL lock_timeout = {int(seconds * 1000)}"))
    try:
        wait_for_turn(connection)
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", None) != _LOCK_TIMEOUT:
            raise
        sentence = f"writers at {shown} have waited for another transaction for over {seconds:g} s"
        return problem("database", sentence, "find it in pg_stat_activity, and end it")
    return None


def _schema_finding(about: str, version: str | None) -> Finding:
    if version is None:
        return ok("database", f"{about}; tables are created on first use")
    if version > NEWEST:
        sentence = f"{about}: schema version {version} is newer than this longline ({NEWEST})"
        return problem("database", sentence, "upgrade longline")
    if version < NEWEST:
        sentence = f"{about}: schema version {version}; {NEWEST} is the newest"
        return warning("database", sentence, "the next command upgrades it; make a backup first")
    return ok("database", f"{about}, schema up to date ({version})")


# ---------------- Redis

_OLDEST_REDIS = 6


def redis(context: CheckContext, *, with_advisories: bool = True) -> Iterator[Finding]:
    """Check the Redis that holds shared limits, and whether its version has known problems."""
    if context.settings.redis is None:
        yield ok("redis", "not used; processes share limits in a file of the home")
    else:
        address, variable = context.settings.redis, "LONGLINE_REDIS_URL"
        yield from _check_redis("redis", address, variable, with_advisories=with_advisories)


def broker(context: CheckContext, *, with_advisories: bool = True) -> Iterator[Finding]:
    """Check the Redis that holds messages, if it is another one."""
    address = context.settings.broker
    if address is not None and address != context.settings.redis:
        variable = "LONGLINE_BROKER_URL"
        yield from _check_redis("broker", address, variable, with_advisories=with_advisories)


def _check_redis(
    about: str, address: str, variable: str, *, with_advisories: bool
) -> Iterator[Finding]:
    if urlsplit(address).scheme not in ("redis", "rediss", "unix"):
        remedy = f"set it, for example {variable}=redis://127.0.0.1:6379/0"
        yield problem(about, "the Redis URL is invalid", remedy)
        return
    connect, errors = _redis_library()
    from longline.limits.backends.redis import permanent_cause  # noqa: PLC0415  # an extra

    where = redact_server_url(address)
    try:
        with connect(address) as server:
            found = server.info("everything")
    except errors as error:
        is_malformed = isinstance(error, ValueError)  # its text may repeat the password
        cause = "invalid URL" if is_malformed else permanent_cause(error, variable)
        reason = cause or f"no response ({' '.join(str(error).split())})"
        sentence = f"Redis at {where} cannot be used: {reason}"
        yield problem(about, sentence, f"start it with `longline up`, or fix {variable}")
        return
    product = "valkey" if "valkey_version" in found else "redis"
    version = str(found.get(f"{product}_version", ""))
    major = str(found.get("redis_version", "")).partition(".")[0]
    if not major.isdigit() or int(major) < _OLDEST_REDIS:
        sentence = f"Redis at {where} has version {version}; {_OLDEST_REDIS} or newer is required"
        yield problem(about, sentence, f"upgrade it, or set {variable} to another server")
        return
    if found.get("role") == "slave":
        sentence = f"Redis at {where} is a read-only replica"
        yield problem(about, sentence, f"set {variable} to its primary")
        return
    if (policy := found.get("maxmemory_policy", "noeviction")) != "noeviction":
        sentence = f"Redis at {where} evicts keys when memory is short ({policy})"
        yield warning(about, sentence, "set maxmemory-policy noeviction")
    for one in advisories_for(product, version) if with_advisories else ():
        sentence = f"{product} {version} at {where} has {one.name}: {one.summary}"
        remedy = (
            f"upgrade it ({', '.join(one.fixed[product])} or newer), or put a newer redis-server "
            "or valkey-server on PATH for `longline up`"
        )
        yield warning(about, sentence, remedy)
    yield ok(about, f"{product.capitalize()} {version} at {where}")


def _redis_library() -> tuple[Callable[[str], Any], Any]:
    """Return the function that connects to Redis, and the errors that it may raise."""
    try:
        from redis.exceptions import RedisError  # noqa: PLC0415  # an optional part

        from longline.services.redis import connect_redis  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra("cluster", "Redis") from error
    # Protocol 2, so that an old server can report its version.
    return partial(connect_redis, protocol=2), (RedisError, OSError, ValueError)


# ---------------- A cluster: its processes, workers, and work that is not done

_MAX_WAIT = 60.0  # seconds that a chunk may wait while workers are idle
_QUEUES = {TaskKind.EXPORT: ("output", "export"), TaskKind.FINISHED: ("process", "finished job")}
"""The queues of tasks that only workers run; servers also run those of proxies."""


def own_services(context: CheckContext) -> Iterator[Finding]:
    """Check that what `longline up` started still runs, on the recorded ports."""
    for entry in StateFile(context.settings.home.resolve()).read().processes:
        where = "" if entry.port is None else f" on port {entry.port}"
        if find_process(entry) is None:
            sentence = f"{entry.name} (process {entry.pid}) has ended"
            yield warning("services", sentence, f"run `longline up`; see {entry.log}")
        elif entry.port is not None and not _is_open(entry.port):
            sentence = f"{entry.name} runs (process {entry.pid}), but port {entry.port} is closed"
            remedy = f"run `longline down` and `longline up`; see {entry.log}"
            yield problem("services", sentence, remedy)
        else:
            yield ok("services", f"{entry.name} runs{where} (process {entry.pid})")


def _is_open(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), _RESPONSE_TIMEOUT):
            return True
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class _WaitingWork:
    """Unfinished jobs of the cluster, chunks that no worker takes, and waiting tasks by kind."""

    jobs: int = 0
    old_chunks: int = 0
    tasks: Mapping[TaskKind, int] = field(default_factory=dict)


def workers(context: CheckContext) -> Iterator[Finding]:
    """Check that workers run when work waits for them."""
    # The check of Redis reports a missing package.
    address = context.settings.broker if find_spec("redis") else None
    found: Mapping[str, Mapping[str, str]] | None = {}
    if address is not None:
        from longline.services.cluster import registered_workers  # noqa: PLC0415  # an extra

        found = registered_workers(address)
    if found is None:
        sentence = "unknown while Redis does not respond"
        yield warning("workers", sentence, "fix that first, and run doctor again")
        return
    waiting = ask_database(context, _waiting_work) or _WaitingWork()
    if found:
        names = ", ".join(sorted(one.get("name", key) for key, one in found.items()))
        yield ok("workers", f"{len(found)} registered: {names}")
    elif waiting.jobs:
        sentence = f"{_waits(waiting.jobs, 'job')} for workers, but none is registered"
        yield problem("workers", sentence, "run `longline up` or `longline worker`")
    elif address is not None:
        remedy = "run `longline up` or `longline worker` before `longline run --engine celery`"
        yield warning("workers", "none is registered", remedy)
    if found and waiting.old_chunks:
        sentence = f"{waiting.old_chunks} chunks have waited for more than {_MAX_WAIT:g} s"
        remedy = "see the workers' logs; they need the queue `fetch`, this database and this Redis"
        yield problem("workers", f"{sentence}, and no worker takes any", remedy)
    known = {kind: count for kind, count in waiting.tasks.items() if kind in _QUEUES}
    for kind, count in known.items() if address else ():
        queue, noun = _QUEUES[kind]
        # A worker that registers no queues serves all of them.
        if not any(queue in each.get("queues", queue) for each in found.values()):
            sentence = f"{_waits(count, noun)}, but no worker serves the queue `{queue}`"
            yield problem("workers", sentence, f"run `longline worker --queues {queue}`")


def _waits(count: int, noun: str) -> str:
    return f"1 {noun} waits" if count == 1 else f"{count} {noun}s wait"


def abandoned_jobs(context: CheckContext) -> Iterator[Finding]:
    """Check that every running job has a process."""
    abandoned = ask_database(context, _abandoned)
    for job in abandoned or ():
        yield warning("jobs", f"the process of {job} has died", f"run `longline resume {job}`")
    if abandoned == []:
        yield ok("jobs", "every running job has a process")


def ask_database(
    context: CheckContext, query: Callable[[Database], Coroutine[Any, Any, T]]
) -> T | None:
    """Return the result of a query; None if the schema is not the newest: nothing is migrated."""
    if _ask(context, _schema_version) != NEWEST:
        return None
    address = context.settings.database
    with closing(open_database(address, timeout=_RESPONSE_TIMEOUT)) as opened:
        return asyncio.run(query(opened))


async def _abandoned(database: Database) -> list[str]:
    store = Store(database)
    now = await store.now()
    found = await store.jobs.list(limit=None, is_open=True)
    # Jobs of a cluster are continued by any worker.
    local = [job for job in found if job.engine == "local"]
    return [job.id for job in local if await is_abandoned(store, job, now)]


async def _waiting_work(database: Database) -> _WaitingWork:
    store = Store(database)
    now = await store.now()
    tasks = Counter(task.kind for task in await store.tasks.ready(now) if task.owner is None)
    is_open = jobs.c.state.in_([JobState.PENDING, JobState.RUNNING])
    open_jobs = select(func.count()).where(is_open, jobs.c.engine == "celery")
    waiting = await database.read(lambda connection: connection.scalar(open_jobs))
    old_chunks = await database.read(lambda one: _count_untaken(one, now - _MAX_WAIT))
    return _WaitingWork(waiting or 0, old_chunks, tasks)


def _count_untaken(connection: Connection, before: float) -> int:
    """Return how many chunks were offered before a time, unless a worker has taken one since."""
    taken = select(func.count()).where(
        (chunks.c.state == "taken") | (chunks.c.taken_at > before) | (chunks.c.finished_at > before)
    )
    if connection.scalar(taken.select_from(chunks)):
        return 0
    running = select(jobs.c.id).where(jobs.c.state == JobState.RUNNING)
    offered = select(func.count()).where(
        chunks.c.state == "offered", chunks.c.offered_at < before, chunks.c.job_id.in_(running)
    )
    return connection.scalar(offered) or 0


# ---------------- Clocks: those of this machine, the database and Redis must agree

_WARNING_SKEW = 1.0  # seconds
_PROBLEM_SKEW = 30.0


def clocks(context: CheckContext) -> Iterator[Finding]:
    """Check how much the clocks of a cluster differ."""
    database_use = "workers use the clock of the database for leases and records"
    for name, use, time_of in (
        ("the database", database_use, _database_time),
        ("Redis", "limits use the clock of Redis", _redis_time),
    ):
        before = context.now()
        there = time_of(context)
        if there is None:
            continue
        ahead = (before + context.now()) / 2 - there
        direction = "ahead of" if ahead > 0 else "behind"
        sentence = f"the clock of this machine is {abs(ahead):.1f} s {direction} that of {name}"
        remedy = f"synchronise both with NTP; {use}, logs and local runs use that of this machine"
        if abs(ahead) >= _PROBLEM_SKEW:
            yield problem("clocks", sentence, remedy)
        elif abs(ahead) >= _WARNING_SKEW:
            yield warning("clocks", sentence, remedy)
        else:
            yield ok("clocks", f"the clocks of this machine and of {name} agree; {use}")
    if context.settings.redis is None and context.settings.database.startswith("sqlite"):
        yield ok("clocks", "everything runs on this machine")


def _database_time(context: CheckContext) -> float | None:
    """Return the time of the database server; None for SQLite, or when it does not respond."""
    if context.settings.database.startswith("sqlite"):
        return None
    clock = text("SELECT extract(epoch FROM clock_timestamp())")
    return _ask(context, lambda connection: float(connection.scalar(clock) or 0))


def _redis_time(context: CheckContext) -> float | None:
    """Return the time of Redis; None when there is none, or it does not respond."""
    address = context.settings.redis
    if address is None or find_spec("redis") is None:
        return None
    connect, errors = _redis_library()
    try:
        with connect(address) as server:
            seconds, microseconds = server.time()
    except errors:
        return None  # another check reports it
    return float(seconds) + float(microseconds) / 1e6
