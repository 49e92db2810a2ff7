"""Files that are packed as they are written: `.gz` and `.zst`."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from longline.export.formats.arrow import arrow

PACKINGS = ("gz", "zst")


@contextmanager
def packed(target: BinaryIO, packing: str | None) -> Iterator[BinaryIO]:
    """Give a file whose content reaches `target` packed; None packs nothing.

    Raises:
        MissingExtra: zst was asked for, and pyarrow is not installed.
    """
    if packing is None:
        yield target
    elif packing == "gz":
        # Without a name and a time, the same records make the same file.
        with gzip.GzipFile("", "wb", 6, target, mtime=0) as file:
            yield cast("BinaryIO", file)
    else:
        pa = arrow("parquet", "zstd")
        with pa.CompressedOutputStream(_Open(target), "zstd") as file:
            yield file


class _Open:
    """A file that stays open when its user closes it: the caller still has to see it to disk."""

    closed = False

    def __init__(self, target: BinaryIO) -> None:
        self._target = target

    def write(self, content: bytes) -> int:
        return self._target.write(content)

    def flush(self) -> None:
        self._target.flush()

    def close(self) -> None:
        pass
