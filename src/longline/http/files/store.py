"""Where files of records are kept: under a name made of their content, in a folder.

A site decides nothing about a name but its suffix, which is a few letters and digits.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from longline.core.errors import StoreError
from longline.core.files import make_private_folder

SUFFIXES = {
    "application/epub+zip": ".epub",
    "application/gzip": ".gz",
    "application/json": ".json",
    "application/msword": ".doc",
    "application/pdf": ".pdf",
    "application/vnd.ms-excel": ".xls",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/xml": ".xml",
    "application/zip": ".zip",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "audio/wav": ".wav",
    "image/avif": ".avif",
    "image/bmp": ".bmp",
    "image/gif": ".gif",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/svg+xml": ".svg",
    "image/tiff": ".tiff",
    "image/webp": ".webp",
    "text/csv": ".csv",
    "text/html": ".html",
    "text/plain": ".txt",
    "video/mp4": ".mp4",
    "video/webm": ".webm",
}
"""The suffix of a file by its content type."""
_MAGIC = (
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"....ftypavi[fs]", re.DOTALL), "image/avif"),
    (re.compile(rb"%PDF-"), "application/pdf"),
    (re.compile(rb"PK\x03\x04"), "application/zip"),
    (re.compile(rb"\x1f\x8b\x08"), "application/gzip"),
)
_MAGIC_BYTES = 16
_TEXT = re.compile(rb"(?:\xef\xbb\xbf)?\s*[<{\[]")
"""HTML, XML and JSON: no image but SVG begins so."""
_HTML = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<!doctype html|<html|[{\[])", re.IGNORECASE)
_UNKNOWN = "application/octet-stream"
_UNKNOWN_TYPES = frozenset({"", _UNKNOWN, "binary/octet-stream"})
_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,60}/[a-z0-9][a-z0-9.+-]{0,80}")
_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}")
_STATED_NAME = re.compile(
    r"""filename\*\s*=\s*utf-8''(?P<coded>[^;\s]+)|filename\s*=\s*"(?P<quoted>[^"]*)"|"""
    r"""filename\s*=\s*(?P<plain>[^;\s"]+)""",
    re.IGNORECASE,
)
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_LONGEST_NAME = 200
_PLACE = re.compile(r"[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{64}(?:\.[a-z0-9]{1,8})?")


class FilesUnwritable(StoreError):
    """The place of files cannot be written."""

    exit_code = 2
    place: str
    problem: str
    message = "files cannot be stored in {place} ({problem})"
    hint = "Make it writable, or set LONGLINE_FILES to another folder or s3:// address."


