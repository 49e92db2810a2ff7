"""JSON Schemas (Draft 2020-12) that users write, and their violations as sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator, FormatChecker, validators
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from longline.config.documents import read_json_file
from longline.config.expressions import user_pattern
from longline.core.errors import BadFile, BadOption

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NOT_SCHEMAS = frozenset({"const", "enum", "default", "examples"})
_DURATION = re.compile(r"P(?=.)(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?)")
_LABEL = r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")

FORMATS = FormatChecker(("date", "email", "idn-email", "ipv4", "ipv6", "regex", "uuid"))
"""The values of `format` that are checked; others are refused."""


@FORMATS.checks("date-time", raises=ValueError)
def _is_date_time(value: object) -> bool:
    if not isinstance(value, str):
        return True  # `type` checks types
    return "T" in value.upper() and datetime.fromisoformat(value).tzinfo is not None


@FORMATS.checks("time", raises=ValueError)
def _is_time(value: object) -> bool:
    return not isinstance(value, str) or time.fromisoformat(value).tzinfo is not None


@FORMATS.checks("duration")
def _is_duration(value: object) -> bool:
    return not isinstance(value, str) or _DURATION.fullmatch(value) is not None


@FORMATS.checks("hostname")
def _is_host(value: object) -> bool:
    return not isinstance(value, str) or _HOST.fullmatch(value) is not None


@FORMATS.checks("uri", raises=ValueError)
def _is_address(value: object) -> bool:
    if not isinstance(value, str):
        return True
    parts = urlsplit(value)
    return bool(parts.scheme and (parts.netloc or parts.path)) and not re.search(r"\s", value)


def _pattern(validator: Any, wanted: str, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(value, "string") and not user_pattern(wanted).search(value):
        yield ValidationError(f"{value!r} does not match {wanted!r}")


def _pattern_properties(
    validator: Any, wanted: Mapping[str, Any], value: Any, _schema: Any
) -> Iterator[ValidationError]:
    if not validator.is_type(value, "object"):
        return
    for pattern, schema in wanted.items():
        for name, inner in value.items():
            if user_pattern(pattern).search(name):
                yield from validator.descend(inner, schema, path=name, schema_path=pattern)


TimedValidator: type[Draft202012Validator] = validators.extend(  # type: ignore[no-untyped-call]  # it has no types
    Draft202012Validator, {"pattern": _pattern, "patternProperties": _pattern_properties}
)
"""Draft 2020-12 with patterns that have a time limit."""


def validator_of(schema: Mapping[str, Any]) -> Draft202012Validator:
    """Return the validator of a schema; it never fetches another schema.

    Raises:
        BadOption: the schema is invalid, or needs what is not available here.
    """
    if schema.get("$schema", _DIALECT).rstrip("#") != _DIALECT:
        raise BadOption("$schema", f"schemas are read as Draft 2020-12; write {_DIALECT}")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        place = ".".join(str(part) for part in error.absolute_path) or "the schema"
        raise BadOption(place, f"it is not a JSON Schema: {error.message:.200}") from None
    registry: Registry[Any] = Registry()
    root = dict(schema)
    resolver = registry.resolver_with_root(DRAFT202012.create_resource(root))
    for part in _parts(root):
        _check_part(part, resolver)
    return TimedValidator(schema, registry=registry, format_checker=FORMATS)


def read_schema(path: Path) -> dict[str, Any]:
    """Return the schema in a JSON file.

    Raises:
        BadFile: it cannot be read, or holds none.
    """
    schema = read_json_file(path)
    if not isinstance(schema, dict):
        raise BadFile(str(path), 'a JSON Schema is an object, such as {"type": "object"}')
    return schema


def _check_part(part: Mapping[str, Any], resolver: Any) -> None:
    """Check the format, the patterns and the references of one schema."""
    wanted, names = part.get("format"), part.get("patternProperties")
    if isinstance(wanted, str) and wanted not in FORMATS.checkers:
        known = ", ".join(sorted(FORMATS.checkers))
        raise BadOption("format", f"{wanted!r} cannot be checked here; known are {known}")
    patterns = names if isinstance(names, Mapping) else ()
    for text in (one for one in (part.get("pattern"), *patterns) if isinstance(one, str)):
        try:
            pattern = user_pattern(text)
        except ValueError as error:
            raise BadOption("pattern", f"{text!r} is not a regular expression: {error}") from None
        # `additionalProperties` matches these once more, without a time limit.
        if pattern.is_nested and text in patterns:
            raise BadOption("patternProperties", f"{text!r} must not repeat a group")
    for name in ("$ref", "$dynamicRef"):
        if isinstance(reference := part.get(name), str):
            try:
                resolver.lookup(reference)
            except Unresolvable:
                raise BadOption(name, f"{reference!r} is not in the schema itself") from None


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all schemas in it."""
    if isinstance(schema, Mapping):
        yield schema
        for name, value in schema.items():
            if name not in _NOT_SCHEMAS:
                yield from _parts(value)
    elif isinstance(schema, list | tuple):
        for value in schema:
            yield from _parts(value)


_NAMES = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "null": "null",
}
_MAX_LENGTH = 120


class SchemaCheck:
    """A compiled schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._validator = validator_of(schema)

    def problems(self, data: Any) -> tuple[str, ...]:
        """Return all violations with their paths; empty for valid data."""
        # Without the values, so that the same violation has the same sentence in all records.
        try:
            found = sorted(self._validator.iter_errors(data), key=_error_path)
        except RecursionError:
            return ("the schema refers to itself in an endless circle",)
        return tuple(dict.fromkeys(sentence for one in found for sentence in _describe_error(one)))


def _describe_error(error: ValidationError) -> list[str]:
    path, wanted, found = _error_path(error), error.validator_value, error.instance
    if error.validator == "required" and isinstance(wanted, list) and isinstance(found, dict):
        missing = [name for name in wanted if name not in found]
        return [f"{_join_path(path, name)}: is missing" for name in missing]
    sentence = _SENTENCES.get(str(error.validator), _other)(wanted, error)
    return [f"{path or 'the record'}: {sentence[:_MAX_LENGTH]}"]


def _error_path(error: ValidationError) -> str:
    path = ""
    for part in error.absolute_path:
        path = f"{path}[{part}]" if isinstance(part, int) else _join_path(path, str(part))
    return path


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _kind_of(value: Any) -> str:
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return _NAMES[kinds.get(type(value), "number")]


def _wrong_type(wanted: Any, error: ValidationError) -> str:
    kinds = [wanted] if isinstance(wanted, str) else wanted
    return f"must be {' or '.join(_NAMES[kind] for kind in kinds)}, not {_kind_of(error.instance)}"


def _unknown_fields(_wanted: Any, error: ValidationError) -> str:
    known = set(error.schema.get("properties", ())) if isinstance(error.schema, Mapping) else set()
    found = error.instance if isinstance(error.instance, dict) else {}
    strangers = sorted(str(name) for name in found if name not in known)
    return f"has fields that are not allowed: {', '.join(strangers)}"


def _other(_wanted: Any, error: ValidationError) -> str:
    return f"does not satisfy {error.validator}"


_Describe = Callable[[Any, ValidationError], str]
_SENTENCES: Mapping[str, _Describe] = {
    "type": _wrong_type,
    "additionalProperties": _unknown_fields,
    "unevaluatedProperties": _unknown_fields,
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
    "anyOf": lambda _wanted, _: "matches none of the allowed forms",
    "oneOf": lambda _wanted, _: "must match exactly one of the allowed forms",
    "not": lambda _wanted, _: "has a form that is not allowed",
}
