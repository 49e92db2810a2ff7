"""longline export: formats, columns, partitions, increments and redaction, as a user asks."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]  # ships no types
import pytest

from cli.terminal import SHOP, Terminal
from longline.errors import BadOption
from longline.exports.destinations import Wish
from longline.exports.ordered import for_later

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


def test_the_ending_says_the_format_and_a_schema_stands_beside(
    collected: Terminal, tmp_path: Path
) -> None:
    answer = collected("export", "-o", "a.parquet")

    assert answer.out == "3 records written to a.parquet (parquet)\n"
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


def test_a_folder_of_parts_is_told(collected: Terminal, tmp_path: Path) -> None:
    options = ("--format", "jsonl", "--partition", "title")
    answer = collected("export", "-o", "out", *options, "--json")

    assert (answer.last["records"], answer.last["parts"]) == (3, 3)
    assert len(list((tmp_path / "out").glob("title=*/part-0.jsonl"))) == 3


def test_an_increment_holds_what_is_new_and_says_when_nothing_is(
    collected: Terminal, shop: Path, tmp_path: Path
) -> None:
    options = ("export", "-o", "a.jsonl", "--incremental", "daily", "--no-schema")
    first = collected(*options)
    nothing = collected(*options)
    collected("run", shop, "--set", "things=4")
    second = collected(*options, "--json")

    assert first.out == "3 records written to a-0001.jsonl (jsonl)\n"
    assert nothing.out == "nothing is new since the last export 'daily'\n"
    assert (second.last["path"], second.last["records"]) == ("a-0002.jsonl", 1)
    assert [one["key"] for one in lines(tmp_path / "a-0002.jsonl")] == ["3"]


def test_an_increment_that_cannot_be_written_is_written_next_time(
    collected: Terminal, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    options = ("--incremental", "daily")

    failed = collected("export", "-o", "file/a.jsonl", *options)
    again = collected("export", "-o", "a.jsonl", *options)

    assert failed.code == 2
    assert again.out.startswith("3 records written")


def test_the_limit_of_an_increment_takes_the_next_ones(collected: Terminal, tmp_path: Path) -> None:
    for _ in range(2):
        collected("export", "-o", "a.jsonl", "--incremental", "bit", "--limit", "2")

    assert [one["key"] for one in lines(tmp_path / "a-0001.jsonl")] == ["0", "1"]
    assert [one["key"] for one in lines(tmp_path / "a-0002.jsonl")] == ["2"]


def test_an_increment_to_standard_output_is_marked_too(collected: Terminal) -> None:
    first = collected("export", "-o", "-", "--incremental", "daily")
    second = collected("export", "-o", "-", "--incremental", "daily")

    assert (first.out.count("\n"), second.out) == (3, "")


def test_redaction_tells_what_it_replaced_and_knows_the_secrets_of_the_home(
    longline: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaky.py").write_text(SHOP.replace("=1+1", "ann@example.com, tok-hush-hush"))
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "private.yaml").write_text(MANIFEST)
    monkeypatch.setenv("SHOP_TOKEN", "tok-hush-hush")
    longline("run", tmp_path / "leaky.py", "--set", "things=1")

    answer = longline("export", "-o", "a.jsonl", "--redact")

    assert lines(tmp_path / "a.jsonl")[0]["data"]["tax"] == "[e-mail], [secret]"
    assert answer.out.endswith("\n  replaced: e-mail 1, secret 1\n")


def test_nothing_is_redacted_by_halves_when_a_file_cannot_be_read(
    collected: Terminal, tmp_path: Path
) -> None:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "broken.yaml").write_text("auth: {token: ")

    answer = collected("export", "-o", "a.jsonl", "--redact")

    assert answer.code == 2
    assert "broken.yaml" in answer.err
    assert list(tmp_path.glob("a.*")) == []


def test_what_no_record_has_is_told(collected: Terminal) -> None:
    answer = collected("export", "-o", "a.csv", "--columns", "key,colour")

    assert answer.out.endswith("\n  note: no record has colour\n")


def test_a_package_adds_a_format(
    collected: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "paper-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: paper\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[longline.exporters]\npaper = paper_code:write\n")
    (tmp_path / "paper_code.py").write_text(PAPER)

    answer = collected("export", "-o", "a.paper", "--format", "paper")

    assert answer.out == "3 records written to a.paper (paper)\n"
    assert (tmp_path / "a.paper").read_text() == "0+1+2"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--format", "xml"], "--format: 'xml' is none of jsonl, json, csv, parquet, xlsx, sqlite"),
        (["-o", "x.doc"], "--output: x.doc ends in none of jsonl, json, csv, parquet"),
        (["--secret", "hunter22"], "--secret: a secret is never written here: write env:NAME"),
        (["-o", "ftp://me:hunter22@h/x.csv"], "--output: ftp://… is neither a file nor"),
        (["--table", "t"], "--table: that does not go with a file"),
        (["-o", "-", "--table", "t"], "--table: that does not go with standard output"),
        (["-o", "-", "--partition", "a"], "--partition: that does not go with standard output"),
        (["-o", "-", "--secret", "env:A"], "--secret: that does not go with standard output"),
        (["-o", "-", "--endpoint", "http://h"], "--endpoint: that does not go with standard"),
        (["-o", "a.csv", "--endpoint", "http://h"], "--endpoint: that does not go with a file"),
        (["--ignore-unreadable"], "--ignore-unreadable: that goes only with --redact"),
        (["--columns", "a,,b"], "--columns: '' is no field"),
        (["--incremental", "x", "--as-of", "2026-01-01"], "--incremental: that does not go with"),
        (["--where", "nonsense"], "'nonsense' is no condition"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    longline: Terminal, options: list[str], told: str
) -> None:
    answer = longline("export", *options)

    assert answer.code == 2
    assert told in answer.err
    assert answer.err.count("\n") == 1
    assert "hunter22" not in answer.err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--source", "shopp"), "--source: no record in this home is of 'shopp'"),
        (("--source", "shopp"), "did you mean 'shop'?"),
        (("--source", "xyz"), "--source: no record in this home is of 'xyz'"),
        (("--grade", "excelent"), "--grade: 'excelent' is none of Excellent"),
    ],
)
def test_a_misspelled_source_or_grade_replaces_nothing(
    collected: Terminal, tmp_path: Path, options: tuple[str, str], told: str
) -> None:
    collected("export", "-o", "a.csv")
    before = (tmp_path / "a.csv").read_bytes()

    answer = collected("export", "-o", "a.csv", *options)

    assert answer.code == 2
    assert told in answer.err
    assert (tmp_path / "a.csv").read_bytes() == before


def test_an_export_without_records_says_so(collected: Terminal) -> None:
    answer = collected("export", "-o", "a.csv", "--where", "price>1000")

    assert answer.code == 0
    assert answer.out.startswith("0 records written to a.csv (csv)\n  note: no record fits")


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
    assert "--redact: env:SHOP_TOKEN cannot be read" in answer.err
    assert "--ignore-unreadable" in answer.err
    assert list(tmp_path.glob("a.*")) == []


def test_whoever_goes_on_without_a_secret_is_told_which(unreadable: Terminal) -> None:
    answer = unreadable("export", "-o", "a.jsonl", "--redact", "--ignore-unreadable")

    assert answer.code == 0
    assert "note: env:SHOP_TOKEN cannot be read" in answer.out


def test_stand_ins_are_the_same_in_every_export_of_a_home(
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


def test_beside_records_on_standard_output_the_rest_is_told_on_the_other(
    collected: Terminal,
) -> None:
    told = collected("export", "-o", "-", "--redact")
    as_json = collected("export", "-o", "-", "--json")

    assert told.out.count("\n") == as_json.out.count("\n") == 3
    assert told.err.endswith("\n  replaced: nothing\n")
    assert json.loads(as_json.err)["records"] == 3


@pytest.mark.parametrize("form", ["jsonl", "csv", "xlsx"])
def test_a_full_standard_output_is_one_sentence(collected: Terminal, form: str) -> None:
    del collected  # its home is where the command looks

    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*OURSELVES, "--format", form], stdout=full, stderr=-1, check=False)

    assert done.returncode == 1
    assert done.stderr.startswith(b"Error: standard output cannot be written (")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_reader_that_has_had_enough_ends_it_quietly(collected: Terminal, form: str) -> None:
    del collected

    process = subprocess.Popen([*OURSELVES, "--format", form], stdout=-1, stderr=-1)
    with process as running:
        assert running.stdout
        assert running.stderr
        running.stdout.close()
        told = running.stderr.read()

    assert (process.returncode, told) == (0, b"")


@pytest.mark.parametrize("output", ["a.foo", "s3://[x/a.csv", "ftp://x/a.csv", "a.xlsx.gz"])
def test_a_place_that_will_not_do_is_told_by_the_option_that_names_it(output: str) -> None:
    with pytest.raises(BadOption) as told:
        for_later(Wish(output), option="--export", by_worker=False)

    assert told.value.option == "--export"
    assert "--format" not in str(told.value)
    assert "--output" not in str(told.value)
