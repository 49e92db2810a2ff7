"""The stage that validates the data of a record with a pydantic model or a JSON Schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ValidationError

from longline.core.json import to_json
from longline.pipeline.stages import Draft, ValidationFailed

Rules = type[BaseModel] | Mapping[str, Any] | Path


class Validate:
    """Quarantines invalid data, with every broken rule and its place.

    Args:
        rules: a pydantic model, which may convert the data; or a JSON Schema (Draft 2020-12, with
            formats), or the path of one, which leaves the data unchanged.
    """

    name = "validate"

    def __init__(self, rules: Rules) -> None:
        self._model = rules if isinstance(rules, type) else None
        self._problems = None if isinstance(rules, type) else _checker(rules)

    def __call__(self, draft: Draft) -> Draft:
        where = f"item {draft.key}"
        if self._problems is None:
            return draft.with_data(validated(self._model, draft.data, where))
        try:
            # As the database stores it: a date is text there, NaN is null.
            stored = orjson.loads(to_json(draft.data))
        except TypeError as error:  # a lone surrogate, for example, or an object
            raise ValidationFailed(where, (f"it cannot be stored: {error}",)) from error
        if problems := self._problems(stored):
            raise ValidationFailed(where, problems)
        return draft


def validated(model: type[BaseModel] | None, data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the data as the model converts it; without a model, unchanged.

    Raises:
        ValidationFailed: the data is invalid; it names every field and its problem.
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

    if isinstance(rules, Mapping) and set(rules) == {"file"}:
        rules = Path(rules["file"])
    return SchemaCheck(read_schema(rules) if isinstance(rules, Path) else rules).problems
