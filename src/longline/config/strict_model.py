"""The base model of what users write: unknown names are errors, and errors never repeat input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator
from pydantic_core import PydanticCustomError


def invalid(problem: str) -> PydanticCustomError:
    """Return a validation error with this message and nothing of the input, which may be secret."""
    return PydanticCustomError("invalid", "{problem}", {"problem": problem})


def one_or_several(value: Any) -> Any:
    """Accept one text as a list of one."""
    return [value] if isinstance(value, str) else value


def short_for(name: str) -> BeforeValidator:
    """Accept a text as a mapping that has it under this name."""
    return BeforeValidator(lambda value: {name: value} if isinstance(value, str) else value)


class StrictModel(BaseModel):
    """A frozen model that refuses unknown names and hides its input in errors."""

    # Without use_attribute_docstrings: reading the source of each model takes 50 ms in all, and
    # only the JSON Schemas need these texts.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_names(cls, values: Any) -> Any:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for name in values if isinstance(values, Mapping) else ():
            if name not in known:
                problem = f"unknown key {name!r}; known: {', '.join(known)}"
                context = {"problem": problem, "name": str(name), "known": known}
                raise PydanticCustomError("unknown_name", "{problem}", context)
        return values
