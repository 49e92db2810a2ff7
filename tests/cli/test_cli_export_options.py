"""longline export: formats, columns, partitions, increments and redaction, as a user asks."""

from __future__ import annotations

import csv
import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]  # ships no types
import pytest

from longline.core.errors import BadOption
from longline.export.export import ExportRequest
from longline.export.tasks import prepare_for_task
from tests.cli.terminal import SHOP, Terminal

MANIFEST = """
manifest: api
name: private
about: It is not used, and only half written.
auth: {kind: bearer, token: env:SHOP_TOKEN, hosts: [api.test]}
"""
OURSELVES = (str(Path(sys.executable).with_name("longline")), "export", "-o", "-")
PAPER = """
def write(rows, target):
    lines = [row["key"] for row in rows()]
    target.write("+".join(lines).encode())
    return len(lines)
"""


@pytest.fixture
def collected(longline: Terminal, shop: Path) -> Terminal:
    """A home with three records."""
    assert longline("run", shop).code == 0
    return longline


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_suffix_selects_the_format_and_a_schema_is_written(
    collected: Terminal, tmp_path: Path
) -> None:
    answer = collected("export", "-o", "a.parquet")

    assert all(text in answer.out for text in ("3", "a.parquet", "(parquet)"))
    assert pq.read_table(tmp_path / "a.parquet").num_rows == 3
    assert json.loads((tmp_path / "a.parquet.schema.json").read_text())["type"] == "object"


def test_the_schema_can_be_left_out(collected: Terminal, tmp_path: Path) -> None:
    collected("export", "-o", "a.csv", "--no-schema")

    assert list(tmp_path.glob("a.*")) == [tmp_path / "a.csv"]


def test_columns_filters_order_and_limit_go_together(collected: Terminal, tmp_path: Path) -> None:
    options = ("--columns", "key,title", "--where", "price=5", "--order", "-@key", "--limit", "2")
    collected("export", "-o", "a.csv", *options)

    with (tmp_path / "a.csv").open(newline="") as text:
        assert list(csv.reader(text)) == [
            ["key", "title"],
            ["2", "Thing [/b] 2"],
            ["1", "Thing [/b] 1"],
        ]


def test_partitions_are_reported(collected: Terminal, tmp_path: Path) -> None:
    options = ("--format", "jsonl", "--partition", "title")
    answer = collected("export", "-o", "out", *options, "--json")

    assert (answer.last["records"], answer.last["parts"]) == (3, 3)
    assert len(list((tmp_path / "out").glob("title=*/part-0.jsonl"))) == 3


def test_an_incremental_export_has_only_new_records(
    collected: Terminal, shop: Path, tmp_path: Path
) -> None:
    options = ("export", "-o", "a.jsonl", "--incremental", "daily", "--no-schema")
    first = collected(*options, "--json")
    nothing = collected(*options)
    collected("run", shop, "--set", "things=4")
    second = collected(*options, "--json")

    assert (first.last["path"], first.last["records"]) == ("a-0001.jsonl", 3)
    assert (nothing.code, len(nothing.out.splitlines())) == (0, 1)
    assert "daily" in nothing.out
    assert (second.last["path"], second.last["records"]) == ("a-0002.jsonl", 1)
    assert [one["key"] for one in lines(tmp_path / "a-0002.jsonl")] == ["3"]


