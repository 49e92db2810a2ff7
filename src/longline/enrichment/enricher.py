"""Enrichers, which answer questions about records, and the validation of their answers."""

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
