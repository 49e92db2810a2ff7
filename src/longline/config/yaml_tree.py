"""Parse YAML into a tree with the position of each value, safely and within limits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from longline.core.errors import BadFile

Scalar = str | int | float | bool | None
Location = tuple[str | int, ...]
"""The names and indexes that lead to a value."""
MAX_VALUES = 100_000
MAX_DEPTH = 60
# The C parser is much faster; the other is always available. Both leave every scalar as text.
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# No leading zero: 007 and 01234 are codes, not quantities.
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?((0|[1-9][0-9]{0,17})(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,4})?")


def parse_scalar(text: str) -> Scalar:
    """Return the value of an unquoted scalar.

    Dates, times, yes and no, on and off, octal numbers, .nan and .inf stay text; the model of the
    setting converts or refuses them.
    """
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if not _FLOAT.fullmatch(text):
        return text
    number = float(text)
    return number if math.isfinite(number) else text


# Parts of the messages of both parsers (libyaml, PyYAML), and ours; the first match is used.
_MESSAGES = (
    (
        "mapping values are not allowed",
        "there is a second colon in this line, or its indentation is wrong",
    ),
    ("alphabetic or numeric", "a text that begins with * or & needs quotes"),
    ("undefined alias", "there is no & for this *; a text that begins with * needs quotes"),
    ("second occurrence", "this anchor (&) is defined twice"),
    ("another document", "there is a second document; remove this '---'"),
    ("',' or ']'", "a list is not closed with ]"),
    ("',' or '}'", "a mapping is not closed with }"),
    ("unexpected end of stream", "a quote is not closed"),
    ("expected ':'", "a colon is missing after a name"),
    ("unknown escape character", "in double quotes \\ is special; use single quotes"),
    ("cannot start any token", "this character cannot begin a text; put the text in quotes"),
    ("expected key", "the indentation differs from the lines above"),
    ("<block end>", "the indentation differs from the lines above"),
    ("'-' indicator", "the indentation differs from the lines above"),
    ("undefined tag handle", "a text that begins with ! needs quotes"),
)


@dataclass(slots=True)
class Node:
    """A value, the position of it or its name (from 1), and the range of its text.

    `start` is -1 for an alias, whose text is elsewhere.
    """

    content: Scalar | dict[str, Node] | list[Node]
    line: int
    column: int
    start: int
    end: int
    size: int = 1
    """Number of values in it, including itself, with all aliases expanded."""
    height: int = 1

    def children(self) -> Iterator[Node]:
        """Yield the direct children."""
        if isinstance(self.content, dict):
            yield from self.content.values()
        elif isinstance(self.content, list):
            yield from self.content

    def below(self, part: str | int) -> Node | None:
        """Return the child with this name or index; None when there is none."""
        if isinstance(self.content, dict):
            return self.content.get(str(part))
        if isinstance(self.content, list) and isinstance(part, int):
            return self.content[part] if 0 <= part < len(self.content) else None
        return None

    def at(self, loc: Sequence[str | int]) -> Node | None:
        """Return the value at a location; None when there is none."""
        node: Node | None = self
        for part in loc:
            node = node and node.below(part)
        return node

    def texts(self, loc: Location = ()) -> Iterator[tuple[Location, str]]:
        """Yield every text with its location."""
        if isinstance(self.content, str):
            yield loc, self.content
        elif isinstance(self.content, dict):
            for name, child in self.content.items():
                yield from child.texts((*loc, name))
        elif isinstance(self.content, list):
            for number, child in enumerate(self.content):
                yield from child.texts((*loc, number))

    def plain(self) -> Any:
        """Return the value as plain Python objects."""
        if isinstance(self.content, dict):
            return {name: node.plain() for name, node in self.content.items()}
        if isinstance(self.content, list):
            return [node.plain() for node in self.content]
        return self.content


def format_location(loc: Sequence[str | int]) -> str:
    """Return a location as text: fields.price.selectors[1]."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return "".join(parts).lstrip(".")


