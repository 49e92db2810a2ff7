"""The cluster of a home: start and stop Redis, PostgreSQL and workers, and report their status."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path

import psutil
from redis.exceptions import RedisError

from longline.config.settings import Settings, load_settings, prepare_home
from longline.core.clock import SystemClock
from longline.core.errors import BadOption, HomeUnwritable, LonglineError, StoreFull
from longline.core.redaction import redact_server_url
from longline.core.threads import LoopThread
from longline.engine.owner import this_host
from longline.http.proxies.configuration import read_proxy_settings
from longline.services.background import (
    PROGRAM,
    ExecutorService,
    OllamaService,
    ProxyService,
    configured_services,
)
from longline.services.postgres import INITDB, PostgresService, postgres_problem, server_version
from longline.services.processes import (
    Launch,
    OnStep,
    ProcessEntry,
    Service,
    ServiceStatus,
    StateFile,
    StopFailed,
    StopSignals,
    exit_on_signals,
    find_process,
    has_cluster,
    launch,
    lifecycle_lock,
    signals_blocked,
    sqlite_status,
    start_failed,
    stop_processes,
)
from longline.services.proxies import read_overview, refresh_proxies
from longline.services.redis import (
    RedisService,
    check_external_redis,
    connect_redis,
    redis_problem,
    redis_version,
)
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
    with_executor: bool = False


@dataclass(frozen=True, slots=True)
class StartedCluster:
    """The addresses of the services, and the processes that were started, in this order."""

    redis_url: str
    database_url: str
    processes: tuple[ProcessEntry, ...]
    workers: int
    """Workers that run now, including those from before."""


# ---------------- Start


def up(settings: Settings, options: ClusterOptions, on_step: OnStep) -> StartedCluster:
    """Start what is missing: Redis, PostgreSQL if the home has one, the tables, workers, executor.

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
                new = [one for one in file.read().processes if one not in before.processes]
                _stop(file, new, on_step)
                file.write(replace(file.read(), database_url=before.database_url))
            raise


