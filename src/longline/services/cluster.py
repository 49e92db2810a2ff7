"""The cluster of a home: start and stop Redis, PostgreSQL and workers, and report their status."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import create_engine, inspect, literal, select
from sqlalchemy.exc import DBAPIError

from longline.config.settings import Settings, prepare_home
from longline.core.errors import BadOption, HomeUnwritable, LonglineError, StoreFull
from longline.core.redaction import redact_server_url
from longline.services import postgres, redis, workers
from longline.services.base import OnStep, Service, ServiceStatus, has_cluster, sqlite_status
from longline.services.errors import StopFailed
from longline.services.postgres import PostgresService
from longline.services.processes import (
    StopSignals,
    exit_on_signals,
    find_process,
    signals_blocked,
    stop_processes,
)
from longline.services.redis import RedisService, check_external_redis
from longline.services.state import ProcessEntry, ServicesState, StateFile, lifecycle_lock
from longline.services.workers import (
    PREFIX,
    WorkerService,
    is_dead,
    registered_workers,
    registration_key,
    unregistered_among,
    wait_until_registered,
    workers_among,
)
from longline.storage.schema import jobs, records
from longline.storage.store import open_store

_UNREGISTERED_AFTER = 15.0  # seconds; a running worker registers every few, also after an outage


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What `up` starts.

    `workers`: None for as many as before and at least one, 0 for servers only. `processes` of each
    worker that is started: None for as many as before, or one per core.
    """

    workers: int | None = None
    processes: int | None = None
    with_postgres: bool = False


@dataclass(frozen=True, slots=True)
class StartedCluster:
    """The addresses of the services, and the processes that were started, in this order."""

    redis_url: str
    database_url: str
    processes: tuple[ProcessEntry, ...]
    workers: int
    """Workers that run now, including those from before."""


def ignore_step(_service: str, _step: str) -> None:
    """Report no steps."""


# ---------------- Start


def up(settings: Settings, options: ClusterOptions, on_step: OnStep) -> StartedCluster:
    """Start what is missing: Redis, PostgreSQL if the home has one, the tables, workers.

    Healthy services are not touched, so a second call changes nothing. If a service fails, or on a
    signal, everything that this call started is stopped again. Servers that the settings name are
    only checked.

    Raises:
        StartFailed: a service does not start; with the end of its log.
        ServiceUnreachable: a server that the settings name does not respond.
        BrokerUnusable: it responds and refuses us.
        BadOption: its URL is invalid, or PostgreSQL is wanted and the home has jobs elsewhere.
        ServicesBusy: another process starts or stops the same home.
        HomeUnwritable: the home belongs to another user.
        StoreError: the database cannot be used.
    """
    prepare_home(settings)
    home = settings.home.resolve()
    file = StateFile(home)
    with lifecycle_lock(home), exit_on_signals():
        file.discard_if_broken()
        before = file.read()
        try:
            return _Startup(settings.model_copy(update={"home": home}), file, on_step).run(options)
        except BaseException:
            with signals_blocked():
                _roll_back(file, before, on_step)
            raise


@contextlib.contextmanager
def cluster_running(
    settings: Settings, options: ClusterOptions | None = None, on_step: OnStep = ignore_step
) -> Iterator[StartedCluster]:
    """Start what is missing, and stop exactly that when the block ends.

    SIGTERM and SIGHUP end the block too, unless they have a handler. Settings of the same home
    find the addresses while the block runs.

    Raises:
        StartFailed: a service does not start; nothing is left running.
        StopFailed: a service does not stop.
        ServiceUnreachable: a server that the settings name does not respond.
        ServicesBusy: another process starts or stops the same home.
    """
    with exit_on_signals():
        started = up(settings, options or ClusterOptions(), on_step)
        try:
            yield started
        finally:
            file = StateFile(settings.home.resolve())
            with signals_blocked(), lifecycle_lock(file.home):
                _stop(file, started.processes, on_step)


