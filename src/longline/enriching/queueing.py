"""Queueing: which records of a task have something new to ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import islice

from longline.clock import Clock
from longline.config.enriching import AnyTask
from longline.enriching.checking import check_task
from longline.enriching.wishes import wishes_of
from longline.stores.questions import Questions
from longline.stores.records import Records, Row
from longline.stores.selecting import RecordQuery, parse_condition

_SIZE = 500  # records in one transaction


@dataclass(frozen=True, slots=True)
class Queued:
    """How many records fit a task, how many of them ask something new, and how much that is.

    `dropped` were queued before and are not in the task any more; `warnings` are sentences.
    """

    records: int
    asking: int
    questions: int
    dropped: int = 0
    warnings: tuple[str, ...] = ()


def queries_of(task: AnyTask) -> list[RecordQuery]:
    """Return which records a task is about.

    Raises:
        BadOption: a condition is none.
    """
    where = tuple(parse_condition(text) for text in task.where)
    return [RecordQuery(source=source, where=where) for source in dict.fromkeys(task.sources)]


async def queue_records(
    task: AnyTask, records: Records, questions: Questions, clock: Clock
) -> Queued:
    """Queue what is new, and take out what no record of the task as it is now asks.

    A record that asks what it asked before costs a look and no write.

    Raises:
        ConfigError: the task cannot be about the records that are here, or its enricher cannot be
            made; nothing was changed.
    """
    queries, wish_of = queries_of(task), wishes_of(task)
    warnings = await check_task(task, records, queries)
    # Before any record is read, so that what another run queues meanwhile is not among them.
    gone = await questions.open_links(task.enrich)
    seen = asking = new = 0
    for query in queries:
        async for rows in _pages(records.stream(query)):
            wishes = {row["id"]: wish_of(row) for row in rows}
            known = await questions.asked_by(task.enrich, list(wishes))
            fresh = [
                wish
                for record, wish in wishes.items()
                if known.get(record) != (wish.question.id, wish.version)
            ]
            new += await questions.queue(task.enrich, fresh, clock.now()) if fresh else 0
            seen, asking = seen + len(rows), asking + len(fresh)
            for record in wishes:
                gone.pop(record, None)
    dropped = await _drop(task.enrich, gone, questions)
    await questions.tidy(task.enrich)
    return Queued(seen, asking, new, dropped, warnings)


async def _drop(task: str, gone: dict[int, str], questions: Questions) -> int:
    dropped, rest = 0, iter(gone.items())
    while part := dict(islice(rest, _SIZE)):
        dropped += await questions.drop(task, part)
    return dropped


async def _pages(rows: Iterator[Row]) -> AsyncIterator[list[Row]]:
    # The stream reads in the thread that asks it, so it is asked in another than the loop's.
    while page := await asyncio.to_thread(lambda: list(islice(rows, _SIZE))):
        yield page