@contextlib.contextmanager
def cluster_running(
    settings: Settings,
    options: ClusterOptions | None = None,
    on_step: OnStep = lambda _service, _step: None,
) -> Iterator[StartedCluster]:
    """Start what is missing, and stop exactly that when the block ends.

    SIGTERM and SIGHUP end the block too, unless they have a handler. Settings of the same home
    find the addresses while the block runs. It raises the errors of `up` and `down`.
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
        self._refresh_proxies()
        for service in configured_services(self._settings, self._file):
            if service.is_external:
                self._on_step(service.name, f"responds at {service.address} (external)")
            else:
                self._start_service(service)
        self._start_workers(options, broker_url)
        running = workers_among(self._file.read().processes)
        for one in unregistered_among(broker_url, running, _REGISTER_TIMEOUT)[:1]:
            problem = f"it did not register in Redis within {_REGISTER_TIMEOUT:g} s"
            raise start_failed(one, problem if find_process(one) else "it exited immediately")
        self._on_step("workers", f"{len(running)} registered")
        if options.with_executor:
            self._start_executor()
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

    def _refresh_proxies(self) -> None:
        """Refresh the pool of proxies if it has sources of candidates, and too few are usable."""
        if not read_proxy_settings().candidates:
            return
        with LoopThread("longline-proxies") as loop:  # the caller may have a loop of its own
            usable, minimum = loop.run(self._count_proxies())
        text = f"{usable} usable"
        self._on_step(
            "proxy pool",
            f"{text}, fewer than the minimum of {minimum}" if usable < minimum else text,
        )

    async def _count_proxies(self) -> tuple[int, int]:
        clock = SystemClock()
        with open_store(self._settings.database) as store:
            found = await read_overview(self._settings, store, clock)
            if found.summary.is_low:
                self._on_step("proxy pool", "is refreshed, since too few proxies are usable")
                await refresh_proxies(self._settings, store, clock, reason="longline up")
                found = await read_overview(self._settings, store, clock)
        return found.summary.usable, found.settings.minimum

    def _start_service(self, service: Service) -> None:
        if service.is_healthy():
            self._on_step(service.name, "already healthy")
            return
        service.start()
        entry = self._file.read().entry(service.name)
        if entry is not None:
            where = f"on port {entry.port}, " if entry.port else ""
            self._on_step(service.name, f"started {where}process {entry.pid}")

    def _start_executor(self) -> None:
        service, state = ExecutorService(self._file, self._given_variables()), self._file.read()
        before = (self._before.redis_url, self._before.database_url)
        if service.entry is not None and before != (state.redis_url, state.database_url):
            _stop(self._file, [service.entry], self._on_step)  # it was started with others
        self._start_service(service)

    def _given_variables(self) -> dict[str, str]:
        """Return the settings that the executor would not find in its file and environment.

        The others are not passed, since variables would override a file that is changed later.
        """
        found = environment_of(load_settings(home=self._settings.home))
        given = environment_of(self._settings)
        return {name: value for name, value in given.items() if found.get(name) != value}

    def _start_workers(self, options: ClusterOptions, broker_url: str) -> None:
        recorded = workers_among(self._before.processes)
        running = [one for one in recorded if find_process(one)]
        state = self._file.read()
        before = (self._before.redis_url, self._before.database_url)
        if before == (state.redis_url, state.database_url):
            unusable = unregistered_among(broker_url, running, _UNREGISTERED_AFTER)
        else:
            unusable = running  # they were started with other addresses
        _stop(self._file, unusable, self._on_step)
        wanted = max(len(recorded), 1) if options.workers is None else options.workers
        names = [one.name for one in running if one not in unusable]
        numbered = (f"{_PREFIX}{number}" for number in count(1))
        free = (name for name in numbered if name not in names)
        names += list(islice(free, max(0, wanted - len(names))))
        for name in sorted(names, key=len):
            self._start_service(WorkerService(self._settings, self._file, name, options.processes))
        dead = [one for one in workers_among(self._file.read().processes) if one.name not in names]
        _stop(self._file, dead, self._on_step)


def _has_data(file: Path) -> bool:
    """Whether a SQLite database has jobs or records; one that cannot be read counts as such."""
    if not file.exists():
        return False
    try:
        with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as opened:
            found = opened.execute("SELECT 1 FROM jobs UNION ALL SELECT 1 FROM records LIMIT 1")
            return found.fetchone() is not None
    except sqlite3.Error as error:
        return "no such table" not in str(error)


# ---------------- Stop


def down(settings: Settings, on_step: OnStep) -> tuple[ProcessEntry, ...]:
    """Stop the executor, workers and servers in this order; return the processes that were running.

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

    The address of PostgreSQL stays recorded, since the data of the home is there. After an error
    it stops the others, then raises the first one.
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
            if stopped:
                state = file.read().without(stopped)
                has_redis = state.entry(RedisService.name) is not None
                file.write(state if has_redis else replace(state, redis_url=None))
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
    yield (
        [one for one in entries if one.name == ExecutorService.name],
        ExecutorService.stop_signals,
    )
    yield workers_among(entries), WorkerService.stop_signals
    servers: tuple[tuple[str, StopSignals], ...] = (
        (ProxyService.name, ProxyService.stop_signals),
        (OllamaService.name, OllamaService.stop_signals),
        (INITDB, ()),  # its result is discarded
        (PostgresService.name, PostgresService.stop_signals),
        (RedisService.name, RedisService.stop_signals),
    )
    for name, stop_signals in servers:
        yield [one for one in entries if one.name == name], stop_signals


# ---------------- Status


def status(settings: Settings) -> list[ServiceStatus]:
    """Return the status of the services in the order of their start; change nothing.

    A home without a cluster has one service, its database.

    Raises:
        BadFile: the state file is broken.
        HomeUnwritable: it belongs to another user.
    """
    file = StateFile(settings.home.resolve())
    database = sqlite_status(settings) or _server_status(
        PostgresService(file), settings.database_url, postgres_problem, server_version
    )
    if not has_cluster(settings):
        return [database]
    redis = _server_status(RedisService(file), settings.redis_url, redis_problem, redis_version)
    background = [one.describe() for one in configured_services(settings, file)]
    executor = ExecutorService(file)
    ended = [executor.describe()] if executor.entry is not None else []
    return [redis, database, *background, *_worker_statuses(settings, file, database), *ended]


def _server_status(
    service: Service,
    external_url: str | None,
    problem_of: Callable[[str], str | None],
    version_of: Callable[[str], str | None],
) -> ServiceStatus:
    if external_url is not None:
        problem = problem_of(external_url)
        return ServiceStatus(
            service.name,
            is_healthy=problem is None,
            is_ours=False,
            address=redact_server_url(external_url),
            version=None if problem else version_of(external_url),
            note=problem,
        )
    return service.describe()


