"""Parse YAML into a tree with the position of each value, safely and within limits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from longline.core.errors import BadFile

Scalar = str | int | float | bool | None

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# No leading zero: 007 and 01234 are codes, not quantities.
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})?(\.[0-9]*)?([eE][-+]?[0-9]{1,4})?")


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
    if any(char.isdigit() for char in text) and _FLOAT.fullmatch(text):
        return _parse_decimal(text)
    return text


def _parse_decimal(text: str) -> float | str:
    try:
        number = float(text)
    except ValueError:  # e5
        return text
    return number if math.isfinite(number) else text


# Parts of the messages of both parsers (libyaml, PyYAML), and ours; the first match is used.
_MESSAGES = (
    (
        "mapping values are not allowed",
        "there is a second colon in this line, or its indentation is wrong",
    ),
    ("alphabetic or numeric", "a text that begins with * or & needs quotes"),
    ("',' or ']'", "a list is not closed with ]"),
    ("',' or '}'", "a mapping is not closed with }"),
    ("unexpected end of stream", "a quote is not closed"),
    ("expected ':'", "a colon is missing after a name"),
    ("unknown escape character", "in double quotes \\ is special; use single quotes"),
    ("cannot start any token", "this character cannot begin a text; put the text in quotes"),
    ("expected key", "the indentation differs from the lines above"),
    ("<block end>", "the indentation differs from the lines above"),
    ("'-' indicator", "the indentation differs from the lines above"),
    ("sequence entries are not allowed", "a list starts on its own line, or in [ ]"),
    ("node content", "a value is missing here, or a bracket above is not closed"),
    ("undefined tag handle", "a text that begins with ! needs quotes"),
    ("block scalar", "after | or > the text starts in the next line, indented"),
    ("<document start>", "there is text after the end of a value; put all of it in quotes"),
)
_REPORTED_AT_CONTEXT = ("unexpected end of stream",)


def _describe_error(error: yaml.MarkedYAMLError, text: str) -> tuple[str, int, int]:
    """Return the problem with its line and column, from 1; zeros when unknown."""
    message = error.problem or error.context or "it cannot be read"
    mark = error.problem_mark or error.context_mark
    if any(words in message for words in _REPORTED_AT_CONTEXT):
        mark = error.context_mark or mark
    if mark is None:
        return message, 0, 0
    return _translate_message(message, text, mark), mark.line + 1, mark.column + 1


def _translate_message(message: str, text: str, mark: yaml.Mark) -> str:
    lines = text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    indentation = line[: len(line) - len(line.lstrip())]
    if "\t" in indentation or line[mark.column : mark.column + 1] == "\t":
        return "a tab; indent with spaces"
    return next((ours for theirs, ours in _MESSAGES if theirs in message), message)


Event = Any  # in PyYAML's types the position is optional; a parser always sets it
MAX_VALUES = 100_000
MAX_DEPTH = 60
_TEXT_TAGS = frozenset({"!", "tag:yaml.org,2002:str"})
# The C parser is much faster and not recursive; the other is always available.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class Node:
    """A value, the position of it or its name (from 1), and the range of its text."""

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

    def plain(self) -> Any:
        """Return the value as plain Python objects."""
        if isinstance(self.content, dict):
            return {name: node.plain() for name, node in self.content.items()}
        if isinstance(self.content, list):
            return [node.plain() for node in self.content]
        return self.content


def read_tree(text: str, path: str, translate: Callable[[str], str]) -> Node | None:
    """Return the only document of a YAML text; None when it is empty.

    `translate` converts each text value; it raises ValueError when the text is invalid.

    Raises:
        BadFile: it is not YAML, or uses features that are not supported.
    """
    builder = _Builder(path, translate)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.add_event(event)
    except yaml.MarkedYAMLError as error:
        problem, line, column = _describe_error(error, text)
        raise BadFile(path, f"not valid YAML: {problem}", line, column) from None
    except yaml.YAMLError as error:
        raise BadFile(path, f"not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:  # only the Python parser
        raise BadFile(path, "not valid YAML: it is nested too deeply") from None
    return builder.root


@dataclass(slots=True)
class _Frame:
    """A mapping or list that is being parsed."""

    node: Node
    anchor: str | None
    name: tuple[str, int, int] | None = None
    merged: list[Node] = field(default_factory=list)


class _Builder:
    def __init__(self, path: str, translate: Callable[[str], str]) -> None:
        self.root: Node | None = None
        self._path = path
        self._translate = translate
        self._open: list[_Frame] = []
        self._anchors: dict[str, Node | None] = {}
        self._count = 0

    def add_event(self, event: Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            if self.root is not None:
                problem = "there is a second document; remove this '---'"
                raise self._error(problem, event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._begin_collection(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._finish_collection(event)
        elif isinstance(event, yaml.ScalarEvent):
            self._add_scalar(event)
        elif isinstance(event, yaml.AliasEvent):
            self._add_alias(event)

    def _begin_collection(self, event: Event) -> None:
        self._refuse_tag(event)
        if self._is_name_next():
            raise self._error("a name must be text, not a list or a mapping", event)
        node = _node({} if isinstance(event, yaml.MappingStartEvent) else [], event)
        self._check_limits(node, event)
        if event.anchor:
            self._anchors[event.anchor] = None  # still open: its content must not refer to it
        self._open.append(_Frame(node, event.anchor))

    def _finish_collection(self, event: Event) -> None:
        frame = self._open.pop()
        node = frame.node
        node.end = event.end_mark.index
        _merge(node, frame.merged)
        node.size = 1 + sum(child.size for child in node.children())
        node.height = 1 + max((child.height for child in node.children()), default=0)
        if frame.anchor:
            self._anchors[frame.anchor] = node
        self._add_node(node)

    def _add_scalar(self, event: Event) -> None:
        is_plain = event.style is None or event.style == ""
        is_text = self._refuse_tag(event) or not is_plain
        if self._is_name_next():
            self._add_name(event, is_merge=is_plain and event.value == "<<")
            return
        node = _node(event.value if is_text else parse_scalar(event.value), event)
        if isinstance(node.content, str):
            try:
                node.content = self._translate(node.content)
            except ValueError as error:
                raise self._error(f"{self._path_prefix()}{error}", event) from None
        self._check_limits(node, event)
        if event.anchor:
            self._anchors[event.anchor] = node
        self._add_node(node)

    def _add_alias(self, event: Event) -> None:
        if self._is_name_next():
            raise self._error("a name must not be an alias", event)
        target = self._anchors.get(event.anchor)
        if target is None:
            raise self._error(self._no_target(event.anchor), event)
        node = replace(_node(target.content, event), size=target.size, height=target.height)
        self._check_limits(node, event)
        self._add_node(node)

    def _no_target(self, anchor: str) -> str:
        if anchor in self._anchors:
            return f"*{anchor} is inside &{anchor} and would contain itself; write it out"
        return f"there is no &{anchor} above for *{anchor}; a text that begins with * needs quotes"

    def _add_name(self, event: Event, *, is_merge: bool) -> None:
        frame = self._open[-1]
        name = str(event.value)
        if not name.strip():
            raise self._error("a name is missing before the colon", event)
        known = frame.node.below(name)
        if known is not None and not is_merge:
            problem = (
                f"{self._path_prefix()}{name} is duplicated; the first is in line {known.line}"
            )
            raise self._error(problem, event)
        frame.name = (name, event.start_mark.line + 1, event.start_mark.column + 1)
        if is_merge:
            frame.name = ("", *frame.name[1:])

    def _add_node(self, node: Node) -> None:
        if not self._open:
            self.root = node
            return
        frame = self._open[-1]
        if isinstance(frame.node.content, list):
            frame.node.content.append(node)
            return
        name, line, column = frame.name or ("", node.line, node.column)
        frame.name = None
        if not name:
            frame.merged += self._mappings_to_merge(node)
        elif isinstance(frame.node.content, dict):
            frame.node.content[name] = replace(node, line=line, column=column)

    def _mappings_to_merge(self, node: Node) -> list[Node]:
        several = node.content if isinstance(node.content, list) else [node]
        for one in several:
            if not isinstance(one.content, dict):
                problem = "<< needs an alias of a mapping, for example <<: *defaults"
                raise BadFile(self._path, problem, one.line, one.column)
        return several

    def _is_name_next(self) -> bool:
        if not self._open:
            return False
        frame = self._open[-1]
        return isinstance(frame.node.content, dict) and frame.name is None

    def _check_limits(self, node: Node, event: Event) -> None:
        self._count += node.size
        if self._count > MAX_VALUES:
            problem = f"it has more than {MAX_VALUES:,} values, with all aliases expanded"
            raise self._error(problem, event)
        if len(self._open) + node.height > MAX_DEPTH:
            raise self._error(f"it is nested more than {MAX_DEPTH} levels deep", event)

    def _refuse_tag(self, event: Event) -> bool:
        """Return whether a tag says that this is text; other tags are refused."""
        if event.tag is None:
            return False
        if event.tag in _TEXT_TAGS and isinstance(event, yaml.ScalarEvent):
            return True
        problem = "tags are not supported; a text that begins with ! needs quotes"
        raise self._error(problem, event)

    def _path_prefix(self) -> str:
        path = "".join(_path_part(frame) for frame in self._open).lstrip(".")
        return f"{path}: " if path else ""

    def _error(self, problem: str, event: Event) -> BadFile:
        mark = event.start_mark
        return BadFile(self._path, problem, mark.line + 1, mark.column + 1)


def _node(content: Any, event: Event) -> Node:
    start, end = event.start_mark, event.end_mark
    return Node(content, start.line + 1, start.column + 1, start.index, end.index)


def _merge(node: Node, merged: list[Node]) -> None:
    if not isinstance(node.content, dict):
        return
    for one in merged:
        for name, child in one.content.items() if isinstance(one.content, dict) else ():
            node.content.setdefault(name, child)


def _path_part(frame: _Frame) -> str:
    if isinstance(frame.node.content, list):
        return f"[{len(frame.node.content)}]"
    return f".{frame.name[0]}" if frame.name and frame.name[0] else ""
