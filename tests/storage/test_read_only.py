"""A database where we cannot write is seen as it is now, also while others write it elsewhere."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import inspect

from longline.core.errors import StoreReadOnly
from longline.storage.database import open_database
from longline.storage.store import open_store
from tests.small_disk import read_only_view
from tests.storage.given import record

SHARED = ("-wal", "-shm")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where it is written."""
    folder = tmp_path / "written"
    folder.mkdir()
    return folder / "longline.sqlite"


@pytest.fixture
def address(path: Path) -> str:
    address = f"sqlite:///{path}"
    open_store(address).close()
    return address


@pytest.fixture
def view(tmp_path: Path, path: Path) -> Iterator[str]:
    """The address of the same file where it may only be read."""
    with read_only_view(path.parent, tmp_path / "view"):
        yield f"sqlite:///{tmp_path / 'view' / path.name}"


def leave(path: Path, *endings: str) -> None:
    """Leave the file as if its writer was killed, with only these of the files next to it."""
    writer = sqlite3.connect(path)
    writer.execute("CREATE TABLE late (a)")
    copies = [shutil.copy(f"{path}{end}", f"{path}{end}.copy") for end in ("", *endings)]
    writer.close()
    for copy in copies:
        Path(copy).rename(copy.removesuffix(".copy"))


async def test_what_others_write_later_is_seen(address: str, view: str) -> None:
    with open_store(view) as reader:
        before = await reader.records.count()
        with open_store(address) as writer:
            for number in range(50):
                await writer.records.create(record(str(number)), at=1.0)
            while_written = await reader.records.count()
        after = await reader.records.count()

    assert (before, while_written, after) == (0, 50, 50)


@pytest.mark.usefixtures("address")
def test_what_a_killed_writer_left_is_seen(path: Path, view: str) -> None:
    leave(path, *SHARED)

    with (
        closing(open_database(view)) as reader,
        reader.snapshot() as connection,
    ):
        assert inspect(connection).has_table("late")


@pytest.mark.usefixtures("address")
async def test_an_empty_wal_is_ignored(path: Path, view: str) -> None:
    Path(f"{path}-wal").touch()

    with open_store(view) as reader:
        assert await reader.records.count() == 0


@pytest.mark.usefixtures("address")
def test_a_wal_that_cannot_be_read_is_refused(path: Path, view: str) -> None:
    leave(path, "-wal")

    with pytest.raises(StoreReadOnly) as refused:
        open_store(view)

    assert "longline.sqlite-wal" in refused.value.problem
