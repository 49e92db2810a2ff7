"""Places that cannot be written, and exports that are killed: real processes, real limits."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from longline.config.settings import Settings, prepare_home
from longline.core.errors import DestinationUnwritable
from longline.storage.database import open_database
from longline.storage.records import store_records
from tests.cli.terminal import Terminal
from tests.storage.given import record
from tests.virtual import EPOCH

EXPORT = (str(Path(sys.executable).with_name("longline")), "export", "--no-schema", "-o")
MANY = 8_000
LARGE = "x" * 4_000_000
SMALL_LIMIT = "4096"  # of a file, in blocks of 512 bytes


def fill(home: Path, count: int, title: str) -> None:
    """Store records straight away, as many at once as it takes."""
    settings = Settings(home=home)
    prepare_home(settings)
    database = open_database(settings.database)
    made = [(record(str(one), {"title": title}), None, EPOCH) for one in range(count)]
    asyncio.run(database.write(store_records, made))
    database.close()


@pytest.fixture
def many(home: Path, tmp_path: Path) -> Path:
    """The folder of a home with so many records that an export takes a while."""
    fill(home, MANY, "a title of some length " * 20)
    return tmp_path


@pytest.fixture
def large(home: Path, tmp_path: Path) -> Path:
    """The folder of a home with a record that is larger than any file may be."""
    fill(home, 1, LARGE)
    return tmp_path


def parts(folder: Path) -> list[str]:
    """Return what exports that are not done have in a folder."""
    return [name for name in os.listdir(folder) if ".part" in name]  # noqa: PTH208  # the quickest


def killed_in_the_middle(folder: Path, name: str) -> int:
    """Export, and kill that as soon as something is being written; return how it ended."""
    with subprocess.Popen([*EXPORT, str(folder / name)]) as process:
        while not parts(folder) and process.poll() is None:
            os.sched_yield()
        process.kill()
    return process.returncode


@pytest.mark.parametrize("name", ["a.jsonl", "a.sqlite"])
def test_a_killed_export_keeps_the_old_file(many: Path, longline: Terminal, name: str) -> None:
    (many / name).write_text("the old one")

    code = killed_in_the_middle(many, name)

    assert code == -9
    assert (many / name).read_text() == "the old one"
    assert parts(many) != []
    for left in parts(many):
        os.utime(many / left, (0, 0))  # younger ones may belong to another export
    assert longline("export", "--no-schema", "-o", name, "--json").last["records"] == MANY
    assert parts(many) == []


@pytest.mark.parametrize("name", ["a.jsonl", "a.sqlite"])
def test_an_export_without_room_is_paused_not_a_usage_error(large: Path, name: str) -> None:
    (large / name).write_text("the old one")
    words = ["sh", "-c", f'ulimit -f {SMALL_LIMIT}; exec "$@"', "sh", *EXPORT, str(large / name)]

    done = subprocess.run(words, capture_output=True, check=False, text=True)

    assert done.returncode == 4
    assert str(large / name) in done.stderr
    assert (done.stderr.count("\n"), done.stdout) == (1, "")
    assert (large / name).read_text() == "the old one"
    assert parts(large) == []


@pytest.mark.parametrize("place", ["/proc/nobody/a.csv", "/dev/null/a.csv", "/dev/null"])
def test_an_impossible_place_is_a_usage_error(home: Path, longline: Terminal, place: str) -> None:
    fill(home, 1, "x")

    answer = longline("export", "--format", "csv", "-o", place)

    assert answer.code == 2
    assert isinstance(answer.error, DestinationUnwritable)
    assert answer.error.path == place
    assert answer.err.count("\n") == 1
