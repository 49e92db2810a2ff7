"""Full and read-only disks: one sentence, and reading still works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

from longline import storage
from longline.core.errors import HomeUnwritable, StoreFull, StoreReadOnly
from tests.cli.terminal import Terminal
from tests.small_disk import SmallDisk, small_disk


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as disk:
        monkeypatch.setenv("LONGLINE_HOME", str(disk.path / "home"))
        yield disk


@pytest.fixture
def job(longline: Terminal, disk: SmallDisk, shop: Path) -> str:
    """A job whose home is on the disk."""
    del disk
    name: str = longline("run", shop, "--json").last["job"]
    return name


def make_older(database: Path) -> None:
    """Take back the newest migration."""
    engine = create_engine(f"sqlite:///{database}")
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(Path(storage.__file__).parent / "migrations"))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        command.downgrade(config, "-1")
    engine.dispose()


def test_a_cluster_is_not_started_on_a_full_disk(longline: Terminal, disk: SmallDisk) -> None:
    disk.fill()

    answer = longline("up")

    assert answer.code == 4
    assert isinstance(answer.error, StoreFull)
    assert answer.error.address in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.usefixtures("job")
def test_doctor_names_a_full_disk_as_the_cause(longline: Terminal, disk: SmallDisk) -> None:
    disk.fill()

    answer = longline("doctor", "--json")

    database = [one for one in answer.last if one["about"] == "database"]
    assert answer.code == 1
    assert [one["verdict"] for one in database] == ["problem"]
    assert "longline.sqlite" in database[0]["sentence"]
    assert "disk" in database[0]["remedy"]
    assert not any("Error" in one["sentence"] for one in answer.last)  # none was broken off


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("words", [("jobs",), ("report",), ("records", "list"), ("top", "--once")])
def test_a_read_only_home_can_be_read(
    longline: Terminal, disk: SmallDisk, words: tuple[str, ...]
) -> None:
    before = longline(*words)
    disk.close()

    answer = longline(*words)

    assert (answer.code, answer.err) == (before.code, "")  # a slow run makes a bad report
    assert len(answer.out.splitlines()) == len(before.out.splitlines())


def test_a_job_of_a_read_only_home_is_shown(longline: Terminal, disk: SmallDisk, job: str) -> None:
    before = longline("jobs", job, "--json").last

    disk.close()

    assert longline("jobs", job, "--json").last == before


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("words", [("run", "shop.py"), ("up",), ("down",), ("export",)])
def test_writing_into_a_read_only_home_is_refused(
    longline: Terminal, disk: SmallDisk, words: tuple[str, ...]
) -> None:
    disk.close()

    answer = longline(*words)

    assert answer.code == 2
    assert isinstance(answer.error, HomeUnwritable)
    assert answer.error.path.startswith(str(disk.path))
    assert "LONGLINE_HOME" in answer.err
    assert "--home" in answer.err
    assert answer.err.count("\n") == 1


def test_changing_a_read_only_database_is_refused(
    longline: Terminal, disk: SmallDisk, job: str
) -> None:
    disk.close()

    answer = longline("drift", "accept", job)

    assert answer.code == 2
    assert isinstance(answer.error, StoreReadOnly)
    assert "longline.sqlite" in answer.error.address


@pytest.mark.usefixtures("job")
def test_a_read_only_database_of_an_older_longline_is_refused(
    longline: Terminal, disk: SmallDisk
) -> None:
    make_older(disk.path / "home" / "longline.sqlite")
    disk.close()

    answer = longline("jobs")

    assert answer.code == 2
    assert isinstance(answer.error, StoreReadOnly)
    assert "LONGLINE_DATABASE_URL" not in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.usefixtures("job")
def test_a_doctor_reports_a_read_only_disk(longline: Terminal, disk: SmallDisk) -> None:
    disk.close()

    answer = longline("doctor", "--json")

    (database,) = [one for one in answer.last if one["about"] == "database"]
    assert answer.code == 1
    assert database["verdict"] == "problem"
    assert "longline.sqlite" in database["sentence"]
    assert not any("chown" in (one["remedy"] or "") for one in answer.last)
