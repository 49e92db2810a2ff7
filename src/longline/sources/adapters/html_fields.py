"""Fields of a manifest, made ready once, and what reading a page or an element with them gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin

from longline.config.manifests.fields import FieldSpec, split_selector
from longline.config.patterns import UserPattern, user_pattern
from longline.sources.adapters.html_places import finders_of, nodes_in
from longline.sources.adapters.html_scope import Scope
from longline.sources.values import reader_of
from longline.sources.visit import Visit

_SHOWN = 60  # characters of a value that cannot be read which its note repeats
_CHARACTERS = "page"  # the note is about all fields, so it has the name of the layer
Read = Callable[[Any, Scope], Any]


@dataclass(slots=True)
class Reading:
    """What was read: the fields, what is to be said about them, and where each came from."""

    fields: dict[str, Any] = field(default_factory=dict)
    notes: list[tuple[str, str]] = field(default_factory=list)
    origins: dict[str, str] = field(default_factory=dict)
    problem: str | None = None
    """Why this is no record: the first required field that is missing."""

    @classmethod
    def carried(cls, data: Mapping[str, Any]) -> Reading:
        """Return the reading that an item brings along."""
        notes = [(name, text) for name, text in data.get("notes", ())]
        return cls(data["fields"], notes, data.get("origins", {}), data.get("problem"))

    def to_carry(self) -> dict[str, Any]:
        """Return it as the data of an item; what is empty is left out."""
        parts = {"notes": self.notes, "origins": self.origins, "problem": self.problem}
        return {"fields": self.fields, **{name: part for name, part in parts.items() if part}}

    def tell(self, visit: Visit) -> None:
        """Hand notes and origins to a visit."""
        for name, text in self.notes:
            visit.note(name, text)
        visit.origins.update(self.origins)


class FieldReader:
    """One field."""

    def __init__(self, name: str, spec: FieldSpec, locale: str | None) -> None:
        self.name = name
        self._spec = spec
        self._finders = finders_of(spec.places)
        self._is_many = spec.many
        self._read = _parser(spec, spec.locale or locale)
        self._tried = ", ".join(finder.origin for finder in self._finders)

    def read(self, scope: Scope, into: Reading, path: str = "") -> Any:
        """Return the value; what there is to say about it goes into the reading."""
        name = path + self.name
        for finder in self._finders:
            found = finder.all(scope) if self._is_many else finder.first(scope)
            if found is None or found == []:
                continue
            if not path:
                into.origins[name] = finder.origin
            return self._value(found, scope, into, name)
        return self._absent(into, name, f"nothing at {self._tried}", is_nested=bool(path))

    def _value(self, found: Any, scope: Scope, into: Reading, name: str) -> Any:
        if self._read is None:
            return found
        if not self._is_many:
            value, problem = self._parsed(found, scope)
            return value if problem is None else self._unreadable(into, name, problem)
        values = []
        for one in found:
            value, problem = self._parsed(one, scope)
            if problem is None:
                values.append(value)
            else:
                into.notes.append((name, problem))
        return values or self._unreadable(into, name, "none of its values can be read")

    def _parsed(self, found: Any, scope: Scope) -> tuple[Any, str | None]:
        assert self._read is not None  # noqa: S101  # asked for only then
        try:
            return self._read(found, scope), None
        except ValueError as error:
            kind = self._spec.type or "text"
            return None, f"{_short(found)} cannot be read as {kind}: {error}"

    def _unreadable(self, into: Reading, name: str, problem: str) -> Any:
        into.notes.append((name, problem))
        if self._spec.required and into.problem is None:
            into.problem = f"the required field {name} is unreadable: {problem}"
        return None

    def _absent(self, into: Reading, name: str, reason: str, *, is_nested: bool) -> Any:
        spec = self._spec
        if spec.has_default:
            if not is_nested:
                into.origins[name] = "default"
            into.notes.append((name, f"{reason}; the default stands in"))
            return spec.default
        into.notes.append((name, reason))
        if spec.required and into.problem is None:
            into.problem = f"the required field {name} is missing: {reason}"
        return None


class ObjectReader:
    """A field that is an object, or a list of objects."""

    def __init__(self, name: str, spec: FieldSpec, locale: str | None) -> None:
        self.name = name
        self._spec = spec
        self._selectors = tuple(split_selector(one)[0] for one in spec.css or ())
        self._readers = readers_of(spec.fields or {}, spec.locale or locale)
        self._absent = FieldReader(name, spec, locale)

    def read(self, scope: Scope, into: Reading, path: str = "") -> Any:
        """Return the object, or the list of them; None when none of the elements is there."""
        name = path + self.name
        if not self._selectors:
            return self._object(scope, into, name)
        for css in self._selectors:
            nodes = nodes_in(scope.page, scope.node, css)
            if not nodes:
                continue
            if not path:
                into.origins[name] = f"css {css}"
            inner = [Scope(scope.page, node, scope.address, scope.record) for node in nodes]
            if not self._spec.many:
                return self._object(inner[0], into, name)
            return [self._object(one, into, f"{name}[{n}]") for n, one in enumerate(inner)]
        # What finds no element finds no text of it: the same notes, default and requirement.
        return self._absent.read(scope, into, path)

    def _object(self, scope: Scope, into: Reading, name: str) -> dict[str, Any]:
        return {one.name: one.read(scope, into, f"{name}.") for one in self._readers}


AnyReader = FieldReader | ObjectReader


def readers_of(fields: Mapping[str, FieldSpec], locale: str | None) -> tuple[AnyReader, ...]:
    """Return what reads these fields, made ready for many pages."""
    return tuple(
        (FieldReader if spec.fields is None else ObjectReader)(name, spec, locale)
        for name, spec in fields.items()
    )


def read_fields(readers: tuple[AnyReader, ...], scope: Scope) -> Reading:
    """Return all fields of a page or an element."""
    reading = Reading()
    fields = reading.fields
    for reader in readers:
        fields[reader.name] = reader.read(scope, reading)
    if (problem := scope.page.text_problem) is not None:
        reading.notes.append((_CHARACTERS, problem))
    origin = f"page {scope.page.address} "
    reading.origins = {name: origin + place for name, place in reading.origins.items()}
    return reading


def _parser(spec: FieldSpec, locale: str | None) -> Read | None:
    """Return what makes a value of what was found; None when it is taken as it is."""
    if spec.type is None and spec.match is None and spec.words is None:
        return None
    read = reader_of(spec.type) if spec.type is not None else None
    words = None if spec.words is None else {_word(one): to for one, to in spec.words.items()}
    pattern = user_pattern(spec.match) if spec.match is not None else None
    form, is_address = spec.form, spec.type == "url"

    def parsed(value: Any, scope: Scope) -> Any:
        if pattern is not None:
            value = _part(pattern, value)
        if words is not None:
            value = _meaning(words, value)
        if read is not None:
            value = read(value, locale, form)
        return urljoin(scope.page.base, value) if is_address else value

    return parsed


def _part(pattern: UserPattern, value: Any) -> str:
    found = pattern.search(str(value))
    part = pattern.first_group(found) if found else None
    if part is None:
        raise ValueError(f"it does not match {pattern.pattern}")
    return part


def _word(value: Any) -> str:
    return " ".join(str(value).split()).casefold()


def _meaning(words: Mapping[str, Any], value: Any) -> Any:
    word = _word(value)
    if word not in words:
        raise ValueError("it is none of the words that the manifest explains")
    return words[word]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
