"""Checks of a cluster: its processes, its workers, and work that nobody does."""

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
from longline.services.doctor.base import Finding, Ground, ok, problem, warning
from longline.services.doctor.database import database_time, tables_version
from longline.services.doctor.redis import redis_time
from longline.services.processes import living
from longline.services.record import Entry, RecordFile
from longline.storage.database import open_database
from longline.storage.migrate import NEWEST
from longline.storage.queue.tasks import Task, TaskKind
from longline.storage.schema import chunks, jobs
from longline.storage.store import Store

_PATIENCE = 3.0  # seconds
_OLD = 60.0  # seconds that a chunk or an order may wait while workers have nothing to do
_QUEUES = {TaskKind.EXPORT: "output", TaskKind.FINISHED: "process"}
_WAITING = {  # one, and several
    TaskKind.EXPORT: ("1 export waits", "{} exports wait"),
    TaskKind.FINISHED: (
        "1 source waits to be told that its job is complete",
        "{} sources wait to be told that their jobs are complete",
    ),
}


def own_services(ground: Ground) -> Iterator[Finding]:
    """See that what `longline up` has started still runs, on the ports that are recorded."""
    entries = RecordFile(ground.settings.home.resolve()).read().processes
    for entry in entries:
        if living(entry) is None:
            sentence = (
                f"{entry.name} (process {entry.pid}) was started by `longline up` and is gone"
            )
            yield warning("services", sentence + _taken(entry), f"`longline up`; see {entry.log}")
        elif entry.port is not None and not _answers(entry.port):
            sentence = f"{entry.name} runs (process {entry.pid}), but port {entry.port} is closed"
            yield problem("services", sentence, f"`longline down`, `longline up`; see {entry.log}")
        else:
            port = f" on port {entry.port}" if entry.port else ""
            yield ok("services", f"{entry.name} runs{port} (process {entry.pid})")


def workers(ground: Ground) -> Iterator[Finding]:
    """See that somebody works for this home, when somebody should."""
    broker = _broker(ground)
    found = {} if broker is None else _registered(broker)
    if found is None:
        sentence = "who is there cannot be told while Redis is away"
        yield warning("workers", sentence, "mend that first, and run doctor again")
        return
    if found:
        names = ", ".join(sorted(told.get("name", key) for key, told in found.items()))
        yield ok("workers", f"{len(found)} registered: {names}")
        yield from _idle(ground)
    elif waiting := _waiting(ground):
        wait = "1 job waits" if waiting == 1 else f"{waiting} jobs wait"
        sentence = f"{wait} for workers, and none is registered"
        yield problem("workers", sentence, "start some with `longline up` or `longline worker`")
    elif broker is not None:
        remedy = "`longline up`, or `longline worker`, before `longline run --engine celery`"
        yield warning("workers", "none is registered", remedy)
    if broker is not None:
        yield from _undone(ground, found)


def abandoned_jobs(ground: Ground) -> Iterator[Finding]:
    """See that every job that claims to run is worked on."""
    if tables_version(ground) != NEWEST:
        return
    with closing(open_database(ground.settings.database, patience=_PATIENCE)) as database:
        left = asyncio.run(_abandoned(Store(database)))
    for job in left:
        sentence = f"{job} claims to run, and whoever worked on it is dead"
        yield warning("jobs", sentence, f"`longline resume {job}`")
    if not left:
        yield ok("jobs", "none claims to run that nobody works on")


async def _abandoned(store: Store) -> list[str]:
    now = await store.now()
    found = await store.jobs.list(limit=None, is_open=True)
    # Those of a cluster are looked after by whichever worker there is.
    local = [job for job in found if job.engine == "local"]
    return [job.id for job in local if await is_abandoned(store, job, now)]


def _broker(ground: Ground) -> str | None:
    """Return where workers say that they are there; None: there is no such place."""
    # That the package is missing is told with Redis.
    return ground.settings.broker if find_spec("redis") else None


def _registered(broker: str) -> Mapping[str, Mapping[str, str]] | None:
    """Return the workers that say that they are there; None: Redis is away."""
    from longline.services.workers import presences  # noqa: PLC0415  # needs the extra

    return presences(broker)


def _waiting(ground: Ground) -> int:
    """Return how many jobs of a cluster are not at their end."""
    if tables_version(ground) != NEWEST:
        return 0
    is_open = jobs.c.state.in_([JobState.PENDING, JobState.RUNNING])
    query = select(func.count()).where(is_open, jobs.c.engine == "celery")
    with closing(open_database(ground.settings.database, patience=_PATIENCE)) as database:
        return database.stream(lambda connection: connection.scalar(query)) or 0


