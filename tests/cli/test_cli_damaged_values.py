"""Values in the database that longline cannot have written: reported, with their column."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from sqlalchemy import Column, Text

from longline.storage.schema import Checked, Choice, Json, Number, Time, metadata
from tests.fork_server import ForkServer, Result
from tests.hostile_data import World, attacking_site, make_world

DATABASE = "longline.sqlite"
JOB = ("jobs", "JOB")
REPORT = ("report", "JOB")
RECORDS = ("records", "list", "--json")
# Commands that read much of a table; of other tables, these read what there is.
COMMANDS: dict[str, list[tuple[str, ...]]] = {
    "jobs": [("jobs",), JOB, REPORT],
    "items": [JOB, REPORT, ("failures", "JOB"), ("quarantine", "list")],
    "failures": [REPORT, ("failures", "JOB", "--json")],
    "records": [RECORDS, ("records", "quality"), REPORT],
    "record_versions": [("records", "changes"), ("records", "list", "--at", "2050-01-01")],
    "profiles": [("drift",), ("drift", "--json"), REPORT],
    "questions": [("enrich", "status"), RECORDS],
    "enrichments": [("enrich", "status"), RECORDS],
    "matches": [("duplicates", "list"), RECORDS],
}
OTHERS: list[tuple[str, ...]] = [
    ("jobs", "--json"),
    JOB,
    ("status", "--json"),
    ("duplicates", "list"),
]


class Home:
    """A home whose database is damaged and restored."""

    def __init__(self, world: World, server: ForkServer) -> None:
        self._world = world
        self._server = server
        self._file = world.home / DATABASE
        self._execute("PRAGMA journal_mode=DELETE")
        self._whole = self._file.read_bytes()

    def values(self, column: Column[object]) -> list[object]:
        query = f'SELECT DISTINCT "{column.name}" FROM {column.table} ORDER BY rowid'  # noqa: S608
        found = [row[0] for row in self._execute(query)]
        return [value for value in found if value not in (None, "")]

    def damage(self, column: Column[object], old: object, new: object) -> None:
        for events in self._file.parent.glob(f"{DATABASE}-*"):
            events.unlink()
        self._file.write_bytes(self._whole)
        statement = f'UPDATE {column.table} SET "{column.name}" = ? WHERE "{column.name}" = ?'  # noqa: S608
        self._execute(statement, new, old)

    def _execute(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self._file, isolation_level=None)) as connection:
            return connection.execute(statement, values).fetchall()

    def run(self, *words: str) -> Result:
        words = tuple(self._world.jobs["evil"] if word == "JOB" else word for word in words)
        return self._server.run(*words, env=self._world.env(), cwd=str(self._world.folder))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with ForkServer() as server, attacking_site() as url:
        yield Home(make_world(tmp_path_factory.mktemp("world"), url, server), server)


def damages(column: Column[object], value: object) -> list[object]:
    """Return what one flipped byte may make of a value."""
    if isinstance(column.type, Number):
        return [1e300, -1e300, "x"]
    text = str(value)
    places = [0, len(text) // 3, len(text) - 1] if isinstance(column.type, Json) else [1]
    return [text[:at] + chr(ord(text[at : at + 1] or "a") ^ 1) + text[at + 1 :] for at in places]


@pytest.mark.parametrize("name", [table.name for table in metadata.sorted_tables])
def test_a_damaged_value_is_never_an_internal_error(home: Home, name: str) -> None:
    for column in metadata.tables[name].columns:
        if not isinstance(column.type, Text | Checked):
            continue
        for value in home.values(column)[:1]:
            for damage in damages(column, value):
                home.damage(column, value, damage)
                for words in COMMANDS.get(name, OTHERS):
                    answer = home.run(*words)
                    case = (column, damage, words, answer.err)
                    assert answer.code in {0, 1, 2, 3}, case
                    assert b"internal error" not in answer.err, case
                    assert b"Traceback" not in answer.err, case


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("jobs.state", "partial", "paruial", ("jobs",)),
        ("jobs.state", "partial", "paruial", REPORT),
        ("jobs.created_at", None, 1e300, ("jobs", "--json")),
        ("jobs.settings", None, "{", ("jobs",)),
        ("items.state", "stored", "stnred", JOB),
        ("items.state", "stored", "stnred", REPORT),
        ("failures.kind", None, "nftwork", ("failures", "JOB")),
        ("failures.at", None, "then", ("failures", "JOB", "--json")),
        ("records.data", None, "{", RECORDS),
        ("records.changed_at", None, 1e300, RECORDS),
        ("records.score", None, "x", ("records", "quality")),
        ("profiles.profile", None, "[1", ("drift",)),
    ],
)
def test_a_damaged_value_is_reported_with_its_column(
    home: Home, name: str, old: str | None, new: object, words: tuple[str, ...]
) -> None:
    table, _, column = name.partition(".")
    found = metadata.tables[table].columns[column]
    values: list[object] = [old] if old else home.values(found)
    for value in values:
        home.damage(found, value, new)

        answer = home.run(*words)

        if name.encode() in answer.err:
            break
    (sentence,) = answer.err.decode().splitlines()
    assert answer.code == 1
    assert f"{DATABASE} is damaged ({name} " in sentence


def test_every_time_and_state_is_checked() -> None:
    unchecked = {
        str(column)
        for table in metadata.sorted_tables
        for column in table.columns
        if column.name.endswith(("state", "_at", "_until")) and not isinstance(column.type, Checked)
    }

    assert unchecked == set()
    assert {type(metadata.tables["jobs"].c[name].type) for name in ("state", "created_at")} == {
        Choice,
        Time,
    }
