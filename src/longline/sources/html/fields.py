"""Fields of a page or an element: their schema, and the readers compiled from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self, get_args
from urllib.parse import urljoin

from pydantic import BeforeValidator, model_validator

from longline.config.expressions import Pattern, user_pattern
from longline.config.validation import invalid
from longline.http.messages import Capture
from longline.sources.base import Visit
from longline.sources.files import FILE_KINDS
from longline.sources.html.places import (
    PLACES,
    Place,
    Scope,
    make_finders,
    select_nodes,
    split_selector,
)
from longline.sources.parsing.numbers import Locale
from longline.sources.parsing.values import ValueKind, check_form, read_value

_NAME = re.compile(r"[^\W\d][\w-]*")
CAPTURES: frozenset[str] = frozenset(get_args(Capture))
"""Types of fields that a browser makes of the whole page."""
_PAGE_NOTE = "page"  # a note about the whole page has the name of the layer
Parser = Callable[[Any, Scope], Any]


def _as_place(value: Any) -> Any:
    return {"css": [value]} if isinstance(value, str) else value


class FieldSpec(Place):
    """One field: where it is, its type, and what happens when it is missing."""

    first: tuple[Annotated[Place, BeforeValidator(_as_place)], ...] = ()
    """Several places, of which the first with a value is used."""
    type: Literal[ValueKind, Capture] | None = None
    """Type to parse the value as; default: keep it as it was found.

    `file` and `image` download a URL; `screenshot` and `pdf` have no place, but are the whole page.
    """
    match: Pattern | None = None
    """The part of the text to keep."""
    words: dict[str, Any] | None = None
    """Values by text, ignoring case; other texts are empty, with a note."""
    many: bool = False
    """Collect all values as a list."""
    fields: Fields | None = None
    """Fields of an object, or with `many` of a list of objects; each object is in `css`."""
    default: Any = None
    """Value when nothing is found. Without it the field is empty, with a note."""
    required: bool = False
    """Quarantine records without this field."""
    locale: Locale | None = None
    form: str | None = None
    """What the text leaves out: a date's format (%d.%m.%Y), a currency, a unit."""

    @model_validator(mode="after")
    def _check_field(self) -> Self:
        if self.fields is not None:
            self._check_object()
        elif self.is_capture:
            self._check_capture()
        elif not self.places:
            raise invalid(f"its place on the page is missing: write {', '.join(PLACES)} or first")
        if self.words is not None and self.type is not None:
            raise invalid("words and type cannot be combined: words already give the values")
        check_form(self.type, self.form)
        if self.type in FILE_KINDS and self.default is not None:
            raise invalid("a file has no default: without a URL it is empty, with a note")
        if self.required and self.has_default:
            raise invalid("a required field cannot have a default: it would never be missing")
        return self

    def _check_object(self) -> None:
        if not self.fields:
            raise invalid("an object needs fields, each with a name and a selector")
        if self.type is not None or self.match is not None or self.words is not None:
            raise invalid("an object has no type, match or words; write them in its fields")
        others = (name for name in PLACES if name != "css" and getattr(self, name) is not None)
        if self.first or (other := next(others, None)):
            named = "first" if self.first else other
            raise invalid(f"the fields of an object are read from elements: write css, not {named}")

    def _check_capture(self) -> None:
        given = self.model_fields_set - {"type", "required"}
        if given:
            raise invalid(f"a {self.type} is one of the whole page: remove {min(given)}")

    @property
    def is_capture(self) -> bool:
        """Whether it is what a browser makes of the whole page."""
        return self.type in CAPTURES

    @property
    def has_default(self) -> bool:
        return "default" in self.model_fields_set

    @property
    def places(self) -> tuple[Place, ...]:
        """All places in order of preference."""
        return (*([self] if self.is_somewhere else []), *self.first)


def _check_field_names(fields: Any) -> Any:
    for name in fields if isinstance(fields, Mapping) else ():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise invalid(
                f"{name!r} is not a field name: use letters, digits, _ and -, and no digit first"
            )
    return fields


def _as_field(value: Any) -> Any:
    """Accept a text as a selector, and a list as places in order of preference."""
    if isinstance(value, str):
        return {"css": [value]}
    if isinstance(value, list):
        return {"first": value}
    if not isinstance(value, Mapping | FieldSpec):
        raise invalid("write a selector, a list of selectors, or css with type and more")
    return value


FieldLike = Annotated[FieldSpec, BeforeValidator(_as_field)]
Fields = Annotated[dict[str, FieldLike], BeforeValidator(_check_field_names)]
"""Fields by name; a plain text is the selector."""
FieldSpec.model_rebuild()


@dataclass(slots=True)
class Reading:
    """The fields of a page or an element, with notes and origins."""

    fields: dict[str, Any] = field(default_factory=dict)
    notes: list[tuple[str, str]] = field(default_factory=list)
    origins: dict[str, str] = field(default_factory=dict)
    problem: str | None = None
    """The first required field that is missing; None if there is none."""

    @classmethod
    def from_item_data(cls, data: Mapping[str, Any]) -> Reading:
        notes = [(name, text) for name, text in data.get("notes", ())]
        return cls(data["fields"], notes, data.get("origins", {}), data.get("problem"))

    def to_item_data(self) -> dict[str, Any]:
        """Return the reading as data of an item, without empty parts."""
        parts = {"notes": self.notes, "origins": self.origins, "problem": self.problem}
        return {"fields": self.fields, **{name: part for name, part in parts.items() if part}}

    def add_to(self, visit: Visit) -> None:
        for name, text in self.notes:
            visit.note(name, text)
        visit.origins.update(self.origins)


