"""Checks of the database, of Redis, and of a cluster: processes, workers, clocks, waiting work."""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import psutil
from sqlalchemy import URL, Connection, func, make_url, select
from sqlalchemy.exc import ArgumentError

from longline.config.settings import is_read_only
from longline.core.errors import MissingExtra
from longline.core.model import JobState
from longline.core.redaction import redact_server_url, redact_url
from longline.core.sqlite_files import undecodable_is_damage
from longline.engine.owner import dead_among, is_abandoned
from longline.services.doctor.findings import CheckContext, Finding, ok, problem, warning
from longline.services.processes import LOOPBACK, StateFile, find_process
from longline.services.programs import advisories_for
from longline.storage.backends import OLDEST, explain_failure
from longline.storage.database import NEWEST, Database, open_database
from longline.storage.queue.tasks import Task, TaskKind
from longline.storage.schema import chunks, jobs, metadata
from longline.storage.store import Store

T = TypeVar("T")
_RESPONSE_TIMEOUT = 3  # seconds
_NETWORK_FILE_SYSTEMS = frozenset(
    ["nfs", "nfs4", "cifs", "smbfs", "smb3", "afs", "9p", "glusterfs", "ceph", "fuse.sshfs"]
)
_DISK_FULL_TEXTS = ("disk I/O error", "disk is full")
_SCHEMA_VERSION = "SELECT version_num FROM alembic_version"
_FACTS = """SELECT pg_database_size(current_database()), pg_is_in_recovery(),
    has_schema_privilege(current_schema(), 'CREATE'), to_regclass('alembic_version') IS NOT NULL"""
_CLOCK = "SELECT extract(epoch FROM clock_timestamp())"
_WRITABLE = """SELECT bool_and(has_table_privilege(oid, 'INSERT')
    AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')) FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relname = ANY(%s)"""


def database(context: CheckContext) -> Iterator[Finding]:
    """Check that the database can be used, and the version of its schema."""
    url = _parse_url(context)
    if url is None:
        sentence = "the database URL is invalid"
        yield problem("database", sentence, "fix LONGLINE_DATABASE_URL, or unset it to use SQLite")
    elif url.drivername.startswith("sqlite"):
        yield _check_sqlite(Path(url.database or ""))
    else:
        is_ours = context.settings.database_url is None
        remedy = "run `longline up`" if is_ours else "start it, or fix LONGLINE_DATABASE_URL"
        yield from _check_postgres(url, remedy)


def network_files(context: CheckContext) -> Iterator[Finding]:
    """Check that SQLite files are not on a network file system."""
    mounts = {one.mountpoint: one.fstype for one in psutil.disk_partitions(all=True)}
    kind = file_system(context.settings.home.absolute(), mounts)
    if kind in _NETWORK_FILE_SYSTEMS:
        sentence = f"the home is on {kind}, where SQLite locks often fail"
        yield warning(
            "file system", sentence, "move LONGLINE_HOME to a local disk, or use PostgreSQL"
        )
    else:
        yield ok("file system", f"the home is on {kind or 'a local disk'}")


def file_system(folder: Path, mounts: dict[str, str]) -> str | None:
    """Return the type of the file system that a folder is on, by mount point."""
    above = (str(one) for one in (folder.resolve(), *folder.resolve().parents))
    return next((mounts[one] for one in above if one in mounts), None)


def schema_version(context: CheckContext) -> str | None:
    """Return the version of the schema without creating it; None: there is none."""
    url = _parse_url(context)
    if url is None:
        return None
    if url.drivername.startswith("sqlite"):
        file = Path(url.database or "")
        if not file.exists():
            return None
        try:
            return _sqlite_schema_version(file)
        except sqlite3.Error:
            return None  # the check of the database reports it
    return _ask(url, _postgres_schema_version)


def database_time(context: CheckContext) -> float | None:
    """Return the time of the database server; None for SQLite, or when it does not respond."""
    url = _parse_url(context)
    if url is None or url.drivername.startswith("sqlite"):
        return None
    return _ask(url, lambda one: float(one.execute(_CLOCK).fetchone()[0]))


def _connect_postgres(url: URL) -> Any:
    try:
        from longline.services.postgres import connect_postgres  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise MissingExtra("postgres", "PostgreSQL as the database") from error
    return connect_postgres(url)


def _ask(url: URL, query: Callable[[Any], T]) -> T | None:
    """Return the result of a query; None on errors, which the check of the database reports."""
    try:
        with _connect_postgres(url) as connection:
            return query(connection)
    except Exception:  # noqa: BLE001  # errors of psycopg, which is optional
        return None


