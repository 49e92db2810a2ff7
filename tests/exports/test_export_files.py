"""A file is there whole or not at all, and the one before it stays until then."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from exports.rows_of import Tap, rows
from longline.errors import BadOption, DestinationUnwritable
from longline.exports.base import written_whole
from longline.exports.files import FORMATS, Exported, export_stream, export_to


@pytest.mark.parametrize(
    ("name", "form"),
    [("a.jsonl", "jsonl"), ("a.NDJSON", "jsonl"), ("a.json", "json"), ("a.b.csv", "csv")],
)
def test_the_ending_says_the_format(tmp_path: Path, name: str, form: str) -> None:
    path = tmp_path / name

    assert export_to(path, Tap(3)) == Exported(str(path), form, 3)


def test_the_format_can_be_said(tmp_path: Path) -> None:
    export_to(tmp_path / "records.txt", Tap(2), form="json")

    assert len(json.loads((tmp_path / "records.txt").read_text())) == 2


@pytest.mark.parametrize("name", ["records", "records.xlsx", "records.json.gz"])
def test_an_ending_that_says_nothing_names_those_that_do(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadOption, match="jsonl, json, csv"):
        export_to(tmp_path / name, Tap(1))

    assert list(tmp_path.iterdir()) == []


def test_a_format_that_there_is_not_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="'xml' is none of jsonl, json, csv"):
        export_to(tmp_path / "a.json", Tap(1), form="xml")


def test_folders_on_the_way_are_made(tmp_path: Path) -> None:
    export_to(tmp_path / "a" / "b" / "c.csv", Tap(1))

    assert (tmp_path / "a" / "b" / "c.csv").exists()


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

    with written_whole(path) as target:
        target.write(b"half")
        target.flush()
        in_between = path.read_text()
    after = path.read_text()

    assert (in_between, after) == ("the old one", "half")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("place", ["file/records.json", "file/deeper/records.json", "folder", "."])
def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder").mkdir()

    with pytest.raises(DestinationUnwritable) as told:
        export_to(tmp_path / place, Tap(1), form="json")

    assert str(tmp_path / place) in str(told.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)

    with pytest.raises(DestinationUnwritable, match="not a file"):
        export_to(pipe, Tap(1))

    assert pipe.is_fifo()


def test_of_a_link_the_file_behind_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "latest.json"
    link.symlink_to(tmp_path / "there" / "records.json")

    export_to(link, Tap(1))

    assert link.is_symlink()
    assert json.loads((tmp_path / "there" / "records.json").read_text())[0]["key"] == "0"


@pytest.mark.parametrize("form", FORMATS)
def test_however_many_records_there_are_only_a_few_are_held_at_once(form: str) -> None:
    tap = Tap(2000)

    written = export_stream(io.BytesIO(), tap, form=form)

    assert written == 2000
    assert tap.most_held <= 2  # the one that is written, and the one that is read next


def test_nothing_is_kept_of_what_was_written(tmp_path: Path) -> None:
    assert export_to(tmp_path / "a.jsonl", rows({"a": 1})).records == 1
    assert export_to(tmp_path / "a.jsonl", rows()).records == 0
    assert (tmp_path / "a.jsonl").read_text() == ""
