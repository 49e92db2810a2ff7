"""Questions about records, enrichers that answer them, and the validation of answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any, Protocol

import orjson
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from referencing import Registry

from longline.config.expressions import fill, names_in
from longline.core.errors import UnexpectedShape
from longline.enrichment.task_files import AnyTask, EnrichTask, LocalTask
from longline.http.errors import BadAnswer
from longline.pipeline.enrich import Addition, make_enricher
from longline.pipeline.enrich import Enricher as PipelineEnricher
from longline.pipeline.json_schema import TimedValidator
from longline.storage.enrichment import LOCAL_MODEL, Question, QuestionRequest


@dataclass(frozen=True, slots=True)
class Answer:
    """The text of an answer; `is_cut` when it is incomplete.

    A `note` says why a value in it is empty.
    """

    text: str
    tokens: int = 0
    is_cut: bool = False
    note: str | None = None


class Enricher(Protocol):
    """Answers questions, without validating the answers."""

    async def ask(self, question: Question) -> Answer:
        """Ask once, without a retry.

        Raises:
            FetchError: there is no answer; its `kind` decides about a retry.
        """

    async def is_up(self) -> bool:
        """Return whether the server responds."""


_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL)
_WHERE = "answer"
_MAX_LENGTH = 300


def read_answer(answer: Answer, schema: Mapping[str, Any]) -> Any:
    """Return the value of an answer.

    Raises:
        UnexpectedShape: it is cut, not JSON, or does not match the schema; the message is written
            for the model, too.
    """
    if answer.is_cut:
        raise UnexpectedShape(_WHERE, "it was cut off before its end; be brief")
    # Many models put their JSON into a fence. Nothing else is removed: searching a text for braces
    # may find half of an object.
    fenced = _FENCED.fullmatch(answer.text)
    try:
        value = orjson.loads(fenced[1] if fenced else answer.text)
    except orjson.JSONDecodeError as error:
        start = " ".join(answer.text.split())[:60]
        raise UnexpectedShape(_WHERE, f"it is not JSON ({error}): {start!r}") from error
    _check_storable(value)
    _check_shape(value, schema)
    return value


def _check_storable(value: Any) -> None:
    try:
        written = orjson.dumps(value)
    except TypeError:  # orjson writes fewer levels than it reads
        raise UnexpectedShape(_WHERE, "it is nested too deeply") from None
    if b"\\u0000" in written.replace(b"\\\\", b""):
        raise UnexpectedShape(_WHERE, "it has a NUL character, which not every database can store")


def _check_shape(value: Any, schema: Mapping[str, Any]) -> None:
    try:
        mismatch = best_match(_validator(orjson.dumps(schema)).iter_errors(value))
    except RecursionError:  # a recursive schema and a deep answer
        raise UnexpectedShape(_WHERE, "it is nested too deeply") from None
    if mismatch is not None:
        where = ".".join([_WHERE, *map(str, mismatch.absolute_path)])
        raise UnexpectedShape(where, _shorten(mismatch.message))


@lru_cache(maxsize=16)
def _validator(schema: bytes) -> Draft202012Validator:
    # An empty registry prevents the download of referenced schemas.
    return TimedValidator(orjson.loads(schema), registry=Registry())


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 1]}…"


# ---------------- The questions of a task about a record, and the messages that ask them

_SCHEMA_PROMPT = "Answer with JSON alone, without any other word, that fits this JSON Schema: "
_RETRY_PROMPT = (
    "That answer cannot be used: {problem}. Answer the same question again, with JSON alone "
    "that fits the JSON Schema."
)
_MAX_REPEATED = 2_000  # characters of an invalid answer that are sent back to the model


def question_for(task: EnrichTask, row: Mapping[str, Any]) -> QuestionRequest:
    """Return the question about a record, or the reason why there is none."""
    values = {name: _field_text(_field_value(row["data"], name)) for name in names_in(task.prompt)}
    missing = [name for name in task.needed if not values[name].strip()]
    if missing:
        reason = f"it has no {', '.join(missing)}"
        return QuestionRequest(row["id"], row["version"], _question(task, "", reason), reason)
    return QuestionRequest(row["id"], row["version"], _question(task, fill(task.prompt, values)))


def has_field(data: Any, name: str) -> bool:
    """Return whether a record has a field of the prompt, even an empty one."""
    if isinstance(data, Mapping) and name in data:
        return True
    *above, last = name.split(".")
    holder = _field_value(data, ".".join(above)) if above else data
    return isinstance(holder, Mapping) and last in holder


def messages_of(question: Question) -> list[dict[str, str]]:
    """Return the question as a conversation, with the last invalid answer."""
    shape = _SCHEMA_PROMPT + orjson.dumps(question.schema).decode()
    system = f"{question.system}\n\n{shape}" if question.system else shape
    messages = [_message("system", system), _message("user", question.text)]
    last = next((one for one in reversed(question.attempts) if one.response is not None), None)
    if last is not None:
        messages.append(_message("assistant", (last.response or "")[:_MAX_REPEATED]))
        messages.append(_message("user", _RETRY_PROMPT.format(problem=last.problem)))
    return messages


def _question(task: EnrichTask, text: str, reason: str = "") -> Question:
    question = Question(
        id="",
        task=task.enrich,
        version=task.version,
        model=task.model,
        text=text,
        system=task.system,
        schema=task.answer,
    )
    return with_id(question, reason)


def with_id(question: Question, reason: str = "") -> Question:
    """Return a question with its id, a hash that is the same for all tasks and records.

    A question that is skipped for a `reason` belongs to its task alone.
    """
    whole = [question.model, question.version, question.system, question.schema, question.text]
    why = f"{question.task}: {reason}" if reason else ""
    written = orjson.dumps([*whole, why], option=orjson.OPT_SORT_KEYS)
    return replace(question, id=sha256(written).hexdigest())


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _field_value(data: Any, name: str) -> Any:
    if isinstance(data, Mapping) and name in data:
        return data[name]
    value = data
    for part in name.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def _field_text(value: Any) -> str:
    """Return a value as text for a model."""
    if value is None or value in ("", [], {}):
        return ""
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


# ---------------- Enrichers of the pipeline that run as enrichment tasks, without a server

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
