"""Messages for validation errors in a file: which one to report, its position and its text.

Messages never repeat what was written, since it may be a secret.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from longline.config.yaml_tree import Node

Detail = Mapping[str, Any]
"""One error of pydantic's `ValidationError.errors()`."""
Location = tuple[str | int, ...]

_TYPES = {  # how the types of pydantic's errors begin: what is expected
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "bool": "true or false",
    "byte_size": "a size such as 50MB",
    **dict.fromkeys(("list", "tuple", "set", "frozen_set"), "a list such as [one, two]"),
    **dict.fromkeys(("dict", "mapping", "model"), "names and values, indented below it"),
}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}
_TYPE_ENDING = re.compile(r"(_attributes)?(_type|_parsing|_parsing_size|_from_float)$")


def describe_error(detail: Detail, node: Node | None, model: type[BaseModel]) -> str:
    """Return what is wrong and what is expected."""
    kind, about = detail["type"], _setting_description(model, detail["loc"])
    if kind in {"unknown_name", "extra_forbidden"}:
        return _describe_unknown_name(detail, model)
    if choices := _expected_words(detail):
        written = node.content if node is not None and isinstance(node.content, str) else ""
        return f"it must be {_either(choices)}{did_you_mean(written, choices, '; ')}"
    if kind == "string_pattern_mismatch" and about:
        return f"it has the wrong format; {about}"
    if kind in {"string_too_short", "too_short"}:
        return "it must not be empty"
    wanted = "missing" if kind == "missing" else _expected(detail)
    if wanted is None:
        message: str = detail["msg"]
        return message.removeprefix("Value error, ").removeprefix("Assertion failed, ").rstrip(".")
    problem = "it is missing" if kind == "missing" else f"it must be {wanted}"
    return f"{problem} ({about})" if about else problem


def describe_value_error(detail: Detail, model: type[BaseModel]) -> str:
    """Return the same for a value of a command line or variable, and show the value."""
    wanted = _expected(detail) or _either(_expected_words(detail))
    if not wanted:
        return describe_error(detail, None, model).removeprefix("it ")
    return f"must be {wanted}, not {detail['input']!r:.80}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar; None if none is."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), None)


def did_you_mean(name: str, known: Iterable[str], before: str = "", after: str = "") -> str:
    """Return the question for the most similar known name; "" if none is similar."""
    meant = nearest(name, known)
    return f"{before}did you mean '{meant}'?{after}" if meant else ""


def _describe_unknown_name(detail: Detail, model: type[BaseModel]) -> str:
    context = detail.get("ctx") or {}
    if detail["type"] == "unknown_name":
        name, known = context["name"], [one for one in context["known"] if one != "manifest"]
    else:
        name = str(detail["loc"][-1])
        known = _field_names(model) if len(detail["loc"]) == 1 else []
    return describe_unknown_key(name, known)


def describe_unknown_key(name: str, known: Sequence[str]) -> str:
    """Return the problem of a key that is not among the known ones."""
    if meant := nearest(name, known):
        return f"unknown key; did you mean `{meant}`?"
    return f"unknown key; known: {', '.join(known)}" if known else "unknown key; remove it"


def _expected(detail: Detail) -> str | None:
    """Return the expected type or bound; None for an error of another kind."""
    kind = detail["type"]
    if kind in _BOUNDS:
        words, name = _BOUNDS[kind]
        bound = detail["ctx"][name]
        return f"{words} {bound:g}" if isinstance(bound, float) else f"{words} {bound}"
    stem = _TYPE_ENDING.sub("", kind)
    return _TYPES.get(stem) if stem != kind or kind == "byte_size" else None


def _expected_words(detail: Detail) -> list[str]:
    """Return the allowed words; pydantic writes them as 'a', 'b' or 'c'."""
    expected = str((detail.get("ctx") or {}).get("expected", ""))
    if detail["type"].endswith("_kind"):  # of our unions: kind must be one of a, b, c
        expected = detail["msg"].rpartition("one of ")[2]
    elif detail["type"] not in {"literal_error", "enum"} or not expected:
        return []
    return [part.strip().strip("'") for part in expected.replace(" or ", ", ").split(",")]


