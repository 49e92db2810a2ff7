"""Validation of what users write: the base model, and messages for its errors.

Messages never repeat what was written, since it may be a secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from longline.config.yaml_tree import Location, Node


def invalid(problem: str) -> PydanticCustomError:
    """Return a validation error with this message and nothing of the input, which may be secret."""
    return PydanticCustomError("invalid", "{problem}", {"problem": problem})


def one_or_several(value: Any) -> Any:
    """Accept one text as a list of one."""
    return [value] if isinstance(value, str) else value


def short_for(name: str) -> BeforeValidator:
    """Accept a text as a mapping that has it under this name."""
    return BeforeValidator(lambda value: {name: value} if isinstance(value, str) else value)


def check_exactly_one(model: BaseModel, names: Sequence[str]) -> None:
    """Check that one of these fields is set, and no other.

    Raises:
        PydanticCustomError: none is, or several are.
    """
    given = [name for name in names if getattr(model, name) is not None]
    if len(given) > 1:
        raise invalid(f"it has {' and '.join(given)}; write only one of them")
    if not given:
        raise invalid(f"write one of {', '.join(names)}")


class StrictModel(BaseModel):
    """A frozen model that refuses unknown names and hides its input in errors."""

    # Without use_attribute_docstrings: reading the source of each model takes 50 ms in all, and
    # only the JSON Schemas need these texts (`attribute_docstrings`).
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_names(cls, values: Any) -> Any:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for name in values if isinstance(values, Mapping) else ():
            if name not in known:
                problem = f"unknown key {name!r}; known: {', '.join(known)}"
                context = {"problem": problem, "name": str(name), "known": known}
                raise PydanticCustomError("unknown_name", "{problem}", context)
        return values


# ---------------- Which error of a file to report, its position and its text

Detail = Mapping[str, Any]
"""One error of pydantic's `ValidationError.errors()`."""

_WRONG_TYPE = ("_type", "_parsing", "_from_float", "literal_error")
_IN_YAML = {  # the types that pydantic names in terms of Python
    "bool": "true or false",
    **dict.fromkeys(("list", "tuple", "set"), "a list such as [one, two]"),
    **dict.fromkeys(("dict", "mapping", "model"), "names and values, indented below it"),
}
_FIXED = {
    "missing": "it is missing",
    "union_tag_not_found": "its kind is missing",
    **dict.fromkeys(("string_too_short", "too_short"), "it must not be empty"),
    **dict.fromkeys(("byte_size", "byte_size_unit"), "it must be a size such as 500000 or 50MB"),
}


def describe_error(detail: Detail) -> str:
    """Return what is wrong and what is expected."""
    kind: str = detail["type"]
    if kind == "unknown_name":
        known = [name for name in detail["ctx"]["known"] if name != "manifest"]
        return describe_unknown_key(detail["ctx"]["name"], known)
    if kind == "extra_forbidden":
        return describe_unknown_key(str(detail["loc"][-1]), ())
    if kind in _FIXED:
        return _FIXED[kind]
    if kind == "union_tag_invalid":
        return f"it must be one of {detail['ctx']['expected_tags']}"
    wanted = _IN_YAML.get(kind.partition("_")[0]) if kind.endswith(_WRONG_TYPE) else None
    if wanted is not None:
        return f"it must be {wanted}"
    message: str = detail["msg"]
    message = message.removeprefix("Value error, ").removeprefix("Assertion failed, ").rstrip(".")
    message = message.replace("String should match pattern", "it must match the pattern", 1)
    return message.replace("Input should", "it must", 1)


