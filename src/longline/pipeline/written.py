"""Stages written in Python are checked like those of a manifest, and told in the same words."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from longline.errors import BadOption

M = TypeVar("M", bound=BaseModel)


def checked_step(model: type[M], **values: Any) -> M:
    """Return the model of what was written.

    Raises:
        BadOption: it does not fit.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"]) or next(iter(values))
        raise BadOption(name, first["msg"]) from None