def _postgres_schema_version(connection: Any) -> str | None:
    has_tables = connection.execute(_FACTS).fetchone()[3]
    return str(connection.execute(_SCHEMA_VERSION).fetchone()[0]) if has_tables else None


def _parse_url(context: CheckContext) -> URL | None:
    try:
        return make_url(context.settings.database)
    except (ArgumentError, ValueError):
        return None


def _check_sqlite(file: Path) -> Finding:
    if not file.exists():
        return ok("database", f"SQLite {sqlite3.sqlite_version}; no job has been run yet")
    if is_read_only(file):
        sentence = f"{file} is on a read-only file system"
        return problem(
            "database", sentence, "mount it for writing; until then data can only be read"
        )
    if not os.access(file, os.R_OK | os.W_OK):
        return problem("database", f"{file} is not writable", f"chown $USER {file}")
    try:
        version = _sqlite_schema_version(file)
    except sqlite3.Error as error:
        sentence = f"{file} cannot be read ({error})"
        remedy = "restore a backup, or move the file away"
        if any(text in str(error) for text in _DISK_FULL_TEXTS):
            remedy = "free disk space, which SQLite needs for reading too"
        return problem("database", sentence, remedy)
    about = f"SQLite {sqlite3.sqlite_version}, {file.stat().st_size / 1e6:.1f} MB"
    return _schema_finding(about, version)


def _sqlite_schema_version(file: Path) -> str | None:
    address = f"file:{quote(str(file.absolute()))}?mode=ro"
    with (
        undecodable_is_damage(),
        closing(sqlite3.connect(address, uri=True, timeout=_RESPONSE_TIMEOUT)) as connection,
    ):
        names = "SELECT count(*) FROM sqlite_master WHERE name = 'alembic_version'"
        if not connection.execute(names).fetchone()[0]:
            return None
        return str(connection.execute(_SCHEMA_VERSION).fetchone()[0])


def _check_postgres(url: URL, remedy: str) -> Iterator[Finding]:
    shown = redact_url(url.render_as_string(hide_password=True))
    try:
        with _connect_postgres(url) as connection:
            yield _check_server(connection, shown)
    except MissingExtra:
        raise
    except Exception as error:  # noqa: BLE001  # errors of psycopg, which is optional
        cause = explain_failure(str(error), getattr(error, "sqlstate", None))
        yield problem("database", f"{shown} cannot be used: {cause}", remedy)


def _check_server(connection: Any, shown: str) -> Finding:
    major = connection.info.server_version // 10000
    if major < OLDEST:
        sentence = f"PostgreSQL {major} at {shown} is too old; {OLDEST} or newer is required"
        return problem("database", sentence, "upgrade the server")
    size, is_standby, may_create, has_tables = connection.execute(_FACTS).fetchone()
    if is_standby:
        sentence = f"{shown} is a read-only standby"
        return problem("database", sentence, "use the address of the primary")
    version = connection.execute(_SCHEMA_VERSION).fetchone()[0] if has_tables else None
    if version != NEWEST and not may_create:
        sentence = f"{connection.info.user} has no permission to create tables at {shown}"
        grant = f"GRANT CREATE, USAGE ON SCHEMA public TO {connection.info.user}"
        return problem("database", sentence, grant)
    names = [str(table.name) for table in metadata.sorted_tables]
    if has_tables and not connection.execute(_WRITABLE, [names]).fetchone()[0]:
        sentence = f"{connection.info.user} has no permission to write all tables at {shown}"
        grant = f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {connection.info.user}"
        return problem("database", sentence, grant)
    return _schema_finding(f"PostgreSQL {major} at {shown}, {size / 1e6:.1f} MB", version)


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


def redis(context: CheckContext) -> Iterator[Finding]:
    """Check the Redis that holds shared limits."""
    if context.settings.redis is None:
        yield ok("redis", "not used; processes share limits in a file of the home")
        return
    yield from _check_redis("redis", context.settings.redis, "LONGLINE_REDIS_URL")


def broker(context: CheckContext) -> Iterator[Finding]:
    """Check the Redis that holds messages, if it is another one."""
    address = context.settings.broker
    if address is None or address == context.settings.redis:
        return
    yield from _check_redis("broker", address, "LONGLINE_BROKER_URL")


def redis_time(context: CheckContext) -> float | None:
    """Return the time of Redis; None when there is none, or it does not respond."""
    address = context.settings.redis
    if address is None:
        return None
    if find_spec("redis") is None:
        return None  # another check reports it
    connect, errors = _redis_library()
    try:
        with connect(address) as server:
            seconds, microseconds = server.time()
    except errors:
        return None  # another check reports it
    return float(seconds) + float(microseconds) / 1e6


