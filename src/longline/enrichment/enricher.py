"""Questions about records, the enrichers that answer them, and the validation of answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any, Protocol

import orjson
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from referencing import Registry

from longline.config.expressions import fill, look_up, names_in
from longline.core.errors import UnexpectedShape
from longline.enrichment.task_files import AnyTask, EnrichTask, LocalTask
from longline.http.errors import BadAnswer
from longline.pipeline.enrich import Enricher as PipelineEnricher
from longline.pipeline.enrich import make_enricher
from longline.pipeline.json_schema import TimedValidator
from longline.storage.enrichment import LOCAL_MODEL, Question, QuestionRequest

_EMPTY: tuple[Any, ...] = (None, "", [], {})
_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL)
_WHERE = "answer"
_MAX_LENGTH = 300
_MAX_REPEATED = 2_000  # characters of an invalid answer that are sent back to the model
_SCHEMA_PROMPT = "Answer only with JSON that matches this JSON Schema, without any other text: "
_RETRY_PROMPT = (
    "That answer cannot be used: {problem}. Answer the same question again, only with "
    "JSON that matches the JSON Schema."
)


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


class LocalEnricher(Enricher):
    """Passes the fields in a question (JSON) to an enricher of the pipeline.

    Slow enrichers (a large table, a language library) can so run after collection, once per text.
    """

    def __init__(self, enricher: PipelineEnricher) -> None:
        self._enricher = enricher

    async def ask(self, question: Question) -> Answer:
        data: Any = orjson.loads(question.text)
        try:
            addition = await asyncio.to_thread(self._enricher.enrich, data)
            note = "; ".join(f"{one.field}: {one.text}" for one in addition.notes)
            return Answer(_json_text(dict(addition.fields)), note=note or None)
        except Exception as error:  # code of a plugin; other questions continue
            problem = f"{type(error).__name__}: {error}"
            raise BadAnswer(self._enricher.name, problem) from error

    async def is_up(self) -> bool:
        return True


# ---------------- Answers


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
    try:
        orjson.dumps(value)  # fewer levels can be written than read
        mismatch = best_match(_validator(orjson.dumps(schema)).iter_errors(value))
    except (TypeError, RecursionError):
        raise UnexpectedShape(_WHERE, "it is nested too deeply") from None
    if mismatch is not None:
        where = ".".join([_WHERE, *map(str, mismatch.absolute_path)])
        raise UnexpectedShape(where, f"{mismatch.message:.{_MAX_LENGTH}}")
    return value


@lru_cache(maxsize=16)
def _validator(schema: bytes) -> Draft202012Validator:
    # An empty registry prevents the download of referenced schemas.
    return TimedValidator(orjson.loads(schema), registry=Registry())


# ---------------- Questions


def question_maker(task: AnyTask) -> Callable[[Mapping[str, Any]], QuestionRequest]:
    """Return the function that makes the question about a record.

    Raises:
        ConfigError: the enricher of the task cannot be made.
    """
    if isinstance(task, LocalTask):
        enricher = make_enricher(task.name, task.options)
        return partial(_local_question_for, task, str(getattr(enricher, "version", "")))
    return partial(question_for, task)


def question_for(task: EnrichTask, row: Mapping[str, Any]) -> QuestionRequest:
    """Return the question about a record, or the reason why there is none."""
    values = {name: _field_text(look_up(name, row["data"])) for name in names_in(task.prompt)}
    missing = [name for name in task.needed if not values[name].strip()]
    text = fill(task.prompt, values)
    question = Question(
        "", task.enrich, task.version, task.model, text, task.system, schema=task.answer
    )
    return _identify(row, question, missing)


def _local_question_for(task: LocalTask, version: str, row: Mapping[str, Any]) -> QuestionRequest:
    fields = {name: row["data"].get(name) for name in task.reads}
    empty = [name for name in fields if fields[name] in _EMPTY]
    needed = task.needed if len(empty) < len(fields) else fields
    # Other options are another question; the table is part of the version.
    options = task.options.model_dump_json(exclude={"table", "file"})
    model, schema = f"{LOCAL_MODEL}{task.name}", {"type": "object"}
    question = Question("", task.enrich, version, model, _json_text(fields), options, schema=schema)
    return _identify(row, question, [name for name in empty if name in needed])


def _identify(
    row: Mapping[str, Any], question: Question, missing: Sequence[str]
) -> QuestionRequest:
    """Give a question its id, a hash that is the same for all tasks and records.

    A question that is skipped because fields are missing belongs to its task alone.
    """
    reason = f"it has no {', '.join(missing)}" if missing else ""
    why = f"{question.task}: {reason}" if reason else ""
    text = "" if reason else question.text
    whole = [question.model, question.version, question.system, question.schema, text, why]
    name = sha256(orjson.dumps(whole, option=orjson.OPT_SORT_KEYS)).hexdigest()
    asked = replace(question, id=name, text=text)
    return QuestionRequest(row["id"], row["version"], asked, reason or None)


def messages_of(question: Question) -> list[dict[str, str]]:
    """Return the question as a conversation, with the last invalid answer."""
    shape = _SCHEMA_PROMPT + orjson.dumps(question.schema).decode()
    system = f"{question.system}\n\n{shape}" if question.system else shape
    said = [("system", system), ("user", question.text)]
    last = next((one for one in reversed(question.attempts) if one.response is not None), None)
    if last is not None:
        said.append(("assistant", (last.response or "")[:_MAX_REPEATED]))
        said.append(("user", _RETRY_PROMPT.format(problem=last.problem)))
    return [{"role": role, "content": content} for role, content in said]


def _field_text(value: Any) -> str:
    if value in _EMPTY:
        return ""
    return value if isinstance(value, str) else _json_text(value)


def _json_text(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()
