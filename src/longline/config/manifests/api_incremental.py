"""Only what changed: where a run begins, by the records that earlier ones have seen."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from longline.config.manifests.api_handlers import Seconds
from longline.config.manifests.api_paths import JsonPath
from longline.config.written import Written, wrong

_MILLISECONDS = 1e11  # as seconds this is the year 5138: whoever says more means milliseconds


def _as_text(value: Any) -> Any:
    """Take a day as YAML may read it."""
    return value.isoformat() if isinstance(value, date) else value


class Incremental(Written):
    """Only what changed since the last complete run is asked for."""

    field: JsonPath
    """Where a record says when it changed, or which number it has."""
    parameter: str | None = Field(default=None, min_length=1)
    """The query parameter for the beginning; `{since}` elsewhere stands for it, too."""
    type: Literal["datetime", "date", "integer"] = "datetime"
    start: Annotated[str | int, BeforeValidator(_as_text)] | None = None
    """Where the first run begins; without it, the first run asks for everything."""
    look_back: Seconds = 0.0
    """How much earlier to begin than the last run ended: a time, or a number for integers."""

    def read(self, value: Any) -> float:
        """Return a value as a number: seconds since 1970, or the integer itself.

        Raises:
            ValueError: it is not of this type.
        """
        return _integer(value) if self.type == "integer" else _moment(value)

    def write(self, number: float) -> str | int:
        """Return a number as the API wants it; what was between two seconds or days is earlier."""
        if self.type == "integer":
            return math.floor(number)
        moment = datetime.fromtimestamp(math.floor(number), UTC)
        if self.type == "date":
            return moment.date().isoformat()
        return moment.isoformat().replace("+00:00", "Z")

    @model_validator(mode="after")
    def _a_start(self) -> Self:
        try:
            if self.start is not None:
                self.read(self.start)
        except ValueError as error:
            raise wrong(f"start is not of the type {self.type}: {error}") from None
        return self


def _integer(value: Any) -> float:
    try:
        return int(str(value).strip())
    except ValueError:
        message = f"{value!r} is no whole number"
        raise ValueError(message) from None


def _moment(value: Any) -> float:
    """Return a moment as ISO 8601 writes it, or as a number since 1970; without a zone, in UTC."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value / 1000 if abs(value) >= _MILLISECONDS else float(value)
    try:
        moment = datetime.fromisoformat(str(value).strip())
    except ValueError:
        message = f"{value!r} is no moment such as 2020-01-31 or 2020-01-31T12:00:00Z"
        raise ValueError(message) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
