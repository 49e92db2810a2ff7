"""Paths into JSON (jmespath) and what is read with them: keys and fields of an API's records."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

import jmespath
from jmespath.exceptions import JMESPathError
from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from longline.config.locales import check_form, is_known
from longline.config.written import Written, wrong

# fmt: off
ValueKind = Literal[
    "text", "number", "integer", "money", "date", "datetime",
    "boolean", "duration", "area", "floor", "floors", "url", "json",
]
# fmt: on
_OF_PARENT = re.compile(r"\{(parent\.[A-Za-z_][A-Za-z0-9_.]*)\}")
_LONGEST = 60  # characters of a wrong path that a sentence repeats


@lru_cache(maxsize=4096)
def compiled(path: str) -> Any:
    """Return a path ready to be searched with.

    Raises:
        JMESPathError: it is none.
    """
    return jmespath.compile(path)


def find(path: str, value: Any) -> Any:
    """Return what a path finds in a value; None when there is nothing.

    Raises:
        ValueError: a function of the path was given what it cannot work with.
    """
    try:
        return _search_of(path)(value)
    except JMESPathError as error:
        message = f"the path {path!r} cannot be followed here: {_told(error)}"
        raise ValueError(message) from error


@lru_cache(maxsize=4096)
def _search_of(path: str) -> Callable[[Any], Any]:
    """Return the function that follows a path.

    Most paths are names with dots, asked for in every record: a look-up by name is many times
    faster than jmespath's walk over the parsed path.
    """
    search = compiled(path)
    names = _names_of(search.parsed)
    if names is None:
        return search.search  # type: ignore[no-any-return]  # jmespath has no types

    def look_up(value: Any) -> Any:
        try:
            for name in names:
                value = value.get(name)
        except AttributeError:  # not an object: jmespath finds nothing in it, either
            return None
        return value

    return look_up


def _names_of(node: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the names that a parsed path consists of; None if it has anything else."""
    if node["type"] == "field":
        return (node["value"],)
    if node["type"] != "subexpression":
        return None
    parts = [_names_of(child) for child in node["children"]]
    if None in parts:
        return None
    return tuple(name for part in parts if part for name in part)


@lru_cache(maxsize=4096)
def name_of_parent(text: str) -> str | None:
    """Return the name in `{parent.name}`, when that is all the text is."""
    found = _OF_PARENT.fullmatch(text.strip())
    return found[1] if found else None


def _told(error: JMESPathError) -> str:
    """Return what is wrong with a path, in one line."""
    text = str(error).partition("\n")[0].strip()
    return text.removesuffix(":") or type(error).__name__


def check_path(text: str) -> str:
    """See that a path is valid jmespath.

    Raises:
        PydanticCustomError: it is not.
    """
    try:
        compiled(text)
    except JMESPathError as error:
        short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
        raise wrong(
            f"{short!r} is not a path as jmespath has them ({_told(error)}); write for example "
            "items, data.items or items[].name, and names with other signs in double quotes"
        ) from error
    return text


def _path_or_parent(text: str) -> str:
    return text if name_of_parent(text) else check_path(text)


def _several(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _full_form(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


JsonPath = Annotated[str, AfterValidator(check_path)]
"""Where something stands in JSON, as jmespath: `data.items`, `meta.next`, `items[].id`."""

PathOrParent = Annotated[str, AfterValidator(_path_or_parent)]
"""A path into the record, or `{parent.name}` for something of the record above it."""

Key = Annotated[tuple[PathOrParent, ...], BeforeValidator(_several), Field(min_length=1)]
"""What makes a record the same one next time: a path, or several that are joined."""


class ApiField(Written):
    """One field of a record: where it stands, and what it is read as."""

    path: PathOrParent
    type: ValueKind | None = None
    """What the value is read as; without it, it is kept as it came."""
    default: Any = None
    """Stands in when the path finds nothing; without one the field is empty, with a note."""
    required: bool = False
    """A record without it is quarantined."""
    many: bool = False
    """The path finds several values: the field is a list, each of this type."""
    locale: str | None = None
    """How numbers and dates are written there, such as de or en-US."""
    form: str | None = None
    """What a value leaves unsaid: the format of a date, a currency, a unit."""

    @field_validator("locale")
    @classmethod
    def _known(cls, locale: str | None) -> str | None:
        if locale is not None and not is_known(locale):
            raise wrong(
                f"{locale!r} is not a locale known here; write a language such as de, or en-US"
            )
        return locale

    @model_validator(mode="after")
    def _fitting_form(self) -> Self:
        check_form(self.type, self.form)
        return self

    @property
    def has_default(self) -> bool:
        """Whether somebody wrote a default."""
        return self.default is not None


Fields = dict[str, Annotated[ApiField, BeforeValidator(_full_form)]]
"""Fields by name; a text alone is the path."""


def parents_named(fields: Mapping[str, ApiField], key: tuple[str, ...]) -> list[str]:
    """Return the names of the parent that fields and a key refer to."""
    paths = [*(field.path for field in fields.values()), *key]
    return [name for path in paths if (name := name_of_parent(path))]
