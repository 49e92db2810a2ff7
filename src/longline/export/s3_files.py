"""Files of records on S3-compatible storage."""

from __future__ import annotations

from pathlib import Path

from longline.core.errors import DestinationUnwritable
from longline.core.files import make_private_folder
from longline.export.s3 import S3Object
from longline.http.files.store import FileStore, FilesUnwritable


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
            self._names("0" * 64)
            self._has_bucket = True

    def has(self, place: str) -> bool:
        if not place.startswith(f"{self._address}/"):
            return False  # it was stored elsewhere, before the setting was changed
        try:
            return S3Object(place).exists()
        except DestinationUnwritable as error:
            raise FilesUnwritable(self._address, error.problem) from error

    def add(self, draft: Path, sha256: str, suffix: str) -> str:
        same = next((name for name in self._names(sha256) if name.startswith(sha256)), None)
        place = f"{self._address}/{sha256[:2]}/{sha256[2:4]}/{same or sha256 + suffix}"
        if same is None:
            try:
                S3Object(place).upload(draft)
            except DestinationUnwritable as error:
                raise FilesUnwritable(self._address, error.problem) from error
        draft.unlink(missing_ok=True)
        return place

    def _names(self, sha256: str) -> list[str]:
        """Return the names of stored files that begin with a hash."""
        try:
            place = S3Object(f"{self._address}/{sha256[:2]}/{sha256[2:4]}/{sha256}")
            return place.neighbours(sha256)
        except DestinationUnwritable as error:
            raise FilesUnwritable(self._address, error.problem) from error
