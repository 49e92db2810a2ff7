"""As much of GraphQL as the practice site needs: which fields a query selects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

Selection: TypeAlias = "dict[str, Selection]"
_PIECE = re.compile(r"#[^\n]*|\([^()]*\)|[{}]|[A-Za-z_$][A-Za-z0-9_]*")


class BadQuery(Exception):
    """A query that cannot be answered; the message goes to who asked."""


def parse_query(text: str) -> Selection:
    """Return the fields of a query as nested dicts; a field without fields of its own is empty.

    Arguments are not looked at: values come as variables.

    Raises:
        BadQuery: the braces do not match.
    """
    pieces = (found[0] for found in _PIECE.finditer(text) if found[0][0] not in "#(")
    for piece in pieces:
        if piece == "{":
            return _fields(pieces)
    raise BadQuery("the query selects nothing")


def pick(value: Any, selection: Selection) -> Any:
    """Return only what was selected of a value, in lists and objects alike.

    Raises:
        BadQuery: a field is unknown, or an object was asked for without its fields.
    """
    if isinstance(value, list):
        return [pick(one, selection) for one in value]
    if not isinstance(value, dict):
        return value
    if not selection:
        raise BadQuery("an object needs a selection of fields")
    unknown = sorted(set(selection) - set(value))
    if unknown:
        raise BadQuery(f"there is no field {unknown[0]!r}; known are {', '.join(value)}")
    return {name: pick(value[name], below) for name, below in selection.items()}


def _fields(pieces: Iterator[str]) -> Selection:
    fields: Selection = {}
    last = ""
    for piece in pieces:
        if piece == "}":
            return fields
        if piece == "{":
            fields[last] = _fields(pieces)
        else:
            last = piece
            fields[last] = {}
    raise BadQuery("a brace is not closed")
