"""What is done about answers that are not what they seem: by status, body or header."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from longline.config.manifests.api_paths import JsonPath
from longline.config.patterns import user_pattern
from longline.config.written import Written, wrong

Step = Literal["retry", "wait", "skip", "fail", "refresh", "accept"]
_CLASS = re.compile(r"[1-5]xx")
_FIRST, _LAST = 100, 599
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_LONGEST = 366 * 86_400.0
_STATUS = "a status is a number such as 404, or a class of them such as 5xx"


def _seconds(value: Any) -> float:
    found = None if isinstance(value, bool) else _DURATION.fullmatch(str(value).strip())
    seconds = float(found[1]) * _UNITS[found[2] or "s"] if found else -1.0
    if not 0 <= seconds <= _LONGEST:
        raise wrong("a time is a number of seconds, or written as 30s, 15m, 12h, 1d or 2w")
    return seconds


def _statuses(value: Any) -> tuple[int, ...]:
    several = value if isinstance(value, list | tuple) else [value]
    return tuple(dict.fromkeys(status for one in several for status in _of_class(one)))


def _of_class(value: Any) -> list[int]:
    if isinstance(value, str) and _CLASS.fullmatch(value.lower()):
        first = int(value[0]) * 100
        return list(range(first, first + 100))
    if isinstance(value, int) and not isinstance(value, bool) and _FIRST <= value <= _LAST:
        return [value]
    raise wrong(_STATUS)


def _pattern(text: str) -> str:
    try:
        user_pattern(text)
    except ValueError as error:
        raise wrong(f"not a regular expression: {error}") from error
    return text


Seconds = Annotated[float, BeforeValidator(_seconds, json_schema_input_type=float | str)]
"""A time in seconds, or as 30s, 15m, 12h, 1d, 2w."""

Statuses = Annotated[
    tuple[int, ...], BeforeValidator(_statuses, json_schema_input_type=int | str | list[int | str])
]
"""One status or several; 5xx stands for all from 500 to 599."""


class When(Written):
    """Which answers are meant: all that is said must hold.

    Without a status, only answers that are otherwise fine are looked at: others are retried,
    skipped or failed by what their status means.
    """

    status: Statuses = ()
    body: JsonPath | None = None
    """A condition on the JSON: it holds when the path finds anything but false, null or empty."""
    header: dict[str, Annotated[str, BeforeValidator(str), AfterValidator(_pattern)]] = Field(
        default_factory=dict
    )
    """Headers by name, each with a regular expression that its value has somewhere."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not (self.status or self.body or self.header):
            raise wrong("say at least one of status, body and header")
        return self


class Handler(Written):
    """A rule: what is done when an answer is such a one. The first rule that fits is followed."""

    when: When
    do: Step
    """retry: ask again. wait: the whole source rests, then asks again. skip: there is nothing
    here. fail: it is an error. refresh: prove anew who we are, then ask again. accept: it is
    fine."""
    after: Seconds | None = None
    """How long to wait first; as Retry-After says, or with growing waits, when not said."""
    after_header: str | None = Field(default=None, min_length=1)
    """A header that says it: seconds, or the moment as seconds since 1970."""
    attempts: int = Field(default=3, ge=1, le=100)
    """How often it is asked in all before that is a failure."""
    reason: str | None = Field(default=None, min_length=1)
    """What a user reads about it."""

    @model_validator(mode="after")
    def _only_where_somebody_waits(self) -> Self:
        waits = self.do in {"retry", "wait"}
        if not waits and (self.after is not None or self.after_header):
            raise wrong(f"after belongs to retry and wait; {self.do} waits for nothing")
        return self
