"""The stage that checks a record's data against the model of its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from longline.errors import UnexpectedShape

_SHOWN = 3


def validated(model: type[BaseModel] | None, data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the data as the model understands it; without a model, as it is.

    Raises:
        UnexpectedShape: the data does not fit; names the first fields and what is wrong.
    """
    if model is None:
        return dict(data)
    try:
        return model.model_validate(data).model_dump()
    except ValidationError as error:
        problems = [
            f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
            for problem in error.errors()[:_SHOWN]
        ]
        rest = error.error_count() - len(problems)
        more = f" and {rest} more" if rest > 0 else ""
        raise UnexpectedShape(where, "; ".join(problems) + more) from error