def _worker_statuses(
    settings: Settings, file: StateFile, database: ServiceStatus
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
    for entry in workers_among(file.read().processes):
        key = registration_key(entry, registered)
        doing = None if key is None else registered.pop(key)
        described = WorkerService(settings, file, entry.name).describe()
        if described.is_healthy and doing is None:
            described = replace(described, is_healthy=False, note=reason)
        statuses.append(replace(described, doing=doing))
    others = (
        ServiceStatus("worker", is_healthy=True, is_ours=False, address=key, doing=worker)
        for key, worker in registered.items()
        if not is_dead(worker)
    )
    return [*statuses, *others]


# ---------------- Workers: processes of a home, and those registered in Redis

_PREFIX = "worker-"
_KEY_PREFIX = "longline:worker:"  # as in distributed/registry.py, which would import Celery
_REGISTER_TIMEOUT = 30.0  # seconds
_POLL_INTERVAL = 0.05


class WorkerService(Service):
    """One `longline worker` with its child processes."""

    stop_signals = ((signal.SIGTERM, 30.0),)  # it finishes items in flight, releases the others

    def __init__(
        self, settings: Settings, file: StateFile, name: str, processes: int | None = None
    ) -> None:
        super().__init__(file)
        self.name = name
        self._settings = settings
        self._processes = processes

    def start(self) -> None:
        self.stop()
        options: tuple[str, ...] = ()
        if self._processes is not None:
            options = ("--processes", str(self._processes))
        elif self.entry is not None:
            options = self.entry.command[len(PROGRAM) + 3 :]  # as before
        command = [*PROGRAM, "worker", "--home", str(self._file.home), *options]
        log = self._file.home / "logs" / f"{self.name}.log"
        plan = Launch(self.name, command, log, variables=environment_of(self._settings))
        launch(plan, self._file)


def workers_among(entries: Iterable[ProcessEntry]) -> list[ProcessEntry]:
    """Return the processes that are workers."""
    return [one for one in entries if one.name.startswith(_PREFIX)]


def unregistered_among(
    redis_url: str, entries: Iterable[ProcessEntry], seconds: float
) -> list[ProcessEntry]:
    """Return the workers that have exited, or else those not registered after `seconds`."""
    deadline = time.monotonic() + seconds
    left = list(entries)
    while True:
        registered = registered_workers(redis_url) or {}
        left = [one for one in left if registration_key(one, registered) is None]
        dead = [one for one in left if find_process(one) is None]
        if dead or not left or time.monotonic() > deadline:
            return dead or left
        time.sleep(_POLL_INTERVAL)


def registered_workers(redis_url: str) -> dict[str, dict[str, str]] | None:
    """Return the workers registered in Redis by key; None when Redis does not respond."""
    try:
        with connect_redis(redis_url) as redis:
            found = {key: redis.hgetall(key) for key in sorted(redis.scan_iter(f"{_KEY_PREFIX}*"))}
            return {key: values for key, values in found.items() if values}
    except (RedisError, OSError, ValueError):
        return None


def registration_key(entry: ProcessEntry, registered: dict[str, dict[str, str]]) -> str | None:
    """Return the key of a worker of this machine in Redis; None when it is not registered."""
    here = (this_host(), str(entry.pid))
    keys = (key for key, one in registered.items() if (one.get("host"), one.get("pid")) == here)
    return next(keys, None)


def is_dead(worker: dict[str, str]) -> bool:
    """Whether a registered worker of this machine was killed before it could unregister."""
    pid = worker.get("pid", "")
    if worker.get("host") != this_host() or not pid.isdigit():
        return False
    try:
        return psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def environment_of(settings: Settings) -> dict[str, str]:
    """Return the settings as environment variables of a worker."""
    variables = {}
    for name in sorted(settings.model_fields_set - {"home"}):
        value = getattr(settings, name)
        if isinstance(value, tuple):  # folders are separated as in PATH, other lists by commas
            is_folders = any(isinstance(one, Path) for one in value)
            value = (os.pathsep if is_folders else ",").join(map(str, value))
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            variables[f"LONGLINE_{name.upper()}"] = text
    return variables
