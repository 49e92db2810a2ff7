"""The Link header (RFC 8288): addresses and what they are to the page that names them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

# <address>; name=value; name="a \"quoted\" value", <next address>; …
_LINK = re.compile(
    r"\s*,?\s*<([^>]*)>((?:\s*;\s*[^\s=;,]+(?:\s*=\s*(?:\"(?:[^\"\\]|\\.)*\"|[^\",;]*))?)*)"
)
_PARAMETER = re.compile(r";\s*([^\s=;,]+)\s*(?:=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\",;]*)))?")
_ESCAPED = re.compile(r"\\(.)")


def linked(headers: Mapping[str, str], rel: str) -> str | None:
    """Return the address that the headers name as this; None when they name none."""
    several = getattr(headers, "getall", None)
    lines = several("link", []) if several else [headers.get("link", headers.get("Link", ""))]
    for address, relations in (link for line in lines for link in _links(line)):
        if rel.lower() in relations:
            return address
    return None


def _links(line: str) -> Iterator[tuple[str, list[str]]]:
    position = 0
    while found := _LINK.match(line, position):
        position = found.end()
        yield found[1], _relations(found[2])


def _relations(parameters: str) -> list[str]:
    """Return the words of the first rel; another one in the same link does not count."""
    for found in _PARAMETER.finditer(parameters):
        if found[1].lower() == "rel":
            text = found[3] if found[2] is None else _ESCAPED.sub(r"\1", found[2])
            return (text or "").lower().split()
    return []
