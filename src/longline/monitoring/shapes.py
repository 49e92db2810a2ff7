"""The shape of one record: which fields are filled, with what kind of value, and how large."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

SCORE = "@score"
"""The quality score, watched like a field."""
_DEEPEST = 3
_MOST_KINDS = 20  # of records from one site
_MOST_NAME_SETS = 10_000  # that are remembered
_LARGEST = 1e300  # beyond it, and for what is not a number, JSON has no words
_LONGEST = 200  # characters of a text that are kept
_WIDEST = 30  # an object with more names than this is a table of its own, not a part of the record
_NAMED = re.compile(r"\bfield ([\w.-]+) is (?:missing|unreadable|of type)|(?:^|: |; )([\w.-]+): ")
_MISSING = re.compile(r"\b(?:missing|required|finds nothing|is empty|not None|not null)\b")


class Cell(NamedTuple):
    """A filled field: its kind, its size (a number's value, a text's or list's length), itself.

    Of a long text, `value` is its beginning and a hash: enough to compare it.
    """

    kind: str
    size: float
    value: Any


@dataclass(slots=True)
class Shape:
    """What one item showed. An item without a record names only the fields it failed on.

    Those of them that are `refused` are not said to be missing: they have a wrong value.
    `site` is the host it came from: each site has a layout of its own.
    """

    key: str
    cells: dict[str, Cell | None] = field(default_factory=dict)
    is_valid: bool = True
    site: str = ""
    refused: frozenset[str] = frozenset()


class Shared:
    """Lets shapes that are kept together share equal names and equal short cells.

    Records of one source repeat them: a thousand shapes take a third of the memory.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._cells: dict[Cell, Cell] = {}

    def name(self, name: str) -> str:
        """Return the first name that was equal to this one."""
        return self._names.setdefault(name, name)

    def cell(self, cell: Cell) -> Cell:
        """Return the first cell that was equal to this one; texts are mostly different."""
        return cell if cell.kind == "text" else self._cells.setdefault(cell, cell)


class Kinds:
    """Distinguishes records of different kinds, such as books and authors of one spider.

    A record is of a new kind when a third of its fields, or more, are unknown to every kind of its
    site. A record that only lacks fields is of a known kind: that may be drift.
    """

    def __init__(self) -> None:
        self._sites: dict[str, list[set[str]]] = {}
        self._known: dict[tuple[str, frozenset[str]], int] = {}

    def of(self, shape: Shape) -> int:
        """Return the number of a record's kind, from 0 for each site; failures are of kind 0."""
        if not shape.is_valid:
            return 0
        names = frozenset(name for name in shape.cells if "." not in name and name != SCORE)
        kind = self._known.get((shape.site, names))
        if kind is None:
            kind = self._place(self._sites.setdefault(shape.site, []), names)
            if len(self._known) < _MOST_NAME_SETS:
                self._known[shape.site, names] = kind
        return kind

    def _place(self, kinds: list[set[str]], names: frozenset[str]) -> int:
        unknown = [len(names - known) for known in kinds]
        best = min(range(len(kinds)), key=unknown.__getitem__, default=0)
        if not kinds or (3 * unknown[best] >= max(len(names), 1) and len(kinds) < _MOST_KINDS):
            kinds.append(set(names))
            return len(kinds) - 1
        kinds[best] |= names
        return best


def shape_of(
    key: str,
    data: Mapping[str, Any],
    score: float | None = None,
    *,
    site: str = "",
    shared: Shared | None = None,
) -> Shape:
    """Return the shape of a record's data; an empty field is there as None.

    Pass the same `shared` for shapes that are kept together.
    """
    shape = Shape(key, site=site)
    _add(shape.cells, "", data, _DEEPEST)
    if shared is not None:
        shape.cells = {
            shared.name(name): cell and shared.cell(cell) for name, cell in shape.cells.items()
        }
    if score is not None:
        shape.cells[SCORE] = Cell("number", score, score)
    return shape


def shape_of_failure(key: str, reason: str | None, *, site: str = "") -> Shape:
    """Return the shape of an item that is no record; its reason may name the fields at fault."""
    text = reason or ""
    found = list(_NAMED.finditer(text))
    ends = [*(one.start() for one in found[1:]), len(text)]
    said = {
        one[1] or one[2]: text[one.start() : end] for one, end in zip(found, ends, strict=False)
    }
    refused = frozenset(name for name, words in said.items() if not _MISSING.search(words))
    return Shape(key, dict.fromkeys(said), is_valid=False, site=site, refused=refused)


def _add(cells: dict[str, Cell | None], path: str, data: Mapping[str, Any], depth: int) -> None:
    for name, value in data.items():
        place = f"{path}{name}"
        cell = cells[place] = _cell(value)
        if cell is not None and cell.kind == "object" and depth > 1 and cell.size <= _WIDEST:
            _add(cells, f"{place}.", value, depth - 1)


def _cell(value: Any) -> Cell | None:
    if value is None:
        return None
    if isinstance(value, str):
        return Cell("text", len(value), _shortened(value)) if value else None
    if isinstance(value, int | float):
        kind = "flag" if isinstance(value, bool) else "number"
        return Cell(kind, float(value), value) if -_LARGEST < value < _LARGEST else None
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        kind = "object" if isinstance(value, Mapping) else "list"
        return Cell(kind, len(value), None) if value else None
    text = str(value)  # a date, a decimal: what the store will write
    return Cell("text", len(text), text)


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}… {crc32(text.encode('utf-8', 'surrogatepass')):08x}"
