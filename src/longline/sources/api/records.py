"""Records of a JSON response: select them, identify them, read their fields."""

from __future__ import annotations

import hashlib
import marshal
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Self

import orjson
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from longline.config.expressions import check_path, find, look_up
from longline.config.validation import StrictModel, invalid, one_or_several, short_for
from longline.core.errors import UnexpectedShape
from longline.sources.files import FILE_KINDS
from longline.sources.parsing.numbers import Locale
from longline.sources.parsing.values import ValueKind, check_form, read_value

_MAX_NAMES = 8  # names of an object that a message repeats
_PARENT = re.compile(r"\{(parent\.[A-Za-z_][A-Za-z0-9_.]*)\}")

TakeNote = Callable[[str, str], None]
"""Receives the name of a field and what was odd about it."""


@lru_cache(maxsize=4096)
def parent_name(text: str) -> str | None:
    """Return the name in `{parent.name}`, when that is the whole text."""
    found = _PARENT.fullmatch(text.strip())
    return found[1] if found else None


def _check_path_or_parent(text: str) -> str:
    return text if parent_name(text) else check_path(text)


PathOrParent = Annotated[str, AfterValidator(_check_path_or_parent)]
"""A path into the record, or `{parent.name}` for a field of the parent record."""

Key = Annotated[tuple[PathOrParent, ...], BeforeValidator(one_or_several), Field(min_length=1)]
"""What identifies a record across runs: a path, or several that are joined."""


class ApiField(StrictModel):
    """One field of a record: its path and type."""

    path: PathOrParent
    type: ValueKind | None = None
    """Type to parse the value as; default: keep it as it is."""
    default: Any = None
    """Value when the path finds nothing; without it the field is empty, with a note."""
    required: bool = False
    """Quarantine records without this field."""
    many: bool = False
    """The path finds several values: the field is a list, each of this type."""
    locale: Locale | None = None
    """How numbers and dates are written, such as de or en-US."""
    form: str | None = None
    """What a value leaves out: the format of a date, a currency, a unit."""

    @model_validator(mode="after")
    def _check_form_of_type(self) -> Self:
        check_form(self.type, self.form)
        if self.type in FILE_KINDS and self.default is not None:
            raise invalid("a file has no default: without a URL it is empty, with a note")
        return self


Fields = dict[str, Annotated[ApiField, short_for("path")]]
"""Fields by name; a plain text is the path."""


def parent_names(fields: Mapping[str, ApiField], key: tuple[str, ...]) -> list[str]:
    """Return the names of the parent record that fields and a key refer to."""
    paths = [*(field.path for field in fields.values()), *key]
    return [name for path in paths if (name := parent_name(path))]


def select_records(path: str, body: Any, url: str) -> list[Any]:
    """Return the list of records in a response; raise UnexpectedShape if there is none."""
    found = _select(path, body, url)
    if isinstance(found, list):
        return found
    advice = ""
    if isinstance(found, Mapping):
        advice = f"; for one record write [{path}], for a list by name values({path})"
    elif found is None:
        advice = f"; if it is missing when there are no records, write {path} || `[]`"
    problem = (
        f"records {path!r} is {describe_value(found)} instead of a list, in {describe_value(body)}"
    )
    raise UnexpectedShape(url, problem + advice)


def select_record(path: str, body: Any, url: str) -> Any:
    """Return the only record in a response; raise UnexpectedShape for none or several."""
    found = _select(path, body, url)
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if isinstance(found, Mapping):
        return found
    problem = f"records {path!r} is {describe_value(found)} instead of one object"
    raise UnexpectedShape(url, f"{problem}, in {describe_value(body)}")


def _select(path: str, body: Any, url: str) -> Any:
    try:
        return find(path, body)
    except ValueError as error:
        raise UnexpectedShape(url, f"{error}, in {describe_value(body)}") from error


def record_key(parts: Sequence[str], record: Any, scope: Mapping[str, Any]) -> str:
    """Return the key of a record; raise ValueError if a part is missing or not a scalar."""
    values = []
    for part in parts:
        value = _value_at(part, record, scope)
        if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
            raise ValueError(f"key {part!r} is {describe_value(value)} in {describe_value(record)}")
        values.append(str(value))
    return "/".join(values)


def _value_at(path: str, record: Any, scope: Mapping[str, Any]) -> Any:
    """Return what a path selects from the record or its parent; None when there is nothing."""
    name = parent_name(path)
    return find(path, record) if name is None else look_up(name, scope)


def field_origins(
    fields: Mapping[str, ApiField] | None, data: Mapping[str, Any], origin: str
) -> dict[str, str]:
    """Return the origin of each field that has a value; `origin` is the layer and its URL."""
    return {
        name: f"{origin} path {field.path}"
        for name, field in (fields or {}).items()
        if data.get(name) is not None
    }


def read_fields(
    fields: Mapping[str, ApiField] | None, record: Any, scope: Mapping[str, Any], note: TakeNote
) -> dict[str, Any]:
    """Return the fields of a record; without a list of fields, all that it has.

    A field that is empty or cannot be parsed is noted with the reason.

    Raises:
        UnexpectedShape: a required field is missing or cannot be parsed.
    """
    if fields is None:
        return dict(record) if isinstance(record, Mapping) else {"value": record}
    return {name: _read_field(name, one, record, scope, note) for name, one in fields.items()}


def _read_field(
    name: str, field: ApiField, record: Any, scope: Mapping[str, Any], note: TakeNote
) -> Any:
    problem = f"there is nothing at {field.path!r}"
    try:
        found = _value_at(field.path, record, scope)
        if found is not None and not field.many:
            return _parse_value(field, found)
        if found is not None:
            several = found if isinstance(found, list) else [found]
            return [_parse_value(field, one) for one in several]
    except ValueError as error:
        problem = str(error)
    else:
        if field.default is not None:
            note(name, f"{problem}: the default of the manifest is used")
            return field.default
    if field.required:
        raise UnexpectedShape(name, f"{problem}, and the field is required")
    note(name, problem)
    return None


def _parse_value(field: ApiField, value: Any) -> Any:
    if field.type is None or value is None:
        return value
    try:
        return read_value(field.type, value, locale=field.locale, form=field.form)
    except ValueError as error:
        shown = describe_value(value)
        raise ValueError(f"{shown} cannot be read as {field.type}: {error}") from error


def digest(value: Any) -> str:
    """Return a short hash of a JSON value."""
    try:
        encoded = orjson.dumps(value, default=str, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # nested too deeply to be written as JSON, although it could be read
        encoded = marshal.dumps(value, 2)
    return hashlib.sha256(encoded).hexdigest()[:16]


def describe_value(value: Any) -> str:
    """Return what kind of value this is, in a few words."""
    if value is None:
        return "missing"
    if isinstance(value, Mapping):
        names = [str(name) for name in value]
        more = ", …" if len(names) > _MAX_NAMES else ""
        shown = ", ".join(names[:_MAX_NAMES])
        return f"an object with {shown}{more}" if names else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return f"{value!r:.60}"