class FieldReader:
    """Reads one field."""

    def __init__(self, name: str, spec: FieldSpec, locale: str | None) -> None:
        self.name = name
        self._spec = spec
        self._finders = make_finders(spec.places)
        self._parser = _make_parser(spec, spec.locale or locale)
        self._origins = ", ".join(finder.origin for finder in self._finders)

    def read(self, scope: Scope, into: Reading, path: str = "") -> Any:
        """Return the value, and add notes and its origin to the reading."""
        name = path + self.name
        for finder in self._finders:
            found = finder.all(scope) if self._spec.many else finder.first(scope)
            if found is None or found == []:
                continue
            if not path:
                into.origins[name] = finder.origin
            if self._parser is None:
                return found
            return self._parse(self._parser, found, scope, into, name)
        return self._missing_value(into, name, is_nested=bool(path))

    def _parse(self, parser: Parser, found: Any, scope: Scope, into: Reading, name: str) -> Any:
        values, problems = [], []
        for one in found if self._spec.many else [found]:
            try:
                values.append(parser(one, scope))
            except ValueError as error:
                kind = self._spec.type or "text"
                problems.append(f"{one!r:.60} cannot be read as {kind}: {error}")
        into.notes += [(name, problem) for problem in problems]
        if not values:
            self._check_required(into, name, f"is unreadable: {problems[0]}")
            return None
        return values if self._spec.many else values[0]

    def _missing_value(self, into: Reading, name: str, *, is_nested: bool) -> Any:
        spec, reason = self._spec, f"nothing at {self._origins}"
        if spec.has_default:
            if not is_nested:
                into.origins[name] = "default"
            into.notes.append((name, f"{reason}; the default is used"))
            return spec.default
        into.notes.append((name, reason))
        self._check_required(into, name, f"is missing: {reason}")
        return None

    def _check_required(self, into: Reading, name: str, problem: str) -> None:
        if self._spec.required and into.problem is None:
            into.problem = f"the required field {name} {problem}"


class ObjectReader(FieldReader):
    """Reads a field that is an object, or a list of objects."""

    def __init__(self, name: str, spec: FieldSpec, locale: str | None) -> None:
        super().__init__(name, spec, locale)
        self._selectors = tuple(split_selector(one)[0] for one in spec.css or ())
        self._readers = make_readers(spec.fields or {}, spec.locale or locale)

    def read(self, scope: Scope, into: Reading, path: str = "") -> Any:
        name = path + self.name
        if not self._selectors:
            return self._read_object(scope, into, name)
        for css in self._selectors:
            nodes = select_nodes(scope.page, scope.node, css)
            if not nodes:
                continue
            if not path:
                into.origins[name] = f"css {css}"
            inner = [Scope(scope.page, node, scope.url, scope.record) for node in nodes]
            if not self._spec.many:
                return self._read_object(inner[0], into, name)
            return [self._read_object(one, into, f"{name}[{n}]") for n, one in enumerate(inner)]
        # Without elements there is no text either: the same notes, default and requirement.
        return super().read(scope, into, path)

    def _read_object(self, scope: Scope, into: Reading, name: str) -> dict[str, Any]:
        return {one.name: one.read(scope, into, f"{name}.") for one in self._readers}


def make_readers(fields: Mapping[str, FieldSpec], locale: str | None) -> tuple[FieldReader, ...]:
    """Return the readers of these fields; they are used for many pages."""
    return tuple(
        (FieldReader if spec.fields is None else ObjectReader)(name, spec, locale)
        for name, spec in fields.items()
        if not spec.is_capture
    )


def read_fields(readers: tuple[FieldReader, ...], scope: Scope) -> Reading:
    """Return all fields of a page or an element."""
    reading = Reading()
    fields = reading.fields
    for reader in readers:
        fields[reader.name] = reader.read(scope, reading)
    if (problem := scope.page.page.text_problem) is not None:
        reading.notes.append((_PAGE_NOTE, problem))
    origin = f"page {scope.page.url} "
    reading.origins = {name: origin + place for name, place in reading.origins.items()}
    return reading


def _make_parser(spec: FieldSpec, locale: str | None) -> Parser | None:
    """Return the function that converts a found value; None when it is kept as it is."""
    if spec.type is None and spec.match is None and spec.words is None:
        return None
    words = None if spec.words is None else {_fold(one): to for one, to in spec.words.items()}
    pattern = user_pattern(spec.match) if spec.match is not None else None
    kind, form = spec.type, spec.form
    is_url = kind == "url" or kind in FILE_KINDS

    def parse(value: Any, scope: Scope) -> Any:
        if pattern is not None:
            match = pattern.search(str(value))
            value = pattern.first_group(match) if match else None
            if value is None:
                raise ValueError(f"it does not match {pattern.pattern}")
        if words is not None:
            word = _fold(value)
            if word not in words:
                raise ValueError("it is not among the words of the manifest")
            value = words[word]
        if kind is not None:
            value = read_value(kind, value, locale=locale, form=form)
        return urljoin(scope.page.base, value) if is_url else value

    return parse


def _fold(value: Any) -> str:
    return " ".join(str(value).split()).casefold()
