"""The proof that scheduled runs go on by themselves, whatever is killed.

Once with jobs in child processes of the servers, and once with jobs on cluster workers.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import psutil
from sqlalchemy import ColumnElement, Connection, Table, create_engine, func, select

from children import LONGLINE, Child
from cluster_parts import Cluster, children_of, is_alive, kill_server, open_cluster
from longline.storage.scheduling.launches import MOST_DEATHS
from longline.storage.schema import items, jobs, launches, occurrences, records
from proofs import Figure, Proof, Sizes, at_least, exactly, none, nothing_wrong, unjudged

NAME = "recovery"
_SERVERS = 2
_ITEMS = 10
_EVERY = 120  # seconds between two runs of a source
_PAUSE = (2.0, 6.0)  # seconds between two kills
_DOWN = (0.2, 4.0)  # seconds until a killed server is started again
_PATIENCE = 600.0  # seconds in which everything that is due ends, once nothing is killed
_POLL = 1.0
_WORKERS = 2
_CHILDREN = 2  # processes of each worker
_WEIGHTS = {"server": 4, "job process": 8, "Redis": 2, "PostgreSQL": 2}
_WORKER_WEIGHTS = {"worker": 4, "child of a worker": 8}
_SOURCE = '''"""A source without a web."""
import asyncio
from longline import Item, Source, layer


class Scheduled(Source):
    """Ten things."""

    name = "{name}"

    async def discover(self, visit):
        for number in range({items}):
            yield Item(str(number), f"https://{name}.test/{{number}}")

    @layer()
    async def page(self, visit):
        await asyncio.sleep(0.2)
        return {{"title": f"{name} {{visit.item.key}}"}}
'''


def prove(sizes: Sizes) -> Proof:
    """Kill servers, job processes, workers, Redis and PostgreSQL while schedules fire."""
    figures = [*_try_engine("local", sizes), *_try_engine("celery", sizes)]
    about = (
        f"{sizes.recovery_sources} sources, each scheduled every {_EVERY} s, on PostgreSQL and "
        f"Redis with {_SERVERS} servers (`longline serve`), which run jobs in child processes "
        f"(local), and then on {_WORKERS} workers with {_CHILDREN} processes each (celery). For "
        f"{sizes.recovery_minutes:g} minutes of each, a server, a job process, a worker, a child "
        "of one, Redis or PostgreSQL is killed with SIGKILL every few seconds; only killed "
        "servers and workers are started again, as a service manager does. Then the schedules are "
        "removed from the settings file, and everything that was due has to end."
    )
    return Proof(NAME, about, figures)


def _try_engine(engine: str, sizes: Sizes) -> list[Figure]:
    with open_cluster() as cluster:
        trial = _Trial(cluster, sizes, engine)
        trial.run()
        return [replace(one, name=f"{engine}: {one.name}") for one in trial.figures()]


class _Trial:
    def __init__(self, cluster: Cluster, sizes: Sizes, engine: str) -> None:
        self._cluster = cluster
        self._engine = engine
        self._weights = _WEIGHTS | (_WORKER_WEIGHTS if engine == "celery" else {})
        self._sizes = sizes
        self._chance = random.Random(sizes.seed)
        self._file = cluster.folder / "longline.yaml"
        self._servers: list[Child] = []
        self._kills: Counter[str] = Counter()
        self._waited = 0.0

    def run(self) -> None:
        self._write_sources()
        if self._engine == "celery":
            for number in range(_WORKERS):
                self._cluster.hire(f"w{number}", _CHILDREN, more=self._settings)
            self._cluster.await_workers()
        for _ in range(_SERVERS):
            self._servers.append(self._serve())
        end = time.monotonic() + 60 * self._sizes.recovery_minutes
        while time.monotonic() < end:
            time.sleep(self._chance.uniform(*_PAUSE))
            self._kill()
        self._file.write_text("executor_jobs: 4\n")  # without schedules
        began = time.monotonic()
        while self._count()["open"] and time.monotonic() - began < _PATIENCE:
            time.sleep(_POLL)
        self._waited = time.monotonic() - began

    def figures(self) -> list[Figure]:
        found = self._count()
        wanted = self._sizes.recovery_sources * _ITEMS
        kills = ", ".join(f"{count} of {name}" for name, count in sorted(self._kills.items()))
        return [
            unjudged("killed", kills),
            at_least("runs", found["launches"], self._sizes.recovery_sources),
            none("runs that did not end", found["open"]),
            nothing_wrong("runs ended as complete", self._incomplete()),
            none("fired occurrences without exactly one run", found["unmatched"]),
            none("jobs that are not complete", found["open_jobs"]),
            exactly("records", found["records"], wanted),
            none("records stored twice", found["doubled"]),
            unjudged("seconds until everything had ended", f"{self._waited:.0f}"),
        ]

    def _write_sources(self) -> None:
        folder = self._cluster.folder / "scheduled"
        folder.mkdir()
        lines = ["executor_jobs: 4", "schedules:"]
        for number in range(self._sizes.recovery_sources):
            name = f"s{number:02}"
            path = folder / f"{name}.py"
            path.write_text(_SOURCE.format(name=name, items=_ITEMS))
            lines.append(f"  {name}: {{source: {path}, every: {_EVERY}s}}")
        self._file.write_text("\n".join([*lines, ""]))

    @property
    def _settings(self) -> dict[str, str]:
        return {"LONGLINE_CONFIG": str(self._file), "LONGLINE_ENGINE": self._engine}

    def _serve(self) -> Child:
        return self._cluster.start([LONGLINE, "serve", "--no-web"], self._settings)

    def _kill(self) -> None:
        names, weights = zip(*self._weights.items(), strict=True)
        (name,) = self._chance.choices(names, weights)
        down = self._chance.uniform(*_DOWN)
        if name == "server":
            place = self._chance.randrange(_SERVERS)
            self._servers[place].process.kill()
            time.sleep(down)
            self._servers[place] = self._serve()
        elif name == "job process":
            if not self._kill_job_process():
                return
        elif name == "worker":
            worker = f"w{self._chance.randrange(_WORKERS)}"
            self._cluster.remember()
            self._cluster.workers[worker].process.kill()
            time.sleep(down)
            self._cluster.hire(worker, _CHILDREN, more=self._settings)
        elif name == "child of a worker":
            worker = f"w{self._chance.randrange(_WORKERS)}"
            below = children_of(self._cluster.workers[worker].process.pid)
            if not self._kill_one_of([psutil.Process(pid) for pid in below if is_alive(pid)]):
                return
        elif name == "Redis":
            kill_server(self._cluster.redis)
            time.sleep(down)
            self._cluster.redis.start()
        elif self._cluster.postgres is not None:
            kill_server(self._cluster.postgres)
            time.sleep(down)
            self._cluster.postgres.start()
        self._kills[name] += 1

    def _kill_one_of(self, found: Sequence[psutil.Process]) -> bool:
        """Kill one of the processes; False if there is none."""
        if found:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._chance.choice(found).kill()
        return bool(found)

    def _kill_job_process(self) -> bool:
        """Kill a job process, unless a launch would be given up for it, as it should be."""
        query = select(func.count()).where(
            launches.c.state != "ended", launches.c.deaths >= MOST_DEATHS - 1
        )
        with self._connected() as connection:
            if connection.scalar(query):
                return False
        found = []
        for server in self._servers:
            with contextlib.suppress(psutil.NoSuchProcess):
                found += psutil.Process(server.process.pid).children()
        return self._kill_one_of(found)

    def _count(self) -> dict[str, int]:
        """Judge the database without the code that wrote it."""
        with self._connected() as connection:
            return _judge(connection)

    def _incomplete(self) -> list[str]:
        columns = launches.c
        query = select(columns.id, columns.result, columns.reason).where(
            columns.state == "ended", columns.result != "complete"
        )
        with self._connected() as connection:
            return [
                f"launch {row.id}: {row.result}, {row.reason}" for row in connection.execute(query)
            ]

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Connection]:
        engine = create_engine(self._cluster.database_url)
        try:
            with engine.connect() as connection:
                yield connection
        finally:
            engine.dispose()


def _judge(connection: Connection) -> dict[str, int]:
    ended = launches.c.state == "ended"
    is_fired = occurrences.c.fate == "fired"
    runs = Counter(connection.scalars(select(occurrences.c.launch_id).where(is_fired)))
    known = set(connection.scalars(select(launches.c.id)))
    stored_again = (
        select(jobs.c.source, items.c.key)
        .join(jobs, jobs.c.id == items.c.job_id)
        .where(items.c.state == "stored")
        .group_by(jobs.c.source, items.c.key)
        .having(func.count() > 1)
    )

    def number(table: Table, *conditions: ColumnElement[bool]) -> int:
        query = select(func.count()).select_from(table).where(*conditions)
        return int(connection.scalar(query) or 0)

    return {
        "launches": len(known),
        "open": number(launches, ~ended),
        "unmatched": sum(count != 1 for count in runs.values()) + len(known ^ runs.keys()),
        "open_jobs": number(jobs, jobs.c.state != "complete"),
        "records": number(records),
        "doubled": len(connection.execute(stored_again).all())
        + number(records, records.c.version > 1),
    }
