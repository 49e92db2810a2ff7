"""Enrichers of the pipeline that run as enrichment tasks, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import orjson

from longline.enrichment.enricher import Answer, Enricher
from longline.enrichment.prompts import question_for, with_id
from longline.enrichment.task_files import AnyTask, LocalTask
from longline.http.errors import BadAnswer
from longline.pipeline.enrich import Addition, make_enricher
from longline.pipeline.enrich import Enricher as PipelineEnricher
from longline.storage.records.enrichment import LOCAL_MODEL, Question, QuestionRequest

_EMPTY: tuple[Any, ...] = (None, "", [], {})


class LocalEnricher(Enricher):
    """Passes the fields in a question (JSON), or its text as one `field`, to an enricher.

    Slow enrichers (a large table, a language library) can so run after collection, once per text.
    """

    def __init__(self, enricher: PipelineEnricher, *, field: str | None = None) -> None:
        self._enricher = enricher
        self._field = field
        self.version = str(getattr(enricher, "version", ""))

    async def ask(self, question: Question) -> Answer:
        text = question.text
        data: Any = orjson.loads(text) if self._field is None else {self._field: text}
        try:
            return _to_answer(await asyncio.to_thread(self._enricher.enrich, data))
        except Exception as error:  # code of a plugin; other questions continue
            problem = f"{type(error).__name__}: {error}"
            raise BadAnswer(self._enricher.name, problem) from error

    async def is_up(self) -> bool:
        return True


def open_local(task: LocalTask) -> LocalEnricher:
    """Make the enricher that a task names.

    Raises:
        ConfigError: its table cannot be read, or its library is not installed.
    """
    return LocalEnricher(make_enricher(task.name, task.options))


def local_question_for(task: LocalTask, version: str, row: Mapping[str, Any]) -> QuestionRequest:
    """Return the question about a record, or the reason why there is none."""
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
        text="" if reason else _to_json(fields),
        # Other options are another question; the table is part of the version.
        system=task.options.model_dump_json(exclude={"table", "file"}),
        schema={"type": "object"},
    )
    return QuestionRequest(row["id"], row["version"], with_id(question, reason), reason or None)


def _to_answer(addition: Addition) -> Answer:
    note = "; ".join(f"{one.field}: {one.text}" for one in addition.notes)
    return Answer(_to_json(dict(addition.fields)), note=note or None)


def _to_json(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()


def question_maker(task: AnyTask) -> Callable[[Mapping[str, Any]], QuestionRequest]:
    """Return the function that makes the question about a record.

    Raises:
        ConfigError: the enricher of the task cannot be made.
    """
    if isinstance(task, LocalTask):
        return partial(local_question_for, task, open_local(task).version)
    return partial(question_for, task)
