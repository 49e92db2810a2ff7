"""What killed exports leave behind is swept up by the next one; what is being written is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from longline.export.atomic_files import atomic_write, temporary_sibling, working_folder
from longline.export.export import ExportRequest, export
from tests.export.sample_rows import rows


def left_file(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text("half")
    os.utime(path, (0, 0))
    return path


def left_folder(folder: Path, name: str) -> Path:
    path = folder / name
    path.mkdir()
    (path / "records.sqlite").write_text("half")
    os.utime(path, (0, 0))
    return path


@pytest.mark.parametrize("output", ["a.csv", "a.sqlite"])
def test_what_a_killed_export_left_is_removed_by_the_next(tmp_path: Path, output: str) -> None:
    left_file(tmp_path, f".{output}.0123abcd.part")
    left_folder(tmp_path, f".{output}.0123abcd.part.work")

    export(ExportRequest(str(tmp_path / output), has_schema=False), rows({"a": 1}))

    assert [one.name for one in tmp_path.iterdir()] == [output]


def test_a_folder_that_a_killed_export_left_is_removed_too(tmp_path: Path) -> None:
    left_folder(tmp_path, ".out.0123abcd.part")

    export(
        ExportRequest(str(tmp_path / "out"), "csv", partition="a", has_schema=False), rows({"a": 1})
    )

    assert [one.name for one in tmp_path.iterdir()] == ["out"]


def test_files_of_other_destinations_and_unknown_files_stay(tmp_path: Path) -> None:
    others = {".b.csv.0123abcd.part", ".a.csv.mine.part", ".longline-mybackup", ".a.csv.part"}
    for name in others:
        left_file(tmp_path, name)

    export(ExportRequest(str(tmp_path / "a.csv"), has_schema=False), rows({"a": 1}))

    assert {one.name for one in tmp_path.iterdir()} == {*others, "a.csv"}


def test_what_is_being_written_stays(tmp_path: Path) -> None:
    place = tmp_path / "a.csv"

    with atomic_write(place) as living, working_folder(living) as work:
        living.write(b"the first")
        (work / "piece").write_text("x")
        with atomic_write(place) as other:
            other.write(b"the second")
        assert (work / "piece").exists()

    assert place.read_bytes() == b"the first"
    assert list(tmp_path.iterdir()) == [place]


def test_a_folder_that_is_being_written_stays(tmp_path: Path) -> None:
    with (
        temporary_sibling(tmp_path / "out", is_folder=True) as one,
        temporary_sibling(tmp_path / "out") as other,
    ):
        assert one.is_dir()
        assert other.is_file()

    assert list(tmp_path.iterdir()) == []