def _check_redis(about: str, address: str, variable: str) -> Iterator[Finding]:
    if urlsplit(address).scheme not in ("redis", "rediss", "unix"):
        sentence = "the Redis URL is invalid"
        yield problem(about, sentence, f"set it like {variable}=redis://127.0.0.1:6379/0")
        return
    connect, errors = _redis_library()
    from longline.limits.backends.redis import permanent_cause  # noqa: PLC0415

    try:
        with connect(address) as server:
            found = server.info("everything")
    except errors as error:
        is_malformed = isinstance(error, ValueError)  # its text may repeat the password
        cause = "invalid URL" if is_malformed else permanent_cause(error, variable)
        text = cause or f"no response ({' '.join(str(error).split())})"
        sentence = f"Redis at {redact_server_url(address)} cannot be used: {text}"
        yield problem(about, sentence, f"start it with `longline up`, or fix {variable}")
        return
    yield from _check_info(about, redact_server_url(address), found, variable)


def _check_info(
    about: str, where: str, found: Mapping[str, Any], variable: str
) -> Iterator[Finding]:
    version = str(found.get("redis_version", ""))
    major = version.partition(".")[0]
    if not major.isdigit() or int(major) < _OLDEST_REDIS:
        sentence = f"Redis at {where} has version {version}; {_OLDEST_REDIS} or newer is required"
        yield problem(about, sentence, f"upgrade it, or name another in {variable}")
        return
    if found.get("role") == "slave":
        sentence = f"Redis at {where} is a read-only replica"
        yield problem(about, sentence, f"set {variable} to its primary")
        return
    policy = found.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        sentence = f"Redis at {where} evicts keys when memory is short ({policy})"
        remedy = "set maxmemory-policy noeviction"
        yield warning(about, sentence, remedy)
    product = "valkey" if "valkey_version" in found else "redis"
    version = str(found.get(f"{product}_version", ""))
    for one in advisories_for(product, version):
        sentence = f"{product} {version} at {where} has {one.name}: {one.summary}"
        versions = ", ".join(one.fixed[product])
        remedy = (
            f"upgrade it ({versions} or newer), or put a newer redis-server or valkey-server on "
            "PATH for `longline up`"
        )
        yield warning(about, sentence, remedy)
    if found.get("rdb_last_bgsave_status", "ok") != "ok":
        sentence = f"Redis at {where} could not save to disk and may refuse writes"
        yield warning(about, sentence, "free disk space, or disable saving: save ''")
    persistence = "persistent" if found.get("aof_enabled") else "not persistent, which is fine"
    yield ok(about, f"{product.capitalize()} {version} at {where}, {persistence}")


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

_MAX_WAIT = 60.0  # seconds that a chunk or a task may wait while workers are idle
_QUEUES = {TaskKind.EXPORT: "output", TaskKind.FINISHED: "process"}
_WAITING = {  # one, and several
    TaskKind.EXPORT: ("1 export waits", "{} exports wait"),
    TaskKind.FINISHED: (
        "1 source waits for its `finished` call",
        "{} sources wait for their `finished` call",
    ),
}


def own_services(context: CheckContext) -> Iterator[Finding]:
    """Check that what `longline up` started still runs, on the recorded ports."""
    entries = StateFile(context.settings.home.resolve()).read().processes
    for entry in entries:
        if find_process(entry) is None:
            sentence = f"{entry.name} (process {entry.pid}) has ended"
            if entry.port is not None and _is_open(entry.port):
                sentence += f"; another program uses its port {entry.port}"
            yield warning("services", sentence, f"run `longline up`; see {entry.log}")
        elif entry.port is not None and not _is_open(entry.port):
            sentence = f"{entry.name} runs (process {entry.pid}), but port {entry.port} is closed"
            remedy = f"run `longline down` and `longline up`; see {entry.log}"
            yield problem("services", sentence, remedy)
        else:
            port = f" on port {entry.port}" if entry.port else ""
            yield ok("services", f"{entry.name} runs{port} (process {entry.pid})")


