"""`longline status`: each part of a cluster, whether it is healthy, and what workers do."""

from __future__ import annotations

from dataclasses import replace

from longline.config.settings import Settings
from longline.core.redaction import redact_server_url
from longline.services import postgres, redis
from longline.services.base import Part
from longline.services.needed import has_cluster, sqlite_part
from longline.services.postgres import PostgresService
from longline.services.record import Record, RecordFile
from longline.services.redis import RedisService
from longline.services.workers import (
    PREFIX,
    WorkerService,
    is_over,
    presence_of,
    presences,
    workers_among,
)


def status(settings: Settings) -> list[Part]:
    """Return the parts of a cluster in the order of their start; nothing is changed.

    A home without a cluster has one part, its database.

    Raises:
        BadFile: the record of the home is broken.
        HomeUnwritable: it belongs to another user.
    """
    file = RecordFile(settings.home.resolve())
    record = file.read()
    database = _database(settings, file)
    if not has_cluster(settings):
        return [database]
    return [_redis(settings, file), database, *_workers(settings, file, record, database)]


def _redis(settings: Settings, file: RecordFile) -> Part:
    if settings.redis_url is not None:
        problem = redis.problem_of(settings.redis_url)
        version = None if problem else redis.version_of(settings.redis_url)
        return _foreign("redis", settings.redis_url, problem, version)
    if file.read().entry("redis") is None:
        return _absent("redis", "run `longline up`")
    return RedisService(file).describe()


def _database(settings: Settings, file: RecordFile) -> Part:
    if (part := sqlite_part(settings)) is not None:
        return part
    address = settings.database
    if settings.database_url is not None:
        problem = postgres.problem_of(address)
        version = None if problem else postgres.version_of(address)
        return _foreign("postgres", address, problem, version)
    if file.read().entry("postgres") is None:
        return _absent("postgres", "run `longline up`")
    return PostgresService(file).describe()


def _workers(settings: Settings, file: RecordFile, record: Record, database: Part) -> list[Part]:
    broker = settings.broker
    found = presences(broker) if broker else None
    silence = _silence(database, has_redis=found is not None)
    present = found or {}
    parts = []
    for entry in workers_among(record.processes):
        number = int(entry.name.removeprefix(PREFIX))
        key = presence_of(entry, present)
        doing = None if key is None else present.pop(key)
        described = WorkerService(settings, file, number).describe()
        is_healthy = described.is_healthy and doing is not None
        note = silence if described.is_healthy and doing is None else None
        parts.append(replace(described, is_healthy=is_healthy, doing=doing, note=note))
    others = (
        Part("worker", is_healthy=True, is_ours=False, address=key, doing=told)
        for key, told in present.items()
        if not is_over(told)
    )
    return [*parts, *others]


def _silence(database: Part, *, has_redis: bool) -> str:
    """Return what is known of a worker that runs and whose word is not in Redis."""
    if not has_redis:
        return "it runs; what it does cannot be told while Redis is away"
    if not database.is_healthy:
        return "it runs, and waits for the database"
    return "not registered in Redis"


def _absent(name: str, note: str) -> Part:
    return Part(name, is_healthy=False, is_ours=True, address="", note=note)


def _foreign(name: str, url: str, problem: str | None, version: str | None) -> Part:
    return Part(
        name,
        is_healthy=problem is None,
        is_ours=False,
        address=redact_server_url(url),
        version=version,
        note=problem,
    )
