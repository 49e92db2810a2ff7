"""Marks: what an incremental export has written, and in which version."""

from __future__ import annotations

from typing import Any

import pytest

from longline.core.errors import StoreError
from longline.storage.database import Database
from longline.storage.query import RecordQuery
from longline.storage.records import ExportCursors, Records
from tests.storage.given import record
from tests.virtual import EPOCH


@pytest.fixture
def marks(database: Database) -> ExportCursors:
    return ExportCursors(database)


@pytest.fixture
async def rows(database: Database) -> list[dict[str, Any]]:
    """Three records, as the store gives them."""
    records = Records(database)
    for key in "abc":
        await records.create(record(key), at=EPOCH)
    return await records.list(RecordQuery())


def keys(rows: Any) -> list[str]:
    return [row["key"] for row in rows]


async def test_what_was_never_written_is_unwritten(marks: ExportCursors, rows: list[Any]) -> None:
    assert keys(marks.unwritten("daily", rows)) == ["a", "b", "c"]


async def test_what_was_written_in_this_version_is_left_out(
    marks: ExportCursors, rows: list[Any]
) -> None:
    await marks.add("daily", [(rows[0]["id"], 1), (rows[1]["id"], 1)])
    rows[1]["version"] = 2

    assert keys(marks.unwritten("daily", rows)) == ["b", "c"]


async def test_a_newer_version_replaces_the_older(marks: ExportCursors, rows: list[Any]) -> None:
    await marks.add("daily", [(rows[0]["id"], 1)])
    await marks.add("daily", [(rows[0]["id"], 2)])
    rows[0]["version"] = 2

    assert keys(marks.unwritten("daily", rows)) == ["b", "c"]


async def test_exports_of_other_names_are_separate(marks: ExportCursors, rows: list[Any]) -> None:
    await marks.add("daily", [(row["id"], 1) for row in rows])

    assert keys(marks.unwritten("weekly", rows)) == ["a", "b", "c"]


async def test_versions_are_saved_all_or_none(marks: ExportCursors, rows: list[Any]) -> None:
    def failing() -> Any:
        yield rows[0]["id"], 1
        for number in range(600):
            yield 1000 + number, 1  # there is no such record

    with pytest.raises(StoreError):
        await marks.add("daily", failing())

    assert keys(marks.unwritten("daily", rows)) == ["a", "b", "c"]


async def test_more_rows_than_a_page_keep_their_order(
    marks: ExportCursors, rows: list[Any]
) -> None:
    many = [{**rows[0], "id": number, "key": str(number)} for number in range(1, 1_203)]
    await marks.add("daily", [(2, 1)])

    assert keys(marks.unwritten("daily", many)) == ["1", *(str(n) for n in range(3, 1_203))]
