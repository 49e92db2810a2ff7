"""Receive a file: from the response to a draft on disk, with its hash, and resumed if possible.

A small file is written once, when it is complete. Of a large one, the draft stays when the
connection breaks or the process is killed, if the server can send the rest of the same file.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TypeVar

from longline.core.files import make_private_file, private_opener
from longline.core.http_headers import parse_http_date
from longline.http.errors import BadAnswer, BodyCut
from longline.http.files.store import (
    FilesFull,
    FileStore,
    FilesUnwritable,
    StoredFile,
    image_problem,
    is_declared,
    name_of,
    suffix_of,
    type_of,
)
from longline.http.messages import BodySink

T = TypeVar("T")
PART = 1_000_000
"""Bytes in memory before they are written; only longer files are resumed."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_MIN_DRAFT_AGE = 60.0  # seconds; a younger one may not be locked yet
_MAX_DRAFT_AGE = 7 * 24 * 3600.0  # seconds
_MIN_AGE = 60.0  # seconds between the change of a file and a response, to prove that it is the same
_PARTIAL = 206
_UNSATISFIABLE = 416
_NUMBER = r"[0-9]{1,18}"
_RANGE = re.compile(rf"bytes ({_NUMBER})-{_NUMBER}/({_NUMBER}|\*)")
_LENGTH = re.compile(r"[0-9]{1,100}")  # any that may be meant; it is compared with the largest
_READ = 1 << 20


