"""Parquet, read back by pyarrow and by DuckDB, which has a reader of its own."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # the same
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.export.sample_rows import Tap, export_to, rows
from tests.export.sample_values import UNLIKE, column

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab"), inner, max_size=2),
    max_leaves=4,
)


@pytest.fixture
def table(tmp_path: Path) -> Any:
    export_to(tmp_path / "a.parquet", rows(*UNLIKE))
    return pq.read_table(tmp_path / "a.parquet")


def test_columns_have_the_types_of_what_they_hold(table: Any) -> None:
    types = {field.name: field.type for field in table.schema}

    assert (types["title"], types["count"], types["price"]) == (
        pa.string(),
        pa.int64(),
        pa.float64(),
    )
    assert (types["is_new"], types["at"]) == (pa.bool_(), pa.timestamp("us", "UTC"))
    assert (types["sizes"], types["mixed"], types["huge"]) == (pa.string(),) * 3
    assert (types["version"], types["changed_at"]) == (pa.int64(), pa.timestamp("us", "UTC"))


def test_every_value_comes_back(table: Any) -> None:
    found = table.to_pylist()

    assert column("title", found) == [UNLIKE[0]["title"], "", None]
    assert column("Title", found) == ["another one", None, None]
    assert column("count", found) == [2**63 - 1, -1, None]
    assert column("price", found) == [1.5, 2.0, None]
    assert column("is_new", found) == [True, False, None]
    assert column("formula", found) == ["=HYPERLINK(A1)", None, None]
    assert column("at", found) == [datetime(2026, 11, 15, 17, 0, 0, 123456, UTC), None, None]


def test_what_differs_from_record_to_record_is_json_with_all_its_digits(table: Any) -> None:
    found = table.to_pylist()

    assert column("mixed", found) == ['"5"', "5", None]
    assert column("huge", found) == ["18446744073709551615", "1", None]
    assert json.loads(found[0]["sizes"]) == UNLIKE[0]["sizes"]


def test_duckdb_reads_the_same(tmp_path: Path) -> None:
    export_to(tmp_path / "a.parquet", Tap(12_000))

    with duckdb.connect() as connection:
        found = connection.read_parquet(f"{tmp_path}/a.parquet")
        counted = found.aggregate("count(*), count(DISTINCT key), min(title)").fetchall()

    assert counted == [(12_000, 12_000, "Thing 0")]


def test_no_records_are_a_table_of_our_columns(tmp_path: Path) -> None:
    export_to(tmp_path / "a.parquet", rows())

    found = pq.read_table(tmp_path / "a.parquet")
    assert (found.num_rows, found.column_names[:3]) == (0, ["source", "key", "url"])


def test_large_records_are_not_gathered_by_their_number(tmp_path: Path) -> None:
    text = "x" * 3_000_000
    export_to(tmp_path / "a.parquet", rows(*[{"text": text}] * 6))

    file = pq.ParquetFile(tmp_path / "a.parquet")
    assert file.num_row_groups == 2
    assert file.read(["text"]).to_pylist() == [{"text": text}] * 6


@settings(max_examples=30, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["a", "b"]), JSON_VALUES), max_size=4))
def test_every_value_can_be_read_back_from_the_table(
    tmp_path_factory: pytest.TempPathFactory, data: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("any") / "a.parquet"
    export_to(path, rows(*data))

    found = pq.read_table(path)

    for name in set(found.column_names) & {"a", "b"}:
        values = found[name].to_pylist()
        read_back = json_of(values, [one.get(name) for one in data])
        assert read_back == [one.get(name) for one in data]


def json_of(values: list[Any], originals: list[Any]) -> list[Any]:
    """Return values of a column that may be JSON; it is when some original is no text."""
    kinds = {type(one) for one in originals if one is not None}
    is_json = kinds & {dict, list} or (str in kinds and len(kinds) > 1)
    is_json = is_json or (any(isinstance(one, str) for one in values) and str not in kinds)
    return [json.loads(one) if is_json and one is not None else one for one in values]
