"""A database where we cannot write is seen as it is now, also while others write it elsewhere."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import inspect

from longline.core.errors import StoreReadOnly
from longline.storage.database import open_database
from longline.storage.store import open_store
from tests.small_disk import read_only_view
from tests.storage.given import record

SHARED = ("-wal", "-shm")
COME_AND_GO = """
import sqlite3, sys
print("begun", flush=True)
while True:
    writer = sqlite3.connect(sys.argv[1], timeout=60)
    writer.execute("CREATE TABLE IF NOT EXISTS other (a)")
    writer.execute("INSERT INTO other VALUES (1)")
    writer.commit()
    writer.close()
"""


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
    """Leave the file as if its writer was killed, with only these of the files beside it."""
    writer = sqlite3.connect(path)
    writer.execute("CREATE TABLE late (a)")
    copies = [shutil.copy(f"{path}{end}", f"{path}{end}.copy") for end in ("", *endings)]
    writer.close()
    for copy in copies:
        Path(copy).rename(copy.removesuffix(".copy"))


@contextmanager
def coming_and_going(path: Path) -> Iterator[None]:
    """Have another process write again and again, and each time leave with the files beside it."""
    process = subprocess.Popen([sys.executable, "-c", COME_AND_GO, path], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


async def test_what_others_write_later_is_seen(address: str, view: str) -> None:
    with open_store(view) as reader:
        before = await reader.records.count()
        with open_store(address) as writer:
            for number in range(50):
                await writer.records.create(record(str(number)), at=1.0)
            while_written = await reader.records.count()
        after = await reader.records.count()

    assert (before, while_written, after) == (0, 50, 50)


async def test_readers_work_while_writers_come_and_go(address: str, view: str, path: Path) -> None:
    with open_store(address) as writer:
        await writer.records.create(record("1"), at=1.0)

    with coming_and_going(path), open_store(view) as reader:
        seen = {await reader.records.count() for _ in range(300)}

    assert seen == {1}


@pytest.mark.usefixtures("address")
def test_what_a_killed_writer_left_is_seen(path: Path, view: str) -> None:
    leave(path, *SHARED)

    with (
        closing(open_database(view)) as reader,
        reader.snapshot() as connection,
    ):
        assert inspect(connection).has_table("late")


@pytest.mark.usefixtures("address")
async def test_an_empty_log_is_no_log(path: Path, view: str) -> None:
    Path(f"{path}-wal").touch()

    with open_store(view) as reader:
        assert await reader.records.count() == 0


@pytest.mark.usefixtures("address")
def test_a_log_that_cannot_be_read_is_not_left_out(path: Path, view: str) -> None:
    leave(path, "-wal")

    with pytest.raises(StoreReadOnly) as refused:
        open_store(view)

    assert "longline.sqlite-wal" in refused.value.problem
