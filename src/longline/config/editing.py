"""Setting one value in a YAML file, with its comments and everything else as they are."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from longline.config.documents import Document, parse_document
from longline.config.yaml_tree import Node
from longline.core.errors import BadFile, DestinationUnwritable

Check = Callable[[Document], object]
"""Raises BadFile when a document cannot be used."""


def set_value(document: Document, loc: Sequence[str | int], text: str, check: Check) -> Document:
    """Return the document with one value set, which was checked and is not written yet.

    Args:
        document: what the file says now.
        loc: which value; what is not there yet is added to what holds it.
        text: the value as YAML has it, or any text.
        check: told the new document.

    Raises:
        BadFile: there is no such place, or the file would be broken by it.
    """
    node = document.node(loc)
    if node is not None:
        changed = _replaced(document, loc, node, _as_yaml(text))
    else:
        changed = _added(document, loc, _as_yaml(text))
    edited = parse_document(changed.encode(), document.path)
    check(edited)
    return edited


def write_document(document: Document) -> None:
    """Write a document to its file, in one step: nobody ever reads half of it.

    Raises:
        DestinationUnwritable: it cannot be written; the old file is as it was.
    """
    path = document.path.resolve()  # behind a link stands the file
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(document.text, "utf-8", newline="")
        shutil.copymode(path, draft)
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise DestinationUnwritable(str(document.path), error.strerror or str(error)) from error


def location_of(key: str) -> list[str | int]:
    """Return the location that a user wrote as fields.price.type or start[0]."""
    parts = key.replace("[", ".").replace("]", "").split(".")
    return [int(part) if part.isdigit() else part for part in parts if part]


def _replaced(document: Document, loc: Sequence[str | int], node: Node, value: str) -> str:
    text = document.text
    if isinstance(node.content, dict | list) and text[node.start : node.start + 1] not in "[{":
        raise document.error(loc, "it holds several values; name one of them, or edit the file")
    written = text[node.start : node.end]
    before = "" if written or text[: node.start].endswith((" ", "\n")) else " "
    after = "\n" if written.endswith("\n") else ""
    return f"{text[: node.start]}{before}{value}{after}{text[node.end :]}"


def _added(document: Document, loc: Sequence[str | int], value: str) -> str:
    holder = document.node(loc[:-1])
    children = list(holder.children()) if holder else []
    if holder is None or not isinstance(holder.content, dict) or not children:
        raise document.error(loc, "there is nothing that could hold it; edit the file")
    if document.text[holder.start : holder.start + 1] == "{":
        raise document.error(loc, "what holds it stands in one line; edit the file")
    last = max(children, key=lambda child: child.end)
    kept = document.text[: last.end].rstrip("\n")
    rest_of_line, ending, rest = document.text[len(kept) :].partition("\n")
    line = f"{' ' * (children[0].column - 1)}{loc[-1]}: {value}"
    return f"{kept}{rest_of_line}{ending or chr(10)}{line}\n{rest}"


def _as_yaml(text: str) -> str:
    """Return a value as it can stand after `name:`; what is not YAML by itself gets quotes."""
    quoted = orjson.dumps(text).decode()
    if "\n" in text or "#" in text or not text.strip():
        return quoted
    try:
        document = parse_document(f"x: {text}\n".encode(), Path("value"), environment=_Anything())
    except BadFile:
        return quoted
    return text if list(document.values) == ["x"] else quoted


class _Anything(dict[str, str]):
    """An environment in which every variable is set: whether it is will be seen in the file."""

    def get(self, key: str, default: str | None = None) -> str:  # type: ignore[override]  # always there
        del default
        return key
