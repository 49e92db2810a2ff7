"""Only what is new or changed since the last export of a name; killed, it repeats."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from longline.export.columns import Rows
from longline.export.export import ExportRequest, IncrementalRows, export
from longline.storage.database import Database, open_database
from longline.storage.query import RecordQuery
from longline.storage.records import ExportCursors, Records
from tests.storage.given import record
from tests.virtual import EPOCH


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = open_database(f"sqlite:///{tmp_path}/longline.sqlite")
    yield database
    database.close()


@pytest.fixture
def records(database: Database) -> Records:
    return Records(database)


@pytest.fixture
def marks(database: Database) -> ExportCursors:
    return ExportCursors(database)


def all_of(records: Records) -> Rows:
    return lambda: records.stream(RecordQuery())


async def written(marks: ExportCursors, rows: Rows, path: Path, form: str = "jsonl") -> list[str]:
    """Export what is new, and return the keys that the new file holds."""
    fresh = IncrementalRows(marks, "daily", rows)
    done = export(ExportRequest(str(path), form, is_numbered=True, has_schema=False), fresh)
    await marks.add("daily", fresh.yielded())
    return [json.loads(line)["key"] for line in Path(done.path).read_bytes().splitlines()]


@pytest.fixture
def fresh(marks: ExportCursors, records: Records) -> IncrementalRows:
    return IncrementalRows(marks, "daily", all_of(records))


async def test_the_second_export_holds_what_is_new_or_changed(
    records: Records, marks: ExportCursors, tmp_path: Path
) -> None:
    for key in "abc":
        await records.create(record(key), at=EPOCH)
    first = await written(marks, all_of(records), tmp_path / "out.jsonl")
    await records.create(record("b", {"title": "other"}, fingerprint="second"), at=EPOCH + 1)
    await records.create(record("c"), at=EPOCH + 1)
    await records.create(record("d"), at=EPOCH + 1)

    second = await written(marks, all_of(records), tmp_path / "out.jsonl")

    assert (first, second) == (["a", "b", "c"], ["b", "d"])
    assert sorted(one.name for one in tmp_path.glob("out*")) == ["out-0001.jsonl", "out-0002.jsonl"]


async def test_an_export_that_was_cut_off_before_it_was_marked_is_repeated(
    records: Records, marks: ExportCursors, fresh: IncrementalRows, tmp_path: Path
) -> None:
    await records.create(record("a"), at=EPOCH)
    export(ExportRequest(str(tmp_path / "out.jsonl"), is_numbered=True), fresh)

    again = await written(marks, all_of(records), tmp_path / "out.jsonl")

    assert again == ["a"]
    assert fresh.is_empty()


async def test_a_format_of_two_passes_marks_what_it_wrote(
    records: Records, fresh: IncrementalRows, tmp_path: Path
) -> None:
    await records.create(record("a"), at=EPOCH)

    export(ExportRequest(str(tmp_path / "out.csv")), fresh)

    assert list(fresh.yielded()) == [(1, 1)]


async def test_what_was_written_before_does_not_use_up_the_limit(
    records: Records, marks: ExportCursors
) -> None:
    for key in "abcd":
        await records.create(record(key), at=EPOCH)
    await marks.add("daily", [(1, 1), (2, 1)])

    fresh = IncrementalRows(marks, "daily", all_of(records), limit=1)
    assert [one["key"] for one in fresh()] == ["c"]
    assert list(fresh.yielded()) == [(3, 1)]
