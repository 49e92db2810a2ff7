"""`longline up`: what a cluster on this machine lacks is started, in order, or nothing is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import create_engine, inspect, literal, select
from sqlalchemy.exc import DBAPIError

from longline.config.settings import Settings, prepare_home
from longline.core.errors import BadOption
from longline.core.redaction import redact_server_url
from longline.services import redis
from longline.services.base import Service, Told
from longline.services.down import stop_these
from longline.services.postgres import PostgresService
from longline.services.processes import living
from longline.services.record import Entry, Record, RecordFile, alone_in
from longline.services.redis import RedisService
from longline.services.signals import ending_in_order, undisturbed
from longline.services.workers import (
    PREFIX,
    WorkerService,
    silent_among,
    wait_until_registered,
    workers_among,
)
from longline.storage.schema import jobs, records
from longline.storage.store import open_store

_SILENCE = 15.0  # seconds; one that lives registers every few, also after Redis was away


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to run; `workers` None: as many as there were, and at least one; 0: servers only.

    `processes` are those of each worker that is started; None: as it had, or one a core.
    """

    workers: int | None = None
    processes: int | None = None
    with_postgres: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """Where the services answer, and what had to be started for that, in this order."""

    redis_url: str
    database_url: str
    processes: tuple[Entry, ...]
    workers: int
    """How many run now, those from before included."""


def up(settings: Settings, wish: Wish, told: Told) -> Started:
    """Start what is missing: Redis, PostgreSQL if the home has one, the tables, workers.

    What is healthy is left alone, so that twice is once. When a part fails, or a signal comes, all
    that this call has started is stopped again. Servers that the settings name are only looked at.

    Raises:
        StartFailed: a part does not start; with the end of its log.
        ServiceUnreachable: a server that the settings name does not answer.
        BrokerUnusable: it answers and does not let us in.
        BadOption: its address is none, or PostgreSQL is wanted for a home that has jobs elsewhere.
        ServicesBusy: another process starts or stops the same home.
        HomeUnwritable: the home belongs to another user.
        StoreError: the database cannot be used.
    """
    prepare_home(settings)
    home = settings.home.resolve()
    file = RecordFile(home)
    with alone_in(home), ending_in_order():
        file.mend()
        before = file.read()
        try:
            return _Rise(settings.model_copy(update={"home": home}), file, told).rise(wish)
        except BaseException:
            with undisturbed():
                roll_back(file, before, told)
            raise


def roll_back(file: RecordFile, before: Record, told: Told) -> None:
    """Stop what is on record now and was not before."""
    record = file.read()
    stop_these(file, [one for one in record.processes if one not in before.processes], told)
    record = file.read()
    file.write(replace(record, database_url=before.database_url))


