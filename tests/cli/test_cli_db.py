"""longline db: a home moved to another database, and what is told about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.terminal import Terminal
from servers import PostgresServer


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
    assert "rows are the same on both sides, in number and checksum" in answer.out
    assert "set LONGLINE_DATABASE_URL=postgresql+psycopg://longline:***@" in answer.out
    assert "geheim" not in answer.out + answer.err
    assert longline("records", "count", "--json").last == {"records": 2}
    assert longline("run", shop, "--set", "bad=1", "--json").last["unchanged"] == 2


def test_a_move_answers_in_json(longline: Terminal, shop: Path, tmp_path: Path) -> None:
    longline("run", shop)

    answer = longline("db", "copy", f"sqlite:///{tmp_path}/other.sqlite", "--json")

    tables = {table["name"]: table["rows"] for table in answer.last["tables"]}
    assert (tables["jobs"], tables["items"], tables["records"]) == (1, 3, 3)
    assert answer.last["is_in_use"] is False
    assert len({table["checksum"] for table in answer.last["tables"] if table["rows"]}) > 5


def test_a_second_copy_to_the_same_place_is_refused_in_one_sentence(
    longline: Terminal, shop: Path, tmp_path: Path
) -> None:
    longline("run", shop)
    address = f"sqlite:///{tmp_path}/other.sqlite"
    longline("db", "copy", address)

    answer = longline("db", "copy", address)

    assert answer.code == 2
    assert answer.err == (
        f"longline: nothing was copied to {address}: it is not empty, "
        f"there are rows in events already; move the file {tmp_path}/other.sqlite away, "
        "and copy again\n"
    )


def test_a_home_that_comes_back_is_told_what_is_in_its_way(
    longline: Terminal, shop: Path, home: Path, server_address: str
) -> None:
    longline("run", shop)
    longline("db", "copy", server_address)

    answer = longline("db", "copy", "sqlite", "--from", server_address)

    assert answer.code == 2
    assert f"move the file {home}/longline.sqlite away, and copy again" in answer.err


def test_a_home_comes_back_into_its_own_file(
    longline: Terminal, shop: Path, home: Path, server_address: str
) -> None:
    longline("run", shop)
    longline("db", "copy", server_address)
    (home / "longline.sqlite").rename(home / "before.sqlite")

    answer = longline("db", "copy", "sqlite", "--from", server_address)

    assert answer.code == 0
    assert f"This home uses sqlite:///{home}/longline.sqlite from now on" in answer.out
    assert longline("records", "count", "--json").last == {"records": 3}


@pytest.mark.parametrize("source", [(), ("--from", "sqlite:////nowhere/at/all.sqlite")])
def test_what_is_not_there_is_not_copied(
    longline: Terminal, home: Path, tmp_path: Path, source: tuple[str, ...]
) -> None:
    answer = longline("db", "copy", f"sqlite:///{tmp_path}/other.sqlite", *source)

    assert answer.code == 2
    assert answer.err.startswith("longline: no job was run here yet")
    assert not (home / "longline.sqlite").exists()


def test_an_address_of_something_else_is_refused(longline: Terminal, shop: Path) -> None:
    longline("run", shop)

    answer = longline("db", "copy", "mysql://me:geheim@host/name")

    assert answer.code == 2
    assert "longline keeps its data in SQLite or PostgreSQL" in answer.err
    assert "geheim" not in answer.err


def test_a_database_is_described(longline: Terminal, shop: Path, home: Path) -> None:
    longline("run", shop)

    answer = longline("db", "info")
    told = longline("db", "info", "--json").last

    assert f"sqlite:///{home}/longline.sqlite" in answer.out
    assert (told["kind"], told["rows"]["records"]) == ("sqlite", 3)
    assert told["size_bytes"] > 10_000


def test_the_doctor_exits_with_0_or_1_and_says_how_to_mend_it(
    longline: Terminal, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longline("run", shop)
    well = longline("doctor")
    monkeypatch.setenv("LONGLINE_REDIS_URL", "redis://127.0.0.1:1/0")

    ill = longline("doctor")
    told = longline("doctor", "--json").last

    assert (well.code, ill.code) == (0, 1)
    assert "ok       database" in well.out
    assert ill.out.splitlines()[-2].startswith("problem  redis")
    assert "→ start it with `longline up`, or mend LONGLINE_REDIS_URL" in ill.out
    assert told[-1]["verdict"] == "problem"
