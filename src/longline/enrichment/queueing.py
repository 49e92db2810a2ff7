"""Enqueue the new questions of a task, and drop the ones that no record asks any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from longline.config.expressions import look_up
from longline.core.clock import Clock
from longline.core.errors import BadOption
from longline.enrichment.enricher import question_maker
from longline.enrichment.task_files import AnyTask
from longline.storage.database import Row
from longline.storage.enrichment import Questions
from longline.storage.query import RecordQuery, parse_condition
from longline.storage.records import Records

_BATCH = 500  # records per transaction
_ABSENT = object()


async def _check_sources(task: AnyTask, records: Records) -> list[str]:
    """Return warnings for sources without records; raise BadOption if none has any."""
    empty = [
        source
        for source in task.sources
        if not await records.list(RecordQuery(source=source, limit=1))
    ]
    if len(empty) == len(task.sources):
        known = [str(row["source"]) for row in await records.statistics()]
        listed = ", ".join(known) or "none; collect some first"
        problem = f"there are no records of {', '.join(empty)}; sources with records: {listed}"
        raise BadOption("sources", problem)
    return [f"sources: there are no records of {source}" for source in empty]


def _check_fields(task: AnyTask, records: Records, queries: Sequence[RecordQuery]) -> list[str]:
    """Return warnings for fields that no record has; raise BadOption if one of them is needed."""
    missing = list(task.reads)
    known: dict[str, None] = {}
    for row in chain.from_iterable(map(records.stream, queries)):
        known |= dict.fromkeys(row["data"])
        missing = [name for name in missing if look_up(name, row["data"], _ABSENT) is _ABSENT]
        if not missing:  # usually after the first record
            return []
    if not known:  # there are no records to judge by
        return []
    problem = f"no matching record has a field {{!r}}; fields: {', '.join(known)}"
    if needed := [name for name in missing if name in task.needed]:
        raise BadOption(task.asks_by, problem.format(needed[0]))
    return [f"{task.asks_by}: {problem.format(name)}" for name in missing]


@dataclass(frozen=True, slots=True)
class Queued:
    """The number of records of a task, those with a new question, and the new questions.

    `dropped` questions were queued before and no longer belong to the task.
    """

    records: int
    asking: int
    questions: int
    dropped: int = 0
    warnings: tuple[str, ...] = ()


def queries_of(task: AnyTask) -> list[RecordQuery]:
    """Return the queries for the records of a task.

    Raises:
        BadOption: a condition is malformed.
    """
    where = tuple(parse_condition(text) for text in task.where)
    return [RecordQuery(source=source, where=where) for source in dict.fromkeys(task.sources)]


async def queue_records(
    task: AnyTask, records: Records, questions: Questions, clock: Clock
) -> Queued:
    """Enqueue new questions, and drop queued ones that no record of the task asks any more.

    A record with the same question as before costs a read and no write.

    Raises:
        ConfigError: the task does not fit the stored records, or its enricher cannot be made;
            nothing was changed.
    """
    queries, make_question = queries_of(task), question_maker(task)
    warnings = await _check_sources(task, records)
    # The stream reads in the calling thread, which must not be that of the loop.
    warnings += await asyncio.to_thread(_check_fields, task, records, queries)
    # Read first, so that questions which another run queues meanwhile are not dropped.
    gone = await questions.open_links(task.enrich)
    seen = asking = new = 0
    for query in queries:
        async for rows in _read_batches(records.stream(query)):
            requests = {row["id"]: make_question(row) for row in rows}
            known = await questions.linked(task.enrich, list(requests))
            fresh = [
                one
                for record, one in requests.items()
                if known.get(record) != (one.question.id, one.version)
            ]
            new += await questions.enqueue(task.enrich, fresh, clock.now()) if fresh else 0
            seen, asking = seen + len(rows), asking + len(fresh)
            for record in requests:
                gone.pop(record, None)
    dropped, rest = 0, iter(gone.items())
    while part := dict(islice(rest, _BATCH)):
        dropped += await questions.unlink(task.enrich, part)
    await questions.prune(task.enrich)
    return Queued(seen, asking, new, dropped, tuple(warnings))


async def _read_batches(rows: Iterator[Row]) -> AsyncIterator[list[Row]]:
    # The stream reads in the calling thread, which must not be that of the loop.
    while page := await asyncio.to_thread(lambda: list(islice(rows, _BATCH))):
        yield page
