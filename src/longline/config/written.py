"""The base of what a user writes: nothing unknown, one sentence an error, no secret in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError


def wrong(problem: str) -> PydanticCustomError:
    """Return the error that tells a user this sentence, and nothing of what was written."""
    return PydanticCustomError("written", "{problem}", {"problem": problem})


class Written(BaseModel):
    """Something a user writes: no unknown names, and no input in an error's text."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _know_every_name(cls, values: Any) -> Any:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for name in values if isinstance(values, Mapping) else ():
            if name not in known:
                raise _unknown(str(name), known, values)
        return values


def _unknown(name: str, known: list[str], values: Mapping[Any, Any]) -> PydanticCustomError:
    problem = f"there is no setting {name!r} here; known are {', '.join(known)}"
    # Of several kinds that may stand somewhere, the share tells which one was meant.
    share = sum(one in known for one in values) / len(values)
    context = {"problem": problem, "name": name, "known": known, "share": share}
    return PydanticCustomError("unknown_name", "{problem}", context)
