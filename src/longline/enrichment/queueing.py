"""Queueing: which records of a task have something new to ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from longline.config.documents import nearest
from longline.core.clock import Clock
from longline.core.errors import BadOption
from longline.enrichment.local import question_maker
from longline.enrichment.prompts import has_field
from longline.enrichment.task_files import AnyTask
from longline.storage.records.enrichment import Questions
from longline.storage.records.records import Records, Row
from longline.storage.records.selecting import RecordQuery, parse_condition

# ---------------- Whether a task can be about the records that are here, before anything is queued

_DEEPEST = 3  # levels of a record whose names are offered in place of a wrong one
_SHOWN = 12


async def check_task(
    task: AnyTask, records: Records, queries: Sequence[RecordQuery]
) -> tuple[str, ...]:
    """Return what is odd about a task, in sentences.

    Raises:
        BadOption: no source of it has a record, or no record has a field that it needs.
    """
    warnings = await _check_sources(task, records)
    # The stream reads in the thread that asks it, so it is asked in another than the loop's.
    return (*warnings, *await asyncio.to_thread(_check_fields, task, records, queries))


async def _check_sources(task: AnyTask, records: Records) -> list[str]:
    sources = dict.fromkeys(task.sources)
    empty = [one for one in sources if not await records.list(RecordQuery(source=one, limit=1))]
    if not empty:
        return []
    known = [str(row["source"]) for row in await records.statistics()]
    if len(empty) == len(sources):
        listed = ", ".join(known[:_SHOWN]) or "none; collect some first"
        problem = f"there is no record of {', '.join(empty)} here; sources with records: {listed}"
        raise BadOption("sources", problem)
    return [f"sources: there is no record of {one} here{_hint(one, known)}" for one in empty]


def _check_fields(task: AnyTask, records: Records, queries: Sequence[RecordQuery]) -> list[str]:
    """Look for each field that is asked about; mostly the first record has them all."""
    missing = list(task.reads)
    known: dict[str, None] = {}
    for row in chain.from_iterable(map(records.stream, queries)):
        known.update(dict.fromkeys(_names(row["data"])))
        missing = [name for name in missing if not has_field(row["data"], name)]
        if not missing:
            return []
    # Without any record there is nothing to judge by.
    return _told(task, missing, list(known)) if known else []


def _told(task: AnyTask, missing: Sequence[str], known: Sequence[str]) -> list[str]:
    for one in missing:
        if one in task.needed:
            problem = f"no record that fits has a field {one!r}{_hint(one, known)}"
            raise BadOption(task.asks_by, f"{problem}; known: {', '.join(known[:_SHOWN])}")
    # It may be missing, but hardly in all of them.
    return [
        f"{task.asks_by}: no record that fits has a field {one!r}{_hint(one, known)}"
        for one in missing
    ]


def _hint(name: str, known: Sequence[str]) -> str:
    meant = nearest(name, known)
    return f"; did you mean {meant!r}?" if meant else ""


def _names(data: Any, before: str = "", depth: int = 1) -> Iterator[str]:
    for name, value in data.items() if isinstance(data, Mapping) else ():
        yield f"{before}{name}"
        if depth < _DEEPEST:
            yield from _names(value, f"{before}{name}.", depth + 1)


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
    queries, wish_of = queries_of(task), question_maker(task)
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
