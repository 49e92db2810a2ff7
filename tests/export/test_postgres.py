"""A table in a real PostgreSQL, read back by psycopg."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from longline.core.errors import BadOption, DestinationUnwritable
from longline.export.export import ExportRequest, export
from tests.export.sample_rows import Tap, rows
from tests.export.sample_values import UNLIKE, column


def ask(address: str, query: str) -> list[dict[str, Any]]:
    with psycopg.connect(address, row_factory=dict_row) as connection:
        return connection.execute(query).fetchall()


def do(address: str, statement: str) -> None:
    with psycopg.connect(address) as connection:
        connection.execute(statement)


@pytest.fixture
def found(postgres: str) -> list[dict[str, Any]]:
    export(ExportRequest(postgres, table="unlike"), rows(*UNLIKE))
    return ask(postgres, "SELECT * FROM unlike ORDER BY key")


def test_every_value_comes_back(found: list[dict[str, Any]]) -> None:
    assert column("title", found) == [UNLIKE[0]["title"], "", None]
    assert column("count", found) == [2**63 - 1, -1, None]
    assert column("price", found) == [1.5, 2.0, None]
    assert column("is_new", found) == [True, False, None]
    assert column("at", found)[0] == datetime(2026, 11, 15, 17, 0, 0, 123456, UTC)
    assert column("formula", found)[0] == "=HYPERLINK(A1)"


def test_what_differs_is_json(found: list[dict[str, Any]]) -> None:
    assert column("mixed", found) == ["5", 5, None]
    assert column("huge", found) == [2**64 - 1, 1, None]
    assert column("sizes", found)[0] == UNLIKE[0]["sizes"]


def test_the_next_export_replaces_the_table_with_its_columns(postgres: str) -> None:
    export(ExportRequest(postgres, table="again"), rows({"a": 1}, {"a": 2}))

    done = export(ExportRequest(postgres, table="again"), rows({"b": "x"}))

    (found,) = ask(postgres, "SELECT * FROM again")
    assert (done.records, done.format, found["b"], "a" in found) == (1, "postgresql", "x", False)


def test_an_export_that_fails_leaves_the_old_table_and_no_other(postgres: str) -> None:
    export(ExportRequest(postgres, table="kept"), rows({"a": 1}))
    before = ask(postgres, "SELECT tablename FROM pg_tables")

    with pytest.raises(ZeroDivisionError):
        export(ExportRequest(postgres, table="kept"), Tap(10, fails_at=5))

    assert ask(postgres, "SELECT a FROM kept") == [{"a": 1}]
    assert ask(postgres, "SELECT tablename FROM pg_tables") == before


def test_readers_see_the_old_table_until_the_new_one_is_whole(postgres: str) -> None:
    export(ExportRequest(postgres, table="seen"), rows({"a": 1}))
    do(postgres, "CREATE VIEW looking AS SELECT a FROM seen")

    with pytest.raises(DestinationUnwritable, match="looking") as failed:
        export(ExportRequest(postgres, table="seen"), rows({"a": 2}))

    assert failed.value.path.endswith("seen")
    assert ask(postgres, "SELECT a FROM looking") == [{"a": 1}]


def test_a_table_that_is_not_ours_is_never_replaced(postgres: str) -> None:
    do(postgres, "CREATE TABLE theirs AS SELECT 7 AS n")

    with pytest.raises(DestinationUnwritable) as failed:
        export(ExportRequest(postgres, table="theirs"), rows({"a": 1}))

    assert failed.value.path.endswith("theirs")
    assert failed.value.__cause__ is None  # refused by us, not by the server
    assert ask(postgres, "SELECT * FROM theirs") == [{"n": 7}]


def test_a_schema_can_be_named_and_numbers_follow_each_other(postgres: str) -> None:
    do(postgres, "CREATE SCHEMA IF NOT EXISTS deep")
    request = ExportRequest(postgres, table="deep.day", is_numbered=True)

    first = export(request, rows({"a": 1}))
    second = export(request, rows({"a": 2}))

    assert first.path.endswith("deep.day_0001")
    assert second.path.endswith("deep.day_0002")
    assert ask(postgres, "SELECT a FROM deep.day_0002") == [{"a": 2}]


def test_names_that_are_too_long_stay_apart(postgres: str) -> None:
    export(ExportRequest(postgres, table="long"), rows({"ü" * 40: 1, "ü" * 41: 2}))

    (found,) = ask(postgres, "SELECT * FROM long")
    assert [found["ü" * 31], found["ü" * 30 + "_2"]] == [1, 2]


def test_a_nul_that_postgresql_refuses_is_replaced_with_a_note(postgres: str) -> None:
    done = export(ExportRequest(postgres, table="nul"), rows({"a": "x\x00y"}, {"a": "z"}))

    assert column("a", ask(postgres, "SELECT a FROM nul ORDER BY a")) == ["x\ufffdy", "z"]
    (note,) = done.notes
    assert "1" in note.split()
    assert "NUL" in note


def test_an_error_of_an_unreachable_server_hides_the_password() -> None:
    address = "postgresql://me:hunter22@127.0.0.1:1/base?password=hunter22"

    with pytest.raises(DestinationUnwritable) as failed:
        export(ExportRequest(address), rows())

    assert failed.value.path.startswith("postgresql://me:***@127.0.0.1:1/base?password=***")
    assert failed.value.path.endswith("longline_export")
    assert "hunter22" not in str(failed.value)


@pytest.mark.parametrize("name", ["", "a.", "x" * 64])
def test_an_invalid_name_of_a_table_is_refused(name: str) -> None:
    with pytest.raises(BadOption) as refused:
        export(ExportRequest("postgresql://h/d", table=name or "."), rows())

    assert refused.value.option == "--table"
    assert repr(name or ".") in refused.value.problem
