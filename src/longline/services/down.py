"""`longline down`: what was started in a home is stopped, in reverse order, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from longline.config.errors import HomeUnwritable
from longline.config.settings import Settings, prepare_home
from longline.core.errors import LonglineError, StoreFull
from longline.services import postgres, redis, workers
from longline.services.base import Told
from longline.services.errors import StopFailed
from longline.services.processes import Ways, end, living
from longline.services.record import Entry, RecordFile, alone_in
from longline.services.signals import undisturbed


def down(settings: Settings, told: Told) -> tuple[Entry, ...]:
    """Stop workers, then PostgreSQL, then Redis; return those that were still there.

    What is not on record, or has a number on record that another process has by now, is left.

    Raises:
        StopFailed: one stays; the others are stopped nevertheless.
        ServicesBusy: another process starts or stops the same home.
        HomeUnwritable: the record belongs to another user.
    """
    prepare_home(settings)
    home = settings.home.resolve()
    file = RecordFile(home)
    with alone_in(home), undisturbed():
        file.mend()
        entries = file.read().processes
        there = tuple(one for one in entries if living(one))
        stop_these(file, entries, told)
    return there


def stop_these(file: RecordFile, entries: Iterable[Entry], told: Told) -> None:
    """Stop some of the processes on record; whoever calls this holds the lock of the home.

    The address of PostgreSQL stays on record, since the data of the home is there.

    Raises:
        StopFailed: one stays; the others are stopped nevertheless.
        HomeUnwritable: they are stopped, and the record still names them.
        StoreFull: the same, for want of room.
    """
    failed: list[LonglineError] = []
    for group, ways in _in_order(list(entries)):
        there = [one for one in group if living(one)]
        try:
            end(group, *ways)
        except StopFailed as error:
            failed.append(error)
        gone = [one for one in group if living(one) is None]
        try:
            _forget(file, gone)
        except (HomeUnwritable, StoreFull) as error:
            failed.append(error)
        for one in gone:
            told(one.name, "stopped" if one in there else "was not running any more")
    if failed:
        raise failed[0]


def _in_order(entries: list[Entry]) -> Iterator[tuple[list[Entry], Ways]]:
    """Give the processes that are stopped together, and in which ways."""
    yield workers.workers_among(entries), workers.ENDING
    servers: tuple[tuple[str, Ways], ...] = (
        (postgres.INITDB, ()),  # nobody needs half of its work
        (postgres.PostgresService.name, postgres.ENDING),
        (redis.RedisService.name, redis.ENDING),
    )
    for name, ways in servers:
        yield [one for one in entries if one.name == name], ways


def _forget(file: RecordFile, entries: list[Entry]) -> None:
    if not entries:
        return
    record = file.read().without(entries)
    if record.entry("redis") is None:
        record = replace(record, redis_url=None)
    file.write(record)
