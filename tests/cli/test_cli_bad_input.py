"""Bad input: one line on stderr, the right error and exit code, no traceback, nothing lost."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path
from typing import TypeVar

import click
import pytest

from longline.core.errors import (
    BadFile,
    BadOption,
    BadSource,
    DestinationUnwritable,
    HomeUnwritable,
    StoreDamaged,
    StoreTooNew,
    StoreUnreachable,
    UnknownJob,
    UnknownRecord,
)
from longline.engine.watch import UnknownCheckpoint
from longline.orchestrator import NotResumable
from longline.sources.loader import UnknownSource
from tests.cli.terminal import Answer, Terminal

LAYER = "    @layer()\n    async def page(self, visit):\n        return {}\n"
DISCOVER = "    async def discover(self, visit):\n        yield Item('1', 'https://a.test')\n"
HEAD = "from longline import Item, Source, layer\n"
FORMATS = ("jsonl", "json", "csv", "parquet", "xlsx", "sqlite", "duckdb")

Error = TypeVar("Error", bound=BaseException)


def failure(answer: Answer, kind: type[Error], code: int = 2) -> Error:
    """Return the error that ended a command, which printed it in one line and nothing else."""
    (line,) = answer.err.splitlines()
    assert answer.code == code
    assert answer.out == ""
    assert isinstance(answer.error, kind)
    assert str(answer.error) in line
    return answer.error


def misuse(answer: Answer, kind: type[Error]) -> Error:
    """Return the error with which click refused an option or a command."""
    assert answer.code == 2
    assert answer.err.startswith("Usage: longline")
    assert "Traceback" not in answer.err
    assert isinstance(answer.error, kind)
    return answer.error


def test_an_unknown_command_is_refused(longline: Terminal) -> None:
    error = misuse(longline("fly"), click.UsageError)

    assert "'fly'" in error.message


def test_an_unknown_source_is_refused_with_the_known_ones(longline: Terminal, home: Path) -> None:
    error = failure(longline("run", "nothing"), UnknownSource)

    assert error.name == "nothing"
    assert "n8n" in error.known
    assert "n8n" in str(error)
    assert not (home / "checkpoints").exists()


@pytest.mark.parametrize(
    ("setting", "option", "mentioned"),
    [("speed=5", "--set speed", "things"), ("things=many", "--set things", "'many'")],
)
def test_a_setting_that_does_not_fit_is_refused(
    longline: Terminal, shop: Path, setting: str, option: str, mentioned: str
) -> None:
    error = failure(longline("run", shop, "--set", setting, "--json"), BadOption)

    assert error.option == option
    assert mentioned in error.problem


def test_a_setting_that_does_not_fit_leaves_no_job_behind(longline: Terminal, shop: Path) -> None:
    longline("run", shop, "--set", "speed=5")

    assert longline("jobs", "--json").last == []


@pytest.mark.parametrize(
    ("option", "value", "mentioned"),
    [
        ("--set", "things", "'things'"),
        ("--set", "=5", "'=5'"),
        ("--param", "x", "'x'"),
        ("--rate", "0", "'unlimited'"),
        ("--rate", "-2", "'unlimited'"),
        ("--rate", "nan", "'unlimited'"),
        ("--rate", "fast", "'fast'"),
        ("--limit", "-1", "-1"),
        ("--limit", "0", "0"),
        ("--limit", "ten", "'ten'"),
        ("--burst", "0", "0"),
        ("--concurrency", "0", "0"),
        ("--timeout", "0", "more than 0"),
        ("--engine", "warp", "'celery'"),
    ],
)
def test_a_value_that_an_option_cannot_take_is_refused(
    longline: Terminal, shop: Path, option: str, value: str, mentioned: str
) -> None:
    error = misuse(longline("run", shop, option, value), click.BadParameter)

    assert error.param is not None
    assert error.param.opts == [option]
    assert mentioned in error.message


def test_an_unknown_option_is_refused(longline: Terminal, shop: Path) -> None:
    error = misuse(longline("run", shop, "--wings"), click.NoSuchOption)

    assert error.option_name == "--wings"


@pytest.mark.parametrize(
    ("code", "mentioned"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("import nowhere_at_all", "'nowhere_at_all'"),
        ("def f(:", "SyntaxError"),
        ("x = 1", "0"),
        (f"{HEAD}class A(Source):\n    name = 'a'\nclass B(Source):\n    name = 'b'\n", "2"),
        (f"{HEAD}class A(Source):\n    name = 'a'\n{DISCOVER}", "@layer"),
        (f"{HEAD}class A(Source):\n    name = 'a'\n{LAYER}", "discover"),
        (f"{HEAD}class A(Source):\n{DISCOVER}{LAYER}", "name"),
    ],
)
def test_a_file_without_a_usable_source_is_refused(
    longline: Terminal, tmp_path: Path, code: str, mentioned: str
) -> None:
    path = tmp_path / "odd.py"
    path.write_text(code)

    error = failure(longline("run", path), BadSource)

    assert error.reference == str(path)
    assert mentioned in error.problem


@pytest.mark.parametrize(
    ("reference", "mentioned"),
    [
        ("nothing.py", "file"),
        ("nothing.at.all:Source", "'nothing'"),
        ("json:Decoder", "'Decoder'"),
        ("json:JSONDecoder", "longline.Source"),
    ],
)
def test_a_reference_to_no_source_is_refused(
    longline: Terminal, reference: str, mentioned: str
) -> None:
    error = failure(longline("run", reference), BadSource)

    assert error.reference == reference
    assert mentioned in error.problem


@pytest.mark.parametrize(
    ("text", "place", "mentioned"),
    [
        ("source: n8n\nlimit: [1\n", (3, 1), "YAML"),
        ("source: n8n\nlimitt: 1\n", (2, 1), "limitt"),
        ("- n8n\n", (1, 1), "name"),
    ],
)
def test_a_broken_job_file_is_refused_with_the_place(
    longline: Terminal, tmp_path: Path, text: str, place: tuple[int, int], mentioned: str
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)

    error = failure(longline("run", path), BadFile)

    assert (error.path, error.line, error.column) == (str(path), *place)
    assert mentioned in error.problem
    assert f"{path}:{place[0]}:{place[1]}" in str(error)


def test_a_job_file_of_an_unknown_source_is_refused(longline: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("source: nothing\n")

    assert failure(longline("run", path), UnknownSource).name == "nothing"


def test_a_missing_job_file_is_refused(longline: Terminal) -> None:
    error = failure(longline("run", "job.yaml"), BadFile)

    assert (error.path, error.line) == ("job.yaml", 0)
    assert error.problem == os.strerror(errno.ENOENT)


EVERY = [
    ["jobs"],
    ["records", "list"],
    ["export", "-o", "x.csv"],
    ["report"],
    ["resume"],
    ["run", "shop.py"],
]


@pytest.mark.parametrize("words", EVERY)
@pytest.mark.parametrize(
    ("address", "mentioned"),
    [
        ("nonsense", "URL"),
        ("postgresql://me:secret@127.0.0.1:9/x", "Connection refused"),
        ("mysql://me:secret@db/x", "PostgreSQL"),
        ("sqlite:////nowhere/x.sqlite", "unable to open"),  # SQLite's own words
    ],
)
@pytest.mark.usefixtures("shop")
def test_a_wrong_database_address_is_refused_by_every_command(
    longline: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    address: str,
    mentioned: str,
) -> None:
    monkeypatch.setenv("LONGLINE_DATABASE_URL", address)

    error = failure(longline(*words), StoreUnreachable)

    assert mentioned in error.problem
    assert "LONGLINE_DATABASE_URL" in str(error)
    assert "secret" not in str(error)


@pytest.mark.parametrize("words", EVERY)
@pytest.mark.usefixtures("shop")
def test_an_unwritable_home_is_refused_by_every_command(
    longline: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LONGLINE_HOME", str(tmp_path / "file" / "home"))

    error = failure(longline(*words), HomeUnwritable)

    assert error.path == str(tmp_path / "file" / "home")


@pytest.mark.parametrize("words", EVERY)
@pytest.mark.usefixtures("shop")
def test_a_newer_database_is_refused_by_every_command_and_not_changed(
    longline: Terminal, home: Path, words: list[str]
) -> None:
    longline("jobs")
    with sqlite3.connect(home / "longline.sqlite") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    before = (home / "longline.sqlite").read_bytes()

    error = failure(longline(*words), StoreTooNew)

    assert error.found == "9999"
    assert (home / "longline.sqlite").read_bytes() == before


@pytest.mark.parametrize("words", EVERY)
@pytest.mark.parametrize("damage", [b"Dear diary, " * 999, os.urandom(4096)], ids=["text", "noise"])
@pytest.mark.usefixtures("shop")
def test_a_damaged_database_is_reported_by_every_command(
    longline: Terminal, home: Path, words: list[str], damage: bytes
) -> None:
    home.mkdir()
    (home / "longline.sqlite").write_bytes(damage)

    error = failure(longline(*words), StoreDamaged, 1)

    assert str(home / "longline.sqlite") in error.address
    assert (home / "longline.sqlite").read_bytes() == damage


@pytest.mark.parametrize(
    "words",
    [
        ["jobs", "x"],
        ["resume", "x"],
        ["report", "x"],
        ["records", "list", "--job", "x"],
        ["records", "count", "--job", "x"],
        ["export", "--job", "x"],
    ],
)
def test_an_unknown_job_is_refused(longline: Terminal, words: list[str]) -> None:
    error = failure(longline(*words), UnknownJob)

    assert (error.job, error.fitting) == ("x", 0)
    assert "`longline jobs`" in str(error)


@pytest.mark.parametrize(
    "words",
    [
        ["jobs", ""],
        ["report", ""],
        ["pause", ""],
        ["cancel", ""],
        ["resume", ""],
        ["failures", ""],
        ["retry", ""],
        ["export", "--job", ""],
        ["export", "--drop", "--job", ""],
    ],
)
@pytest.mark.usefixtures("shop")
def test_an_empty_job_name_is_refused(longline: Terminal, words: list[str]) -> None:
    longline("run", "shop.py", "--set", "closed=true")  # any job id begins with an empty name

    error = failure(longline(*words), BadOption)

    assert error.option in {"JOB", "--job"}
    assert "`longline jobs`" in error.problem


def test_resuming_without_an_unfinished_job_is_refused(longline: Terminal) -> None:
    error = failure(longline("resume"), UnknownJob)

    assert (error.job, error.fitting) == ("", 0)


def test_resuming_a_job_that_has_ended_is_refused(longline: Terminal, shop: Path) -> None:
    job = longline("run", shop, "--json").last["job"]

    error = failure(longline("resume", job), NotResumable)

    assert (error.job, error.state, error.action) == (job, "complete", "resume")


def test_an_unknown_checkpoint_is_refused(longline: Terminal) -> None:
    answer = longline("resume", "--checkpoint", "20200101_000000")

    assert failure(answer, UnknownCheckpoint).name == "20200101_000000"


def test_an_unknown_record_is_refused(longline: Terminal) -> None:
    assert failure(longline("records", "show", "x"), UnknownRecord).key == "x"


@pytest.mark.parametrize("place", ["file/x.csv", "file/deeper/x.json", "folder.json"])
def test_an_unwritable_export_is_refused_and_leaves_nothing(
    longline: Terminal, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder.json").mkdir()

    error = failure(longline("export", "-o", place), DestinationUnwritable)

    assert error.path == place
    assert (tmp_path / "file").read_text() == "in the way"
    assert list((tmp_path / "folder.json").iterdir()) == []
    assert {one.name for one in tmp_path.iterdir()} <= {"file", "folder.json", "home"}


def test_an_export_of_no_known_format_is_refused(longline: Terminal) -> None:
    error = failure(longline("export", "-o", "x.doc"), BadOption)

    assert error.option == "--output"
    assert [one for one in ("x.doc", *FORMATS, "--format") if one not in error.problem] == []


def test_a_bad_variable_is_refused(longline: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGLINE_CONCURRENCY", "many")

    assert failure(longline("jobs"), BadOption).option == "LONGLINE_CONCURRENCY"


def test_a_home_that_is_a_file_is_refused(longline: Terminal, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    error = misuse(longline("jobs", "--home", tmp_path / "file"), click.BadParameter)

    assert error.param is not None
    assert error.param.opts == ["--home"]
    assert str(tmp_path / "file") in error.message


@pytest.mark.parametrize(
    ("given", "proposed"),
    [
        ("http://shop.test/list", "http://shop.test/list"),
        ("https://shop.test/openapi.yaml", "https://shop.test/openapi.yaml"),
        ("https://me:secret@shop.test/", "'https://me:***@shop.test/'"),
        ("www.shop.test", "https://www.shop.test"),
    ],
)
@pytest.mark.parametrize("command", [["run"], ["sources", "check"], ["plan"]], ids=" ".join)
def test_the_address_of_a_site_leads_to_sources_new(
    longline: Terminal, command: list[str], given: str, proposed: str
) -> None:
    error = failure(longline(*command, given), BadSource)

    assert f"longline sources new {proposed}" in str(error)
    assert "secret" not in str(error)


BROKEN_LIST = """
from longline import Item, Source, layer
from longline.core.errors import DiscoveryFailed


class Shop(Source):
    name = "shop"

    async def discover(self, visit):
        raise DiscoveryFailed("shop", "the list is empty")
        yield Item("1", "https://a.test")

    @layer()
    async def page(self, visit):
        return {}
"""


@pytest.mark.parametrize("words", [["run"], ["run", "b.py"], ["sources", "check"], ["plan"]])
def test_a_failed_discovery_is_reported_once(
    longline: Terminal, tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "shop.py").write_text(BROKEN_LIST)
    (tmp_path / "b.py").write_text(BROKEN_LIST.replace("shop", "b").replace("the list", "the map"))
    answer = longline(*words, "shop.py")

    printed = answer.out + answer.err
    assert answer.code == 1
    assert printed.count("the list is empty") == 1
    assert "shop: shop" not in printed


def test_the_reason_of_a_failed_job_names_source_and_problem_once(
    longline: Terminal, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(BROKEN_LIST)

    reason = longline("run", "shop.py", "--json").last["reason"]

    assert (reason.count("shop"), reason.count("the list is empty")) == (1, 1)
