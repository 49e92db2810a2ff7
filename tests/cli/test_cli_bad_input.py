"""Bad input: one clear sentence on stderr, the right exit code, no traceback, nothing lost."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from cli.terminal import Answer, Terminal

LAYER = "    @layer()\n    async def page(self, visit):\n        return {}\n"
DISCOVER = "    async def discover(self, visit):\n        yield Item('1', 'https://a.test')\n"
HEAD = "from longline import Item, Source, layer\n"

NEITHER = "it names neither a subclass of longline.Source, nor a function, nor a Scrapy spider"


def sentence(answer: Answer, code: int = 2) -> str:
    """Return the one line a command left on stderr; there is nothing else."""
    (line,) = answer.err.splitlines()
    assert answer.code == code
    assert answer.out == ""
    return line


def usage(answer: Answer) -> str:
    """Return the last line of what click says about wrong usage."""
    assert answer.code == 2
    assert answer.err.startswith("Usage: longline")
    assert "Traceback" not in answer.err
    return answer.err.splitlines()[-1]


def test_an_unknown_command_is_told(longline: Terminal) -> None:
    assert usage(longline("fly")) == "Error: No such command 'fly'."


def test_an_unknown_source_is_told_with_those_there_are(longline: Terminal, home: Path) -> None:
    line = sentence(longline("run", "nothing"))

    assert line.startswith("longline: there is no source called 'nothing'; known sources: n8n")
    assert not (home / "checkpoints").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--set", "speed=5"], "--set speed: there is no such setting; settings of shop: "),
        (["--set", "things=many"], "--set things: must be a whole number, not 'many'; settings of"),
    ],
)
def test_a_setting_that_does_not_fit_is_told(
    longline: Terminal, shop: Path, words: list[str], problem: str
) -> None:
    line = sentence(longline("run", shop, *words, "--json"))

    assert line.startswith(f"longline: {problem}")


def test_a_setting_that_does_not_fit_leaves_no_job_behind(longline: Terminal, shop: Path) -> None:
    longline("run", shop, "--set", "speed=5")

    assert longline("jobs", "--json").last == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--set", "things"], "'things' is not of the form name=value"),
        (["--set", "=5"], "'=5' is not of the form name=value"),
        (["--param", "x"], "'x' is not of the form name=value"),
        (["--rate", "0"], "must be more than 0; for no limit at all say 'unlimited'"),
        (["--rate", "-2"], "must be more than 0; for no limit at all say 'unlimited'"),
        (["--rate", "nan"], "must be more than 0; for no limit at all say 'unlimited'"),
        (["--rate", "fast"], "'fast' is neither a number nor 'unlimited' nor 'auto'"),
        (["--limit", "-1"], "-1 is not in the range 1<=x<="),
        (["--limit", "0"], "0 is not in the range 1<=x<="),
        (["--limit", "ten"], "'ten' is not a valid integer"),
        (["--burst", "0"], "0 is not in the range 1<=x<="),
        (["--concurrency", "0"], "0 is not in the range 1<=x<=1000"),
        (["--timeout", "0"], "0.0 is not in the range x>0"),
        (["--engine", "warp"], "'warp' is not one of 'local', 'celery'"),
        (["--wings"], "No such option"),
    ],
)
def test_an_option_that_cannot_be_used_is_told(
    longline: Terminal, shop: Path, words: list[str], problem: str
) -> None:
    assert problem in usage(longline("run", shop, *words))


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("def f(:", "SyntaxError: invalid syntax"),
        ("x = 1", "it defines 0 subclasses of longline.Source, and must define one"),
        (
            f"{HEAD}class A(Source):\n    name = 'a'\nclass B(Source):\n    name = 'b'\n",
            "it defines 2 subclasses of longline.Source, and must define one",
        ),
        (f"{HEAD}class A(Source):\n    name = 'a'\n{DISCOVER}", "A has no @layer"),
        (f"{HEAD}class A(Source):\n    name = 'a'\n{LAYER}", "A has no discover()"),
        (f"{HEAD}class A(Source):\n{DISCOVER}{LAYER}", "A has no name"),
    ],
)
def test_a_file_without_a_usable_source_is_told(
    longline: Terminal, tmp_path: Path, code: str, problem: str
) -> None:
    path = tmp_path / "odd.py"
    path.write_text(code)

    line = sentence(longline("run", path))

    assert line.startswith(f"longline: {path} cannot be used as a source: {problem}")


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("nothing.py", "there is no such file"),
        ("nothing.at.all:Source", "No module named 'nothing'"),
        ("json:Decoder", "there is no 'Decoder' in json"),
        ("json:JSONDecoder", NEITHER),
    ],
)
def test_a_reference_to_no_source_is_told(longline: Terminal, reference: str, problem: str) -> None:
    line = sentence(longline("run", reference))

    assert line == f"longline: {reference} cannot be used as a source: {problem}"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("source: n8n\nlimit: [1\n", ":3:1: not valid YAML: "),
        ("source: n8n\nlimitt: 1\n", ":2:1: limitt: there is no such setting; "),
        ("- n8n\n", ":1:1: a job file holds names and values"),
        ("source: nothing\n", None),
    ],
)
def test_a_broken_job_file_is_told_with_the_place(
    longline: Terminal, tmp_path: Path, text: str, place: str | None
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)

    line = sentence(longline("run", path))

    told = f"{path}{place}" if place else "there is no source called 'nothing'"
    assert line.startswith(f"longline: {told}")


def test_a_job_file_that_is_not_there_is_told(longline: Terminal) -> None:
    assert sentence(longline("run", "job.yaml")) == "longline: job.yaml: No such file or directory"


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
    ("address", "problem"),
    [
        ("nonsense", "that is not an address"),
        ("postgresql://me:secret@127.0.0.1:9/x", "nothing answers at 127.0.0.1:9"),
        ("mysql://me:secret@db/x", "SQLite or PostgreSQL"),
        ("sqlite:////nowhere/x.sqlite", "unable to open database file"),
    ],
)
@pytest.mark.usefixtures("shop")
def test_a_wrong_database_address_is_told_by_every_command(
    longline: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    address: str,
    problem: str,
) -> None:
    monkeypatch.setenv("LONGLINE_DATABASE_URL", address)

    line = sentence(longline(*words))

    assert problem in line
    assert "LONGLINE_DATABASE_URL" in line
    assert "secret" not in line


@pytest.mark.parametrize("words", EVERY)
@pytest.mark.usefixtures("shop")
def test_an_unwritable_home_is_told_by_every_command(
    longline: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LONGLINE_HOME", str(tmp_path / "file" / "home"))

    line = sentence(longline(*words))

    assert line.startswith(f"longline: the data folder {tmp_path / 'file' / 'home'} cannot be")


@pytest.mark.parametrize("words", EVERY)
@pytest.mark.usefixtures("shop")
def test_a_newer_database_is_told_by_every_command_and_left_alone(
    longline: Terminal, home: Path, words: list[str]
) -> None:
    longline("jobs")
    with sqlite3.connect(home / "longline.sqlite") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    before = (home / "longline.sqlite").read_bytes()

    line = sentence(longline(*words))

    assert "is at version 9999, newer than this longline knows" in line
    assert (home / "longline.sqlite").read_bytes() == before


@pytest.mark.parametrize("words", EVERY)
@pytest.mark.parametrize(
    ("damage", "problem"),
    [(b"Dear diary, " * 999, "not a database"), (os.urandom(4096), "not a database")],
    ids=["text", "noise"],
)
@pytest.mark.usefixtures("shop")
def test_a_damaged_database_is_told_by_every_command(
    longline: Terminal, home: Path, words: list[str], damage: bytes, problem: str
) -> None:
    home.mkdir()
    (home / "longline.sqlite").write_bytes(damage)

    assert problem in sentence(longline(*words), 1)
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
def test_an_unknown_job_is_told(longline: Terminal, words: list[str]) -> None:
    assert sentence(longline(*words)) == (
        "longline: there is no job 'x' here; `longline jobs` lists them"
    )


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
def test_an_empty_name_stands_for_no_job(longline: Terminal, words: list[str]) -> None:
    longline("run", "shop.py", "--set", "closed=true")  # a single job begins with nothing, too

    assert sentence(longline(*words)) == (
        "longline: JOB: it is empty; say which one, `longline jobs` lists them"
    )


def test_resuming_when_nothing_is_unfinished_is_told(longline: Terminal) -> None:
    assert "unfinished" in sentence(longline("resume"))


def test_resuming_what_has_ended_is_told(longline: Terminal, shop: Path) -> None:
    job = longline("run", shop, "--json").last["job"]

    assert sentence(longline("resume", job)) == (
        f"longline: job {job} is complete: nothing is left to resume; start a new one with run"
    )


def test_an_unknown_checkpoint_is_told(longline: Terminal) -> None:
    line = sentence(longline("resume", "--checkpoint", "20200101_000000"))

    assert line.startswith("longline: there is no checkpoint '20200101_000000' here")


def test_an_unknown_record_is_told(longline: Terminal) -> None:
    assert sentence(longline("records", "show", "x")).startswith(
        "longline: there is no record 'x' here"
    )


@pytest.mark.parametrize("place", ["file/x.csv", "file/deeper/x.json", "folder.json"])
def test_an_export_to_where_nothing_can_be_written_is_told(
    longline: Terminal, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder.json").mkdir()

    line = sentence(longline("export", "-o", place))

    assert line.startswith(f"longline: {place} cannot be written (")
    assert line.endswith("nothing was left behind")


def test_an_export_of_no_known_format_is_told(longline: Terminal) -> None:
    assert sentence(longline("export", "-o", "x.doc")) == (
        "longline: --output: x.doc ends in none of "
        "jsonl, json, csv, parquet, xlsx, sqlite, duckdb; add --format"
    )


def test_a_bad_variable_is_told(longline: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGLINE_CONCURRENCY", "many")

    assert sentence(longline("jobs")).startswith("longline: LONGLINE_CONCURRENCY: Input should be")


def test_a_home_that_is_a_file_is_told(longline: Terminal, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    assert "is a file" in usage(longline("jobs", "--home", tmp_path / "file"))


@pytest.mark.parametrize(
    ("given", "proposed"),
    [
        ("http://shop.test/list", "http://shop.test/list"),
        ("https://shop.test/openapi.yaml", "https://shop.test/openapi.yaml"),
        ("https://me:secret@shop.test/", "'https://me:***@shop.test/'"),
        ("www.shop.test", "https://www.shop.test"),
        ("shop.test/list", "https://shop.test/list"),
    ],
)
@pytest.mark.parametrize("command", [["run"], ["sources", "check"], ["plan"]], ids=" ".join)
def test_the_address_of_a_site_leads_to_sources_new(
    longline: Terminal, command: list[str], given: str, proposed: str
) -> None:
    line = sentence(longline(*command, given))

    assert f"longline sources new {proposed}" in line
    assert "secret" not in line


BROKEN_LIST = """
from longline import Item, Source, layer
from longline.errors import DiscoveryFailed


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
def test_a_discovery_that_fails_says_so_once(
    longline: Terminal, tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "shop.py").write_text(BROKEN_LIST)
    (tmp_path / "b.py").write_text(BROKEN_LIST.replace("shop", "b"))
    answer = longline(*words, "shop.py")

    said = answer.out + answer.err
    assert answer.code == 1
    assert said.count("shop could not list its items") == 1
    assert "shop: shop" not in said


def test_the_reason_of_a_failed_job_says_it_once(longline: Terminal, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(BROKEN_LIST)

    report = longline("run", "shop.py", "--json").last

    assert report["reason"] == "shop could not list its items: the list is empty"
