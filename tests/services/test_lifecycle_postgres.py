"""A PostgreSQL server of a home: durable, private, restarted after a kill."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys

import psycopg
import pytest

from longline.core.errors import BadOption
from longline.core.files import exposed_in
from longline.services.postgres import PostgresService
from longline.services.processes import StartFailed, find_process
from longline.storage.jobs import NewJob
from longline.storage.store import open_store
from tests.services.homes import Home, is_listening, working_for

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another user")


def connected(home: Home) -> psycopg.Connection[tuple[str]]:
    url = PostgresService(home.file).url.replace("+psycopg", "")
    return psycopg.connect(url, autocommit=True)


@pytest.fixture
def running(postgres_home: Home) -> Home:
    """The shared home with running services."""
    postgres_home.up()
    return postgres_home


def test_commits_are_on_disk_before_they_return(running: Home) -> None:
    with connected(running) as connection:
        settings = [
            connection.execute(f"SHOW {name}".encode()).fetchone()
            for name in ("fsync", "synchronous_commit", "full_page_writes")
        ]

    assert settings == [("on",), ("on",), ("on",)]


def test_postgres_listens_on_loopback_only(running: Home) -> None:
    with connected(running) as connection:
        address = connection.execute("SHOW listen_addresses").fetchone()
        sockets = connection.execute("SHOW unix_socket_directories").fetchone()

    assert (address, sockets) == (("127.0.0.1",), ("",))


def test_postgres_refuses_another_password(running: Home) -> None:
    port = running.entry("postgres").port

    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(f"postgresql://longline:guess@127.0.0.1:{port}/longline")


def test_the_postgres_password_is_private(running: Home) -> None:
    password = running.path / "postgres" / "password"
    process = find_process(running.entry("postgres"))

    assert process is not None
    assert password.read_text() not in " ".join(process.cmdline())
    assert stat.S_IMODE(password.stat().st_mode) == 0o600
    assert stat.S_IMODE((running.path / "postgres").stat().st_mode) == 0o700


@AS_ROOT
def test_root_runs_postgres_as_another_user(running: Home) -> None:
    process = find_process(running.entry("postgres"))

    assert process is not None
    assert process.uids().effective != 0
    assert process.gids().effective != 0


def test_the_tables_of_the_home_are_in_it(running: Home) -> None:
    with connected(running) as connection:
        found = connection.execute("SELECT version_num FROM alembic_version").fetchone()

    assert found is not None
    assert running.settings().database == running.record.database_url


def test_a_killed_postgres_keeps_committed_data(running: Home) -> None:
    with connected(running) as connection:
        connection.execute("CREATE TABLE kept (word text)")
        connection.execute("INSERT INTO kept VALUES ('here')")
    before = running.record.database_url
    running.kill("postgres")

    running.up()

    with connected(running) as connection:
        assert connection.execute("SELECT word FROM kept").fetchone() == ("here",)
    assert running.record.database_url == before


def test_up_restarts_postgres_without_the_option(running: Home) -> None:
    port = running.entry("postgres").port

    running.down()
    gone = (working_for(running.path), is_listening(port), running.record.database_url is None)
    running.up()

    assert gone == ([], False, False)
    assert running.names == ["redis", "postgres"]
    assert running.status()["postgres"].is_healthy


def test_a_stopped_postgres_is_not_healthy(running: Home) -> None:
    running.down()

    part = running.status()["postgres"]

    assert not part.is_healthy
    assert "`longline up`" in (part.note or "")


def test_data_of_a_missing_postgres_version_is_not_changed(running: Home) -> None:
    running.down()
    mark = running.path / "postgres" / "data" / "PG_VERSION"
    version = mark.read_text()
    mark.write_text("7\n")

    with pytest.raises(StartFailed) as failed:
        running.up()
    mark.write_text(version)

    assert failed.value.service == "postgres"
    assert str(mark.parent) in failed.value.problem
    assert re.search(r"\b7\b", failed.value.problem)
    assert running.names == []
    assert running.record.database_url is not None


@AS_ROOT
def test_a_parent_folder_without_access_is_named(home: Home) -> None:
    above = home.path.parent
    above.chmod(0o700)

    with pytest.raises(StartFailed, match=re.escape(f"chmod o+x {above}")):
        home.up(with_postgres=True)

    assert working_for(home.path) == []


@AS_ROOT
def test_the_postgres_user_can_only_traverse_the_home(home: Home) -> None:
    home.up(with_postgres=True, workers=0)

    found, data = home.path.stat(), (home.path / "postgres").stat()
    assert stat.S_IMODE(found.st_mode) == 0o710
    assert (found.st_uid, found.st_gid) == (0, data.st_gid)
    assert list(exposed_in(home.path)) == []


async def test_up_postgres_is_refused_while_sqlite_has_jobs(home: Home) -> None:
    home.path.mkdir()
    with open_store(home.settings().database) as store:
        await store.jobs.find_or_create(NewJob("shop", {}, {}, 1.0))

    with pytest.raises(BadOption, match="`longline db"):
        home.up(with_postgres=True)

    assert working_for(home.path) == []


def test_up_postgres_is_refused_with_an_external_database(home: Home) -> None:
    with pytest.raises(BadOption) as refused:
        home.up(with_postgres=True, database_url="sqlite:///elsewhere.sqlite")

    assert refused.value.option == "--postgres"
    assert "`longline db" not in refused.value.problem


def test_a_stopped_own_server_error_names_longline_up(home: Home) -> None:
    home.up(with_postgres=True)
    home.down()

    command = [sys.executable, "-m", "longline", "jobs", "--home", str(home.path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert result.returncode == 2
    assert "postgresql" in result.stderr
    assert "`longline up`" in result.stderr
