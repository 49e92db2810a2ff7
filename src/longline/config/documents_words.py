"""What pydantic finds wrong, in a user's words: what would be right, and an example of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from longline.config.documents_tree import Node

Detail = Mapping[str, Any]

_KINDS = {  # how the types of pydantic's problems begin, in words, with an example
    "string": ("text", "put it in quotes"),
    "int": ("a whole number", "for example 5"),
    "float": ("a number", "for example 2.5"),
    "decimal": ("a number", "for example 2.5"),
    "bool": ("true or false", ""),
    "list": ("a list", "for example [one, two]"),
    "tuple": ("a list", "for example [one, two]"),
    "set": ("a list", "for example [one, two]"),
    "frozen_set": ("a list", "for example [one, two]"),
    "dict": ("names and values", "each in its own line, indented"),
    "mapping": ("names and values", "each in its own line, indented"),
    "model": ("names and values", "each in its own line, indented"),
    "byte_size": ("a size", "for example 50MB"),
    "none_required": ("nothing", ""),
}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


def sentence(detail: Detail, node: Node | None, model: type[BaseModel]) -> str:
    """Return what is wrong and what would be right; what was written may be secret, and is not."""
    kind: str = detail["type"]
    about = _about(model, detail["loc"])
    wanted = _wanted(kind)
    if kind in {"unknown_name", "extra_forbidden"}:
        return _unknown(detail, model)
    if kind in {"literal_error", "enum"} or kind.endswith("_kind"):
        return _choices(_expected(detail), node)
    if kind == "string_pattern_mismatch" and about:
        return f"it cannot be written like this; {about}"
    if kind in _BOUNDS:
        return _joined(_bound(detail), about)
    if wanted is not None:
        return _joined(_not_that_kind(*wanted, node), about)
    return _joined("it is missing", about) if kind == "missing" else _plainly(kind, detail["msg"])


def sentence_on_value(detail: Detail, model: type[BaseModel]) -> str:
    """Return the same of a value from a command line or a variable, which is no secret: shown."""
    wanted = _wanted(detail["type"])
    if wanted is None and detail["type"] not in {*_BOUNDS, "literal_error", "enum"}:
        return sentence(detail, None, model).removeprefix("it ")
    problem = f"must be {wanted[0]}" if wanted else sentence({**detail, "loc": ()}, None, model)
    return f"{problem.removeprefix('it ')}, not {detail['input']!r:.80}"


def several_kinds(details: Sequence[Detail]) -> str:
    """Return what may stand where several kinds may, and none of them does."""
    kinds = dict.fromkeys(wanted for one in details if (wanted := _wanted(one["type"])))
    words = [f"{name}, {example}" if len(kinds) == 1 else name for name, example in kinds]
    choices = [name for one in details for name in _expected(one)]
    return f"it must be {_either([*words, *dict.fromkeys(choices)])}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), None)


def _unknown(detail: Detail, model: type[BaseModel]) -> str:
    context = detail.get("ctx") or {}
    if detail["type"] == "unknown_name":
        name, known = context["name"], [one for one in context["known"] if one != "manifest"]
    else:
        name = str(detail["loc"][-1])
        known = _names_of(model) if len(detail["loc"]) == 1 else []
    meant = nearest(name, known)
    hint = f"did you mean '{meant}'? " if meant else ""
    listed = f"known here: {', '.join(known)}" if known else "remove it"
    return f"there is no such setting; {hint}{listed}"


def _bound(detail: Detail) -> str:
    words, name = _BOUNDS[detail["type"]]
    bound = detail["ctx"][name]
    return (
        f"it must be {words} {bound:g}"
        if isinstance(bound, float)
        else f"it must be {words} {bound}"
    )


def _expected(detail: Detail) -> list[str]:
    """Return the words that may stand here; pydantic writes them as 'a', 'b' or 'c'."""
    expected = str((detail.get("ctx") or {}).get("expected", ""))
    if detail["type"].endswith("_kind"):  # ours, of unions: kind must be one of a, b, c
        expected = detail["msg"].rpartition("one of ")[2]
    elif detail["type"] not in {"literal_error", "enum"} or not expected:
        return []
    return [part.strip().strip("'") for part in expected.replace(" or ", ", ").split(",")]


def _choices(names: list[str], node: Node | None) -> str:
    written = node.content if node is not None and isinstance(node.content, str) else ""
    meant = nearest(written, names)
    hint = f"; did you mean '{meant}'?" if meant else ""
    return f"it must be {_either(names)}{hint}"


def _wanted(kind: str) -> tuple[str, str] | None:
    for ending in ("_type", "_parsing", "_parsing_size", "_from_float"):
        if kind.removesuffix(ending) in _KINDS and kind.endswith(ending):
            return _KINDS[kind.removesuffix(ending)]
    return _KINDS.get(kind) or _KINDS.get(kind.partition("_attributes")[0])


def _not_that_kind(name: str, example: str, node: Node | None) -> str:
    shown = f", {example}" if example and not (name == "text" and _is_collection(node)) else ""
    found = _called(node)
    return f"it must be {name}{shown}{f'; here it is {found}' if found else ''}"


def _is_collection(node: Node | None) -> bool:
    return node is not None and isinstance(node.content, dict | list)


def _called(node: Node | None) -> str:
    if node is None:
        return ""
    if isinstance(node.content, bool):
        return "true or false"
    names = {str: "text", int: "a number", float: "a number", list: "a list", NoneType: "empty"}
    return names.get(type(node.content), "names and values")


def _plainly(kind: str, message: str) -> str:
    if kind in {"string_too_short", "too_short"}:
        return "it must not be empty"
    return message.removeprefix("Value error, ").removeprefix("Assertion failed, ").rstrip(".")


def _joined(problem: str, about: str) -> str:
    return f"{problem} ({about})" if about else problem


def _either(words: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _names_of(model: type[BaseModel]) -> list[str]:
    fields = model.model_fields.items()
    # Of a job file, the manifest is told by its own file.
    return [field.alias or name for name, field in fields if name != "manifest"]


def _about(model: type[BaseModel], loc: Sequence[str | int]) -> str:
    """Return what the model says about the setting at a location; "" when it says nothing."""
    kinds: list[Any] = [model]
    about = ""
    for part in loc:
        steps = [step for kind in _single(kinds) for step in _below(kind, part)]
        if steps:
            kinds = [kind for kind, _ in steps]
            about = next((said for _, said in steps if said), "")
    return " ".join(about.split()).rstrip(".")


def _single(kinds: Iterable[Any]) -> Iterator[Any]:
    for kind in kinds:
        if get_origin(kind) in {Union, UnionType}:
            yield from _single(get_args(kind))
        elif get_origin(kind) is Annotated:
            yield from _single(get_args(kind)[:1])
        else:
            yield kind


def _below(kind: Any, part: str | int) -> Iterator[tuple[Any, str]]:
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = _field(kind, part)
        if field is not None:
            yield field.annotation, field.description or ""
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield arguments[1], ""
    elif isinstance(part, int) and arguments:
        yield arguments[0], ""


def _field(model: type[BaseModel], part: str | int) -> FieldInfo | None:
    for name, field in model.model_fields.items():
        if part == (field.alias or name):
            return field
    return None
