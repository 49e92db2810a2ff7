"""Checkpoint documents: whole or not at all, whoever else writes, whatever the disk says."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from longline.core.errors import StoreFull
from longline.core.model import ItemState, JobState
from longline.engine.progress import Progress
from longline.engine.watch import Checkpoints
from tests.virtual import EPOCH

PROGRESS = Progress(
    job="shop-1",
    source="shop",
    state=JobState.RUNNING,
    counts=dict.fromkeys(ItemState, 1),
    statistics={},
    is_discovered=True,
    elapsed=30.0,
    items_per_minute=18.0,
    mean_seconds=1.25,
    eta=75.4,
)


def left_behind(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and path.suffix != ".json"]


def test_two_writers_in_the_same_second_do_not_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.replace

    def late(beside: Path, place: Path) -> Path:
        monkeypatch.setattr(Path, "replace", rename)
        Checkpoints(tmp_path).write(PROGRESS, EPOCH)  # the other one is quicker
        return rename(beside, place)

    monkeypatch.setattr(Path, "replace", late)
    Checkpoints(tmp_path).write(PROGRESS, EPOCH)

    assert [one["job"] for one in Checkpoints(tmp_path).list()] == ["shop-1"]
    assert left_behind(tmp_path) == []


def test_a_full_disk_is_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path, _content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)

    with pytest.raises(StoreFull) as failed:
        Checkpoints(tmp_path).write(PROGRESS, EPOCH)

    assert str(tmp_path) in failed.value.address


def test_what_cannot_be_put_in_its_place_leaves_nothing_behind(tmp_path: Path) -> None:
    place = Checkpoints(tmp_path).write(PROGRESS, EPOCH)
    place.unlink()
    place.mkdir()  # in the way

    with pytest.raises(IsADirectoryError):
        Checkpoints(tmp_path).write(PROGRESS, EPOCH)

    assert left_behind(tmp_path) == []
