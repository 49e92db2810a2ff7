"""A file is there whole or not at all, and the one before it stays until then."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pytest

from longline.core.errors import BadOption, DestinationUnwritable, MissingExtra
from longline.export.atomic_files import DestinationFull, atomic_write
from longline.export.columns import Row
from longline.export.export import ExportRequest, ExportResult, export, export_stream
from longline.export.formats import FORMATS
from tests.export.sample_rows import Tap, export_to, rows

_NOBODY = 65534


@pytest.mark.parametrize(
    ("name", "form"),
    [
        *[("a.jsonl", "jsonl"), ("a.NDJSON", "jsonl"), ("a.json", "json"), ("a.b.csv", "csv")],
        *[("a.jsonl.gz", "jsonl.gz"), ("a.csv.zst", "csv.zst"), ("a.db", "sqlite")],
    ],
)
def test_the_ending_says_the_format(tmp_path: Path, name: str, form: str) -> None:
    path = tmp_path / name

    assert export_to(path, Tap(3)) == ExportResult(str(path), form, 3)


def test_the_format_can_be_said(tmp_path: Path) -> None:
    export_to(tmp_path / "records.txt", Tap(2), form="json")

    assert len(json.loads((tmp_path / "records.txt").read_text())) == 2


@pytest.mark.parametrize("name", ["records", "records.doc", "records.gz", "records.doc.gz"])
def test_an_unknown_suffix_is_refused_with_the_known_ones(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadOption) as refused:
        export_to(tmp_path / name, Tap(1))

    assert name in refused.value.problem
    assert ", ".join(FORMATS) in refused.value.problem
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_format_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(BadOption) as refused:
        export_to(tmp_path / "a.json", Tap(1), form="xml")

    assert refused.value.option == "--format"
    assert "'xml'" in refused.value.problem
    assert "jsonl, json, csv" in refused.value.problem


def test_missing_folders_are_created_only_on_request(tmp_path: Path) -> None:
    with pytest.raises(DestinationUnwritable):
        export_to(tmp_path / "a" / "b" / "c.csv", Tap(1))

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("partition", [None, "key"])
def test_folders_on_the_way_are_made_on_request(tmp_path: Path, partition: str | None) -> None:
    place = tmp_path / "a" / "b" / "c.csv"

    export(ExportRequest(str(place), partition=partition, makes_folder=True), Tap(1))

    assert place.exists()


@pytest.mark.parametrize("form", FORMATS)
def test_an_export_that_fails_leaves_the_old_file_and_no_litter(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"records.{form}"
    path.write_text("the old one")

    with pytest.raises(ZeroDivisionError):
        export_to(path, Tap(1000, fails_at=500))

    assert path.read_text() == "the old one"
    assert list(tmp_path.iterdir()) == [path]


def test_the_old_file_is_there_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text("the old one")

    with atomic_write(path) as target:
        target.write(b"half")
        target.flush()
        in_between = path.read_text()
    after = path.read_text()

    assert (in_between, after) == ("the old one", "half")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("place", ["file/records.json", "file/deeper/records.json", "folder", "."])
def test_a_destination_that_cannot_be_written_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder").mkdir()

    with pytest.raises(DestinationUnwritable) as raised:
        export_to(tmp_path / place, Tap(1), form="json")

    assert str(tmp_path / place) in str(raised.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """A folder in which nothing may be made; root, too, has no right to while it is there."""
    folder = tmp_path / "locked"
    folder.mkdir()
    (folder / "a.json").write_text("the old one")
    folder.chmod(0o500)
    was = os.geteuid()
    os.seteuid(was or _NOBODY)
    yield folder
    os.seteuid(was)


@pytest.mark.parametrize("name", ["a.json", "b.json", "deeper/a.json"])
def test_a_folder_without_write_permission_is_an_error(locked: Path, name: str) -> None:
    with pytest.raises(DestinationUnwritable) as failed:
        export_to(locked / name, Tap(1))

    assert failed.value.path == str(locked / name)
    assert failed.value.problem == os.strerror(errno.EACCES)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_place_that_is_full_is_no_wrong_word(tmp_path: Path, code: int) -> None:
    (tmp_path / "a.json").write_text("the old one")

    def fill() -> Iterator[Row]:
        raise OSError(code, os.strerror(code))
        yield

    with pytest.raises(DestinationFull) as failed:
        export_to(tmp_path / "a.json", fill)

    assert failed.value.problem == os.strerror(code)
    assert failed.value.exit_code == 4
    assert [one.read_text() for one in tmp_path.iterdir()] == ["the old one"]


def test_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)

    with pytest.raises(DestinationUnwritable) as failed:
        export_to(pipe, Tap(1))

    assert failed.value.path == str(pipe)
    assert pipe.is_fifo()


def test_of_a_link_the_file_behind_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "latest.json"
    link.symlink_to(tmp_path / "there" / "records.json")

    export_to(link, Tap(1))

    assert link.is_symlink()
    assert json.loads((tmp_path / "there" / "records.json").read_text())[0]["key"] == "0"


@pytest.mark.parametrize("form", FORMATS)
def test_an_export_keeps_only_a_few_records_in_memory(form: str) -> None:
    tap = Tap(2000)

    written = export_stream(io.BytesIO(), tap, ExportRequest("-", form))

    assert written.records == 2000
    assert tap.most_held <= 2  # the one that is written, and the one that is read next


def test_nothing_is_kept_of_what_was_written(tmp_path: Path) -> None:
    assert export_to(tmp_path / "a.jsonl", rows({"a": 1})).records == 1
    assert export_to(tmp_path / "a.jsonl", rows()).records == 0
    assert (tmp_path / "a.jsonl").read_text() == ""


def test_a_file_that_is_packed_is_read_by_those_who_unpack(tmp_path: Path) -> None:
    export_to(tmp_path / "a.jsonl.gz", Tap(3))
    export_to(tmp_path / "a.csv.zst", Tap(3))

    with gzip.open(tmp_path / "a.jsonl.gz") as lines:
        assert [json.loads(line)["key"] for line in lines] == ["0", "1", "2"]
    with pa.input_stream(str(tmp_path / "a.csv.zst"), compression="zstd") as text:
        assert text.read().count(b"\r\n") == 4


def test_the_same_records_make_the_same_packed_file(tmp_path: Path) -> None:
    export_to(tmp_path / "a.jsonl.gz", Tap(3))
    export_to(tmp_path / "b.jsonl.gz", Tap(3))

    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


def test_a_format_with_compression_of_its_own_is_not_compressed_again(tmp_path: Path) -> None:
    with pytest.raises(BadOption) as refused:
        export_to(tmp_path / "a.parquet.gz", Tap(1))

    assert "parquet" in refused.value.problem
    assert ".gz" in refused.value.problem


def test_a_number_goes_before_the_endings_and_nothing_is_replaced(tmp_path: Path) -> None:
    request = ExportRequest(str(tmp_path / "a.jsonl.gz"), is_numbered=True, has_schema=False)
    (tmp_path / "a-0007.jsonl.gz").write_text("an earlier one")

    first = export(request, Tap(1))
    second = export(request, Tap(1))

    assert first.path.endswith("/a-0008.jsonl.gz")
    assert second.path.endswith("/a-0009.jsonl.gz")
    assert (tmp_path / "a-0007.jsonl.gz").read_text() == "an earlier one"


def test_of_two_with_one_number_the_second_gives_way(tmp_path: Path) -> None:
    path = tmp_path / "a-0001.jsonl"

    def meanwhile() -> Iterator[Row]:
        path.write_text("first")
        yield from Tap(1)()

    with pytest.raises(DestinationUnwritable) as failed:
        export(ExportRequest(str(tmp_path / "a.jsonl"), is_numbered=True), meanwhile)

    assert failed.value.problem == os.strerror(errno.EEXIST)
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("options", "option", "datum"),
    [
        ({"output": "ftp://x/y.csv"}, "--output", "ftp://…"),
        ({"output": "x.csv", "table": "t"}, "--table", "file"),
        ({"output": "x.csv", "endpoint": "http://x"}, "--endpoint", "file"),
        ({"output": "s3://b/x.csv", "partition": "a"}, "--partition", "s3"),
        ({"output": "s3://b", "format": "csv"}, "--output", "s3://bucket/name.csv"),
        ({"output": "x.csv", "columns": ("a", "a")}, "--columns", "'a'"),
        ({"output": "x.csv", "columns": ("@a",)}, "--columns", "@source, @key"),
        ({"output": "x.csv", "columns": ("a..b",)}, "--columns", "'a..b'"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    option: str,
    datum: str,
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(BadOption) as refused:
        export(ExportRequest(**options), Tap(1))

    assert refused.value.option == option
    assert datum in refused.value.problem
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("output", "library", "extra"),
    [
        *[("a.parquet", "pyarrow", "parquet"), ("a.csv.zst", "pyarrow", "parquet")],
        *[("a.xlsx", "xlsxwriter", "excel"), ("a.duckdb", "duckdb", "duckdb")],
        *[("postgresql://h/d", "psycopg", "postgres"), ("s3://b/a.csv", "boto3", "s3")],
    ],
)
def test_a_missing_library_is_named_by_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, library: str, extra: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, library, None)

    with pytest.raises(MissingExtra) as missing:
        export(ExportRequest(output), Tap(1))

    assert missing.value.extra == extra
    assert list(tmp_path.iterdir()) == []
