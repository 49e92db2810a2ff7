"""Files that are databases, read back by SQLite and DuckDB themselves."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from longline.core.errors import BadOption
from tests.export.sample_rows import Tap, export_to, rows
from tests.export.sample_values import UNLIKE, column


def in_sqlite(path: Path, query: str = "SELECT * FROM records") -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(query)]


def in_duckdb(path: Path, query: str = "SELECT * FROM records") -> list[dict[str, Any]]:
    with duckdb.connect(path, read_only=True) as connection:
        found = connection.execute(query)
        names = [one[0] for one in found.description or []]
        return [dict(zip(names, line, strict=True)) for line in found.fetchall()]


READERS = {"sqlite": in_sqlite, "duckdb": in_duckdb}


@pytest.fixture(params=READERS)
def found(request: pytest.FixtureRequest, tmp_path: Path) -> list[dict[str, Any]]:
    path = tmp_path / f"a.{request.param}"
    export_to(path, rows(*UNLIKE))
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    return READERS[request.param](path)


def test_every_value_comes_back(found: list[dict[str, Any]]) -> None:
    assert column("title", found) == [UNLIKE[0]["title"], "", None]
    assert column("count", found) == [2**63 - 1, -1, None]
    assert column("price", found) == [1.5, 2.0, None]
    assert column("is_new", found) == [True, False, None]
    assert column("key", found) == ["0", "1", "2"]


def test_what_differs_is_json_with_all_its_digits(found: list[dict[str, Any]]) -> None:
    assert column("mixed", found) == ['"5"', "5", None]
    assert column("huge", found) == ["18446744073709551615", "1", None]
    assert json.loads(found[0]["sizes"]) == UNLIKE[0]["sizes"]


def test_names_that_differ_only_in_case_stay_distinct(found: list[dict[str, Any]]) -> None:
    assert column("Title_2", found) == ["another one", None, None]


def test_timestamps_work_with_date_functions(tmp_path: Path) -> None:
    export_to(tmp_path / "a.duckdb", rows(*UNLIKE))
    export_to(tmp_path / "a.sqlite", rows(*UNLIKE))

    assert column("at", in_duckdb(tmp_path / "a.duckdb"))[0] == datetime(  # noqa: DTZ001  # in UTC
        2026, 11, 15, 17, 0, 0, 123456
    )
    (found_row,) = in_sqlite(tmp_path / "a.sqlite", "SELECT unixepoch(max(at)) AS at FROM records")
    assert found_row["at"] == 1794762000


@pytest.mark.parametrize("form", READERS)
def test_names_may_hold_what_sql_is_made_of(tmp_path: Path, form: str) -> None:
    name = 'a"; DROP TABLE records; --'
    path = tmp_path / f"a.{form}"
    export_to(path, rows({name: 1, "": 2}))

    (found_row,) = READERS[form](path)
    assert (found_row[name], found_row["_"]) == (1, 2)


@pytest.mark.parametrize("form", READERS)
def test_no_records_are_an_empty_table(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"a.{form}"
    export_to(path, rows())

    assert READERS[form](path, "SELECT count(*) AS n FROM records") == [{"n": 0}]


@pytest.mark.parametrize("form", READERS)
def test_more_records_than_a_batch_arrive(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"a.{form}"
    export_to(path, Tap(5_001))

    query = "SELECT count(*) AS n, count(DISTINCT key) AS keys FROM records"
    assert READERS[form](path, query) == [{"n": 5_001, "keys": 5_001}]


def test_more_fields_than_a_database_takes_are_refused(tmp_path: Path) -> None:
    wide = {f"field {number}": number for number in range(2_000)}

    with pytest.raises(BadOption, match="2,000") as refused:
        export_to(tmp_path / "a.sqlite", rows(wide))

    assert refused.value.option == "--columns"
    assert list(tmp_path.iterdir()) == []


def test_more_fields_than_any_format_takes_are_refused(tmp_path: Path) -> None:
    wide = {f"field {number}": number for number in range(10_001)}

    with pytest.raises(BadOption, match="10,000") as refused:
        export_to(tmp_path / "a.csv", rows(wide))

    assert refused.value.option == "--columns"
