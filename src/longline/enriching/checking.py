"""Whether a task can be about the records that are here, before anything is queued."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from longline.config.documents_words import nearest
from longline.config.enriching import AnyTask
from longline.enriching.prompts import has_field
from longline.errors import BadOption
from longline.stores.records import Records
from longline.stores.selecting import RecordQuery

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
