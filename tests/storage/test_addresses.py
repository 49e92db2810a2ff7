"""A database that cannot be opened is an error with its address, its cause and the setting."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from longline.core.errors import StoreReadOnly, StoreUnreachable
from longline.storage.store import open_store
from tests.storage.given import record


@pytest.fixture
def address(sqlite_address: str) -> str:
    return sqlite_address


@pytest.mark.parametrize(
    ("address", "cause"),
    [
        ("", "URL"),
        ("nonsense", "URL"),
        ("postgresql://me:secret@host:port/db", "URL"),
        ("oracle9://host/db", "PostgreSQL"),
        ("mysql://me:secret@host/db", "PostgreSQL"),
        ("postgresql+asyncpg://me:secret@host/db", "PostgreSQL"),
        ("sqlite+aiosqlite:///x.sqlite", "PostgreSQL"),
        ("postgresql://me:secret@127.0.0.1:1/db", "Connection refused"),
        ("postgres://me:secret@127.0.0.1:1/db", "Connection refused"),
        ("postgresql+psycopg://me:secret@nowhere.invalid/db", "nowhere.invalid"),
        ("postgresql://me:secret@127.0.0.1:1", "postgresql://host/name"),
        ("postgresql://127.0.0.1:1/db?user=me&password=secret", "Connection refused"),
        ("postgresql://me@127.0.0.1:1/db?sslpassword=secret", "Connection refused"),
        ("mysql://127.0.0.1:1/db?password=secret", "PostgreSQL"),
        ("sqlite://host/x.sqlite", "slashes"),
        ("sqlite://", "file"),
        ("sqlite:///:memory:", "memory"),
        ("sqlite:////nowhere/at/all/x.sqlite", "open"),
    ],
)
def test_an_address_that_cannot_be_used_says_why(address: str, cause: str) -> None:
    with pytest.raises(StoreUnreachable) as raised:
        open_store(address)

    sentence = str(raised.value)
    assert cause in raised.value.problem
    assert "LONGLINE_DATABASE_URL" in sentence
    assert "secret" not in sentence
    assert "\n" not in sentence


def test_a_folder_is_not_a_database(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreachable) as failed:
        open_store(f"sqlite:///{tmp_path}")

    assert str(tmp_path) in failed.value.address


def test_a_file_of_something_else_is_not_a_database(path: Path, address: str) -> None:
    path.write_bytes(b"Dear diary, " * 500)

    with pytest.raises(StoreUnreachable) as failed:
        open_store(address)

    assert str(path) in failed.value.address
    assert path.read_bytes().startswith(b"Dear diary")


def test_a_database_whose_pages_are_damaged_says_so(path: Path, address: str) -> None:
    open_store(address).close()
    content = path.read_bytes()
    path.write_bytes(content[:100] + os.urandom(3996) + content[4096:])

    with pytest.raises(StoreUnreachable, match="malformed"):
        open_store(address)


async def test_a_write_to_a_file_that_may_only_be_read_is_refused(path: Path, address: str) -> None:
    open_store(address).close()

    with (
        open_store(f"sqlite:///file:{path}?mode=ro&uri=true") as store,
        pytest.raises(StoreReadOnly),
    ):
        await store.records.create(record("1"), at=1.0)


async def test_a_folder_with_url_characters_in_its_name_works(tmp_path: Path) -> None:
    folder = tmp_path / "50 % of #1 ü"
    folder.mkdir()

    with open_store(f"sqlite:///{folder}/x.sqlite") as store:
        assert await store.records.count() == 0

    assert (folder / "x.sqlite").exists()
