"""Real templates from a file instead of generated ones."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from longline.core.errors import BadFile
from longline.sandbox.templates.template import Shelf, Summary, Template

_DEFLATED = b"\x1f\x8b"
_FIELDS: tuple[tuple[str, type], ...] = (
    ("id", int),
    ("name", str),
    ("workflow", dict),
    ("detail", dict),
)


class CorpusShelf(Shelf):
    """The templates of a `.jsonl` or `.jsonl.gz` file, one JSON object per line.

    A line has `id`, `name`, `workflow` and `detail`. Fields that were cut from such a file (the
    author's bio and picture, the icons of nodes, prices) are absent from the answers as well:
    nothing is invented for them.

    Raises:
        BadFile: the file cannot be read, or a line is not a template.
    """

    def __init__(self, path: Path) -> None:
        self._lines: dict[int, bytes] = {}
        self._summaries: dict[int, Summary] = {}
        for number, line in enumerate(_read_lines(path), 1):
            self._add(path, number, line)
        if not self._lines:
            raise BadFile(str(path), "it contains no template")
        self._ids = sorted(self._lines)

    @property
    def ids(self) -> Sequence[int]:
        """The ids of the file, sorted."""
        return self._ids

    def title(self, template: int) -> str:
        """Return the `name` of its line."""
        return self._summaries[template].title

    def summary(self, template: int) -> Summary:
        """Return what was noted when the file was read."""
        return self._summaries[template]

    def template(self, template: int) -> Template:
        """Parse its line once more."""
        row = orjson.loads(self._lines[template])
        nodes = row["detail"].get("nodes") or []
        return Template(
            id=row["id"],
            name=row["name"],
            workflow=row["workflow"],
            detail=row["detail"],
            integrations=[_integration(node) for node in nodes],
        )

    def _add(self, path: Path, number: int, line: bytes) -> None:
        if not line.strip():
            return
        row = _parse(path, number, line)
        if row["id"] in self._lines:
            raise BadFile(str(path), f"template {row['id']} occurs twice", number, 1)
        # Lines are kept as they are and parsed again when asked for: a tenth of the memory.
        self._lines[row["id"]] = line
        self._summaries[row["id"]] = _summarise(row)


def _read_lines(path: Path) -> Iterator[bytes]:
    try:
        body = path.read_bytes()
        if body.startswith(_DEFLATED):
            body = gzip.decompress(body)
    except (OSError, EOFError) as error:
        raise BadFile(str(path), f"it cannot be read ({error})") from error
    return iter(body.split(b"\n"))


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadFile(str(path), f"not JSON: {error.msg}", number, error.colno) from error
    if not isinstance(row, dict):
        raise BadFile(str(path), "a line must be a JSON object", number, 1)
    for name, kind in _FIELDS:
        if not isinstance(row.get(name), kind):
            raise BadFile(
                str(path), f"{name!r} is required and must be a {kind.__name__}", number, 1
            )
    return row


def _summarise(row: Mapping[str, Any]) -> Summary:
    detail = row["detail"]
    return Summary(
        id=row["id"],
        title=row["name"],
        categories=tuple(_names(detail.get("categories"))),
        views=detail.get("totalViews") or 0,
        created=_seconds(detail.get("createdAt")),
    )


def _names(entries: Any) -> Iterator[str]:
    for entry in entries or []:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            yield entry["name"]


def _seconds(value: Any) -> float:
    try:
        return datetime.fromisoformat(value).timestamp()
    except (TypeError, ValueError):
        return 0.0  # undated templates come last


def _integration(node: Mapping[str, Any]) -> tuple[str, str]:
    name = node.get("displayName") or node.get("name") or ""
    return name.lower().replace(" ", "-"), name
