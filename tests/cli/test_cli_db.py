"""longline db: a home moved to another database, and what is reported about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.core.errors import NoJobsYet, NotCopied
from tests.cli.terminal import Terminal
from tests.servers import PostgresServer


@pytest.fixture
def server_address(postgres_server: PostgresServer) -> str:
    """An empty database of its own, whose address has a password."""
    postgres_server.execute("DROP DATABASE IF EXISTS moved WITH (FORCE)")
    postgres_server.execute("CREATE DATABASE moved")
    return postgres_server.url("moved").replace("longline@", "longline:geheim@")


def test_a_home_moves_to_a_server_and_works_there(
    longline: Terminal, shop: Path, server_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    longline("run", shop, "--set", "bad=1")

    answer = longline("db", "copy", server_address)
    monkeypatch.setenv("LONGLINE_DATABASE_URL", server_address)

    assert answer.code == 0
    assert {"records", "rows", "checksum"} <= set(answer.out.split())
    assert "LONGLINE_DATABASE_URL=postgresql+psycopg://longline:***@" in answer.out
    assert "geheim" not in answer.out + answer.err
    assert longline("records", "count", "--json").last == {"records": 2}
    assert longline("run", shop, "--set", "bad=1", "--json").last["unchanged"] == 2


def test_db_copy_prints_json(longline: Terminal, shop: Path, tmp_path: Path) -> None:
    longline("run", shop)

    answer = longline("db", "copy", f"sqlite:///{tmp_path}/other.sqlite", "--json")

    tables = {table["name"]: table["rows"] for table in answer.last["tables"]}
    assert (tables["jobs"], tables["items"], tables["records"]) == (1, 3, 3)
    assert answer.last["is_in_use"] is False
    assert len({table["checksum"] for table in answer.last["tables"] if table["rows"]}) > 5


def test_a_second_copy_to_the_same_place_is_refused(
    longline: Terminal, shop: Path, tmp_path: Path
) -> None:
    longline("run", shop)
    address = f"sqlite:///{tmp_path}/other.sqlite"
    longline("db", "copy", address)

    answer = longline("db", "copy", address)

    assert (answer.code, len(answer.err.splitlines())) == (2, 1)
    assert isinstance(answer.error, NotCopied)
    assert answer.error.target == address
    assert "events" in answer.error.problem
    assert f"{tmp_path}/other.sqlite" in answer.error.problem


def test_a_copy_back_over_the_old_file_is_refused(
    longline: Terminal, shop: Path, home: Path, server_address: str
) -> None:
    longline("run", shop)
    longline("db", "copy", server_address)

    answer = longline("db", "copy", "sqlite", "--from", server_address)

    assert answer.code == 2
    assert isinstance(answer.error, NotCopied)
    assert f"{home}/longline.sqlite" in answer.error.problem


def test_a_home_comes_back_into_its_own_file(
    longline: Terminal, shop: Path, home: Path, server_address: str
) -> None:
    longline("run", shop)
    longline("db", "copy", server_address)
    (home / "longline.sqlite").rename(home / "before.sqlite")

    answer = longline("db", "copy", "sqlite", "--from", server_address)

    assert answer.code == 0
    assert f"sqlite:///{home}/longline.sqlite" in answer.out
    assert "LONGLINE_DATABASE_URL" not in answer.out  # nothing is left to set
    assert longline("records", "count", "--json").last == {"records": 3}


@pytest.mark.parametrize("source", [(), ("--from", "sqlite:////nowhere/at/all.sqlite")])
def test_copying_a_missing_database_is_refused(
    longline: Terminal, home: Path, tmp_path: Path, source: tuple[str, ...]
) -> None:
    answer = longline("db", "copy", f"sqlite:///{tmp_path}/other.sqlite", *source)

    assert answer.code == 2
    assert isinstance(answer.error, NoJobsYet)
    assert not (home / "longline.sqlite").exists()


def test_an_address_of_something_else_is_refused(longline: Terminal, shop: Path) -> None:
    longline("run", shop)

    answer = longline("db", "copy", "mysql://me:geheim@host/name")

    assert answer.code == 2
    assert isinstance(answer.error, NotCopied)
    assert "PostgreSQL" in answer.error.problem
    assert "geheim" not in answer.err


def test_a_database_is_described(longline: Terminal, shop: Path, home: Path) -> None:
    longline("run", shop)

    answer = longline("db", "info")
    info = longline("db", "info", "--json").last

    assert f"sqlite:///{home}/longline.sqlite" in answer.out
    assert (info["kind"], info["rows"]["records"]) == ("sqlite", 3)
    assert info["size_bytes"] > 10_000


def test_the_doctor_exits_with_0_or_1_and_says_what_to_do(
    longline: Terminal, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longline("run", shop)
    well = longline("doctor")
    monkeypatch.setenv("LONGLINE_REDIS_URL", "redis://127.0.0.1:1/0")

    ill = longline("doctor")
    last = longline("doctor", "--json").last[-1]

    assert (well.code, ill.code) == (0, 1)
    assert ["ok", "database"] in [line.split()[:2] for line in well.out.splitlines()]
    assert ill.out.splitlines()[-2].split()[:2] == ["problem", "redis"]
    assert "`longline up`" in ill.out.splitlines()[-1]
    assert "LONGLINE_REDIS_URL" in ill.out.splitlines()[-1]
    assert (last["about"], last["verdict"]) == ("redis", "problem")
    assert last["remedy"] in ill.out
