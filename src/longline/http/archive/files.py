"""The files of an archive: gzip members one after the other, each a record."""

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
    """A file that this process alone writes, from its beginning to its end."""

    def __init__(self, folder: Path, stem: str) -> None:
        """Begin a file that nobody has begun before.

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
        """Give members to the operating system.

        Raises:
            OSError: it did not take them all; the file is then to be abandoned.
        """
        left = memoryview(b"".join(members))
        size = self.size + len(left)
        while left:
            left = left[self._file.write(left) :]
        self.size = size

    def close(self) -> None:
        """Have the disk take what is written, and let go of the file."""
        with suppress(OSError):  # nobody relies on the disk, as with the database
            os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self) -> None:
        """Let go of a file that takes no more; its whole records stay, a cut one goes."""
        # Other processes may have read whole ones already, even of a group that was cut.
        with suppress(OSError):
            whole = members(self._path, self.size)
            self.size = max((start + length for start, length, _ in whole), default=self.size)
            self._file.truncate(self.size)
        self._file.close()
        if not self.size:
            self._path.unlink(missing_ok=True)


def packed(record: bytes) -> bytes:
    """Return a record as a member."""
    # Five times as fast as zlib's own level 1, and no larger: at a thousand pages a second the
    # difference is what an archive costs.
    return isal_zlib.compress(record, _LEVEL, _GZIP)


def read_member(path: Path, offset: int, length: int) -> bytes:
    """Return the record in a member.

    Raises:
        OSError, zlib.error: it is not there any more, or damaged.
    """
    with path.open("rb") as file:
        file.seek(offset)
        return zlib.decompress(file.read(length), _GZIP)


def members(path: Path, start: int = 0) -> Iterator[tuple[int, int, bytes]]:
    """Yield offset, length and record of every whole member, up to a cut or damaged one."""
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
    """Return whether a file ends within a member that is sound as far as it goes."""
    member = zlib.decompressobj(_GZIP)
    with path.open("rb") as file:
        file.seek(start)
        while chunk := file.read(_CHUNK):
            try:
                member.decompress(chunk)
            except zlib.error:
                return False
    return True
