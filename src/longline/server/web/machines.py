"""The machines of a home, and the processes of longline on them: servers and workers.

Memory and disk are known of the machine of this server; of others, only what their processes have
registered in the database and in Redis.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from longline.config.settings import Settings
from longline.core.errors import LonglineError
from longline.engine.owner import process_of, this_host
from longline.server.web.context import Web
from longline.services.background import SILENT, last_heartbeat, server_pids
from longline.services.processes import ServiceStatus, has_cluster, sqlite_status
from longline.storage.scheduling.launches import Launch, LaunchState
from longline.storage.workers import RegisteredWorker

_MOST_LAUNCHES = 500  # running launches that are counted
_FULL = 0.95  # share from which memory or a disk is in trouble
_LITTLE = 0.85


@dataclass(frozen=True, slots=True)
class Amount:
    """A part of memory or of a disk that is used, in bytes."""

    used: float
    total: float

    @property
    def share(self) -> float:
        """The used share."""
        return self.used / self.total if self.total else 0.0

    @property
    def level(self) -> str:
        """How much it needs attention: ok, warn or bad."""
        return "bad" if self.share >= _FULL else "warn" if self.share >= _LITTLE else "ok"


@dataclass(frozen=True, slots=True)
class Load:
    """The state of the machine of this server; `load` is its load average over a minute."""

    cores: int
    load: float
    memory: Amount
    disk: Amount


@dataclass(frozen=True, slots=True)
class ServerLine:
    """A process that runs launches; what is not known of another machine is None."""

    machine: str
    pid: int | None
    is_silent: bool
    launches: Sequence[Launch] = ()
    is_this: bool = False
    beaten_at: float | None = None
    started_at: float | None = None
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerLine:
    """A worker of a cluster, as it is registered; what Redis does not say is None."""

    name: str
    machine: str
    pid: int | None
    is_alive: bool
    processes: str | None
    queues: str | None
    chunks: int | None
    last_taken_at: float | None
    started_at: float | None
    memory: int | None


@dataclass(frozen=True, slots=True)
class Machines:
    """What runs where; `load` is that of `here`."""

    here: str
    load: Load
    servers: Sequence[ServerLine]
    workers: Sequence[WorkerLine]
    services: Sequence[ServiceStatus] = ()
    trouble: str | None = None
    names: Sequence[str] = ()


async def read_summary(web: Web) -> dict[str, Any]:
    """Return the load of this machine, and how many servers and workers are alive."""
    store, now = web.store, web.clock.now()
    owners = set(await store.launches.owners())
    workers = sum(one.until >= now for one in await store.workers.list())

    def read() -> dict[str, Any]:
        home, mark = web.settings.home.absolute(), this_host()
        beats = (last_heartbeat(home, pid) for pid in server_pids(home))
        here = sum(now - (at or 0.0) <= SILENT for at in beats)
        others = {
            (one.partition(":")[0], process_of(one))
            for one in owners
            if not one.startswith(f"{mark}:")
        }
        return {
            "here": _host_name(mark),
            "load": read_load(web.settings),
            "servers": here + len(others),
            "workers": workers,
        }

    return await asyncio.to_thread(read)


async def read_machines(web: Web, *, with_services: bool = False) -> Machines:
    """Return the machines; `with_services` also asks Redis and the database server."""
    store, now = web.store, web.clock.now()
    running = [
        one
        for one in await store.launches.list(is_open=True, limit=_MOST_LAUNCHES)
        if one.state is LaunchState.RUNNING and one.owner is not None
    ]
    registered = await store.workers.list()
    load, servers, (statuses, trouble) = await asyncio.to_thread(
        lambda: (
            read_load(web.settings),
            _servers(web.settings, running, now),
            _statuses(web.settings) if with_services else ([], None),
        )
    )
    workers = _workers(registered, statuses, now)
    here = _host_name(this_host())
    others = {one.machine for one in servers} | {one.machine for one in workers}
    return Machines(
        here,
        load,
        servers,
        workers,
        [one for one in statuses if not one.name.startswith("worker")],
        trouble,
        [here, *sorted(others - {here})],
    )


def read_load(settings: Settings) -> Load:
    """Return the memory, the load and the disk of the home of this machine."""
    memory = psutil.virtual_memory()
    disk = shutil.disk_usage(_existing(settings.home.absolute()))
    return Load(
        os.cpu_count() or 1,
        os.getloadavg()[0],
        Amount(memory.total - memory.available, memory.total),
        Amount(disk.used, disk.used + disk.free),
    )


def _existing(folder: Path) -> Path:
    return next((one for one in (folder, *folder.parents) if one.exists()), Path("/"))


def _servers(settings: Settings, running: Sequence[Launch], now: float) -> list[ServerLine]:
    home = settings.home.absolute()
    here = _host_name(this_host())
    by_process: dict[tuple[str, int | None], list[Launch]] = {}
    for one in running:
        owner = one.owner or ""
        by_process.setdefault((owner.partition(":")[0], process_of(owner)), []).append(one)
    found = [
        replace(line, launches=by_process.pop((this_host(), pid), []))
        for pid in server_pids(home)
        if (line := _server_here(home, pid, here, now)) is not None
    ]
    for (host, other), launches in sorted(by_process.items(), key=str):
        until = max(one.until or 0.0 for one in launches)
        found.append(ServerLine(_host_name(host), other, until < now, launches))
    return found


def _server_here(home: Path, pid: int, here: str, now: float) -> ServerLine | None:
    try:
        process = psutil.Process(pid)
        started_at = process.create_time()
        memory = process.memory_info().rss
        for child in process.children(recursive=True):
            with suppress(psutil.Error):
                memory += child.memory_info().rss
    except psutil.Error:  # it has ended, and left its file
        return None
    beaten_at = last_heartbeat(home, pid)
    is_silent = now - (beaten_at or 0.0) > SILENT
    return ServerLine(
        here,
        pid,
        is_silent,
        is_this=pid == os.getpid(),
        beaten_at=beaten_at,
        started_at=started_at,
        memory=memory,
    )


def _statuses(settings: Settings) -> tuple[list[ServiceStatus], str | None]:
    """Return the services of a home, and why they are not known."""
    if not has_cluster(settings) or find_spec("redis") is None:
        database = sqlite_status(settings)
        return ([] if database is None else [database]), None
    from longline.services.cluster import status  # noqa: PLC0415  # needs Redis, an extra

    try:
        return status(settings), None
    except LonglineError as error:
        return [], str(error)


def _workers(
    registered: Sequence[RegisteredWorker], statuses: Sequence[ServiceStatus], now: float
) -> list[WorkerLine]:
    known = {
        (one.doing.get("host", ""), one.doing.get("pid", "")): one
        for one in statuses
        if one.doing is not None
    }
    found = []
    for worker in registered:
        host, pid = worker.owner.partition(":")[0], process_of(worker.owner)
        status = known.pop((host, str(pid)), None)
        found.append(_worker(worker.name, host, pid, status, is_alive=worker.until >= now))
    for (host, text), status in known.items():
        number = int(text) if text.isdigit() else None
        name = (status.doing or {}).get("name", status.name)
        found.append(_worker(name, host, number, status, is_alive=status.is_healthy))
    return found


def _worker(
    name: str, host: str, pid: int | None, status: ServiceStatus | None, *, is_alive: bool
) -> WorkerLine:
    doing = {} if status is None else status.doing or {}
    return WorkerLine(
        name=name,
        machine=_host_name(host),
        pid=pid,
        is_alive=is_alive,
        processes=doing.get("processes"),
        queues=doing.get("queues"),
        chunks=int(doing["chunks"]) if doing.get("chunks", "").isdigit() else None,
        last_taken_at=_time(doing.get("last_taken_at")),
        started_at=_time(doing.get("started_at")),
        memory=None if status is None else status.memory_bytes,
    )


def _time(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _host_name(host: str) -> str:
    """Return the name of a machine without the mark of its boot."""
    return host.partition("~")[0]
