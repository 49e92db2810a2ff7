"""A disk of three megabytes, which can be filled, or mounted so that it may only be read.

A folder can be mounted so, too, beside where it is written.
"""

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
        subprocess.run(["mount", "-o", "remount,ro", str(self.path)], check=True)


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """Give a small disk; a test that nobody may mount one for is skipped."""
    with _mounted(path, "-t", "tmpfs", "-o", "size=3m", "longline"):
        yield SmallDisk(path)


@contextmanager
def read_only_view(folder: Path, path: Path) -> Iterator[None]:
    """Show a folder at another path, too, where nobody can write; skipped likewise."""
    with _mounted(path, "--bind", str(folder)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(path)], check=True)
        yield


@contextmanager
def _mounted(path: Path, *what: str) -> Iterator[None]:
    path.mkdir()
    done = subprocess.run(["mount", *what, str(path)], check=False, capture_output=True)
    if done.returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
