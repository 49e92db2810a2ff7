"""Whoever can answer questions about records, and what an answer is before it is judged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import orjson
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from referencing import Registry

from longline.core.errors import UnexpectedShape
from longline.pipeline.json_schema import TimedValidator
from longline.storage.records.enrichment import Question


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, as it was said; `is_cut` when it ended before its end.

    A `note` says why something in it is empty.
    """

    text: str
    tokens: int = 0
    is_cut: bool = False
    note: str | None = None


class Enricher(Protocol):
    """Answers questions; whether an answer fits is judged by others."""

    async def ask(self, question: Question) -> Answer:
        """Ask once, without any retry.

        Raises:
            FetchError: no answer came; its `kind` decides what happens next.
        """

    async def is_up(self) -> bool:
        """Say whether it can be asked at all."""


# ---------------- Judging answers: JSON, whole, and of the shape that was asked for

_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL)
_WHERE = "answer"
_LONGEST = 300


def read_answer(answer: Answer, schema: Mapping[str, Any]) -> Any:
    """Return the value that an answer holds.

    Raises:
        UnexpectedShape: it is cut, no JSON, or not of this shape; the sentence can be told to
            whoever gave it.
    """
    if answer.is_cut:
        raise UnexpectedShape(_WHERE, "it was cut off before its end; be brief")
    # Many models put their JSON into a fence, whatever they were told. Nothing else is cut away:
    # looking for braces in a text finds half of an object as easily as a whole one.
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
    except TypeError:  # it writes fewer levels than it reads
        raise UnexpectedShape(_WHERE, "it is nested too deeply") from None
    if b"\\u0000" in written.replace(b"\\\\", b""):
        raise UnexpectedShape(_WHERE, "it holds a NUL, which not every database can keep")


def _check_shape(value: Any, schema: Mapping[str, Any]) -> None:
    try:
        misfit = best_match(_validator(orjson.dumps(schema)).iter_errors(value))
    except RecursionError:  # a schema that refers to itself, and an answer of many levels
        raise UnexpectedShape(_WHERE, "it is nested too deeply") from None
    if misfit is not None:
        where = ".".join([_WHERE, *map(str, misfit.absolute_path)])
        raise UnexpectedShape(where, _short(misfit.message))


@lru_cache(maxsize=16)
def _validator(schema: bytes) -> Draft202012Validator:
    # An empty registry, so that no schema makes us download another.
    return TimedValidator(orjson.loads(schema), registry=Registry())


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
