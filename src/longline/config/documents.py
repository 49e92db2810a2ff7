"""Files that users write: read safely, checked whole, and each problem told with its place."""

from __future__ import annotations

import difflib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from longline.config.yaml_tree import Node, read_tree, substitute
from longline.core.errors import BadFile

# ---------------- What pydantic finds wrong, in a user's words: what would be right, and an

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


# ---------------- Of all that pydantic says about a file, the one problem that helps most, and

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


def format_location(loc: Sequence[str | int]) -> str:
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


M = TypeVar("M", bound=BaseModel)

LARGEST = 5_000_000  # bytes
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
# YAML takes tabs and line ends, and no other control character.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")
_EXAMPLE = "for example 'source: n8n', or in a manifest 'manifest: html'"
_EMPTY = f"it is empty; write names and values, {_EXAMPLE}"
_NOT_NAMES = f"a job file holds names and values, {_EXAMPLE}"


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML file as it was read: its values, and where each of them stands."""

    path: Path
    text: str
    tree: Node

    @property
    def values(self) -> dict[str, Any]:
        """The values as Python has them, anew each time; days and odd numbers are text."""
        plain: dict[str, Any] = self.tree.plain()
        return plain

    def node(self, loc: Sequence[str | int]) -> Node | None:
        """Return what stands at a location; None when nothing does."""
        node: Node | None = self.tree
        for part in loc:
            node = node and node.below(part)
        return node

    def place(self, loc: Sequence[str | int]) -> tuple[int, int]:
        """Return line and column of a name or an entry, or of the nearest that holds it."""
        node = self.tree
        for part in loc:
            below = node.below(part)
            if below is None:
                break
            node = below
        return node.line, node.column

    def texts(self) -> Iterator[tuple[Location, str]]:
        """Yield every text with its location."""
        yield from _texts(self.tree, ())

    def error(
        self, loc: Sequence[str | int], problem: str, near: Sequence[str | int] | None = None
    ) -> BadFile:
        """Return the error that tells a problem of what stands at a location, or near it."""
        way = format_location(loc)
        sentence = f"{way}: {problem}" if way else problem
        return BadFile(str(self.path), sentence, *self.place(loc if near is None else near))


def read_document(path: Path, *, environment: Mapping[str, str] | None = None) -> Document:
    """Read a YAML file of names and values; `${NAME}` is filled in from the environment.

    Raises:
        BadFile: it cannot be read or is not such a file; with line and column where known.
    """
    return parse_document(read_content(path), path, environment=environment)


def read_content(path: Path) -> bytes:
    """Return what a file holds.

    Raises:
        BadFile: it cannot be read, is no file, or is too large.
    """
    try:
        # A pipe or a device would make us wait for ever.
        if path.exists() and not path.is_file() and not path.is_dir():
            raise BadFile(str(path), "it is a device or a pipe, and not a file")
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise BadFile(str(path), error.strerror or str(error)) from error
    except ValueError as error:  # a NUL in the name
        raise BadFile(str(path), str(error)) from error
    if len(content) > LARGEST:
        problem = f"it is larger than {LARGEST:,} bytes; it is not a file that longline reads"
        raise BadFile(str(path), problem)
    return content


def parse_document(
    content: bytes, path: Path, *, environment: Mapping[str, str] | None = None
) -> Document:
    """Make a document of what a file holds.

    Raises:
        BadFile: it is not such a file.
    """
    variables = os.environ if environment is None else environment
    text = _text(content, str(path))
    tree = read_tree(text, str(path), _translator(variables))
    if tree is None or tree.content is None:
        raise BadFile(str(path), _EMPTY, 1, 1)
    if not isinstance(tree.content, dict):
        raise BadFile(str(path), _NOT_NAMES, tree.line, tree.column)
    return Document(path, text, tree)


def check(document: Document, model: type[M]) -> M:
    """Make a model of what a file says.

    Raises:
        BadFile: it does not fit; of several problems, the first in the file is told.
    """
    values = document.values
    if "manifest" not in model.model_fields:
        values.pop("manifest", None)  # the kind of the file chose the model
    try:
        return model.model_validate(values)
    except ValidationError as error:
        told = most_useful(error, document.tree, model)
        # Without the cause, which would show what was written.
        raise document.error(told.loc, told.problem, told.near) from None
    except RecursionError:
        raise document.error((), "nested too deeply") from None


def _translator(variables: Mapping[str, str]) -> Callable[[str], str]:
    return lambda text: substitute(text, variables)


def _text(content: bytes, path: str) -> str:
    try:
        text = content.decode("utf-16" if content.startswith(_UTF16) else "utf-8-sig")
    except UnicodeDecodeError as error:
        place = _place_in(content[: error.start].decode("utf-8", "replace"))
        raise BadFile(path, "it is not UTF-8 text; save it as UTF-8", *place) from None
    found = _CONTROL.search(text)
    if found:
        problem = f"a control character (U+{ord(found[0]):04X}); this is not a text file"
        raise BadFile(path, problem, *_place_in(text[: found.start()]))
    return text


def _place_in(before: str) -> tuple[int, int]:
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _texts(node: Node, loc: Location) -> Iterator[tuple[Location, str]]:
    if isinstance(node.content, str):
        yield loc, node.content
    elif isinstance(node.content, dict):
        for name, child in node.content.items():
            yield from _texts(child, (*loc, name))
    elif isinstance(node.content, list):
        for number, child in enumerate(node.content):
            yield from _texts(child, (*loc, number))