class _Startup:
    """One call of `up`."""

    def __init__(self, settings: Settings, file: StateFile, on_step: OnStep) -> None:
        self._settings = settings
        self._file = file
        self._on_step = on_step
        self._before = file.read()

    def run(self, options: ClusterOptions) -> StartedCluster:
        postgres_service = PostgresService(self._file)
        needs_postgres = self._needs_postgres(options, postgres_service)
        redis_url = self._start_redis()
        database_url = self._start_database(postgres_service, is_needed=needs_postgres)
        broker_url = self._settings.broker_url or redis_url
        self._start_workers(options, broker_url)
        running = workers_among(self._file.read().processes)
        wait_until_registered(broker_url, running)
        self._on_step("workers", f"{len(running)} registered")
        before = self._before.processes
        new = tuple(one for one in self._file.read().processes if one not in before)
        return StartedCluster(redis_url, database_url, new, len(running))

    def _needs_postgres(self, options: ClusterOptions, service: PostgresService) -> bool:
        if self._settings.database_url is not None:
            if options.with_postgres:
                raise BadOption("--postgres", "the settings already name a database")
            return False
        if self._before.database_url is not None:
            return True
        is_used = _has_data(self._settings.home / "longline.sqlite")
        if options.with_postgres and is_used:
            raise BadOption(
                "--postgres",
                "this home has jobs or records in SQLite; "
                "copy them with `longline db copy postgres` first",
            )
        return options.with_postgres or (service.has_data and not is_used)

    def _start_redis(self) -> str:
        for name in ("redis_url", "broker_url"):
            url = getattr(self._settings, name)
            if url is not None:
                check_external_redis(url, f"LONGLINE_{name.upper()}")
        if self._settings.redis_url is not None:
            address = redact_server_url(self._settings.redis_url)
            self._on_step("redis", f"responds at {address} (external)")
            return self._settings.redis_url
        self._start_service(RedisService(self._file))
        return str(self._file.read().redis_url)

    def _start_database(self, service: PostgresService, *, is_needed: bool) -> str:
        address = self._settings.database
        if is_needed:
            self._start_service(service)
            address = service.url
        with open_store(address):  # upgrades its tables
            self._on_step("database", f"tables are up to date at {redact_server_url(address)}")
        if self._settings.database_url is None and service.has_data:
            own = None if address.startswith("sqlite") else address
            self._file.write(replace(self._file.read(), database_url=own))
        return address

    def _start_service(self, service: Service) -> None:
        if service.is_healthy():
            self._on_step(service.name, "already healthy")
            return
        service.start()
        entry = self._file.read().entry(service.name)
        if entry is not None:
            where = f"on port {entry.port}, " if entry.port else ""
            self._on_step(service.name, f"started {where}process {entry.pid}")

    def _start_workers(self, options: ClusterOptions, broker_url: str) -> None:
        self._stop_outdated_workers()
        self._stop_hung_workers(broker_url)
        recorded = workers_among(self._before.processes)
        wanted = max(len(recorded), 1) if options.workers is None else options.workers
        names = [one.name for one in recorded if find_process(one)]
        number = 0
        while len(names) < wanted:
            number += 1
            if f"{PREFIX}{number}" not in names:
                names.append(f"{PREFIX}{number}")
        for name in sorted(names, key=len):
            number = int(name.removeprefix(PREFIX))
            self._start_service(
                WorkerService(self._settings, self._file, number, options.processes)
            )
        dead = [one for one in workers_among(self._file.read().processes) if one.name not in names]
        _stop(self._file, dead, self._on_step)

    def _stop_outdated_workers(self) -> None:
        """Stop workers that were started with other addresses than the services have now."""
        state = self._file.read()
        before = (self._before.redis_url, self._before.database_url)
        if before != (state.redis_url, state.database_url):
            _stop(self._file, self._running_workers(), self._on_step)

    def _stop_hung_workers(self, broker_url: str) -> None:
        hung = unregistered_among(broker_url, self._running_workers(), _UNREGISTERED_AFTER)
        _stop(self._file, hung, self._on_step)

    def _running_workers(self) -> list[ProcessEntry]:
        return [one for one in workers_among(self._file.read().processes) if find_process(one)]


def _has_data(file: Path) -> bool:
    """Whether a SQLite database has jobs or records; one that cannot be read counts as such."""
    if not file.exists():
        return False
    engine = create_engine(f"sqlite:///{str(file).replace('%', '%25').replace('?', '%3F')}")
    try:
        with engine.connect() as connection:
            existing = inspect(connection).get_table_names()
            tables = [one for one in (jobs, records) if one.name in existing]
            queries = [select(literal(1)).select_from(one).limit(1) for one in tables]
            return any(connection.scalar(one) for one in queries)
    except DBAPIError:
        return True
    finally:
        engine.dispose()


# ---------------- Stop


def down(settings: Settings, on_step: OnStep) -> tuple[ProcessEntry, ...]:
    """Stop workers, then PostgreSQL, then Redis; return the processes that were running.

    Only recorded processes are stopped, and none whose pid was reused.

    Raises:
        StopFailed: one does not stop; the others are stopped.
        ServicesBusy: another process starts or stops the same home.
        HomeUnwritable: the state file belongs to another user.
    """
    prepare_home(settings)
    home = settings.home.resolve()
    file = StateFile(home)
    with lifecycle_lock(home), signals_blocked():
        file.discard_if_broken()
        entries = file.read().processes
        running = tuple(one for one in entries if find_process(one))
        _stop(file, entries, on_step)
    return running


