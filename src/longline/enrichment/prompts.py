"""The questions of a task about a record, and the messages that ask them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

import orjson

from longline.config.expressions import fill, names_in
from longline.enrichment.task_files import EnrichTask
from longline.storage.records.enrichment import Question, QuestionRequest

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
