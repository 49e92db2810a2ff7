"""What data breaks of a JSON Schema, in sentences that are the same for the same fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jsonschema.exceptions import ValidationError

from longline.config.manifests.json_schema import validator_of

_NAMES = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "null": "null",
}
_LONGEST = 120


class SchemaCheck:
    """One schema, ready to check with."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._validator = validator_of(schema)

    def problems(self, data: Any) -> tuple[str, ...]:
        """Return all that is wrong, each with its path; empty when it fits."""
        # Without the values themselves: so the same fault is the same sentence in all records.
        found = sorted(self._validator.iter_errors(data), key=_path)
        return tuple(dict.fromkeys(sentence for one in found for sentence in _sentences(one)))


def _sentences(error: ValidationError) -> list[str]:
    path, wanted, found = _path(error), error.validator_value, error.instance
    if error.validator == "required" and isinstance(wanted, list) and isinstance(found, dict):
        missing = [name for name in wanted if name not in found]
        return [f"{_joined(path, name)}: is missing" for name in missing]
    told = _TOLD.get(str(error.validator), _plain)(wanted, error)
    return [f"{path or 'the record'}: {told[:_LONGEST]}"]


def _path(error: ValidationError) -> str:
    path = ""
    for part in error.absolute_path:
        path = f"{path}[{part}]" if isinstance(part, int) else _joined(path, str(part))
    return path


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _kind_of(value: Any) -> str:
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return _NAMES[kinds.get(type(value), "number")]


def _wrong_type(wanted: Any, error: ValidationError) -> str:
    kinds = [wanted] if isinstance(wanted, str) else wanted
    return f"must be {' or '.join(_NAMES[kind] for kind in kinds)}, not {_kind_of(error.instance)}"


def _unknown(_wanted: Any, error: ValidationError) -> str:
    known = set(error.schema.get("properties", ())) if isinstance(error.schema, Mapping) else set()
    found = error.instance if isinstance(error.instance, dict) else {}
    strangers = sorted(str(name) for name in found if name not in known)
    return f"has fields that are not allowed: {', '.join(strangers)}"


def _plain(_wanted: Any, error: ValidationError) -> str:
    return f"does not satisfy {error.validator}"


_Tell = Callable[[Any, ValidationError], str]
_TOLD: Mapping[str, _Tell] = {
    "type": _wrong_type,
    "additionalProperties": _unknown,
    "unevaluatedProperties": _unknown,
    "enum": lambda wanted, _: f"must be one of {', '.join(map(str, wanted))}",
    "const": lambda wanted, _: f"must be {wanted}",
    "minimum": lambda wanted, _: f"must be {wanted} or more",
    "maximum": lambda wanted, _: f"must be {wanted} or less",
    "exclusiveMinimum": lambda wanted, _: f"must be more than {wanted}",
    "exclusiveMaximum": lambda wanted, _: f"must be less than {wanted}",
    "multipleOf": lambda wanted, _: f"must be a multiple of {wanted}",
    "minLength": lambda wanted, _: f"must have {wanted} characters or more",
    "maxLength": lambda wanted, _: f"must have {wanted} characters or fewer",
    "pattern": lambda wanted, _: f"must match {wanted}",
    "format": lambda wanted, _: f"must be a {wanted}",
    "minItems": lambda wanted, _: f"must have {wanted} entries or more",
    "maxItems": lambda wanted, _: f"must have {wanted} entries or fewer",
    "uniqueItems": lambda _wanted, _: "must not have the same entry twice",
    "contains": lambda _wanted, _: "has no entry of the kind it must have",
    "minProperties": lambda wanted, _: f"must have {wanted} fields or more",
    "maxProperties": lambda wanted, _: f"must have {wanted} fields or fewer",
    "propertyNames": lambda _wanted, _: "has a field whose name is not allowed",
    "dependentRequired": lambda _wanted, _: "lacks a field that goes with another",
    "anyOf": lambda _wanted, _: "fits none of the allowed forms",
    "oneOf": lambda _wanted, _: "must fit exactly one of the allowed forms",
    "not": lambda _wanted, _: "is of a form that is not allowed",
}
