"""A YAML text as a tree that knows the place of each value, built safely and within limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from longline.config.documents_scalars import Scalar, value_of
from longline.config.documents_yaml import problem_of
from longline.errors import BadFile

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
