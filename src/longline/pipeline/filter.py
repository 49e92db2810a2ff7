"""The stage that drops records, each with a reason."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from longline.config.expressions import user_pattern
from longline.core.errors import NothingToStore, UnexpectedShape
from longline.pipeline.manifest import Condition, Step
from longline.pipeline.map import find_in_data
from longline.pipeline.stages import Draft, checked_step

_EMPTY: tuple[Any, ...] = (None, "", [], {})
_WORDS = {
    "equals": "is not",
    "differs": "is",
    "one_of": "is not one of",
    "above": "is not above",
    "below": "is not below",
    "at_least": "is less than",
    "at_most": "is more than",
    "contains": "does not contain",
    "matches": "does not match",
}


class Filter:
    """Passes drafts for which all conditions are true.

    Args:
        condition: a jmespath, such as "price > `0`", or several conditions that must all be true:
            jmespaths, or mappings such as {"field": "price", "at_least": 1}.
    """

    name = "filter"

    def __init__(self, condition: str | Sequence[str | Mapping[str, Any] | Condition]) -> None:
        value = condition if isinstance(condition, str) else list(condition)
        self._conditions = checked_step(Step, filter=value).filter or ()

    def __call__(self, draft: Draft) -> Draft:
        for condition in self._conditions:
            try:
                reason = _failed_condition(condition, draft.data)
            except (ValueError, TypeError) as error:
                raise UnexpectedShape(f"item {draft.key}", f"filter: {error}") from error
            if reason:
                raise NothingToStore(f"filtered out: {reason}")
        return draft


def _failed_condition(condition: Condition, data: Mapping[str, Any]) -> str | None:
    """Return why data fails a condition; None when it passes."""
    if condition.field is None:
        path = condition.when or ""
        found = find_in_data(path, data)
        if found is None:
            return f"{path} is unknown, since a value is missing"
        # As in jmespath: 0 is a value like others.
        return f"{path} is not true" if found is False or found in _EMPTY else None
    value, test = find_in_data(condition.field, data), condition.tests[0]
    wanted, is_empty = getattr(condition, test), value in _EMPTY
    if test == "filled":
        state = "is empty" if is_empty else "is filled"
        return None if is_empty is not wanted else f"{condition.field} {state}"
    if is_empty and not (test == "equals" and value == wanted):
        return f"{condition.field} is empty"
    if _TESTS[test](value, wanted):
        return None
    return f"{condition.field} {_WORDS[test]} {wanted if test != 'one_of' else list(wanted)}"


def _contains_text(value: Any, wanted: str) -> bool:
    if isinstance(value, list):
        return wanted in value
    return wanted.casefold() in str(value).casefold()


_TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "equals": operator.eq,
    "differs": operator.ne,
    "one_of": lambda value, wanted: value in wanted,
    "above": operator.gt,
    "below": operator.lt,
    "at_least": operator.ge,
    "at_most": operator.le,
    "contains": _contains_text,
    "matches": lambda value, wanted: user_pattern(wanted).search(str(value)) is not None,
}