def test_a_failed_incremental_export_is_repeated(collected: Terminal, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    options = ("--incremental", "daily")

    failed = collected("export", "-o", "file/a.jsonl", *options)
    again = collected("export", "-o", "a.jsonl", *options, "--json")

    assert failed.code == 2
    assert again.last["records"] == 3


def test_the_limit_of_an_increment_takes_the_next_ones(collected: Terminal, tmp_path: Path) -> None:
    for _ in range(2):
        collected("export", "-o", "a.jsonl", "--incremental", "bit", "--limit", "2")

    assert [one["key"] for one in lines(tmp_path / "a-0001.jsonl")] == ["0", "1"]
    assert [one["key"] for one in lines(tmp_path / "a-0002.jsonl")] == ["2"]


def test_an_incremental_export_to_stdout_moves_the_cursor(collected: Terminal) -> None:
    first = collected("export", "-o", "-", "--incremental", "daily")
    second = collected("export", "-o", "-", "--incremental", "daily")

    assert (first.out.count("\n"), second.out) == (3, "")


def test_redaction_covers_secrets_of_the_home(
    longline: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaky.py").write_text(SHOP.replace("=1+1", "ann@example.com, tok-hush-hush"))
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "private.yaml").write_text(MANIFEST)
    monkeypatch.setenv("SHOP_TOKEN", "tok-hush-hush")
    longline("run", tmp_path / "leaky.py", "--set", "things=1")

    shown = longline("export", "-o", "a.jsonl", "--redact")
    answer = longline("export", "-o", "a.jsonl", "--redact", "--json")

    assert lines(tmp_path / "a.jsonl")[0]["data"]["tax"] == "[e-mail], [secret]"
    assert answer.last["redacted"] == {"e-mail": 1, "secret": 1}
    assert all(kind in shown.out for kind in ("e-mail", "secret"))


def test_a_file_that_cannot_be_read_stops_a_redaction(collected: Terminal, tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "broken.yaml").write_text("auth: {token: ")

    answer = collected("export", "-o", "a.jsonl", "--redact")

    assert answer.code == 2
    assert "broken.yaml" in answer.err
    assert list(tmp_path.glob("a.*")) == []


def test_a_column_that_no_record_has_is_noted(collected: Terminal) -> None:
    shown = collected("export", "-o", "a.csv", "--columns", "key,colour")
    answer = collected("export", "-o", "a.csv", "--columns", "key,colour", "--json")

    (note,) = answer.last["notes"]
    assert "colour" in note
    assert note in shown.out


def test_a_package_adds_a_format(
    collected: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "paper-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: paper\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[longline.exporters]\npaper = paper_code:write\n")
    (tmp_path / "paper_code.py").write_text(PAPER)

    answer = collected("export", "-o", "a.paper", "--format", "paper", "--json")

    assert (answer.last["records"], answer.last["format"]) == (3, "paper")
    assert (tmp_path / "a.paper").read_text() == "0+1+2"


@pytest.mark.parametrize(
    ("options", "option", "mentioned"),
    [
        (["--format", "xml"], "--format", ["'xml'", "jsonl", "csv", "parquet", "xlsx", "sqlite"]),
        (["-o", "x.doc"], "--output", ["x.doc", "jsonl", "csv", "parquet"]),
        (["--secret", "hunter22"], "--secret", ["env:NAME"]),
        (["-o", "ftp://me:hunter22@h/x.csv"], "--output", ["ftp://", "s3://", "postgresql://"]),
        (["--table", "t"], "--table", ["file"]),
        (["-o", "-", "--table", "t"], "--table", ["output"]),
        (["-o", "-", "--partition", "a"], "--partition", ["output"]),
        (["-o", "-", "--secret", "env:A"], "--secret", ["output"]),
        (["-o", "-", "--endpoint", "http://h"], "--endpoint", ["output"]),
        (["-o", "a.csv", "--endpoint", "http://h"], "--endpoint", ["file"]),
        (["--ignore-unreadable"], "--ignore-unreadable", ["--redact"]),
        (["--columns", "a,,b"], "--columns", ["''"]),
        (["--incremental", "x", "--as-of", "2026-01-01"], "--incremental", ["--as-of"]),
        (["--where", "nonsense"], "--where", ["'nonsense'"]),
    ],
)
def test_options_that_do_not_fit_are_refused_in_one_line(
    longline: Terminal, options: list[str], option: str, mentioned: list[str]
) -> None:
    answer = longline("export", *options)

    assert answer.code == 2
    assert isinstance(answer.error, BadOption)
    assert answer.error.option == option
    assert [text for text in mentioned if text not in answer.error.problem] == []
    assert answer.err.count("\n") == 1
    assert "hunter22" not in answer.err


@pytest.mark.parametrize(
    ("options", "mentioned"),
    [
        (("--source", "shopp"), ("'shopp'", "'shop'")),
        (("--source", "xyz"), ("'xyz'",)),
    ],
)
def test_a_misspelled_source_replaces_nothing(
    collected: Terminal, tmp_path: Path, options: tuple[str, str], mentioned: tuple[str, ...]
) -> None:
    collected("export", "-o", "a.csv")
    before = (tmp_path / "a.csv").read_bytes()

    answer = collected("export", "-o", "a.csv", *options)

    assert answer.code == 2
    assert isinstance(answer.error, BadOption)
    assert answer.error.option == options[0]
    assert [text for text in mentioned if text not in answer.error.problem] == []
    assert (tmp_path / "a.csv").read_bytes() == before


def test_an_export_without_records_has_a_note(collected: Terminal) -> None:
    shown = collected("export", "-o", "a.csv", "--where", "price>1000")
    answer = collected("export", "-o", "a.csv", "--where", "price>1000", "--json")

    (note,) = answer.last["notes"]
    assert (answer.code, answer.last["records"]) == (0, 0)
    assert note in shown.out


@pytest.fixture
def unreadable(collected: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A home with records, and a secret that is nowhere."""
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "private.yaml").write_text(MANIFEST)
    monkeypatch.delenv("SHOP_TOKEN", raising=False)
    return collected


def test_nothing_is_redacted_without_a_secret_that_could_be_written(
    unreadable: Terminal, tmp_path: Path
) -> None:
    answer = unreadable("export", "-o", "a.jsonl", "--redact")

    assert answer.code == 2
    assert isinstance(answer.error, BadOption)
    assert answer.error.option == "--redact"
    assert "env:SHOP_TOKEN" in answer.error.problem
    assert "--ignore-unreadable" in answer.error.problem
    assert list(tmp_path.glob("a.*")) == []


def test_a_secret_that_is_ignored_is_noted(unreadable: Terminal) -> None:
    answer = unreadable("export", "-o", "a.jsonl", "--redact", "--ignore-unreadable", "--json")

    (note,) = answer.last["notes"]
    assert answer.code == 0
    assert "env:SHOP_TOKEN" in note


def test_replacements_are_the_same_in_every_export(
    longline: Terminal, tmp_path: Path, home: Path
) -> None:
    keyed = SHOP.replace("Item(str(number)", 'Item(f"{number}@example.com"')
    (tmp_path / "mails.py").write_text(keyed)
    longline("run", tmp_path / "mails.py")

    for name in ("a.jsonl", "b.jsonl"):
        longline("export", "-o", name, "--redact", "--no-schema")

    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert len({one["key"] for one in lines(tmp_path / "a.jsonl")}) == 3
    assert "@" not in (tmp_path / "a.jsonl").read_text()
    assert (home / "redaction.key").stat().st_mode & 0o077 == 0


def test_the_report_of_an_export_to_standard_output_goes_to_stderr(collected: Terminal) -> None:
    shown = collected("export", "-o", "-", "--redact")
    as_json = collected("export", "-o", "-", "--redact", "--json")

    assert shown.out.count("\n") == as_json.out.count("\n") == 3
    assert "3" in shown.err
    assert (json.loads(as_json.err)["records"], json.loads(as_json.err)["redacted"]) == (3, {})


@pytest.mark.parametrize("form", ["jsonl", "csv", "xlsx"])
def test_a_full_standard_output_is_one_line(collected: Terminal, form: str) -> None:
    del collected  # its home is where the command looks

    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*OURSELVES, "--format", form], stdout=full, stderr=-1, check=False)

    assert done.returncode == 1
    assert os.strerror(errno.ENOSPC).encode() in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_closed_pipe_ends_the_command_quietly(collected: Terminal, form: str) -> None:
    del collected

    process = subprocess.Popen([*OURSELVES, "--format", form], stdout=-1, stderr=-1)
    with process as running:
        assert running.stdout
        assert running.stderr
        running.stdout.close()
        result = running.stderr.read()

    assert (process.returncode, result) == (0, b"")


@pytest.mark.parametrize("output", ["a.foo", "s3://[x/a.csv", "ftp://x/a.csv", "a.xlsx.gz"])
def test_an_invalid_destination_names_its_option(output: str) -> None:
    with pytest.raises(BadOption) as result:
        prepare_for_task(ExportRequest(output), option="--export", by_worker=False)

    assert result.value.option == "--export"
    assert "--format" not in str(result.value)
    assert "--output" not in str(result.value)