def _stop(file: StateFile, entries: Iterable[ProcessEntry], on_step: OnStep) -> None:
    """Stop recorded processes; the caller holds the lock of the home.

    The address of PostgreSQL stays recorded, since the data of the home is there.

    Raises:
        StopFailed: one does not stop; the others are stopped.
        HomeUnwritable: they are stopped, but the state file could not be written.
        StoreFull: the same, because the disk is full.
    """
    failed: list[LonglineError] = []
    for group, stop_signals in _in_stop_order(list(entries)):
        running = [one for one in group if find_process(one)]
        try:
            stop_processes(group, *stop_signals)
        except StopFailed as error:
            failed.append(error)
        stopped = [one for one in group if find_process(one) is None]
        try:
            _forget(file, stopped)
        except (HomeUnwritable, StoreFull) as error:
            failed.append(error)
        for one in stopped:
            on_step(one.name, "stopped" if one in running else "was not running")
    if failed:
        raise failed[0]


def _in_stop_order(
    entries: list[ProcessEntry],
) -> Iterator[tuple[list[ProcessEntry], StopSignals]]:
    """Yield processes that are stopped together, and the signals to send."""
    yield workers_among(entries), workers.STOP_SIGNALS
    servers: tuple[tuple[str, StopSignals], ...] = (
        (postgres.INITDB, ()),  # its result is discarded
        (PostgresService.name, postgres.STOP_SIGNALS),
        (RedisService.name, redis.STOP_SIGNALS),
    )
    for name, stop_signals in servers:
        yield [one for one in entries if one.name == name], stop_signals


def _forget(file: StateFile, entries: list[ProcessEntry]) -> None:
    if not entries:
        return
    state = file.read().without(entries)
    if state.entry("redis") is None:
        state = replace(state, redis_url=None)
    file.write(state)


def _roll_back(file: StateFile, before: ServicesState, on_step: OnStep) -> None:
    """Stop the processes that were not recorded before."""
    new = [one for one in file.read().processes if one not in before.processes]
    _stop(file, new, on_step)
    file.write(replace(file.read(), database_url=before.database_url))


# ---------------- Status


def status(settings: Settings) -> list[ServiceStatus]:
    """Return the status of the services in the order of their start; change nothing.

    A home without a cluster has one service, its database.

    Raises:
        BadFile: the state file is broken.
        HomeUnwritable: it belongs to another user.
    """
    file = StateFile(settings.home.resolve())
    state = file.read()
    database = _database_status(settings, file)
    if not has_cluster(settings):
        return [database]
    return [_redis_status(settings, file), database, *_workers(settings, file, state, database)]


def _redis_status(settings: Settings, file: StateFile) -> ServiceStatus:
    if settings.redis_url is not None:
        problem = redis.redis_problem(settings.redis_url)
        version = None if problem else redis.redis_version(settings.redis_url)
        return _external("redis", settings.redis_url, problem, version)
    if file.read().entry("redis") is None:
        return _not_started("redis")
    return RedisService(file).describe()


def _database_status(settings: Settings, file: StateFile) -> ServiceStatus:
    if (found := sqlite_status(settings)) is not None:
        return found
    address = settings.database
    if settings.database_url is not None:
        problem = postgres.postgres_problem(address)
        version = None if problem else postgres.server_version(address)
        return _external("postgres", address, problem, version)
    if file.read().entry("postgres") is None:
        return _not_started("postgres")
    return PostgresService(file).describe()


def _workers(
    settings: Settings, file: StateFile, state: ServicesState, database: ServiceStatus
) -> list[ServiceStatus]:
    found = registered_workers(settings.broker) if settings.broker else None
    if found is None:
        reason = "running; its activity is unknown because Redis does not respond"
    elif not database.is_healthy:
        reason = "running; waiting for the database"
    else:
        reason = "not registered in Redis"
    registered = found or {}
    statuses = []
    for entry in workers_among(state.processes):
        number = int(entry.name.removeprefix(PREFIX))
        key = registration_key(entry, registered)
        doing = None if key is None else registered.pop(key)
        described = WorkerService(settings, file, number).describe()
        is_healthy = described.is_healthy and doing is not None
        note = reason if described.is_healthy and doing is None else None
        statuses.append(replace(described, is_healthy=is_healthy, doing=doing, note=note))
    others = (
        ServiceStatus("worker", is_healthy=True, is_ours=False, address=key, doing=worker)
        for key, worker in registered.items()
        if not is_dead(worker)
    )
    return [*statuses, *others]


def _not_started(name: str) -> ServiceStatus:
    note = "run `longline up`"
    return ServiceStatus(name, is_healthy=False, is_ours=True, address="", note=note)


def _external(name: str, url: str, problem: str | None, version: str | None) -> ServiceStatus:
    return ServiceStatus(
        name,
        is_healthy=problem is None,
        is_ours=False,
        address=redact_server_url(url),
        version=version,
        note=problem,
    )