def describe_unknown_key(name: str, known: Sequence[str]) -> str:
    """Return the problem of a key that is not among the known ones."""
    if meant := nearest(name, known):
        return f"unknown key; did you mean `{meant}`?"
    return f"unknown key; known: {', '.join(known)}" if known else "unknown key; remove it"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar; None if none is."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), None)


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A problem, the location of its setting, and the nearest location in the file."""

    loc: Location
    problem: str
    near: Location


@dataclass(frozen=True, slots=True)
class _LocatedError:
    """An error of pydantic, and the part of its location that is in the file.

    `union` is the location of the union whose members were tried; None outside a union.
    """

    loc: Location
    detail: Detail
    union: Location | None


def select_problem(error: ValidationError, tree: Node) -> FileProblem:
    """Return the first problem in the file; in a union, that of the best matching member."""
    groups: dict[object, list[_LocatedError]] = {}
    details = error.errors(include_url=False)
    for number, detail in enumerate(details):
        if detail["type"] == "too_short" and any(_is_below(one, detail) for one in details):
            continue  # invalid elements are not counted, and are the problem
        one = _locate(detail, tree)
        groups.setdefault(number if one.union is None else one.union, []).append(one)
    best = min(map(_best_match, groups.values()), key=lambda one: _place_in_file(one, tree))
    kind, loc = best.detail["type"], best.loc
    if kind == "missing":
        loc = (*loc, best.detail["loc"][-1])
    elif kind == "unknown_name":
        loc = (*loc, best.detail["ctx"]["name"])
    elif kind.startswith("union_tag"):
        loc = (*loc, "kind")
    problem = describe_error(best.detail)
    return FileProblem(loc, problem, _nearest_location(tree, loc, problem))


def _is_below(detail: ErrorDetails, other: ErrorDetails) -> bool:
    length = len(other["loc"])
    return len(detail["loc"]) > length and detail["loc"][:length] == other["loc"]


def _locate(detail: Any, tree: Node) -> _LocatedError:
    """Follow a location through the file, which has no names of unions and validators."""
    loc: Location = ()
    union: Location | None = None
    node = tree
    for part in detail["loc"][:-1] if detail["type"] == "missing" else detail["loc"]:
        below = node.below(part)
        if below is not None:
            node, loc = below, (*loc, part)
        elif union is None:
            union = loc
    return _LocatedError(loc, detail, union)


def _place_in_file(one: _LocatedError, tree: Node) -> tuple[bool, int, int]:
    node = tree.at(one.loc) or tree
    # A missing setting is often there under a wrong name, which is reported first.
    return one.detail["type"] == "missing", node.line, node.column


def _best_match(group: list[_LocatedError]) -> _LocatedError:
    """Return the error of the union member that matches best."""
    best = max(group, key=lambda one: (len(one.loc), _similarity(one)))
    if len(group) == 1 or not _is_wrong_type(best):
        return best
    # No member comes close: all that would be accepted are named.
    wanted = dict.fromkeys(describe_error(one.detail).removeprefix("it must be ") for one in group)
    message = f"it must be {' or '.join(wanted)}"
    return replace(best, detail={**best.detail, "type": "no_member", "msg": message})


def _similarity(one: _LocatedError) -> float:
    """Return how well a union member matches: a similar name counts more than a missing one."""
    kind, context = one.detail["type"], one.detail.get("ctx") or {}
    if kind == "unknown_name":
        return 1.0 if nearest(context["name"], context["known"]) else 0.0
    if kind == "missing":
        return 0.5
    return -1.0 if _is_wrong_type(one) else 2.0


def _is_wrong_type(one: _LocatedError) -> bool:
    is_type: bool = one.detail["type"].endswith(_WRONG_TYPE)
    return is_type and one.loc == (one.union or one.loc)


def _nearest_location(tree: Node, loc: Location, problem: str) -> Location:
    """Return the location, or below it that of the first setting that the problem mentions."""
    node = tree.at(loc)
    if node is not None and isinstance(node.content, dict):
        for word in problem.split():
            name = word.strip(".:,;'`{}")
            if name in node.content and name not in {"name", "kind"}:  # ordinary words
                return (*loc, name)
    return loc
