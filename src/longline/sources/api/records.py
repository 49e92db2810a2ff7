"""Records out of answers: which they are, what makes each the same one, and their fields."""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from longline.config.manifests.json_paths import ApiField, find, name_of_parent
from longline.core.errors import UnexpectedShape
from longline.sources.api.requests import look_up
from longline.sources.parsing.values import read_value

_SHORT = 60  # characters of what was found that a sentence repeats
_NAMES = 8  # names of an object that a sentence repeats
_ABSENT = object()

Note = Callable[[str, str], None]


def select(path: str, body: Any, where: str) -> list[Any]:
    """Return the list of records in an answer.

    Raises:
        UnexpectedShape: there is none at this path.
    """
    found = _found(path, body, where)
    if isinstance(found, list):
        return found
    raise UnexpectedShape(
        where,
        f"records {path!r} finds {described(found)}, and not a list, in {described(body)}"
        f"{_advice(path, found)}",
    )


def select_one(path: str, body: Any, where: str) -> Any:
    """Return the one record in an answer.

    Raises:
        UnexpectedShape: there is none at this path, or several.
    """
    found = _found(path, body, where)
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if isinstance(found, Mapping):
        return found
    raise UnexpectedShape(
        where,
        f"records {path!r} finds {described(found)}, and not one object, in {described(body)}",
    )


def key_of(parts: Sequence[str], record: Any, scope: Mapping[str, Any]) -> str:
    """Return what makes a record the same one next time.

    Raises:
        ValueError: a part is missing or no plain value.
    """
    return "/".join(_key_part(part, record, scope) for part in parts)


def origins_of(
    fields: Mapping[str, ApiField] | None, data: Mapping[str, Any], where: str
) -> dict[str, str]:
    """Return where each field that is there comes from; `where` is the layer and its address."""
    return {
        name: f"{where} path {field.path}"
        for name, field in (fields or {}).items()
        if data.get(name) is not None
    }


def read_fields(
    fields: Mapping[str, ApiField] | None, record: Any, scope: Mapping[str, Any], note: Note
) -> dict[str, Any]:
    """Return the fields of a record; without a list of them, all that it has.

    A field that is empty, or not what the record says, is noted with the reason.

    Raises:
        UnexpectedShape: a required field is missing or cannot be read.
    """
    if fields is None:
        return dict(record) if isinstance(record, Mapping) else {"value": record}
    return {name: _read(name, field, record, scope, note) for name, field in fields.items()}


def digest(value: Any) -> str:
    """Return a short name for a value, the same for the same value."""
    try:
        written = orjson.dumps(value, default=str, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # nested too deeply for JSON to be written, though it could be read
        written = marshal.dumps(value, 2)
    return hashlib.sha256(written).hexdigest()[:16]


def described(value: Any) -> str:
    """Return what a value is, in a few words."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        names = [str(name) for name in value]
        more = ", …" if len(names) > _NAMES else ""
        return f"an object with {', '.join(names[:_NAMES])}{more}" if names else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = repr(value)
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"


def _found(path: str, body: Any, where: str) -> Any:
    try:
        return find(path, body)
    except ValueError as error:
        raise UnexpectedShape(where, f"{error}, in {described(body)}") from error


def _advice(path: str, found: Any) -> str:
    if isinstance(found, Mapping):
        return f"; for one record write [{path}], for a list by name values({path})"
    if found is None:
        return f"; if it is missing when there are no records, write {path} || `[]`"
    return ""


def _key_part(part: str, record: Any, scope: Mapping[str, Any]) -> str:
    value = _value(part, record, scope)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        message = f"key {part!r} finds {described(value)} in {described(record)}"
        raise ValueError(message)
    return str(value)


def _value(path: str, record: Any, scope: Mapping[str, Any]) -> Any:
    """Return what a path finds in the record, or in the one above; None when there is nothing."""
    name = name_of_parent(path)
    if name is None:
        return find(path, record)
    found = look_up(name, scope, _ABSENT)
    return None if found is _ABSENT else found


def _read(name: str, field: ApiField, record: Any, scope: Mapping[str, Any], note: Note) -> Any:
    try:
        found = _value(field.path, record, scope)
        if found is None:
            return _missing(name, field, note)
        return _typed(field, found)
    except ValueError as error:
        if field.required:
            raise UnexpectedShape(name, f"{error}, and the field is required") from error
        note(name, str(error))
        return None


def _missing(name: str, field: ApiField, note: Note) -> Any:
    if field.has_default:
        note(name, f"{field.path!r} finds nothing: the default of the manifest")
        return field.default
    if field.required:
        raise UnexpectedShape(name, f"{field.path!r} finds nothing, and the field is required")
    note(name, f"{field.path!r} finds nothing")
    return None


def _typed(field: ApiField, found: Any) -> Any:
    if not field.many:
        return _one(field, found)
    several = found if isinstance(found, list) else [found]
    return [_one(field, value) for value in several]


def _one(field: ApiField, value: Any) -> Any:
    if field.type is None or value is None:
        return value
    try:
        return read_value(field.type, value, locale=field.locale, form=field.form)
    except ValueError as error:
        message = f"{described(value)} is no {field.type}: {error}"
        raise ValueError(message) from error