class FilesFull(StoreError):
    """The disk of the files is full."""

    exit_code = 4
    place: str
    message = "no disk space is left for files in {place}; committed data is safe"
    hint = "Free some space and run the same command again to continue."


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in the store; `name` is what the site calls it, and names nothing of ours.

    `not_image` says why it is not an image; None if it may be one.
    """

    place: str
    sha256: str
    md5: str
    size: int
    type: str
    name: str | None = None
    not_image: str | None = None


@dataclass(frozen=True, slots=True)
class KnownFile:
    """What a URL had when it was requested last, and in which job that was."""

    place: str
    sha256: str
    md5: str
    size: int
    type: str
    name: str | None = None
    not_image: str | None = None
    etag: str | None = None
    modified: str | None = None
    job: str = ""

    @property
    def file(self) -> StoredFile:
        """The file, without what is known about its URL."""
        return StoredFile(**{one.name: getattr(self, one.name) for one in fields(StoredFile)})

    @classmethod
    def of(cls, file: StoredFile, **about: Any) -> KnownFile:
        return cls(**asdict(file), **about)


class FileStore(Protocol):
    """A place for files. Its methods block."""

    kind: str
    """What a record calls the place of a file: `path` or `url`."""
    drafts: Path
    """A folder for files that are being received, on the disk of the store if it has one."""

    def prepare(self) -> None:
        """Create what is missing; raise FilesUnwritable if that is not possible."""

    def has(self, place: str, size: int) -> bool:
        """Return whether there is a file of this size at a place."""

    def add(self, draft: Path, sha256: str, suffix: str) -> str:
        """Store a complete draft, which is then gone, and return its place.

        A file of this content that exists already is kept, unless its size is another: then
        something else has damaged it.

        Raises:
            FilesUnwritable: that is not possible.
            FilesFull: there is no disk space.
        """


def is_place(text: str) -> bool:
    """Return whether a text is a place of a folder: nothing else is ever opened."""
    return _PLACE.fullmatch(text) is not None


class FolderStore(FileStore):
    """Files in a folder; places are paths relative to it."""

    kind = "path"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.drafts = folder / ".drafts"

    def prepare(self) -> None:
        try:
            make_private_folder(self.folder)
            make_private_folder(self.drafts)
        except OSError as error:
            raise FilesUnwritable(str(self.folder), error.strerror or str(error)) from error

    def has(self, place: str, size: int) -> bool:
        path = self.path_of(place)
        return path is not None and path.is_file() and path.stat().st_size == size

    def path_of(self, place: str) -> Path | None:
        """Return the path of a place; None if it is not one of this store."""
        return self.folder / place if is_place(place) else None

    def add(self, draft: Path, sha256: str, suffix: str) -> str:
        folder = self.folder / sha256[:2] / sha256[2:4]
        make_private_folder(folder.parent)
        make_private_folder(folder)
        # The same content keeps its first suffix, whatever type another URL states.
        same = (one for one in folder.iterdir() if one.name.partition(".")[0] == sha256)
        path = next(same, None)
        if path is None or path.stat().st_size != draft.stat().st_size:
            path = path or folder / f"{sha256}{suffix}"
            draft.replace(path)
            _sync_folder(folder)
        else:
            draft.unlink(missing_ok=True)
        return str(path.relative_to(self.folder))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # not every file system can
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---------------- What a response says about its file


def type_of(declared: str, start: bytes) -> str:
    """Return the content type of a file: as declared, or, without a declaration, by its start."""
    kind = declared.partition(";")[0].strip().lower()
    if kind not in _UNKNOWN_TYPES and _TYPE.fullmatch(kind):
        return kind
    start = start[:_MAGIC_BYTES]
    found = (name for pattern, name in _MAGIC if pattern.match(start))
    return next(found, _UNKNOWN)


def picture_type(start: bytes) -> str | None:
    """Return the content type of a picture that browsers show, by its first bytes alone."""
    kind = type_of("", start)
    return kind if kind.startswith("image/") else None


def image_problem(kind: str, start: bytes) -> str | None:
    """Return why a body of this type with this start is not an image; None if it may be one."""
    seen = type_of("", start)
    is_other = _TEXT.match(start) if kind != "image/svg+xml" else _HTML.match(start)
    if not start:
        return "it is empty, not an image"
    if not kind.startswith("image/"):
        return f"it is {kind}, not an image"
    if seen != _UNKNOWN and not seen.startswith("image/"):
        return f"it is {seen}, not an image"
    return f"it is text, not {kind}" if is_other else None


def is_declared(declared: str) -> bool:
    """Return whether a content type says what a file is."""
    return declared.partition(";")[0].strip().lower() not in _UNKNOWN_TYPES


def name_of(url: str, disposition: str) -> str | None:
    """Return what a site calls a file, without folders; None if it has no name."""
    stated = _STATED_NAME.search(disposition)
    if stated is not None:
        text = stated["coded"] and unquote(stated["coded"], errors="replace")
        text = text or stated["quoted"] or stated["plain"] or ""
    else:
        text = unquote(urlsplit(url).path, errors="replace")
    last = re.split(r"[/\\]", _UNSAFE.sub("", text))[-1].strip()
    return None if last.strip(".") == "" else last[:_LONGEST_NAME]


def suffix_of(kind: str, name: str | None) -> str:
    """Return the suffix of a file by its type, or else by its name; empty without a usable one."""
    if kind in SUFFIXES:
        return SUFFIXES[kind]
    _, dot, last = (name or "").lower().rpartition(".")
    suffix = dot + last
    return suffix if _SUFFIX.fullmatch(suffix) else ""