class _Rise:
    """One call of `up`."""

    def __init__(self, settings: Settings, file: RecordFile, told: Told) -> None:
        self._settings = settings
        self._file = file
        self._told = told
        self._before = file.read()

    def rise(self, wish: Wish) -> Started:
        postgres = PostgresService(self._file)
        needs_postgres = self._needs_postgres(wish, postgres)
        redis_url = self._raise_redis()
        database_url = self._raise_database(postgres, is_needed=needs_postgres)
        broker_url = self._settings.broker_url or redis_url
        self._raise_workers(wish, broker_url)
        self._check_workers(broker_url)
        old = self._before.processes
        new = tuple(one for one in self._file.read().processes if one not in old)
        return Started(redis_url, database_url, new, len(self._workers()))

    def _raise_redis(self) -> str:
        for name in ("redis_url", "broker_url"):
            url = getattr(self._settings, name)
            if url is not None:
                redis.check_foreign(url, f"LONGLINE_{name.upper()}")
        if self._settings.redis_url is not None:
            self._told(
                "redis", f"answers at {redact_server_url(self._settings.redis_url)}; not ours"
            )
            return self._settings.redis_url
        self._raise_service(RedisService(self._file))
        return str(self._file.read().redis_url)

    def _raise_database(self, postgres: PostgresService, *, is_needed: bool) -> str:
        address = self._settings.database
        if is_needed:
            self._raise_service(postgres)
            address = postgres.url
        with open_store(address):  # that brings its tables up to date
            self._told("database", f"its tables are up to date at {redact_server_url(address)}")
        if self._settings.database_url is None and postgres.has_data:
            self._file.write(replace(self._file.read(), database_url=_own(address)))
        return address

    def _needs_postgres(self, wish: Wish, postgres: PostgresService) -> bool:
        if self._settings.database_url is not None:
            if wish.with_postgres:
                raise BadOption("--postgres", "the settings name a database already")
            return False
        if self._before.database_url is not None:
            return True
        is_used = _is_used(self._settings.home / "longline.sqlite")
        if wish.with_postgres and is_used:
            raise BadOption(
                "--postgres",
                "this home has jobs or records in SQLite, which would be out of sight; "
                "`longline db copy postgres` moves them there",
            )
        return wish.with_postgres or (postgres.has_data and not is_used)

    def _raise_service(self, service: Service) -> None:
        if service.is_healthy():
            self._told(service.name, "is healthy already")
            return
        service.start()
        entry = self._file.read().entry(service.name)
        if entry is not None:
            where = f"on port {entry.port}, " if entry.port else ""
            self._told(service.name, f"started {where}process {entry.pid}")

    def _raise_workers(self, wish: Wish, broker_url: str) -> None:
        self._stop_strangers()
        self._stop_silent(broker_url)
        recorded = workers_among(self._before.processes)
        wanted = max(len(recorded), 1) if wish.workers is None else wish.workers
        names = [one.name for one in recorded if living(one)]
        number = 0
        while len(names) < wanted:
            number += 1
            if f"{PREFIX}{number}" not in names:
                names.append(f"{PREFIX}{number}")
        for name in sorted(names, key=len):
            number = int(name.removeprefix(PREFIX))
            self._raise_service(WorkerService(self._settings, self._file, number, wish.processes))
        dead = [one for one in workers_among(self._file.read().processes) if one.name not in names]
        stop_these(self._file, dead, self._told)

    def _stop_strangers(self) -> None:
        """Stop workers that know only addresses from before, where nobody answers any more."""
        record = self._file.read()
        was = (self._before.redis_url, self._before.database_url)
        if was != (record.redis_url, record.database_url):
            there = [one for one in workers_among(record.processes) if living(one)]
            stop_these(self._file, there, self._told)

    def _stop_silent(self, broker_url: str) -> None:
        """Stop workers that live and yet say nothing, as one does that hangs."""
        there = [one for one in workers_among(self._file.read().processes) if living(one)]
        stop_these(self._file, silent_among(broker_url, there, _SILENCE), self._told)

    def _check_workers(self, broker_url: str) -> None:
        entries = self._workers()
        wait_until_registered(broker_url, entries)
        self._told("workers", f"{len(entries)} registered")

    def _workers(self) -> list[Entry]:
        return workers_among(self._file.read().processes)


def _own(address: str) -> str | None:
    return None if address.startswith("sqlite") else address


def _is_used(file: Path) -> bool:
    """Say whether a SQLite home has anything in it; a database of an older version counts too."""
    if not file.exists():
        return False
    engine = create_engine(f"sqlite:///{str(file).replace('%', '%25').replace('?', '%3F')}")
    try:
        with engine.connect() as connection:
            there = inspect(connection).get_table_names()
            tables = [one for one in (jobs, records) if one.name in there]
            questions = [select(literal(1)).select_from(one).limit(1) for one in tables]
            return any(connection.scalar(one) for one in questions)
    except DBAPIError:
        return True  # whatever it is, it is not nothing
    finally:
        engine.dispose()
