"""YAML documents: read with positions, validated, and edited in place."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from longline.config.secrets import is_reference
from longline.config.validation import select_problem
from longline.config.yaml_tree import Location, Node, format_location, read_tree
from longline.core.errors import BadFile, DestinationUnwritable
from longline.core.files import replacing

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

MAX_BYTES = 5_000_000
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
# YAML allows tabs and line ends, and no other control character.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")
_EXAMPLE = "for example 'source: n8n', or in a manifest 'manifest: html'"
_EMPTY = f"it is empty; write names and values, {_EXAMPLE}"
_NOT_NAMES = f"the file must contain names and values (a YAML mapping), {_EXAMPLE}"

_VARIABLE = re.compile(r"\$(\$)?\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_SECRET_NAME = re.compile(r"(PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|PRIVATE_KEY)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML file: its values, and the position of each."""

    path: Path
    text: str
    tree: Node

    @property
    def values(self) -> dict[str, Any]:
        """The values as a new dict; dates and unusual numbers are text."""
        plain: dict[str, Any] = self.tree.plain()
        return plain

    def node(self, loc: Sequence[str | int]) -> Node | None:
        """Return the node at a location; None when there is none."""
        return self.tree.at(loc)

    def place(self, loc: Sequence[str | int]) -> tuple[int, int]:
        """Return line and column of a setting, or of its nearest parent in the file."""
        node = self.tree
        for part in loc:
            below = node.below(part)
            if below is None:
                break
            node = below
        return node.line, node.column

    def texts(self) -> Iterator[tuple[Location, str]]:
        """Yield every text with its location."""
        return self.tree.texts()

    def error(
        self, loc: Sequence[str | int], problem: str, near: Sequence[str | int] | None = None
    ) -> BadFile:
        """Return the error for a problem at a location, with the position of `near` if given."""
        name = format_location(loc)
        message = f"{name}: {problem}" if name else problem
        return BadFile(str(self.path), message, *self.place(loc if near is None else near))


def read_document(path: Path) -> Document:
    """Read a YAML file of names and values; `${NAME}` is replaced by the environment variable.

    Raises:
        BadFile: it cannot be read, or is not such a file.
    """
    return parse_document(read_content(path), path)


