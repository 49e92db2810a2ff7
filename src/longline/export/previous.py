"""Keep what an export replaces, so that it can be restored, for steps of flows.

`find_previous` describes what is there before an export; the caller stores that reference.
`keep_previous` then keeps it next to the destination, and the export replaces it. All functions may
be called again after a kill: what was done already is not done twice. What an export of a table
replaces is kept by the export itself (`ExportRequest.previous_table`), in its transaction.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from longline.export import postgres, s3
from longline.export.atomic_files import destination_error
from longline.export.export import ExportRequest, check_request, object_of, table_of
from longline.export.s3 import S3Object

Reference = Mapping[str, Any]
"""What is at the destinations of an export before it: JSON, with `place` and its `parts`."""


def place_of(request: ExportRequest) -> str:
    """Return the `place` of references to the destination of a request."""
    scheme = check_request(request)
    if scheme in postgres.SCHEMES:
        return table_of(request).shown
    return object_of(request).shown if scheme == s3.SCHEME else str(Path(request.output).resolve())


def find_previous(request: ExportRequest, name: str) -> dict[str, Any]:
    """Return a reference to what an export will replace; `name` identifies the export.

    Raises:
        DestinationUnwritable: the destination cannot be read.
    """
    mark = hashlib.sha256(name.encode()).hexdigest()[:12]
    scheme = check_request(request)
    if scheme in postgres.SCHEMES:
        table = table_of(request)
        part = {"backup": f"longline_previous_{mark}", "existed": table.exists()}
        return {"place": place_of(request), "parts": [part]}
    if scheme == s3.SCHEME:
        record = object_of(request)
        objects = [record, *_schema_of(request, record)]
        parts = [
            {"path": one.name, "backup": f"{one.name}.{mark}.previous", "existed": one.exists()}
            for one in objects
        ]
        return {"place": place_of(request), "parts": parts}
    path = Path(request.output).resolve()
    paths = [path]
    if request.has_schema and request.partition is None:
        paths.append(path.with_name(f"{path.name}.schema.json"))
    parts = [
        {
            "path": str(one),
            "backup": str(one.with_name(f".{one.name}.{mark}.previous")),
            "existed": one.exists(),
        }
        for one in paths
    ]
    return {"place": place_of(request), "parts": parts}


def keep_previous(request: ExportRequest, reference: Reference) -> None:
    """Keep what an export will replace.

    Raises:
        DestinationUnwritable: it cannot be kept; nothing was changed.
    """
    for copy in _copies(request, reference):
        if copy.existed:
            copy.keep()


def restore_previous(request: ExportRequest, reference: Reference) -> None:
    """Restore what an export has replaced; without anything before, delete what it has written.

    Raises:
        DestinationUnwritable: it cannot be restored.
    """
    if _is_table(request):
        (part,) = reference["parts"]
        table_of(request).restore(part["backup"] if part["existed"] else None)
        return
    for copy in _copies(request, reference):
        if copy.existed:
            copy.restore()
        else:
            copy.delete()


def delete_export(request: ExportRequest, reference: Reference) -> None:
    """Delete what an export has written, and what it has replaced.

    Nothing is deleted if the export has not replaced anything yet.

    Raises:
        DestinationUnwritable: it cannot be deleted.
    """
    if _is_table(request):
        (part,) = reference["parts"]
        table_of(request).delete(part["backup"] if part["existed"] else None)
        return
    copies = list(_copies(request, reference))
    kept = [copy for copy in copies if copy.existed and copy.is_kept()]
    # The schema may be the same in both exports, so one part that differs is enough.
    is_replaced = not all(copy.is_same() for copy in kept)
    for copy in copies:
        if not copy.existed or (copy in kept and is_replaced):
            copy.delete()
    for copy in reversed(kept):  # that of the records last: it shows that they were replaced
        copy.drop()


def drop_previous(request: ExportRequest, reference: Reference) -> None:
    """Delete what was kept.

    Raises:
        DestinationUnwritable: it cannot be deleted.
    """
    if _is_table(request):
        (part,) = reference["parts"]
        table_of(request).drop(part["backup"])
        return
    for copy in _copies(request, reference):
        copy.drop()


def _is_table(request: ExportRequest) -> bool:
    return check_request(request) in postgres.SCHEMES


def _schema_of(request: ExportRequest, record: S3Object) -> list[S3Object]:
    return [record.renamed(f"{record.name}.schema.json")] if request.has_schema else []


def _copies(request: ExportRequest, reference: Reference) -> Iterator[_FileCopy | _ObjectCopy]:
    if _is_table(request):
        return
    for part in reference["parts"]:
        if check_request(request) == s3.SCHEME:
            record = object_of(request)
            names = record.renamed(part["path"]), record.renamed(part["backup"])
            yield _ObjectCopy(*names, existed=part["existed"])
        else:
            yield _FileCopy(Path(part["path"]), Path(part["backup"]), existed=part["existed"])


class _FileCopy:
    """A file or folder, and the copy of what it was."""

    def __init__(self, path: Path, backup: Path, *, existed: bool) -> None:
        self._path = path
        self._backup = backup
        self.existed = existed

    def is_kept(self) -> bool:
        return self._backup.exists()

    def is_same(self) -> bool:
        """Return whether the export has not replaced it."""
        if self._path.is_dir():
            return _tree(self._path) == _tree(self._backup)
        if not self._path.is_file():
            return False
        found, kept = self._path.stat(), self._backup.stat()
        # A copy, where the file system has no links, has the same time of modification.
        return found.st_ino == kept.st_ino or found.st_mtime_ns == kept.st_mtime_ns

    def keep(self) -> None:
        """Link it, since an export replaces files and never changes them."""
        self._remove_drafts()
        if self._backup.exists() or not self._path.exists():
            return
        draft = self._backup.with_name(f"{self._backup.name}.{secrets.token_hex(4)}")
        try:
            _translated(self._path, lambda: _link(self._path, draft))
            draft.rename(self._backup)
        finally:
            _remove(draft)

    def _remove_drafts(self) -> None:
        """Remove what killed processes left behind; the name of the copy is that of one export."""
        with suppress(OSError):  # a folder may be writable without being readable
            for path in [*self._backup.parent.iterdir()]:
                if path.name.startswith(f"{self._backup.name}."):
                    _remove(path)

    def restore(self) -> None:
        """Put the copy back; without a copy, it was not replaced or is restored already."""
        self._remove_drafts()
        if not self._backup.exists():
            return

        def put_back() -> None:
            if self._backup.is_dir():
                _remove(self._path)
                self._backup.rename(self._path)
            else:
                self._backup.replace(self._path)
                self._backup.unlink(missing_ok=True)  # a rename to the same file leaves both names

        _translated(self._path, put_back)

    def delete(self) -> None:
        _translated(self._path, lambda: _remove(self._path))

    def drop(self) -> None:
        self._remove_drafts()
        _translated(self._backup, lambda: _remove(self._backup))


class _ObjectCopy:
    """An object in a bucket, and the copy of what it was."""

    def __init__(self, record: S3Object, backup: S3Object, *, existed: bool) -> None:
        self._object = record
        self._backup = backup
        self.existed = existed

    def is_kept(self) -> bool:
        return self._backup.exists()

    def is_same(self) -> bool:
        found, kept = self._object.describe(), self._backup.describe()
        # An export with the same content is younger than the copy.
        return found is not None and kept is not None and found[0] == kept[0] and found <= kept

    def keep(self) -> None:
        if not self._backup.exists() and self._object.exists():
            self._object.copy_to(self._backup)

    def restore(self) -> None:
        if self._backup.exists():
            self._backup.copy_to(self._object)
            self._backup.delete()

    def delete(self) -> None:
        self._object.delete()

    def drop(self) -> None:
        self._backup.delete()


def _translated(path: Path, change: Callable[[], None]) -> None:
    try:
        change()
    except OSError as error:
        raise destination_error(str(path), error) from error


def _link(path: Path, copy: Path) -> None:
    """Make a copy of a file or folder; its files are links where the file system has them."""
    if path.is_dir():
        shutil.copytree(path, copy, copy_function=_link_file)
    else:
        _link_file(str(path), str(copy))


def _link_file(path: str, copy: str) -> None:
    try:
        os.link(path, copy)
    except OSError:
        shutil.copy2(path, copy)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError):
            path.unlink()


def _tree(folder: Path) -> dict[str, int]:
    files = (one for one in folder.rglob("*") if one.is_file())
    return {str(one.relative_to(folder)): one.stat().st_ino for one in files}
