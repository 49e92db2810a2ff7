"""Files of records on S3-compatible storage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from longline.core.errors import ConfigError, DestinationUnwritable
from longline.core.files import make_private_folder
from longline.export.s3 import S3Object
from longline.http.files.store import FileStore, FilesUnwritable

_ANY = "0" * 64


class S3Files(FileStore):
    """Files below an address such as s3://bucket/prefix; places are their addresses."""

    kind = "url"

    def __init__(self, address: str, folder: Path) -> None:
        self._address = address
        self.drafts = folder / ".drafts"
        self._has_bucket = False

    def prepare(self) -> None:
        try:
            make_private_folder(self.drafts.parent)
            make_private_folder(self.drafts)
        except OSError as error:
            place = str(self.drafts.parent)
            raise FilesUnwritable(place, error.strerror or str(error)) from error
        if not self._has_bucket:  # before anything is downloaded
            self._find(_ANY)
            self._has_bucket = True

    def has(self, place: str, size: int) -> bool:
        del size  # an object appears as a whole
        if not place.startswith(f"{self._address}/"):
            return False  # it was stored elsewhere, before the setting was changed
        with self._translated():
            return S3Object(place).exists()

    def add(self, draft: Path, sha256: str, suffix: str) -> str:
        # The same content keeps its first suffix, as in a folder.
        same = self._find(sha256)
        place = self._place(sha256, same or f"{sha256}{suffix}")
        if same is None:
            with self._translated():
                S3Object(place).upload(draft)
        draft.unlink(missing_ok=True)
        return place

    def _find(self, sha256: str) -> str | None:
        """Return the name of the file with this hash; None if there is none."""
        with self._translated():
            names = S3Object(self._place(sha256, sha256)).neighbours(sha256)
        return next(iter(names), None)

    def _place(self, sha256: str, name: str) -> str:
        return f"{self._address}/{sha256[:2]}/{sha256[2:4]}/{name}"

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn what makes the storage unusable into an error that ends the run."""
        try:
            yield
        except DestinationUnwritable as error:
            raise FilesUnwritable(self._address, error.problem) from error
        except ConfigError as error:  # a missing package
            raise FilesUnwritable(self._address, str(error)) from error
