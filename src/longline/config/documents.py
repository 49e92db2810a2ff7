"""Files that users write: read safely, checked whole, and each problem told with its place."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from longline.config.documents_problems import Location, most_useful, written_as
from longline.config.documents_tree import Node, read_tree
from longline.config.substitution import substitute
from longline.errors import BadFile

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

    def wrong(
        self, loc: Sequence[str | int], problem: str, near: Sequence[str | int] | None = None
    ) -> BadFile:
        """Return the error that tells a problem of what stands at a location, or near it."""
        way = written_as(loc)
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
        raise document.wrong(told.loc, told.problem, told.near) from None
    except RecursionError:
        raise document.wrong((), "nested too deeply") from None


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
