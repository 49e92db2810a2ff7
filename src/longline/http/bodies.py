"""Bodies of requests: forms, multipart forms, JSON and GraphQL."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import orjson

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file in a multipart form."""

    name: str
    content: bytes | str
    type: str = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request, and its content type."""

    content: bytes
    type: str


def form_body(values: Mapping[str, Any]) -> Body:
    """Return a form: a list is repeated, a value of None is left out."""
    return Body(urlencode(form_pairs(values)).encode(), FORM)


def json_body(value: Any) -> Body:
    """Return a value as JSON."""
    return Body(orjson.dumps(value), JSON)


def graphql_body(query: str, variables: Mapping[str, Any]) -> Body:
    """Return a GraphQL query with its variables."""
    return json_body({"query": query, "variables": variables})


def multipart_body(values: Mapping[str, Any]) -> Body:
    """Return a multipart form of texts, bytes and files; a list is repeated.

    Equal values make equal bodies, so an archive finds the response again.
    """
    parts = [_part(name, value) for name, value in _each(values)]
    boundary = f"longline{hashlib.blake2b(b''.join(parts), digest_size=16).hexdigest()}"
    mark = f"--{boundary}\r\n".encode()
    content = b"".join(mark + part + b"\r\n" for part in parts)
    return Body(
        content + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"
    )


def form_pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the pairs of a form or query: a list is repeated, a value of None is left out."""
    return [(name, scalar_text(one)) for name, one in _each(values)]


def scalar_text(value: Any) -> str:
    """Return a value as the text that a form has."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping | list | tuple):
        return orjson.dumps(value).decode()
    return "" if value is None else str(value)


def _each(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        for one in value if isinstance(value, list | tuple) else [value]:
            if one is not None:
                yield name, one


def _part(name: str, value: Any) -> bytes:
    if isinstance(value, Mapping) and "file" in value:
        named = FilePart(str(value["file"]), value.get("content", ""))
        value = FilePart(named.name, named.content, value.get("type", named.type))
    head = f'Content-Disposition: form-data; name="{_quoted(name)}"'
    if isinstance(value, FilePart):
        kind = "".join(one for one in value.type if one not in "\r\n")
        head += f'; filename="{_quoted(value.name)}"\r\nContent-Type: {kind}'
        value = value.content
    content = value if isinstance(value, bytes) else scalar_text(value).encode()
    return f"{head}\r\n\r\n".encode() + content


def _quoted(name: str) -> str:
    # As browsers write it (WHATWG): only what would end the value or the line.
    return "".join(quote(one, safe="") if one in '"\r\n' else one for one in name)
