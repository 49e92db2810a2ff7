"""JSON Schemas (Draft 2020-12) that users write, and their violations as sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, time
from functools import partial
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
from longline.core.errors import BadOption

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NOT_SCHEMAS = frozenset({"const", "enum", "default", "examples"})
_DURATION = re.compile(r"P(?=.)(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?)")
_LABEL = r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_TYPES = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
_HOST = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")

FORMATS = FormatChecker(("date", "email", "idn-email", "ipv4", "ipv6", "regex", "uuid"))
"""The values of `format` that are checked; others are refused."""
_MORE_FORMATS: Mapping[str, Callable[[str], object]] = {
    "date-time": lambda text: "T" in text.upper() and datetime.fromisoformat(text).tzinfo,
    "time": lambda text: time.fromisoformat(text).tzinfo,
    "duration": _DURATION.fullmatch,
    "hostname": _HOST.fullmatch,
    "uri": lambda text: re.fullmatch(r"\S+", text) and urlsplit(text).scheme,
}


def _has_format(is_valid: Callable[[str], object], value: object) -> bool:
    return not isinstance(value, str) or bool(is_valid(value))  # `type` checks types


for _name, _is_valid in _MORE_FORMATS.items():
    FORMATS.checks(_name, raises=ValueError)(partial(_has_format, _is_valid))


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
    problem = 'a JSON Schema is an object, such as {"type": "object"}'
    return read_json_file(path, dict, problem)


def _check_part(part: Mapping[str, Any], resolver: Any) -> None:
    """Check the format, the patterns and the references of one schema."""
    wanted, names = part.get("format"), part.get("patternProperties")
    if isinstance(wanted, str) and wanted not in FORMATS.checkers:
        known = ", ".join(sorted(FORMATS.checkers))
        raise BadOption("format", f"{wanted!r} cannot be checked here; known: {known}")
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


_MAX_LENGTH = 120  # characters of a rule that a sentence repeats


class SchemaCheck:
    """A compiled schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._validator = validator_of(schema)

    def problems(self, data: Any) -> tuple[str, ...]:
        """Return all violations with their paths; empty for valid data."""
        try:
            found = sorted(self._validator.iter_errors(data), key=lambda error: error.json_path)
        except RecursionError:
            return ("the schema refers to itself in an endless loop",)
        return tuple(dict.fromkeys(sentence for one in found for sentence in _describe_error(one)))


def _describe_error(error: ValidationError) -> list[str]:
    """Return sentences without values, so that they are the same for all records."""
    path = error.json_path.removeprefix("$").removeprefix(".")
    wanted, found, rule = error.validator_value, error.instance, str(error.validator)
    if rule == "required" and isinstance(wanted, list) and isinstance(found, dict):
        missing = [name for name in wanted if name not in found]
        return [f"{path}.{name}: is missing".removeprefix(".") for name in missing]
    sentence = f"does not satisfy {rule} {wanted}"
    if rule == "type":
        kinds = " or ".join(wanted) if isinstance(wanted, list) else wanted
        sentence = f"must be of type {kinds}, not {_TYPES.get(type(found), 'number')}"
    elif rule in {"additionalProperties", "unevaluatedProperties"} and isinstance(found, dict):
        known = error.schema.get("properties", ()) if isinstance(error.schema, Mapping) else ()
        unknown = sorted(str(name) for name in found if name not in known)
        sentence = f"has fields that are not allowed: {', '.join(unknown)}"
    return [f"{path or 'the record'}: {sentence[:_MAX_LENGTH]}"]
