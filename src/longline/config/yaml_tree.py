"""A YAML text as a tree that knows the place of each value, built safely and within limits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from longline.config.secrets import is_reference
from longline.core.errors import BadFile

# ---------------- What a word in a YAML file means: text, unless it can only be a number, true

Scalar = str | int | float | bool | None

_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTH = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# No zero in front: 007 and 01234 are numbers of agents and postcodes, not quantities.
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})?(\.[0-9]*)?([eE][-+]?[0-9]{1,4})?")


def value_of(text: str) -> Scalar:
    """Return what a word without quotes means.

    Days, times, yes and no, on and off, octal numbers, .nan and .inf stay the text they are:
    where a truth or a number is wanted, the check of the setting makes one of it or says why not.
    """
    if text in _NOTHING:
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if any(sign.isdigit() for sign in text) and _DECIMAL.fullmatch(text):
        return _decimal(text)
    return text


def _decimal(text: str) -> float | str:
    try:
        number = float(text)
    except ValueError:  # e5
        return text
    return number if math.isfinite(number) else text


# ---------------- What a YAML parser complains about, in words that say what to write instead

# Words of both parsers (libyaml, and PyYAML's own), and ours; the first that fits is told.
_WORDS = (
    ("mapping values are not allowed", "a colon too many in this line, or a line indented wrongly"),
    ("alphabetic or numeric", "a text that begins with * or & needs quotes"),
    ("',' or ']'", "a list is not closed with ]"),
    ("',' or '}'", "names and values are not closed with }"),
    ("unexpected end of stream", "a quote is not closed"),
    ("expected ':'", "a name without a colon after it"),
    ("unknown escape character", "in double quotes \\ is special; use single quotes"),
    ("cannot start any token", "this character cannot begin a text; put the text in quotes"),
    ("expected key", "this line is not indented as those above it"),
    ("<block end>", "this line is not indented as those above it"),
    ("'-' indicator", "this line is not indented as those above it"),
    ("sequence entries are not allowed", "a list begins in a line of its own, or in [ ]"),
    ("node content", "a value is missing here, or a bracket above is not closed"),
    ("undefined tag handle", "a text that begins with ! needs quotes"),
    ("block scalar", "after | or > the text begins in the next line, indented"),
    ("<document start>", "a text goes on after its end; put all of it in quotes"),
)
_BEGINS_EARLIER = ("unexpected end of stream",)


def problem_of(error: yaml.MarkedYAMLError, text: str) -> tuple[str, int, int]:
    """Return what is wrong, and its line and column from 1; zeros when unknown."""
    said = error.problem or error.context or "it cannot be read"
    mark = error.problem_mark or error.context_mark
    if any(words in said for words in _BEGINS_EARLIER):
        mark = error.context_mark or mark
    if mark is None:
        return said, 0, 0
    return _words(said, text, mark), mark.line + 1, mark.column + 1


def _words(said: str, text: str, mark: yaml.Mark) -> str:
    lines = text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    indentation = line[: len(line) - len(line.lstrip())]
    if "\t" in indentation or line[mark.column : mark.column + 1] == "\t":
        return "a tab; indent with spaces"
    return next((ours for theirs, ours in _WORDS if theirs in said), said)


Event = Any  # PyYAML's types leave open whether an event has a place; from a parser it has
MOST_VALUES = 100_000
DEEPEST = 60
_TEXT_TAGS = frozenset({"!", "tag:yaml.org,2002:str"})
# The parser in C is much faster and not recursive; the other is there wherever PyYAML is.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class Node:
    """A value, where it or its name stands (from 1), and the range of its own text."""

    content: Scalar | dict[str, Node] | list[Node]
    line: int
    column: int
    start: int
    end: int
    size: int = 1
    """How many values it holds, itself included, with all aliases written out."""
    height: int = 1

    def children(self) -> Iterator[Node]:
        """Yield the values right below."""
        if isinstance(self.content, dict):
            yield from self.content.values()
        elif isinstance(self.content, list):
            yield from self.content

    def below(self, part: str | int) -> Node | None:
        """Return the value of this name or number; None when there is none."""
        if isinstance(self.content, dict):
            return self.content.get(str(part))
        if isinstance(self.content, list) and isinstance(part, int):
            return self.content[part] if 0 <= part < len(self.content) else None
        return None

    def plain(self) -> Any:
        """Return the value as Python has it."""
        if isinstance(self.content, dict):
            return {name: node.plain() for name, node in self.content.items()}
        if isinstance(self.content, list):
            return [node.plain() for node in self.content]
        return self.content


def read_tree(text: str, path: str, translate: Callable[[str], str]) -> Node | None:
    """Return the one document of a YAML text; None when there is none.

    `translate` is given each text that is a value, and raises ValueError when it cannot be one.

    Raises:
        BadFile: it is not YAML, or not such as we take.
    """
    builder = _Builder(path, translate)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        problem, line, column = problem_of(error, text)
        raise BadFile(path, f"not valid YAML: {problem}", line, column) from None
    except yaml.YAMLError as error:
        raise BadFile(path, f"not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:  # the parser in Python, and thousands of brackets
        raise BadFile(path, "not valid YAML: nested too deeply") from None
    return builder.root


@dataclass(slots=True)
class _Frame:
    """A mapping or a list that has begun and not ended."""

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

    def take(self, event: Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            if self.root is not None:
                problem = "a second document begins here; a file holds one, so remove this '---'"
                raise self._wrong(problem, event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._begin(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._finish(event)
        elif isinstance(event, yaml.ScalarEvent):
            self._add_scalar(event)
        elif isinstance(event, yaml.AliasEvent):
            self._add_alias(event)

    def _begin(self, event: Event) -> None:
        self._refuse_tag(event)
        if self._is_name_next():
            raise self._wrong("a name is plain text, and not a list or names and values", event)
        node = _node({} if isinstance(event, yaml.MappingStartEvent) else [], event)
        self._count_in(node, event)
        if event.anchor:
            self._anchors[event.anchor] = None  # open: what is in it may not refer to it
        self._open.append(_Frame(node, event.anchor))

    def _finish(self, event: Event) -> None:
        frame = self._open.pop()
        node = frame.node
        node.end = event.end_mark.index
        _merge(node, frame.merged)
        node.size = 1 + sum(child.size for child in node.children())
        node.height = 1 + max((child.height for child in node.children()), default=0)
        if frame.anchor:
            self._anchors[frame.anchor] = node
        self._add(node)

    def _add_scalar(self, event: Event) -> None:
        is_plain = event.style is None or event.style == ""
        is_text = self._refuse_tag(event) or not is_plain
        if self._is_name_next():
            self._add_name(event, is_merge=is_plain and event.value == "<<")
            return
        node = _node(event.value if is_text else value_of(event.value), event)
        if isinstance(node.content, str):
            try:
                node.content = self._translate(node.content)
            except ValueError as error:
                raise self._wrong(f"{self._way()}{error}", event) from None
        self._count_in(node, event)
        if event.anchor:
            self._anchors[event.anchor] = node
        self._add(node)

    def _add_alias(self, event: Event) -> None:
        if self._is_name_next():
            raise self._wrong("a name is written out, and not an alias", event)
        target = self._anchors.get(event.anchor)
        if target is None:
            raise self._wrong(self._no_target(event.anchor), event)
        node = replace(_node(target.content, event), size=target.size, height=target.height)
        self._count_in(node, event)
        self._add(node)

    def _no_target(self, anchor: str) -> str:
        if anchor in self._anchors:
            return f"*{anchor} stands inside &{anchor}, so it would hold itself; write it out"
        return (
            f"there is no &{anchor} above that *{anchor} could stand for; "
            "a text that begins with * needs quotes"
        )

    def _add_name(self, event: Event, *, is_merge: bool) -> None:
        frame = self._open[-1]
        name = str(event.value)
        if not name.strip():
            raise self._wrong("a name is missing before the colon", event)
        known = frame.node.below(name)
        if known is not None and not is_merge:
            problem = f"{self._way()}{name} stands here twice; it was said in line {known.line}"
            raise self._wrong(problem, event)
        frame.name = (name, event.start_mark.line + 1, event.start_mark.column + 1)
        if is_merge:
            frame.name = ("", *frame.name[1:])

    def _add(self, node: Node) -> None:
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
            frame.merged += self._mergeable(node)
        elif isinstance(frame.node.content, dict):
            frame.node.content[name] = replace(node, line=line, column=column)

    def _mergeable(self, node: Node) -> list[Node]:
        several = node.content if isinstance(node.content, list) else [node]
        for one in several:
            if not isinstance(one.content, dict):
                problem = "after << stands an alias of names and values, for example <<: *usual"
                raise BadFile(self._path, problem, one.line, one.column)
        return several

    def _is_name_next(self) -> bool:
        if not self._open:
            return False
        frame = self._open[-1]
        return isinstance(frame.node.content, dict) and frame.name is None

    def _count_in(self, node: Node, event: Event) -> None:
        self._count += node.size
        if self._count > MOST_VALUES:
            problem = f"it holds more than {MOST_VALUES:,} values, with all aliases written out"
            raise self._wrong(problem, event)
        if len(self._open) + node.height > DEEPEST:
            raise self._wrong(f"nested more than {DEEPEST} deep", event)

    def _refuse_tag(self, event: Event) -> bool:
        """Return whether a tag says that this is text; no other tag is taken."""
        if event.tag is None:
            return False
        if event.tag in _TEXT_TAGS and isinstance(event, yaml.ScalarEvent):
            return True
        problem = "a tag is not taken here; a text that begins with ! needs quotes"
        raise self._wrong(problem, event)

    def _way(self) -> str:
        parts = [_part(frame) for frame in self._open]
        way = "".join(parts).lstrip(".")
        return f"{way}: " if way else ""

    def _wrong(self, problem: str, event: Event) -> BadFile:
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


def _part(frame: _Frame) -> str:
    if isinstance(frame.node.content, list):
        return f"[{len(frame.node.content)}]"
    return f".{frame.name[0]}" if frame.name and frame.name[0] else ""


# ---------------- `${NAME}` in what a user writes stands for an environment variable

_PLACE = re.compile(r"\$(\$)?\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_SECRET = re.compile(r"(PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|PRIVATE_KEY)$", re.IGNORECASE)


def substitute(text: str, environment: Mapping[str, str]) -> str:
    """Return the text with the value of each `${NAME}`; `${NAME:-default}` may be absent or empty.

    `$${NAME}` is `${NAME}` as it is written. A reference to a secret is left alone.

    Raises:
        ValueError: a variable is not set, or looks like a secret; the sentence says what to do.
    """
    if "${" not in text or is_reference(text):
        return text
    return _PLACE.sub(lambda found: _substituted(found, environment), text)


def _substituted(found: re.Match[str], environment: Mapping[str, str]) -> str:
    is_escaped, name, default = found[1], found[2], found[3]
    if is_escaped:
        return found[0][1:]
    if _SECRET.search(name):  # what is filled in here is kept in the job and shown to people
        problem = f"{name} looks like a secret; write env:{name} where auth or cookies want one"
        raise ValueError(problem)
    value = environment.get(name, "")
    if value or default is not None:
        return value or default
    problem = f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
    raise ValueError(problem)