def read_tree(text: str, path: str, translate: Callable[[str], str]) -> Node | None:
    """Return the only document of a YAML text; None when it is empty.

    `translate` converts each text value; it raises ValueError when the text is invalid.

    Raises:
        BadFile: it is not YAML, or uses features that are not supported.
    """
    try:
        _check_events(text, path)
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        message = error.problem or error.context or "it cannot be read"
        mark = error.problem_mark or error.context_mark
        if "unexpected end of stream" in message:  # where the quote begins
            mark = error.context_mark or mark
        place = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        lines = text.split("\n")[mark.line :] if mark else []
        if mark and lines and "\t" in lines[0][: mark.column + 1]:
            message = "a tab; indent with spaces"
        problem = next((ours for theirs, ours in _MESSAGES if theirs in message), message)
        raise BadFile(path, f"not valid YAML: {problem}", *place) from None
    except yaml.YAMLError as error:
        raise BadFile(path, f"not valid YAML: {' '.join(str(error).split())}") from None
    return None if root is None else _TreeReader(path, translate).read(root, ())


def _check_events(text: str, path: str) -> None:
    """Refuse deep nesting, too many values and tags before a tree is built."""
    depth = count = 0
    event: Any  # in PyYAML's types the position is optional; a parser always sets it
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        count += isinstance(event, yaml.NodeEvent)
        if depth > MAX_DEPTH:
            raise _error(path, f"it is nested more than {MAX_DEPTH} levels deep", event)
        if count > 2 * MAX_VALUES:  # a name is an event, too
            raise _error(path, f"it has more than {MAX_VALUES:,} values", event)
        if getattr(event, "tag", None) is not None:
            problem = "tags are not supported; a text that begins with ! needs quotes"
            raise _error(path, problem, event)


class _TreeReader:
    """Converts the nodes of PyYAML, in which an alias is the node that it refers to."""

    def __init__(self, path: str, translate: Callable[[str], str]) -> None:
        self._path = path
        self._translate = translate
        self._known: dict[int, Node | None] = {}

    def read(self, node: yaml.Node, loc: Location) -> Node:
        if id(node) not in self._known:
            self._known[id(node)] = None  # still open: its content must not refer to it
            self._known[id(node)] = self._convert(node, loc)
        found = self._known[id(node)]
        if found is None:
            problem = (
                f"{format_location(loc)}: an alias (*) inside its own anchor (&); write it out"
            )
            raise _error(self._path, problem, node)
        if found.size > MAX_VALUES:
            problem = f"it has more than {MAX_VALUES:,} values, with all aliases expanded"
            raise _error(self._path, problem, node)
        if len(loc) + found.height > MAX_DEPTH:
            raise _error(self._path, f"it is nested more than {MAX_DEPTH} levels deep", node)
        return found

    def _convert(self, node: Any, loc: Location) -> Node:
        start, end = node.start_mark, node.end_mark
        content: Any
        if isinstance(node, yaml.MappingNode):
            content = self._read_mapping(node, loc)
        elif isinstance(node, yaml.SequenceNode):
            content = [self.read(child, (*loc, number)) for number, child in enumerate(node.value)]
        else:
            content = node.value if node.style else parse_scalar(node.value)
            if isinstance(content, str):
                try:
                    content = self._translate(content)
                except ValueError as error:
                    raise _error(self._path, f"{format_location(loc)}: {error}", node) from None
        found = Node(content, start.line + 1, start.column + 1, start.index, end.index)
        found.size += sum(child.size for child in found.children())
        found.height += max((child.height for child in found.children()), default=0)
        return found

    def _read_mapping(self, node: yaml.MappingNode, loc: Location) -> dict[str, Node]:
        content: dict[str, Node] = {}
        merged: list[Node] = []
        key: Any
        for key, value in node.value:
            name = str(key.value)
            if not isinstance(key, yaml.ScalarNode):
                raise _error(self._path, "a name must be text, not a list or a mapping", key)
            if not name.strip():
                raise _error(self._path, "a name is missing before the colon", key)
            if name in content:
                full, first = format_location((*loc, name)), content[name].line
                problem = f"{full} is duplicated; the first is on line {first}"
                raise _error(self._path, problem, key)
            child = self.read(value, (*loc, name))
            if name == "<<" and not key.style:
                merged += child.content if isinstance(child.content, list) else [child]
                if not all(isinstance(one.content, dict) for one in merged):
                    problem = "<< needs an alias of a mapping, for example <<: *defaults"
                    raise _error(self._path, problem, value)
                continue
            mark = key.start_mark
            is_alias = child.start < mark.index
            start = -1 if is_alias else child.start
            content[name] = replace(child, line=mark.line + 1, column=mark.column + 1, start=start)
        for one in merged:
            for name, child in one.content.items() if isinstance(one.content, dict) else ():
                content.setdefault(name, child)
        return content


def _error(path: str, problem: str, where: Any) -> BadFile:
    mark = where.start_mark
    return BadFile(path, problem, mark.line + 1, mark.column + 1)
