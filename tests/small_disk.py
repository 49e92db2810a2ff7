"""A disk of three megabytes, which can be filled, or mounted so that it may only be read."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_BLOCK = 4096


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A file system of its own."""

    path: Path

    def fill(self) -> None:
        """Leave no room for anything."""
        with (self.path / "filling").open("ab", buffering=0) as file:
            try:
                while file.write(bytes(_BLOCK)):
                    pass
            except OSError:
                return

    def close(self) -> None:
        """Let nobody write any more."""
        _mounted("-o", "remount,ro", str(self.path))


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """Give a small disk; a test that nobody may mount one for is skipped."""
    path.mkdir()
    if not _mounted("-t", "tmpfs", "-o", "size=3m", "longline", str(path)):
        pytest.skip("this user may not mount a file system")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def _mounted(*words: str) -> bool:
    done = subprocess.run(["mount", *words], check=False, capture_output=True)
    return done.returncode == 0
