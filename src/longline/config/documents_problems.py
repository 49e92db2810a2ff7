"""Of all that pydantic says about a file, the one problem that helps most, and where it is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from longline.config.documents_tree import Node
from longline.config.documents_words import Detail, nearest, sentence, several_kinds

Location = tuple[str | int, ...]

_ANY_WORD = frozenset({"name", "kind"})  # in a sentence, they rarely mean the setting
_WRONG_KIND = ("_type", "_parsing", "_from_float", "literal_error")


@dataclass(frozen=True, slots=True)
class _Found:
    """A problem, the part of its location that stands in the file, and what it belongs to."""

    loc: Location
    detail: Detail
    union: Location | None
    """Where pydantic tried several kinds, each with its own problems; None: it tried none."""
    member: str | int | None


@dataclass(frozen=True, slots=True)
class Told:
    """A problem, what it is a problem of, and the nearest to it that stands in the file."""

    loc: Location
    problem: str
    near: Location


def most_useful(error: ValidationError, tree: Node, model: type[BaseModel]) -> Told:
    """Return the first problem in the file; where several kinds may stand, that of the best fit."""
    found = [_traced(detail, tree) for detail in error.errors(include_url=False)]
    first = min(_groups(found), key=lambda group: _order(group, tree))
    best = _best(first)
    if best is None:
        loc = first[0].loc
        return Told(loc, several_kinds([one.detail for one in first]), loc)
    name = _name_in(best.detail)
    loc = best.loc if name is None else (*best.loc, name)
    problem = sentence(best.detail, _node(tree, loc), model)
    return Told(loc, problem, _nearest(tree, loc, problem))


def written_as(loc: Sequence[str | int]) -> str:
    """Return a location as people read it: fields.price.selectors[1]."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return "".join(parts).lstrip(".")


def _traced(detail: Any, tree: Node) -> _Found:
    """Follow a location through the file: names of unions and validators are not in it."""
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
    return _Found(loc, detail, union, member)


def _groups(found: list[_Found]) -> Iterator[list[_Found]]:
    unions: dict[Location, list[_Found]] = {}
    for one in found:
        if one.union is None:
            yield [one]
        else:
            unions.setdefault(one.union, []).append(one)
    yield from unions.values()


def _order(group: list[_Found], tree: Node) -> tuple[bool, int, int]:
    best = _best(group) or group[0]
    node = _node(tree, best.loc) or tree
    # What is missing stands nowhere, and is often there under a wrong name: that is told first.
    return best.detail["type"] == "missing", node.line, node.column


def _best(group: list[_Found]) -> _Found | None:
    """Return the problem of the kind that came nearest; None when none came near."""
    if len(group) > 1 and all(_is_wrong_kind(one) for one in group):
        return None
    sizes: dict[str | int | None, int] = {}
    for one in group:
        sizes[one.member] = sizes.get(one.member, 0) + 1
    return max(group, key=lambda one: (len(one.loc), _nearness(one), -sizes[one.member]))


def _nearness(one: _Found) -> float:
    """Return how near a kind came: what it knows of the names says more than what it misses."""
    kind = one.detail["type"]
    if kind == "unknown_name":
        context = one.detail["ctx"]
        return float(context["share"]) + (0.1 if nearest(context["name"], context["known"]) else 0)
    if kind == "missing":
        return 0.5
    return -1 if _is_wrong_kind(one) else 2


def _is_wrong_kind(one: _Found) -> bool:
    is_kind: bool = one.detail["type"].endswith(_WRONG_KIND)
    return is_kind and one.loc == (one.union or one.loc)


def _name_in(detail: Detail) -> str | None:
    """Return the name that a problem is about, when its location is what should hold it."""
    if detail["type"] == "missing":
        return str(detail["loc"][-1])
    if detail["type"] == "unknown_name":
        return str(detail["ctx"]["name"])
    return "kind" if detail["type"].endswith("_kind") else None


def _nearest(tree: Node, loc: Location, problem: str) -> Location:
    """Return the location, or of what stands there the first that the problem speaks of."""
    node = _node(tree, loc)
    if node is None or not isinstance(node.content, dict):
        return loc
    words = [word.strip(".:,;'{}") for word in problem.split()]
    spoken_of = (word for word in words if word in node.content and word not in _ANY_WORD)
    return (*loc, *itertools.islice(spoken_of, 1))


def _node(tree: Node, loc: Location) -> Node | None:
    node: Node | None = tree
    for part in loc:
        node = node and node.below(part)
    return node
