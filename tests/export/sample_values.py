"""Values that are easily lost on the way, and what a table must hold of them."""

from __future__ import annotations

from typing import Any

UNLIKE: list[dict[str, Any]] = [
    {
        "title": 'Größe, "шапка"; 🎩\r\nsecond line\u2028',
        "count": 2**63 - 1,
        "huge": 2**64 - 1,
        "price": 1.5,
        "is_new": True,
        "sizes": [40, {"eu": None, "ü": "x"}],
        "mixed": "5",
        "at": "2026-11-15T17:00:00.123456Z",
        "day": "2026-11-15",
        "formula": "=HYPERLINK(A1)",
        "Title": "another one",
    },
    {"title": "", "count": -1, "huge": 1, "price": 2, "is_new": False, "mixed": 5, "at": None},
    {"sizes": {}, "mixed": None, "day": None},
]
"""Records of every kind of value, many of them missing somewhere."""


def column(name: str, rows: list[dict[str, Any]]) -> list[Any]:
    """Return the values of one column."""
    return [row[name] for row in rows]