def read_content(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        BadFile: it cannot be read, is not a file, or is too large.
    """
    try:
        # Reading a pipe or a device may block forever.
        if path.exists() and not path.is_file() and not path.is_dir():
            raise BadFile(str(path), "it is a device or a pipe instead of a file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadFile(str(path), error.strerror or str(error)) from error
    except ValueError as error:  # a NUL in the name
        raise BadFile(str(path), str(error)) from error
    if len(content) > MAX_BYTES:
        problem = (
            f"it is larger than {MAX_BYTES:,} bytes, the maximum for a file that longline reads"
        )
        raise BadFile(str(path), problem)
    return content


def read_json_file(path: Path, kind: type[T], problem: str) -> T:
    """Return the values of a JSON file.

    Raises:
        BadFile: it cannot be read or is not JSON; with `problem` when it is of another kind.
    """
    try:
        value = orjson.loads(read_content(path))
    except orjson.JSONDecodeError as error:
        message = f"it is not JSON: {error.msg}"
        raise BadFile(str(path), message, error.lineno, error.colno) from None
    if not isinstance(value, kind):
        raise BadFile(str(path), problem)
    return value


def parse_document(
    content: bytes, path: Path, *, environment: Mapping[str, str] | None = None
) -> Document:
    """Parse the content of a YAML file.

    Raises:
        BadFile: it is not YAML with names and values.
    """
    variables = os.environ if environment is None else environment
    text = _decode_text(content, str(path))
    tree = read_tree(text, str(path), lambda one: substitute(one, variables))
    if tree is None or tree.content is None:
        raise BadFile(str(path), _EMPTY, 1, 1)
    if not isinstance(tree.content, dict):
        raise BadFile(str(path), _NOT_NAMES, tree.line, tree.column)
    return Document(path, text, tree)


def check(document: Document, model: type[M]) -> M:
    """Validate a document.

    Raises:
        BadFile: it is invalid; of several problems, the first in the file is reported.
    """
    values = document.values
    if "manifest" not in model.model_fields:
        values.pop("manifest", None)  # it selected the model
    try:
        return model.model_validate(values)
    except ValidationError as error:
        found = select_problem(error, document.tree)
        # Without the cause, which would show what was written.
        raise document.error(found.loc, found.problem, found.near) from None
    except RecursionError:
        raise document.error((), "nested too deeply") from None


def _decode_text(content: bytes, path: str) -> str:
    try:
        text = content.decode("utf-16" if content.startswith(_UTF16) else "utf-8-sig")
    except UnicodeDecodeError as error:
        place = _position_after(content[: error.start].decode("utf-8", "replace"))
        raise BadFile(path, "it is not UTF-8 text; save it as UTF-8", *place) from None
    found = _CONTROL.search(text)
    if found:
        problem = f"a control character (U+{ord(found[0]):04X}); this is not a text file"
        raise BadFile(path, problem, *_position_after(text[: found.start()]))
    return text


def _position_after(before: str) -> tuple[int, int]:
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def substitute(text: str, environment: Mapping[str, str]) -> str:
    """Return the text with environment variables: `${NAME}`, or `${NAME:-default}`.

    `$${NAME}` is a literal `${NAME}`. References to secrets are not changed.

    Raises:
        ValueError: a variable is not set, or looks like a secret.
    """
    if "${" not in text or is_reference(text):
        return text

    def value_of(found: re.Match[str]) -> str:
        is_escaped, name, default = found[1], found[2], found[3]
        if is_escaped:
            return found[0][1:]
        if _SECRET_NAME.search(name):  # the value is stored with the job and shown
            problem = f"{name} looks like a secret; write env:{name} under auth or cookies"
            raise ValueError(problem)
        value = environment.get(name) or default
        if value is None:
            hint = f"set it, or write ${{{name}:-default}}"
            problem = f"the environment variable {name} is not set; {hint}"
            raise ValueError(problem)
        return value

    return _VARIABLE.sub(value_of, text)


Check = Callable[[Document], object]
"""Raises BadFile when a document is invalid."""


def set_value(document: Document, loc: Sequence[str | int], text: str, check: Check) -> Document:
    """Return the document with one value set and checked, but not written.

    Args:
        document: the present document.
        loc: location of the value; a new one is added to its parent.
        text: the value as YAML, or any text.
        check: validates the new document.

    Raises:
        BadFile: there is no such location, or the new document is invalid.
    """
    node = document.node(loc)
    if node is not None:
        changed = _replace_value(document, loc, node, _as_yaml(text))
    else:
        changed = _add_value(document, loc, _as_yaml(text))
    edited = parse_document(changed.encode(), document.path)
    check(edited)
    return edited


def write_document(document: Document) -> None:
    """Replace the file of a document atomically.

    Raises:
        DestinationUnwritable: it cannot be written; the old file is unchanged.
    """
    path = document.path.resolve()  # follow symbolic links
    try:
        with replacing(path) as draft:
            draft.write_text(document.text, "utf-8", newline="")
            shutil.copymode(path, draft)
    except OSError as error:
        raise DestinationUnwritable(str(document.path), error.strerror or str(error)) from error


def parse_location(key: str) -> list[str | int]:
    """Parse a location such as fields.price.type or start[0]."""
    parts = key.replace("[", ".").replace("]", "").split(".")
    return [int(part) if part.isdigit() else part for part in parts if part]


def _replace_value(document: Document, loc: Sequence[str | int], node: Node, value: str) -> str:
    text = document.text
    if node.start < 0:
        raise document.error(loc, "it is an alias; edit the file")
    if isinstance(node.content, dict | list) and text[node.start : node.start + 1] not in "[{":
        raise document.error(loc, "it has several values; name one of them, or edit the file")
    written = text[node.start : node.end]
    before = "" if written or text[: node.start].endswith((" ", "\n")) else " "
    after = "\n" if written.endswith("\n") else ""
    return f"{text[: node.start]}{before}{value}{after}{text[node.end :]}"


def _add_value(document: Document, loc: Sequence[str | int], value: str) -> str:
    holder = document.node(loc[:-1])
    children = list(holder.children()) if holder else []
    if holder is None or not isinstance(holder.content, dict) or not children:
        raise document.error(loc, "its parent does not exist; edit the file")
    if document.text[holder.start : holder.start + 1] == "{":
        raise document.error(loc, "its parent is written in one line; edit the file")
    if any(child.start < 0 for child in children):
        raise document.error(loc, "its parent has aliases; edit the file")
    last = max(children, key=lambda child: child.end)
    kept = document.text[: last.end].rstrip("\n")
    rest_of_line, ending, rest = document.text[len(kept) :].partition("\n")
    line = f"{' ' * (children[0].column - 1)}{loc[-1]}: {value}"
    return f"{kept}{rest_of_line}{ending or chr(10)}{line}\n{rest}"


def _as_yaml(text: str) -> str:
    """Return a value as YAML, in quotes where needed."""
    quoted = orjson.dumps(text).decode()
    if "\n" in text or "#" in text or not text.strip():
        return quoted
    try:
        tree = read_tree(f"x: {text}\n", "value", lambda one: one)
    except BadFile:
        return quoted
    return text if tree is not None and list(tree.plain()) == ["x"] else quoted