def _is_open(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), _RESPONSE_TIMEOUT):
            return True
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class _WaitingWork:
    """Unfinished jobs of the cluster, chunks that no worker takes, and tasks by kind.

    Of tasks, the number that wait, and how many of them are old.
    """

    jobs: int = 0
    old_chunks: int = 0
    tasks: Mapping[TaskKind, tuple[int, int]] = field(default_factory=dict)


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
    waiting = _ask_database(context, _waiting_work) or _WaitingWork()
    if found:
        names = ", ".join(sorted(one.get("name", key) for key, one in found.items()))
        yield ok("workers", f"{len(found)} registered: {names}")
    elif waiting.jobs:
        wait = "1 job waits" if waiting.jobs == 1 else f"{waiting.jobs} jobs wait"
        sentence = f"{wait} for workers, but none is registered"
        yield problem("workers", sentence, "run `longline up` or `longline worker`")
    elif address is not None:
        remedy = "run `longline up` or `longline worker` before `longline run --engine celery`"
        yield warning("workers", "none is registered", remedy)
    if found and waiting.old_chunks:
        sentence = f"{waiting.old_chunks} chunks have waited for more than {_MAX_WAIT:g} s"
        remedy = "see the workers' logs; they need the queue `fetch`, this database and this Redis"
        yield problem("workers", f"{sentence}, and no worker takes any", remedy)
    if address is not None:
        yield from _check_tasks(waiting.tasks, found)


def _check_tasks(
    tasks: Mapping[TaskKind, tuple[int, int]], found: Mapping[str, Mapping[str, str]]
) -> Iterator[Finding]:
    """Report tasks whose queue no worker serves, or that no worker takes."""
    for kind, (waiting, old) in tasks.items():
        queue, (one, several) = _QUEUES[kind], _WAITING[kind]
        # A worker that registers no queues serves all of them.
        if waiting and not any(queue in each.get("queues", queue) for each in found.values()):
            count = one if waiting == 1 else several.format(waiting)
            sentence = f"{count}, but no worker serves the queue `{queue}`"
            yield problem("workers", sentence, f"run `longline worker --queues {queue}`")
        elif old:
            count = one if old == 1 else several.format(old)
            sentence = f"{count} for more than {_MAX_WAIT:g} s, and no worker takes any"
            yield problem("workers", sentence, "see the workers' logs")


def abandoned_jobs(context: CheckContext) -> Iterator[Finding]:
    """Check that every running job has a process."""
    abandoned = _ask_database(context, _abandoned)
    for job in abandoned or ():
        yield warning("jobs", f"the process of {job} has died", f"run `longline resume {job}`")
    if abandoned == []:
        yield ok("jobs", "every running job has a process")


def _ask_database(
    context: CheckContext, query: Callable[[Database], Coroutine[Any, Any, T]]
) -> T | None:
    """Return the result of a query; None if the schema is not the newest: nothing is migrated."""
    if schema_version(context) != NEWEST:
        return None
    address = context.settings.database
    with closing(open_database(address, timeout=_RESPONSE_TIMEOUT)) as database:
        return asyncio.run(query(database))


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
    old = {task.name for task in await store.tasks.ready(now - _MAX_WAIT)}
    ready = await store.tasks.ready(now)
    tasks: dict[TaskKind, tuple[int, int]] = {}
    for kind in TaskKind:
        own = [task for task in ready if task.kind is kind]
        free = [task.name for task in own if _is_free(task, now)]
        # None are old while a worker runs one of the kind: the others wait for it.
        is_busy = len(free) < len(own)
        tasks[kind] = len(free), 0 if is_busy else len(old.intersection(free))
    is_open = jobs.c.state.in_([JobState.PENDING, JobState.RUNNING])
    open_jobs = select(func.count()).where(is_open, jobs.c.engine == "celery")
    waiting = await database.read(lambda connection: connection.scalar(open_jobs))
    old_chunks = await database.read(lambda one: _count_untaken(one, now - _MAX_WAIT))
    return _WaitingWork(waiting or 0, old_chunks, tasks)


def _is_free(task: Task, now: float) -> bool:
    return task.is_free(now, dead_among([task.owner] if task.owner else []))


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
    for name, use, time_of in (
        ("the database", "leases use the clock of the database", database_time),
        ("Redis", "limits use the clock of Redis", redis_time),
    ):
        before = context.now()
        there = time_of(context)
        if there is None:
            continue
        ahead = (before + context.now()) / 2 - there
        direction = "ahead of" if ahead > 0 else "behind"
        sentence = f"the clock of this machine is {abs(ahead):.1f} s {direction} that of {name}"
        remedy = f"synchronise both by NTP; {use}, logs and records that of this machine"
        if abs(ahead) >= _PROBLEM_SKEW:
            yield problem("clocks", sentence, remedy)
        elif abs(ahead) >= _WARNING_SKEW:
            yield warning("clocks", sentence, remedy)
        else:
            yield ok("clocks", f"the clocks of this machine and of {name} agree; {use}")
    if context.settings.redis is None and context.settings.database.startswith("sqlite"):
        yield ok("clocks", "everything runs on this machine")
