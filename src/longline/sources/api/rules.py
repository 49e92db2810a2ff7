"""Response handlers of an endpoint: their schema, and which one applies to a response."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from longline.config.expressions import JsonPath, Pattern, find, user_pattern
from longline.config.strict_model import StrictModel, invalid
from longline.core.errors import UnexpectedShape, bad_status
from longline.core.http_headers import parse_number
from longline.http.messages import FIRST_ERROR, Page
from longline.limits.retry import DEFAULT_RETRY, RETRIED_STATUSES

Action = Literal["retry", "wait", "skip", "fail", "refresh", "accept"]
_STATUS_CLASS = re.compile(r"[1-5]xx")
_FIRST_STATUS, _LAST_STATUS = 100, 599
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_MAX_SECONDS = 366 * 86_400.0
_DEFAULT_WAIT = 60.0  # seconds that a source waits when neither the rule nor the site says how long
_EPOCH_SECONDS = 1e9  # a reset header above this is a point in time and not a duration


def _parse_duration(value: Any) -> float:
    found = None if isinstance(value, bool) else _DURATION.fullmatch(str(value).strip())
    seconds = float(found[1]) * _UNITS[found[2] or "s"] if found else -1.0
    if not 0 <= seconds <= _MAX_SECONDS:
        raise invalid("a duration is a number of seconds, or written as 30s, 15m, 12h, 1d or 2w")
    return seconds


def _parse_statuses(value: Any) -> tuple[int, ...]:
    several = value if isinstance(value, list | tuple) else [value]
    return tuple(dict.fromkeys(status for one in several for status in _statuses_of(one)))


def _statuses_of(value: Any) -> list[int]:
    if isinstance(value, str) and _STATUS_CLASS.fullmatch(value.lower()):
        first = int(value[0]) * 100
        return list(range(first, first + 100))
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number and _FIRST_STATUS <= value <= _LAST_STATUS:
        return [value]
    raise invalid("a status is a number such as 404, or a class such as 5xx")


Seconds = Annotated[float, BeforeValidator(_parse_duration, json_schema_input_type=float | str)]
"""A duration in seconds, or as 30s, 15m, 12h, 1d, 2w."""

Statuses = Annotated[
    tuple[int, ...],
    BeforeValidator(_parse_statuses, json_schema_input_type=int | str | list[int | str]),
]
"""One status or several; 5xx means 500 to 599."""


class When(StrictModel):
    """Which responses a handler applies to: all conditions must hold.

    Without a status, only successful responses are considered: others are retried, skipped or
    failed according to their status.
    """

    status: Statuses = ()
    body: JsonPath | None = None
    """A condition on the JSON body: true unless the path finds false, null or an empty value."""
    header: dict[str, Annotated[Pattern, BeforeValidator(str)]] = Field(default_factory=dict)
    """Headers by name, each with a regular expression that must match in its value."""

    @model_validator(mode="after")
    def _require_a_condition(self) -> Self:
        if not (self.status or self.body or self.header):
            raise invalid("write at least one of status, body and header")
        return self


class Handler(StrictModel):
    """What to do with a matching response. The first handler that matches applies."""

    when: When
    do: Action
    """retry: send the request again. wait: pause the whole source, then send it again. skip: there
    is nothing here. fail: it is an error. refresh: authenticate again, then send it again. accept:
    the response is fine."""
    after: Seconds | None = None
    """Delay before the next attempt; default: Retry-After, or exponential backoff."""
    after_header: str | None = Field(default=None, min_length=1)
    """A header with the delay: seconds, or a point in time as seconds since 1970."""
    attempts: int = Field(default=3, ge=1, le=100)
    """Maximum number of attempts."""
    reason: str | None = Field(default=None, min_length=1)
    """The reason that is reported to the user."""

    @model_validator(mode="after")
    def _check_delay(self) -> Self:
        waits = self.do in {"retry", "wait"}
        if not waits and (self.after is not None or self.after_header):
            raise invalid(f"after belongs to retry and wait; {self.do} does not wait")
        return self


RETRY_STATUSES = Handler(when=When(status=tuple(RETRIED_STATUSES)), do="retry")
"""The default for transient statuses that the request chain returned to the handlers."""


def statuses_to_return(handlers: Sequence[Handler], accept: Sequence[int]) -> frozenset[int]:
    """Return the error statuses that the request chain returns instead of raising."""
    named = {status for handler in handlers for status in handler.when.status}
    return frozenset(accept) | frozenset(one for one in named if one >= FIRST_ERROR)


def handler_for(handlers: Sequence[Handler], accept: Sequence[int], page: Page) -> Handler | None:
    """Return the handler that applies to a response; None when the response is fine.

    Raises:
        BadStatus: no handler applies, and the status is a permanent error.
    """
    for handler in handlers:
        if _matches(handler.when, page):
            return handler
    if page.status < FIRST_ERROR or page.status in accept:
        return None
    if page.status in RETRIED_STATUSES:
        return RETRY_STATUSES
    raise bad_status(page.url, page.status)


def delay_before_retry(handler: Handler, page: Page, attempts: int, now: float) -> float:
    """Return the seconds to wait after this many attempts."""
    if handler.after is not None:
        return handler.after
    header = page.headers.get(handler.after_header, "") if handler.after_header else ""
    seconds = parse_number(header)
    if seconds is not None and seconds > _EPOCH_SECONDS:
        seconds = max(0.0, seconds - now)
    if seconds is None:
        seconds = page.retry_after(now)
    if handler.do == "wait":
        return _DEFAULT_WAIT if seconds is None else seconds
    return max(DEFAULT_RETRY.backoff(attempts), seconds or 0.0)


def reason_for(handler: Handler, page: Page) -> str:
    """Return why a handler applied to a response, for the user."""
    if handler.reason:
        return handler.reason
    when = handler.when
    conditions = [f"status {page.status}"] if when.status else []
    conditions += [f"{when.body!r} is true"] if when.body else []
    conditions += [f"header {name} is {page.headers.get(name)!r}" for name in when.header]
    return f"{', '.join(conditions)}: handler {handler.do}"


def _matches(when: When, page: Page) -> bool:
    if when.status and page.status not in when.status:
        return False
    if any(not _header_matches(page.headers, name, text) for name, text in when.header.items()):
        return False
    return when.body is None or _body_matches(when.body, page)


def _header_matches(headers: Mapping[str, str], name: str, text: str) -> bool:
    value = headers.get(name, headers.get(name.lower()))
    return value is not None and user_pattern(text, ignore_case=True).search(value) is not None


def _body_matches(condition: str, page: Page) -> bool:
    try:
        found = find(condition, page.json)
    except (UnexpectedShape, ValueError):
        return False  # the body is not JSON, or JSON of another shape
    # As in JMESPath, zero is true and empty values are not.
    is_empty = isinstance(found, str | list | Mapping) and not found
    return not (found is None or found is False or is_empty)