def _idle(ground: Ground) -> Iterator[Finding]:
    """Yield chunks that nobody takes although workers are there."""
    if tables_version(ground) != NEWEST:
        return
    with closing(open_database(ground.settings.database, patience=_PATIENCE)) as database:
        now = asyncio.run(Store(database).now())
        old = database.stream(lambda connection: _untaken(connection, now - _OLD))
    if old:
        sentence = f"{old} chunks were offered more than {_OLD:g} s ago and nobody takes any"
        remedy = "see the workers' logs; they need the queue `fetch`, this database and this Redis"
        yield problem("workers", sentence, remedy)


def _untaken(connection: Connection, before: float) -> int:
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


def _undone(ground: Ground, found: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """Yield orders that no worker is there for, or that nobody takes."""
    if tables_version(ground) != NEWEST:
        return
    with closing(open_database(ground.settings.database, patience=_PATIENCE)) as database:
        untaken = asyncio.run(_untaken_orders(Store(database)))
    for kind, (orders, old) in untaken.items():
        queue, (one, several) = _QUEUES[kind], _WAITING[kind]
        # One that does not say what it serves serves everything.
        if orders and not any(queue in told.get("queues", queue) for told in found.values()):
            told = one if orders == 1 else several.format(orders)
            sentence = f"{told}, and no worker serves the queue `{queue}`"
            yield problem("workers", sentence, f"start one with `longline worker --queues {queue}`")
        elif old:
            told = one if old == 1 else several.format(old)
            sentence = f"{told} for more than {_OLD:g} s, and nobody is at any"
            yield problem("workers", sentence, "see the workers' logs")


async def _untaken_orders(store: Store) -> dict[TaskKind, tuple[int, int]]:
    """Return how many orders of each kind nobody is at, and how many of those are old.

    None are old while somebody is at one of the kind: the others wait for that.
    """
    now = await store.now()
    old = {order.name for order in await store.orders.ready(now - _OLD)}
    found: dict[TaskKind, tuple[int, int]] = {}
    ready = await store.orders.ready(now)
    for kind in TaskKind:
        orders = [order for order in ready if order.kind is kind]
        free = [order.name for order in orders if _is_free(order, now)]
        is_busy = len(free) < len(orders)
        found[kind] = len(free), 0 if is_busy else len(old.intersection(free))
    return found


def _is_free(order: Task, now: float) -> bool:
    return order.is_free(now, dead_among([order.owner] if order.owner else []))


def _taken(entry: Entry) -> str:
    is_held = entry.port is not None and _answers(entry.port)
    return f"; another program answers on its port {entry.port}" if is_held else ""


def _answers(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), _PATIENCE):
            return True
    except OSError:
        return False


# ---------------- Checks of clocks: those of this machine, the database and Redis have to agree

_ODD = 1.0  # seconds
_WRONG = 30.0
_COUNTS = {
    "database": "leases go by the database's clock",
    "Redis": "limits go by Redis's clock",
}


def clocks(ground: Ground) -> Iterator[Finding]:
    """See by how much the clocks of a cluster differ."""
    others: dict[str, Callable[[Ground], float | None]] = {
        "database": database_time,
        "Redis": redis_time,
    }
    for name, time_of in others.items():
        ahead = _ahead(ground, time_of)
        if ahead is not None:
            yield _judged(name, ahead)
    if ground.settings.redis is None and ground.settings.database.startswith("sqlite"):
        yield ok("clocks", "all is on this machine, which has one clock")


def _ahead(ground: Ground, time_of: Callable[[Ground], float | None]) -> float | None:
    """Return by how many seconds this machine is ahead; None when there is nothing to compare."""
    before = ground.now()
    there = time_of(ground)
    return None if there is None else (before + ground.now()) / 2 - there


def _judged(name: str, ahead: float) -> Finding:
    direction = "ahead of" if ahead > 0 else "behind"
    sentence = f"this machine's clock is {abs(ahead):.1f} s {direction} that of the {name}"
    sentence = sentence.replace("the Redis", "Redis")
    remedy = f"set both by NTP; {_COUNTS[name]}, times in logs and records by this machine's"
    if abs(ahead) >= _WRONG:
        return problem("clocks", sentence, remedy)
    if abs(ahead) >= _ODD:
        return warning("clocks", sentence, remedy)
    of = "Redis" if name == "Redis" else f"the {name}"
    return ok("clocks", f"this machine's clock and that of {of} agree; {_COUNTS[name]}")
