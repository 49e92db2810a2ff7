"""WARC records and files: how a response is written and read.

A body is stored decoded, as the source received it; the headers about its encoding are kept under
our own names. Values of cookies are left out.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from multidict import CIMultiDict

from longline.core.errors import FetchError
from longline.core.files import private_opener
from longline.http.archive.packing import GZIP, Unpacked
from longline.http.errors import NotArchived, decode_error, encode_error
from longline.http.messages import Page, Request, without_userinfo

JOB, KEY = "X-Longline-Job", "X-Longline-Request"
"""Our own fields; with them and the standard ones, the index can be rebuilt."""
RESPONSE, REVISIT, FAILURE = "response", "revisit", "metadata"

_VERSION = "WARC/1.1"
_PROFILE = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
_HTTP = "application/http; msgtype=response"
_ORIGINAL = "X-Longline-Orig-"
_ENCODING_HEADERS = frozenset({"content-encoding", "transfer-encoding", "content-length"})
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_PLAIN_IN_ADDRESS = "!#$%&'()*+,-./:;=?@[]_~"
_IS_PLAIN = re.compile(r"[\w!#$%&'()*+,\-./:;=?\[\]~]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Original:
    """The URL and time at which a body was first seen."""

    url: str
    at: float


class RecordInfo(NamedTuple):
    """The metadata of an answer, in the order of the index; `url` is the archived URL."""

    job: str
    key: str
    at: float
    url: str
    status: int | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """A record in a file; its header names are in lower case."""

    headers: Mapping[str, str]
    block: bytes

    @property
    def kind(self) -> str:
        """Its WARC-Type."""
        return self.headers["warc-type"]

    @property
    def digest(self) -> str:
        """The digest of the body; empty when there is none."""
        return self.headers.get("warc-payload-digest", "")

    @property
    def at(self) -> float:
        """Its time."""
        return datetime.fromisoformat(self.headers["warc-date"]).timestamp()


# ---------------- Names


def key_of(request: Request) -> str:
    """Return the key of a request: a hash, since headers and bodies may contain secrets."""
    headers = sorted((name.lower(), value) for name, value in request.headers.items())
    name: tuple[object, ...] = (request.method, request.url, headers)
    if request.is_rendered:
        name += ("rendered",)
    if request.is_rendered and request.clicks is not None:
        # Without the button: another selector of the same button leads to the same pages.
        name += (request.clicks.skip,)
    if request.file is not None:
        name += ("file",)
    text = repr(name).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text + b"\n" + (request.body or b"")).hexdigest()


def archived_url(url: str) -> str:
    """Return a URL as it is archived: ASCII, and without a password."""
    if _IS_PLAIN.fullmatch(url):
        return url
    return quote(without_userinfo(url), safe=_PLAIN_IN_ADDRESS, errors="surrogatepass")


# ---------------- Writing


def response(info: RecordInfo, head: bytes, body: bytes) -> Unpacked:
    """Return the record of a response with its body, without its digest."""
    lines = [*_info_lines(info), "WARC-Payload-Digest: "]
    header = _format_header(RESPONSE, info.at, lines)
    rest = f"\r\nContent-Type: {_HTTP}\r\nContent-Length: {len(head) + len(body)}\r\n\r\n"
    return header, rest, head, body


def revisit(info: RecordInfo, head: bytes, original: Original) -> bytes:
    """Return the record of a response whose body is already in the archive."""
    lines = [
        *_info_lines(info),
        f"WARC-Payload-Digest: {info.digest}",
        f"WARC-Profile: {_PROFILE}",
        f"WARC-Refers-To-Target-URI: {original.url}",
        f"WARC-Refers-To-Date: {_date(original.at)}",
        f"Content-Type: {_HTTP}",
    ]
    return _format_record(REVISIT, info.at, lines, head)


def failure(info: RecordInfo, url: str, error: FetchError) -> bytes:
    """Return the record of a request without a response."""
    stored = encode_error(error, lambda text: text.replace(url, info.url))
    lines = [*_info_lines(info), "Content-Type: application/json"]
    return _format_record(FAILURE, info.at, lines, json.dumps(stored, default=str).encode())


def warcinfo(name: str, at: float, fields: Mapping[str, str]) -> bytes:
    """Return the first record of a file."""
    block = "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode()
    lines = [f"WARC-Filename: {name}", "Content-Type: application/warc-fields"]
    return _format_record("warcinfo", at, lines, block)


def _format_record(kind: str, at: float, lines: Iterable[str], block: bytes) -> bytes:
    header = _format_header(kind, at, [*lines, f"Content-Length: {len(block)}"])
    return b"%b\r\n\r\n%b\r\n\r\n" % (header.encode(), block)


def _format_header(kind: str, at: float, lines: Iterable[str]) -> str:
    return "\r\n".join(
        (
            _VERSION,
            f"WARC-Type: {kind}",
            f"WARC-Record-ID: <urn:uuid:{_new_id()}>",
            f"WARC-Date: {_date(at)}",
            *lines,
        )
    )


def _info_lines(info: RecordInfo) -> tuple[str, str, str]:
    return f"WARC-Target-URI: {info.url}", f"{JOB}: {info.job}", f"{KEY}: {info.key}"


def _new_id() -> str:
    # As uuid4, in a third of its time: this is done for every answer.
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"


def _date(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def http_head(page: Page) -> bytes:
    """Return the status line and headers of a response."""
    lines = [f"HTTP/1.1 {page.status} {_PHRASES.get(page.status, '')}"]
    for name, raw in page.headers.items():
        lower = name.lower()
        value = " ".join(raw.split()) if "\n" in raw or "\r" in raw else raw
        if lower in _ENCODING_HEADERS:
            lines.append(f"{_ORIGINAL}{name}: {value}")
        elif lower == "set-cookie":
            cookie, _, rest = value.partition("=")
            lines.append(f"{name}: {cookie}={''.join(rest.partition(';')[1:])}")
        else:
            lines.append(f"{name}: {value}")
    lines.append(f"Content-Length: {len(page.body)}\r\n\r\n")
    return "\r\n".join(lines).encode("utf-8", "surrogateescape")


# ---------------- Reading


def parse(text: bytes) -> Record:
    """Parse a record.

    Raises:
        ValueError: it is not a WARC record.
    """
    head, separator, rest = text.partition(b"\r\n\r\n")
    version, *lines = head.decode("utf-8", "replace").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    length = int(headers.get("content-length", -1))
    if not version.startswith("WARC/") or not separator or not 0 <= length <= len(rest):
        raise ValueError(f"not a WARC record: {text[:40]!r}")
    return Record(headers, rest[:length])


def info_of(record: Record) -> RecordInfo | None:
    """Return the metadata of an answer; None for other records."""
    headers = record.headers
    if record.kind not in (RESPONSE, REVISIT, FAILURE) or KEY.lower() not in headers:
        return None
    status = None if record.kind == FAILURE else int(record.block.split(b" ", 2)[1])
    job, key, url = headers[JOB.lower()], headers[KEY.lower()], headers["warc-target-uri"]
    return RecordInfo(job, key, record.at, url, status, record.digest)


def body_of(record: Record) -> bytes:
    """Return the body in a record."""
    return record.block.partition(b"\r\n\r\n")[2]


def page_of(record: Record, body: bytes, request: Request) -> Page:
    """Return the page as the source received it."""
    head = record.block.partition(b"\r\n\r\n")[0].decode("utf-8", "surrogateescape")
    status, *lines = head.split("\r\n")
    *pairs, _our_length = (line.partition(": ") for line in lines)
    headers = CIMultiDict((name.removeprefix(_ORIGINAL), value) for name, _, value in pairs)
    url = record.headers["warc-target-uri"]
    return Page(
        request.url if archived_url(request.url) == url else url,
        int(status.split(" ", 2)[1]),
        headers,
        body,
    )


def error_of(record: Record, request: Request) -> FetchError:
    """Return the error in place of a response."""
    url = request.url
    error = decode_error(
        json.loads(record.block), lambda text: text.replace(archived_url(url), url)
    )
    return error or NotArchived(url, request.method)


# ---------------- Files: consecutive gzip members, each with one record

SUFFIX = ".warc.gz"
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


def read_member(path: Path, offset: int, length: int) -> bytes:
    """Return the record in a member.

    Raises:
        OSError, zlib.error: it is missing or damaged.
    """
    with path.open("rb") as file:
        file.seek(offset)
        return zlib.decompress(file.read(length), GZIP)


def members(path: Path, start: int = 0) -> Iterator[tuple[int, int, bytes]]:
    """Yield offset, length and record of every complete member, up to a cut or damaged one."""
    with path.open("rb") as file:
        file.seek(start)
        rest = b""
        while True:
            member, pieces, size = zlib.decompressobj(GZIP), [], 0
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
    member = zlib.decompressobj(GZIP)
    with path.open("rb") as file:
        file.seek(start)
        while chunk := file.read(_CHUNK):
            try:
                member.decompress(chunk)
            except zlib.error:
                return False
    return True
