"""The stage that checks a record's data: against a pydantic model, or against a JSON Schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ValidationError

from longline.core.json_values import to_json
from longline.pipeline.errors import ValidationFailed
from longline.pipeline.stages import Draft

Rules = type[BaseModel] | Mapping[str, Any] | Path


class Validate:
    """Quarantines what does not fit, with every rule that is broken and where.

    Args:
        rules: a pydantic model, whose data is taken as it understands it; or a JSON Schema (Draft
            2020-12, formats checked), or the path of one, which changes nothing.
    """

    name = "validate"

    def __init__(self, rules: Rules) -> None:
        self._model = rules if isinstance(rules, type) else None
        self._problems = None if isinstance(rules, type) else _checker(rules)

    def __call__(self, draft: Draft) -> Draft:
        where = f"item {draft.key}"
        if self._problems is None:
            return draft.with_data(validated(self._model, draft.data, where))
        if problems := self._problems(_as_stored(draft.data, where)):
            raise ValidationFailed(where, problems)
        return draft


def validated(model: type[BaseModel] | None, data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the data as the model understands it; without a model, as it is.

    Raises:
        ValidationFailed: the data does not fit; names every field and what is wrong with it.
    """
    if model is None:
        return dict(data)
    try:
        return model.model_validate(data).model_dump()
    except ValidationError as error:
        problems = (
            f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
            for problem in error.errors(include_url=False)
        )
        raise ValidationFailed(where, tuple(problems)) from error


def _checker(rules: Mapping[str, Any] | Path) -> Callable[[Any], tuple[str, ...]]:
    # jsonschema is slow to import, and most sources have no schema.
    from longline.pipeline.json_schema import SchemaCheck, read_schema  # noqa: PLC0415

    is_named = isinstance(rules, Mapping) and set(rules) == {"file"}
    path = Path(rules["file"]) if is_named and isinstance(rules, Mapping) else rules
    return SchemaCheck(read_schema(path) if isinstance(path, Path) else path).problems


def _as_stored(data: Mapping[str, Any], where: str) -> Any:
    """Return data as the database is going to hold it: a date is text there, NaN is null."""
    try:
        return orjson.loads(to_json(data))
    except TypeError as error:  # half a surrogate pair, say, or an object
        raise ValidationFailed(where, (f"it cannot be stored: {error}",)) from error
