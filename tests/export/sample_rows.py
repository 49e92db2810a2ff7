"""Records as the store yields them, for tests of the formats."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from longline.export.columns import Row, Rows
from longline.export.export import ExportRequest, ExportResult, export
from tests.virtual import EPOCH


def row(key: str, data: dict[str, Any], **values: Any) -> Row:
    return {
        "source": "shop",
        "key": key,
        "url": f"https://shop.test/{key}",
        "version": 2,
        "score": 87.5,
        "grade": "Good",
        "first_seen_at": EPOCH,
        "changed_at": EPOCH + 60,
        "data": data,
        "about": {"notes": [{"field": "price", "text": "sold out"}], "provenance": {"a": "page"}},
        **values,
    }


def rows(*data: dict[str, Any]) -> Rows:
    """Return what reads these records, as often as it is asked."""
    return lambda: (row(str(number), one) for number, one in enumerate(data))


def export_to(path: Path, rows: Rows, *, form: str | None = None) -> ExportResult:
    """Export to a file alone, without a schema."""
    return export(ExportRequest(str(path), form, has_schema=False), rows)


class Tap:
    """Yields records and notes how many of them somebody held on to at the same time."""

    def __init__(self, count: int, *, fails_at: int | None = None) -> None:
        self._count = count
        self._fails_at = fails_at
        self._held = 0
        self.most_held = 0

    def __call__(self) -> Iterator[Row]:
        for number in range(self._count):
            if number == self._fails_at:
                raise ZeroDivisionError
            yield self._counted(row(str(number), {"title": f"Thing {number}"}))

    def _counted(self, values: Row) -> Row:
        counted = _Counted(values)
        self._held += 1
        self.most_held = max(self.most_held, self._held)
        weakref.finalize(counted, self._let_go)
        return counted

    def _let_go(self) -> None:
        self._held -= 1


class _Counted(dict[str, Any]):
    """A dict that can be watched."""