def _either(words: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _field_names(model: type[BaseModel]) -> list[str]:
    fields = model.model_fields.items()
    # A job file names its manifest as its source.
    return [field.alias or name for name, field in fields if name != "manifest"]


def _setting_description(model: type[BaseModel], loc: Sequence[str | int]) -> str:
    """Return the description of the setting at a location; "" when it has none."""
    kinds: list[Any] = [model]
    about = ""
    for part in loc:
        steps = [step for kind in _members(kinds) for step in _fields_at(kind, part)]
        if steps:
            kinds = [kind for kind, _ in steps]
            about = next((text for _, text in steps if text), "")
    return " ".join(about.split()).rstrip(".")


def _members(kinds: Iterable[Any]) -> Iterator[Any]:
    for kind in kinds:
        if get_origin(kind) in {Union, UnionType}:
            yield from _members(get_args(kind))
        elif get_origin(kind) is Annotated:
            yield from _members(get_args(kind)[:1])
        else:
            yield kind


def _fields_at(kind: Any, part: str | int) -> Iterator[tuple[Any, str]]:
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = _field_of(kind, part)
        if field is not None:
            yield field.annotation, field.description or ""
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield arguments[1], ""
    elif isinstance(part, int) and arguments:
        yield arguments[0], ""


def _field_of(model: type[BaseModel], part: str | int) -> FieldInfo | None:
    for name, field in model.model_fields.items():
        if part == (field.alias or name):
            return field
    return None


_COMMON_WORDS = frozenset({"name", "kind"})  # in a message, they rarely mean the setting
_WRONG_TYPE = ("_type", "_parsing", "_from_float", "literal_error")


@dataclass(frozen=True, slots=True)
class _LocatedError:
    """An error of pydantic, and the part of its location that is in the file."""

    loc: Location
    detail: Detail
    union: Location | None
    """Location of the union whose members were tried; None outside a union."""
    member: str | int | None


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A problem, the location of its setting, and the nearest location in the file."""

    loc: Location
    problem: str
    near: Location


def select_problem(error: ValidationError, tree: Node, model: type[BaseModel]) -> FileProblem:
    """Return the first problem in the file; in a union, that of the best matching member."""
    found = [_locate(detail, tree) for detail in error.errors(include_url=False)]
    first = min(_group_by_union(found), key=lambda group: _place_in_file(group, tree))
    best = _best_match(first)
    if best is None:  # no member of a union came close
        words = [w for one in first for w in (_expected(one.detail), *_expected_words(one.detail))]
        problem = f"it must be {_either(list(dict.fromkeys(filter(None, words))))}"
        return FileProblem(first[0].loc, problem, first[0].loc)
    name = _setting_name(best.detail)
    loc = best.loc if name is None else (*best.loc, name)
    problem = describe_error(best.detail, _node_at(tree, loc), model)
    return FileProblem(loc, problem, _nearest_location(tree, loc, problem))


def format_location(loc: Sequence[str | int]) -> str:
    """Return a location as text: fields.price.selectors[1]."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return "".join(parts).lstrip(".")


def _locate(detail: Any, tree: Node) -> _LocatedError:
    """Follow a location through the file, which has no names of unions and validators."""
    loc: Location = ()
    union: Location | None = None
    member: str | int | None = None
    node = tree
    parts = detail["loc"][:-1] if detail["type"] == "missing" else detail["loc"]
    for part in parts:
        below = node.below(part)
        if below is not None:
            node, loc = below, (*loc, part)
        elif union is None:
            union, member = loc, part
    return _LocatedError(loc, detail, union, member)


def _group_by_union(found: list[_LocatedError]) -> Iterator[list[_LocatedError]]:
    unions: dict[Location, list[_LocatedError]] = {}
    for one in found:
        if one.union is None:
            yield [one]
        else:
            unions.setdefault(one.union, []).append(one)
    yield from unions.values()


def _place_in_file(group: list[_LocatedError], tree: Node) -> tuple[bool, int, int]:
    best = _best_match(group) or group[0]
    node = _node_at(tree, best.loc) or tree
    # A missing setting is often there under a wrong name, which is reported first.
    return best.detail["type"] == "missing", node.line, node.column


def _best_match(group: list[_LocatedError]) -> _LocatedError | None:
    """Return the error of the union member that matches best; None when none comes close."""
    if len(group) > 1 and all(_is_wrong_type(one) for one in group):
        return None
    sizes: dict[str | int | None, int] = {}
    for one in group:
        sizes[one.member] = sizes.get(one.member, 0) + 1
    return max(group, key=lambda one: (len(one.loc), _similarity(one), -sizes[one.member]))


def _similarity(one: _LocatedError) -> float:
    """Return how well a union member matches: known names count more than missing ones."""
    kind = one.detail["type"]
    if kind == "unknown_name":
        context = one.detail["ctx"]
        return float(context["share"]) + (0.1 if nearest(context["name"], context["known"]) else 0)
    if kind == "missing":
        return 0.5
    return -1 if _is_wrong_type(one) else 2


def _is_wrong_type(one: _LocatedError) -> bool:
    is_kind: bool = one.detail["type"].endswith(_WRONG_TYPE)
    return is_kind and one.loc == (one.union or one.loc)


def _setting_name(detail: Detail) -> str | None:
    """Return the name of the setting when the location is that of its parent."""
    if detail["type"] == "missing":
        return str(detail["loc"][-1])
    if detail["type"] == "unknown_name":
        return str(detail["ctx"]["name"])
    return "kind" if detail["type"].endswith("_kind") else None


def _nearest_location(tree: Node, loc: Location, problem: str) -> Location:
    """Return the location, or below it that of the first setting that the problem mentions."""
    node = _node_at(tree, loc)
    if node is None or not isinstance(node.content, dict):
        return loc
    words = [word.strip(".:,;'{}") for word in problem.split()]
    mentioned = (word for word in words if word in node.content and word not in _COMMON_WORDS)
    return (*loc, *itertools.islice(mentioned, 1))


def _node_at(tree: Node, loc: Location) -> Node | None:
    node: Node | None = tree
    for part in loc:
        node = node and node.below(part)
    return node
