"""Checks of a cluster: its processes, workers, clocks, and work that is not done."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from importlib.util import find_spec

from sqlalchemy import Connection, func, select

from longline.core.model import JobState
from longline.engine.owner import dead_among, is_abandoned
from longline.services.base import LOOPBACK
from longline.services.doctor.base import CheckContext, Finding, ok, problem, warning
from longline.services.doctor.servers import database_time, redis_time, schema_version
from longline.services.processes import find_process
from longline.services.state import StateFile
from longline.storage.database import open_database
from longline.storage.migrate import NEWEST
from longline.storage.queue.tasks import Task, TaskKind
from longline.storage.schema import chunks, jobs
from longline.storage.store import Store

_CONNECT_TIMEOUT = 3.0  # seconds
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
            yield problem(
                "services", sentence, f"run `longline down` and `longline up`; see {entry.log}"
            )
        else:
            port = f" on port {entry.port}" if entry.port else ""
            yield ok("services", f"{entry.name} runs{port} (process {entry.pid})")


def workers(context: CheckContext) -> Iterator[Finding]:
    """Check that workers run when work waits for them."""
    broker = _broker(context)
    found = {} if broker is None else _registered(broker)
    if found is None:
        sentence = "unknown while Redis does not respond"
        yield warning("workers", sentence, "fix that first, and run doctor again")
        return
    if found:
        names = ", ".join(sorted(one.get("name", key) for key, one in found.items()))
        yield ok("workers", f"{len(found)} registered: {names}")
        yield from _check_chunks(context)
    elif waiting := _count_waiting_jobs(context):
        wait = "1 job waits" if waiting == 1 else f"{waiting} jobs wait"
        sentence = f"{wait} for workers, but none is registered"
        yield problem("workers", sentence, "run `longline up` or `longline worker`")
    elif broker is not None:
        remedy = "run `longline up` or `longline worker` before `longline run --engine celery`"
        yield warning("workers", "none is registered", remedy)
    if broker is not None:
        yield from _check_tasks(context, found)


def abandoned_jobs(context: CheckContext) -> Iterator[Finding]:
    """Check that every running job has a process."""
    if schema_version(context) != NEWEST:
        return
    with closing(open_database(context.settings.database, timeout=_CONNECT_TIMEOUT)) as database:
        abandoned = asyncio.run(_abandoned(Store(database)))
    for job in abandoned:
        yield warning("jobs", f"the process of {job} has died", f"run `longline resume {job}`")
    if not abandoned:
        yield ok("jobs", "every running job has a process")


async def _abandoned(store: Store) -> list[str]:
    now = await store.now()
    found = await store.jobs.list(limit=None, is_open=True)
    # Jobs of a cluster are continued by any worker.
    local = [job for job in found if job.engine == "local"]
    return [job.id for job in local if await is_abandoned(store, job, now)]


def _broker(context: CheckContext) -> str | None:
    """Return the Redis that workers register in; None: there is none."""
    # The check of Redis reports a missing package.
    return context.settings.broker if find_spec("redis") else None


def _registered(broker: str) -> Mapping[str, Mapping[str, str]] | None:
    """Return the registered workers; None when Redis does not respond."""
    from longline.services.workers import registered_workers  # noqa: PLC0415  # needs the extra

    return registered_workers(broker)


def _count_waiting_jobs(context: CheckContext) -> int:
    """Return the number of unfinished jobs of the cluster."""
    if schema_version(context) != NEWEST:
        return 0
    is_open = jobs.c.state.in_([JobState.PENDING, JobState.RUNNING])
    query = select(func.count()).where(is_open, jobs.c.engine == "celery")
    with closing(open_database(context.settings.database, timeout=_CONNECT_TIMEOUT)) as database:
        return database.stream(lambda connection: connection.scalar(query)) or 0


def _check_chunks(context: CheckContext) -> Iterator[Finding]:
    """Report chunks that no worker takes."""
    if schema_version(context) != NEWEST:
        return
    with closing(open_database(context.settings.database, timeout=_CONNECT_TIMEOUT)) as database:
        now = asyncio.run(Store(database).now())
        old = database.stream(lambda connection: _count_untaken(connection, now - _MAX_WAIT))
    if old:
        sentence = (
            f"{old} chunks have waited for more than {_MAX_WAIT:g} s, and no worker takes any"
        )
        remedy = "see the workers' logs; they need the queue `fetch`, this database and this Redis"
        yield problem("workers", sentence, remedy)


def _count_untaken(connection: Connection, before: float) -> int:
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


def _check_tasks(
    context: CheckContext, found: Mapping[str, Mapping[str, str]]
) -> Iterator[Finding]:
    """Report tasks whose queue no worker serves, or that no worker takes."""
    if schema_version(context) != NEWEST:
        return
    with closing(open_database(context.settings.database, timeout=_CONNECT_TIMEOUT)) as database:
        untaken = asyncio.run(_count_tasks(Store(database)))
    for kind, (waiting, old) in untaken.items():
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


async def _count_tasks(store: Store) -> dict[TaskKind, tuple[int, int]]:
    """Return the number of waiting tasks of each kind, and how many of them are old.

    None are old while a worker runs one of the kind: the others wait for it.
    """
    now = await store.now()
    old = {task.name for task in await store.tasks.ready(now - _MAX_WAIT)}
    found: dict[TaskKind, tuple[int, int]] = {}
    ready = await store.tasks.ready(now)
    for kind in TaskKind:
        tasks = [task for task in ready if task.kind is kind]
        free = [task.name for task in tasks if _is_free(task, now)]
        is_busy = len(free) < len(tasks)
        found[kind] = len(free), 0 if is_busy else len(old.intersection(free))
    return found


def _is_free(task: Task, now: float) -> bool:
    return task.is_free(now, dead_among([task.owner] if task.owner else []))


def _is_open(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), _CONNECT_TIMEOUT):
            return True
    except OSError:
        return False


# ---------------- Clocks: those of this machine, the database and Redis must agree

_WARNING_SKEW = 1.0  # seconds
_PROBLEM_SKEW = 30.0
_USES = {
    "the database": "leases use the clock of the database",
    "Redis": "limits use the clock of Redis",
}


def clocks(context: CheckContext) -> Iterator[Finding]:
    """Check how much the clocks of a cluster differ."""
    others: dict[str, Callable[[CheckContext], float | None]] = {
        "the database": database_time,
        "Redis": redis_time,
    }
    for name, time_of in others.items():
        ahead = _ahead(context, time_of)
        if ahead is not None:
            yield _clock_finding(name, ahead)
    if context.settings.redis is None and context.settings.database.startswith("sqlite"):
        yield ok("clocks", "everything runs on this machine")


def _ahead(context: CheckContext, time_of: Callable[[CheckContext], float | None]) -> float | None:
    """Return by how many seconds this machine is ahead; None: there is nothing to compare."""
    before = context.now()
    there = time_of(context)
    return None if there is None else (before + context.now()) / 2 - there


def _clock_finding(name: str, ahead: float) -> Finding:
    direction = "ahead of" if ahead > 0 else "behind"
    sentence = f"the clock of this machine is {abs(ahead):.1f} s {direction} that of {name}"
    remedy = f"synchronise both by NTP; {_USES[name]}, logs and records that of this machine"
    if abs(ahead) >= _PROBLEM_SKEW:
        return problem("clocks", sentence, remedy)
    if abs(ahead) >= _WARNING_SKEW:
        return warning("clocks", sentence, remedy)
    return ok("clocks", f"the clocks of this machine and of {name} agree; {_USES[name]}")
