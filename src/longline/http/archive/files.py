"""The files of an archive: consecutive gzip members, each with one record."""

from __future__ import annotations

import io
import itertools
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from isal import isal_zlib

from longline.core.files import private_opener

SUFFIX = ".warc.gz"
_GZIP = zlib.MAX_WBITS + 16
_LEVEL = 1
_CHUNK = 1 << 20


class WarcFile:
    """A file that only this process writes."""

    def __init__(self, folder: Path, stem: str) -> None:
        """Create a new file.

        Raises:
            OSError: the folder cannot be written.
        """
        for number in itertools.count(1):
            self.name = f"{stem}-{number:05}{SUFFIX}"
            with suppress(FileExistsError):
                self._file = io.FileIO(folder / self.name, "x", opener=private_opener)
                break
        self._path = folder / self.name
        self.size = 0

    def append(self, members: Sequence[bytes]) -> None:
        """Write members.

        Raises:
            OSError: not all were written; the file has to be abandoned.
        """
        left = memoryview(b"".join(members))
        size = self.size + len(left)
        while left:
            left = left[self._file.write(left) :]
        self.size = size

    def close(self) -> None:
        """Flush to the disk, and close the file."""
        with suppress(OSError):  # nothing relies on it
            os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self) -> None:
        """Close a file after a failed write; a cut record is removed, complete ones stay."""
        # Other processes may have read complete ones already, even of a cut group.
        with suppress(OSError):
            whole = members(self._path, self.size)
            self.size = max((start + length for start, length, _ in whole), default=self.size)
            self._file.truncate(self.size)
        self._file.close()
        if not self.size:
            self._path.unlink(missing_ok=True)


def compress(record: bytes) -> bytes:
    """Return a record as a gzip member."""
    # Five times as fast as level 1 of zlib, and not larger.
    return isal_zlib.compress(record, _LEVEL, _GZIP)


def read_member(path: Path, offset: int, length: int) -> bytes:
    """Return the record in a member.

    Raises:
        OSError, zlib.error: it is missing or damaged.
    """
    with path.open("rb") as file:
        file.seek(offset)
        return zlib.decompress(file.read(length), _GZIP)


def members(path: Path, start: int = 0) -> Iterator[tuple[int, int, bytes]]:
    """Yield offset, length and record of every complete member, up to a cut or damaged one."""
    with path.open("rb") as file:
        file.seek(start)
        rest = b""
        while True:
            member, pieces, size = zlib.decompressobj(_GZIP), [], 0
            while not member.eof:
                chunk = rest or file.read(_CHUNK)
                if not chunk:
                    return
                try:
                    pieces.append(member.decompress(chunk))
                except zlib.error:
                    return
                rest = member.unused_data
                size += len(chunk) - len(rest)
            yield start, size, b"".join(pieces)
            start += size


def is_cut(path: Path, start: int) -> bool:
    """Return whether a file ends within a member that is otherwise valid."""
    member = zlib.decompressobj(_GZIP)
    with path.open("rb") as file:
        file.seek(start)
        while chunk := file.read(_CHUNK):
            try:
                member.decompress(chunk)
            except zlib.error:
                return False
    return True
