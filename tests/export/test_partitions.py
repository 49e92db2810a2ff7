"""Folders of files, a folder a value, read back by pyarrow and DuckDB as one table."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # ships no types
import pytest

from longline.core.errors import BadOption, DestinationUnwritable
from longline.export.export import ExportRequest, export
from longline.export.partitions import folder_name
from tests.export.sample_rows import Tap, rows

CITIES: list[dict[str, Any]] = [
    {"city": "Sofia", "price": 5},
    {"city": "Köln/Süd", "price": 6},
    {"city": None, "price": 7},
    {"city": "Sofia", "price": None},
    {"price": 9},
]


def request_for(path: Path, field: str, form: str = "parquet", **options: Any) -> ExportRequest:
    return ExportRequest(str(path), form, partition=field, **options)


def test_each_value_has_a_folder(tmp_path: Path) -> None:
    done = export(request_for(tmp_path / "out", "city"), rows(*CITIES))

    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == [
        "_schema.json",
        "city=K%C3%B6ln%2FS%C3%BCd",
        "city=Sofia",
        "city=__HIVE_DEFAULT_PARTITION__",
    ]
    assert (done.records, done.parts) == (5, 3)
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


def test_pyarrow_reads_the_folder_as_one_table(tmp_path: Path) -> None:
    export(request_for(tmp_path / "out", "city"), rows(*CITIES))

    found = pq.read_table(tmp_path / "out").select(["city", "price"]).to_pylist()

    assert sorted(found, key=str) == sorted(
        [{"city": one.get("city"), "price": one["price"]} for one in CITIES], key=str
    )


def test_duckdb_reads_the_folder_as_one_table(tmp_path: Path) -> None:
    export(request_for(tmp_path / "out", "city", "csv"), rows(*CITIES))

    with duckdb.connect() as connection:
        found = connection.read_csv(f"{tmp_path}/out/*/*.csv", hive_partitioning=True)
        counted = found.aggregate("city, count(*)", "city").order("city").fetchall()

    assert counted == [("Köln/Süd", 1), ("Sofia", 2), (None, 2)]


def test_a_number_can_be_what_parts_them(tmp_path: Path) -> None:
    export(request_for(tmp_path / "out", "year"), rows({"year": 2025}, {"year": 2026}))

    assert pq.read_table(tmp_path / "out")["year"].to_pylist() == [2025, 2026]


def test_values_of_different_types_stay_in_the_files(tmp_path: Path) -> None:
    export(request_for(tmp_path / "out", "n"), rows({"n": 5}, {"n": "5"}))

    found = pq.ParquetFile(tmp_path / "out" / "n=5" / "part-0.parquet").read()
    assert found["n"].to_pylist() == ["5", '"5"']


def test_every_part_has_all_columns_of_one_type(tmp_path: Path) -> None:
    export(request_for(tmp_path / "out", "a"), rows({"a": 1, "x": 1}, {"a": 2, "x": 0.5}, {"a": 3}))

    schemas = [pq.read_schema(one) for one in sorted((tmp_path / "out").glob("*/*.parquet"))]
    assert len(schemas) == 3
    assert schemas[0] == schemas[1] == schemas[2]


def test_our_own_columns_can_part_them_and_parts_can_be_packed(tmp_path: Path) -> None:
    export(ExportRequest(str(tmp_path / "out.jsonl.gz"), partition="source"), Tap(2))

    with gzip.open(tmp_path / "out.jsonl.gz" / "source=shop" / "part-0.jsonl.gz") as lines:
        assert [json.loads(line)["key"] for line in lines] == ["0", "1"]


def test_the_next_export_replaces_the_folder(tmp_path: Path) -> None:
    export(request_for(tmp_path / "out", "a", "csv"), rows({"a": 1}, {"a": 2}))

    export(request_for(tmp_path / "out", "a", "csv"), rows({"a": 2}, {"a": 3}))

    assert sorted(one.name for one in (tmp_path / "out").glob("a=*")) == ["a=2", "a=3"]
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


def test_an_export_that_fails_leaves_the_old_folder(tmp_path: Path) -> None:
    export(request_for(tmp_path / "out", "title", "csv"), Tap(2))

    with pytest.raises(ZeroDivisionError):
        export(request_for(tmp_path / "out", "title", "csv"), Tap(10, fails_at=5))

    assert len(list((tmp_path / "out").glob("title=*"))) == 2
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_is_not_ours_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.jpg").write_text("precious")

    with pytest.raises(DestinationUnwritable, match=r"me\.jpg") as failed:
        export(request_for(tmp_path / "photos", "a", "csv"), rows({"a": 1}))

    assert failed.value.path == str(tmp_path / "photos")
    assert (tmp_path / "photos" / "me.jpg").read_text() == "precious"


def test_a_field_of_long_texts_is_refused_as_a_partition(tmp_path: Path) -> None:
    with pytest.raises(BadOption) as refused:
        export(request_for(tmp_path / "out", "text", "csv"), rows({"text": "x" * 300}))

    assert refused.value.option == "--partition"
    assert "text" in refused.value.problem
    assert list(tmp_path.iterdir()) == []


def test_a_field_of_too_many_values_is_refused_as_a_partition(tmp_path: Path) -> None:
    with pytest.raises(BadOption) as refused:
        export(request_for(tmp_path / "out", "title", "jsonl"), Tap(10_001))

    assert refused.value.option == "--partition"
    assert "title" in refused.value.problem
    assert "10,000" in refused.value.problem
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("..", "f=.."),
        ("a/../b\x00", "f=a%2F..%2Fb%00"),
        ("", "f="),
        (True, "f=true"),
        ({"a": 1}, "f=%7B%22a%22%3A1%7D"),
    ],
)
def test_no_value_leads_out_of_the_folder(value: Any, name: str) -> None:
    assert folder_name("f", value) == name