async def off_loop_whole(work: Callable[[], T]) -> T:
    """Run blocking code in a thread; a cancellation waits for it, since it uses an open file."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        running.exception()  # marks it as retrieved
        raise


class Receiving(BodySink):
    """Receives the file of one URL, in one attempt; an async context that clears up after it."""

    def __init__(self, store: FileStore, url: str, *, largest: int, is_image: bool = False) -> None:
        self._store = store
        self._url = url
        self._largest = largest
        self._is_image = is_image
        self._name = hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self._path = store.drafts / f"{self._name}.part"
        self._about = store.drafts / f"{self._name}.json"
        self._file: BinaryIO | None = None
        self._buffer = bytearray()
        self._start = b""
        self._headers: Mapping[str, str] = {}
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._size = 0
        self._expected: int | None = None
        self._offer = ""  # validator of the draft that this attempt continues
        self._can_resume = False
        self.received = 0
        self.has_begun = False

    async def __aenter__(self) -> Self:
        await off_loop_whole(self._open_draft)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            await off_loop_whole(self._leave)

    async def give_up_draft(self) -> None:
        """Forget the draft of an earlier attempt, which the server cannot continue."""
        self._can_resume = False
        if self._file is not None:
            await off_loop_whole(self._empty_draft)

    @property
    def headers(self) -> dict[str, str]:
        """Headers that ask for the rest of the file, if a part of it is here."""
        if not self._offer:
            return {}
        return {"Range": f"bytes={self._size}-", "If-Range": self._offer}

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Check the head of a response whose body follows.

        Raises:
            BadAnswer: the file is too large, or not what was asked for.
            BodyCut: the server sent another part than the one asked for.
        """
        self.has_begun = True
        self._headers = headers
        part = _RANGE.fullmatch(headers.get("content-range", "").strip())
        if status == _PARTIAL:
            if not self._offer or part is None or int(part[1]) != self._size:
                self._can_resume = False
                raise BodyCut(self._url, 0)  # the next attempt starts again
            total = None if part[2] == "*" else int(part[2])
        else:
            await self._restart()
            length = _LENGTH.fullmatch(headers.get("content-length", ""))
            is_plain = not headers.get("content-encoding")
            total = int(length[0]) if length is not None and is_plain else None
        declared = headers.get("content-type", "")
        if (
            self._is_image
            and is_declared(declared)
            and not type_of(declared, b"").startswith("image/")
        ):
            raise BadAnswer(self._url, f"it is {type_of(declared, b'')}, not an image")
        if total is not None and total > self._largest:
            self._refuse_size(total)
        self._expected = total
        if status != _PARTIAL:
            self._can_resume = await off_loop_whole(lambda: self._describe_draft(headers, total))

    async def write(self, piece: bytes) -> None:
        """Add a piece of the body.

        Raises:
            BadAnswer: the file is too large.
            FilesFull, FilesUnwritable: the disk cannot hold it.
        """
        self._buffer += piece
        self._size += len(piece)
        self.received += len(piece)
        if self._size > self._largest:
            self._can_resume = False
            self._refuse_size(self._size)
        if len(self._buffer) >= PART:
            await off_loop_whole(self._flush)

    async def finish(self) -> StoredFile:
        """Store the complete file.

        Raises:
            BadAnswer: it is not an image, and had to be one.
            BodyCut: bytes are missing at its end.
            FilesFull, FilesUnwritable: the store cannot hold it.
        """
        if self._expected is not None and self._size != self._expected:
            raise BodyCut(self._url, self._size)
        return await off_loop_whole(self._store_draft)

    def _refuse_size(self, size: int) -> None:
        problem = (
            f"the file has {size:,} bytes or more, and the largest that is stored has "
            f"{self._largest:,} (largest_file)"
        )
        raise BadAnswer(self._url, problem)

    async def _restart(self) -> None:
        """Forget the draft: the server sends the whole file."""
        self._buffer.clear()
        self._size, self._start = 0, b""
        self._sha256, self._md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
        if self._file is not None:
            await off_loop_whole(self._empty_draft)

    # ---------------- In threads

    def _open_draft(self) -> None:
        """Open the draft of an earlier attempt and read it for its hash, if it can be continued."""
        self._store.prepare()
        if not self._about.exists():
            return
        with self._translated():
            file = self._locked(self._path)
            if file is None:
                return
            self._file = file
            about = _read_about(self._about)
            # After a power failure, the end of a draft may not be what was received.
            is_same = (about.get("url"), about.get("boot")) == (self._url, _boot_id())
            if not is_same or not about.get("validator"):
                return
            while chunk := file.read(_READ):
                self._update(chunk)
                self._size += len(chunk)
            if self._size:
                self._offer, self._can_resume = str(about["validator"]), True

    def _describe_draft(self, headers: Mapping[str, str], total: int | None) -> bool:
        """Note how a long file can be continued; return whether it can."""
        validator = _validator_of(headers)
        is_long = total is not None and total > PART
        if not is_long or not validator or headers.get("accept-ranges", "").lower() == "none":
            self._about.unlink(missing_ok=True)
            return False
        with self._translated():
            if self._file is None:
                self._file = self._locked(self._path)
            if self._file is None:
                return False  # another process receives the same file
            about = {"url": self._url, "validator": validator, "boot": _boot_id()}
            text = json.dumps(about)
            make_private_file(self._about)
            self._about.write_text(text, "utf-8")
        return True

    def _locked(self, path: Path) -> BinaryIO | None:
        """Open a draft that no other process uses; None if one does."""
        descriptor = private_opener(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            pass  # a file system without locks
        if not _is_at(path, descriptor):  # another process has just stored it
            os.close(descriptor)
            return None
        return os.fdopen(descriptor, "r+b")

    def _own_file(self) -> BinaryIO:
        if self._file is None:
            self._path = self._store.drafts / f"{self._name}.{secrets.token_hex(4)}.part"
            self._file = self._locked(self._path)
            assert self._file is not None  # noqa: S101  # nothing else knows its name
        return self._file

    def _update(self, data: bytes | bytearray) -> None:
        self._start = self._start or bytes(data[:64])
        self._sha256.update(data)
        self._md5.update(data)

    def _flush(self) -> None:
        with self._translated():
            file = self._own_file()
            file.write(self._buffer)
            file.flush()
        self._update(self._buffer)
        self._buffer.clear()

    def _empty_draft(self) -> None:
        assert self._file is not None  # noqa: S101  # called with an open draft
        with self._translated():
            self._file.seek(0)
            self._file.truncate()

    def _store_draft(self) -> StoredFile:
        self._flush()
        kind = type_of(self._headers.get("content-type", ""), self._start)
        problem = image_problem(kind, self._start)
        if problem is not None and self._is_image:
            self._can_resume = False
            raise BadAnswer(self._url, problem)
        name = name_of(self._url, self._headers.get("content-disposition", ""))
        digest = self._sha256.hexdigest()
        with self._translated():
            file = self._own_file()
            os.fsync(file.fileno())
            place = self._store.add(self._path, digest, suffix_of(kind, name))
        self._can_resume = False
        return StoredFile(
            place, digest, self._md5.hexdigest(), self._size, kind, name, not_image=problem
        )

    def _leave(self) -> None:
        """Close the draft; keep it only if a later attempt can continue it."""
        assert self._file is not None  # noqa: S101  # called with an open draft
        with suppress(OSError):
            if self._can_resume and self._buffer:
                self._file.write(self._buffer)
                self._file.flush()
        if not self._can_resume:
            self._path.unlink(missing_ok=True)
            if self._path.name == f"{self._name}.part":
                self._about.unlink(missing_ok=True)
        with suppress(OSError):
            self._file.close()

    def _translated(self) -> _Translated:
        return _Translated(self._store)


class _Translated:
    """Turns an OSError of the disk into an error of the store."""

    __slots__ = ("_store",)

    def __init__(self, store: FileStore) -> None:
        self._store = store

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            place = str(self._store.drafts.parent)
            if error.errno in _FULL:
                raise FilesFull(place) from error
            raise FilesUnwritable(place, error.strerror or str(error)) from error


def _is_at(path: Path, descriptor: int) -> bool:
    with suppress(OSError):
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    return False


def _validator_of(headers: Mapping[str, str]) -> str:
    """Return what proves, in If-Range, that a file is still the same; empty without that."""
    if headers.get("content-encoding"):
        return ""
    etag = headers.get("etag", "")
    if etag.startswith('"'):
        return etag
    # A file may change twice in the second that Last-Modified names (RFC 9110, 8.8.2.2).
    modified = parse_http_date(headers.get("last-modified", ""))
    sent = parse_http_date(headers.get("date", ""))
    is_old = modified is not None and sent is not None and sent - modified >= _MIN_AGE
    return headers.get("last-modified", "") if is_old else ""


def _boot_id() -> str:
    """Return what identifies this start of the machine; empty if the system has no such thing."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return ""


def _read_about(path: Path) -> dict[str, object]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def sweep(store: FileStore) -> int:
    """Remove drafts that nothing has continued for a week; return how many."""
    removed = 0
    for path in store.drafts.glob("*.part"):
        with suppress(OSError):  # it is in use, or another process has removed it
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Drafts with a random name belong to one attempt: unlocked, it has ended.
                is_random = path.stem.count(".") == 1
                age = time.time() - os.fstat(descriptor).st_mtime
                if age > (_MIN_DRAFT_AGE if is_random else _MAX_DRAFT_AGE):
                    path.unlink()
                    path.with_suffix(".json").unlink(missing_ok=True)
                    removed += 1
            finally:
                os.close(descriptor)
    return removed
