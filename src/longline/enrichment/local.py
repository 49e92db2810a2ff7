"""Enrichers of the pipeline as somebody to ask: free, at once, and without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import orjson

from longline.core.model import Note
from longline.enrichment.enricher import Answer, Enricher
from longline.enrichment.prompts import question_for, with_id
from longline.enrichment.task_files import AnyTask, LocalTask
from longline.http.errors import BadAnswer
from longline.pipeline.enrich import make_enricher
from longline.pipeline.enrichers.base import Addition
from longline.pipeline.enrichers.base import Enricher as PipelineEnricher
from longline.storage.records.enrichment import LOCAL_MODEL, Question, Wish

_EMPTY: tuple[Any, ...] = (None, "", [], {})


class LocalEnricher(Enricher):
    """Gives an enricher the fields that a question holds as JSON, or its text as one `field`.

    So what is slow (a large table, a library for languages) can be done after collection, once a
    text, instead of in it.
    """

    def __init__(self, enricher: PipelineEnricher, *, field: str | None = None) -> None:
        self._enricher = enricher
        self._field = field
        self.version = str(getattr(enricher, "version", ""))

    async def ask(self, question: Question) -> Answer:
        text = question.text
        data: Any = orjson.loads(text) if self._field is None else {self._field: text}
        try:
            return _answer(await asyncio.to_thread(self._enricher.enrich, data))
        except Exception as error:  # it may be anybody's code, and others' questions must go on
            problem = f"{type(error).__name__}: {error}"
            raise BadAnswer(self._enricher.name, problem) from error

    async def is_up(self) -> bool:
        return True


def open_local(task: LocalTask) -> LocalEnricher:
    """Return the enricher that a task names.

    Raises:
        ConfigError: its table cannot be read, or its library is not installed.
    """
    return LocalEnricher(make_enricher(task.name, task.options))


def local_question_for(task: LocalTask, version: str, row: Mapping[str, Any]) -> Wish:
    """Return what an enricher of this version is asked about a record, or why nothing is."""
    fields = {name: row["data"].get(name) for name in task.reads}
    missing = [name for name in fields if fields[name] in _EMPTY]
    lacks = [name for name in missing if name in task.needed]
    if len(missing) == len(fields):
        lacks = missing
    reason = f"it has no {', '.join(lacks)}" if lacks else ""
    question = Question(
        id="",
        task=task.enrich,
        version=version,
        model=f"{LOCAL_MODEL}{task.name}",
        text="" if reason else _json(fields),
        # Whatever is written changes what is said, and is asked anew; a table is in the version.
        system=task.options.model_dump_json(exclude={"table", "file"}),
        schema={"type": "object"},
    )
    return Wish(row["id"], row["version"], with_id(question, reason), reason or None)


def _answer(addition: Addition) -> Answer:
    why = "; ".join(map(_told, addition.notes))
    return Answer(_json(dict(addition.fields)), note=why or None)


def _told(note: Note) -> str:
    return f"{note.field}: {note.text}"


def _json(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()


# ---------------- What a task asks about its records, be it of a model or of an enricher here


def question_maker(task: AnyTask) -> Callable[[Mapping[str, Any]], Wish]:
    """Return what makes a question, or a reason for none, of a record.

    Raises:
        ConfigError: the enricher of the task cannot be made.
    """
    if isinstance(task, LocalTask):
        return partial(local_question_for, task, open_local(task).version)
    return partial(question_for, task)
