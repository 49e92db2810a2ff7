"""The text of WARC records: how an answer is written, and how it is read again.

A body stands there as the source saw it, unpacked; the headers that spoke of its packing keep
their values under names of ours. What a cookie was set to is left out.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

from multidict import CIMultiDict

from longline.core.errors import FailureKind, FetchError
from longline.http.errors import NotArchived
from longline.http.messages import Page, Request

JOB, KEY = "X-Longline-Job", "X-Longline-Request"
"""Fields of ours: from them and the standard ones, the index can be made anew."""
RESPONSE, REVISIT, FAILURE = "response", "revisit", "metadata"

_VERSION = "WARC/1.1"
_PROFILE = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
_HTTP = "application/http; msgtype=response"
_ORIGINAL = "X-Longline-Orig-"
_PACKING = frozenset({"content-encoding", "transfer-encoding", "content-length"})
_SPECIAL = _PACKING | {"set-cookie"}
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_PLAIN_IN_ADDRESS = "!#$%&'()*+,-./:;=?@[]_~"
_IS_PLAIN = re.compile(r"[\w!#$%&'()*+,\-./:;=?\[\]~]*", re.ASCII)
_END_OF_HOST = re.compile("[/?#]")


@dataclass(frozen=True, slots=True)
class Original:
    """Where and when a body was first seen."""

    url: str
    at: float


class About(NamedTuple):
    """What is known of an answer besides its body; `url` as it is shown, `digest` may be empty."""

    job: str
    url: str
    at: float
    key: str
    digest: str = ""
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it stands in a file; the names of its headers are in lower case."""

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
        """Its moment."""
        return datetime.fromisoformat(self.headers["warc-date"]).timestamp()


# ---------------------------------------------------------------- naming


def key_of(request: Request) -> str:
    """Return what tells requests apart: a hash, since headers and bodies may hold secrets."""
    headers = sorted((name.lower(), value) for name, value in request.headers.items())
    name = (request.method, request.url, headers)
    # Only what is rendered says so: the keys of all others are those of earlier archives.
    said = repr((*name, "rendered", *_clicked(request)) if request.is_rendered else name)
    text = said.encode("utf-8", "surrogatepass")
    return hashlib.sha256(text + b"\n" + (request.body or b"")).hexdigest()


def _clicked(request: Request) -> tuple[int, ...]:
    # Not by the button: another selector of the same button leads to the same pages.
    return () if request.clicks is None else (request.clicks.skip,)


def digest_of(body: bytes) -> str:
    """Return the digest of a body as WARC readers expect it.

    SHA-256, since a site that makes two bodies with one SHA-1 could have one stand for the other.
    """
    return f"sha256:{base64.b32encode(hashlib.sha256(body).digest()).decode()}"


def shown(url: str) -> str:
    """Return an address as it stands in the archive: plain ASCII, and without a password."""
    if _IS_PLAIN.fullmatch(url):
        return url
    scheme, separator, rest = url.partition("://")
    host = _END_OF_HOST.split(rest, maxsplit=1)[0]
    plain = scheme + separator + rest[host.rfind("@") + 1 :]
    return quote(plain, safe=_PLAIN_IN_ADDRESS, errors="surrogatepass")


# ---------------------------------------------------------------- writing


def response(about: About, head: bytes, body: bytes) -> bytes:
    """Return the record of an answer with its body."""
    lines = [
        *_lines(about),
        f"WARC-Payload-Digest: {about.digest}",
        f"Content-Type: {_HTTP}",
    ]
    return _record(RESPONSE, about.at, lines, head + body)


def revisit(about: About, head: bytes, original: Original) -> bytes:
    """Return the record of an answer whose body is in the archive already."""
    lines = [
        *_lines(about),
        f"WARC-Payload-Digest: {about.digest}",
        f"WARC-Profile: {_PROFILE}",
        f"WARC-Refers-To-Target-URI: {original.url}",
        f"WARC-Refers-To-Date: {_date(original.at)}",
        f"Content-Type: {_HTTP}",
    ]
    return _record(REVISIT, about.at, lines, head)


def failure(about: About, url: str, error: FetchError) -> bytes:
    """Return the record of a request that got no answer; errors are made of their arguments."""
    arguments = [_as_json(one, url, about.url) for one in error.args]
    told = {"error": type(error).__name__, "arguments": arguments}
    lines = [*_lines(about), "Content-Type: application/json"]
    return _record(FAILURE, about.at, lines, json.dumps(told, default=str).encode())


def warcinfo(name: str, at: float, fields: Mapping[str, str]) -> bytes:
    """Return the record that opens a file."""
    block = "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode()
    lines = [f"WARC-Filename: {name}", "Content-Type: application/warc-fields"]
    return _record("warcinfo", at, lines, block)


def _record(kind: str, at: float, lines: Iterable[str], block: bytes) -> bytes:
    head = "\r\n".join(
        (
            _VERSION,
            f"WARC-Type: {kind}",
            f"WARC-Record-ID: <urn:uuid:{_new_id()}>",
            f"WARC-Date: {_date(at)}",
            *lines,
            f"Content-Length: {len(block)}",
        )
    )
    return b"%b\r\n\r\n%b\r\n\r\n" % (head.encode(), block)


def _lines(about: About) -> tuple[str, str, str]:
    return f"WARC-Target-URI: {about.url}", f"{JOB}: {about.job}", f"{KEY}: {about.key}"


def _new_id() -> str:
    # What uuid4 returns, at a third of its time: this is done for every answer.
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"


def _date(at: float) -> str:
    second, rest = divmod(round(at * 1_000_000), 1_000_000)
    return f"{_second(second)}.{rest:06d}Z"


@lru_cache(maxsize=16)
def _second(at: int) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}"


def http_head(page: Page) -> bytes:
    """Return the status line and headers of an answer, as they stand before its body."""
    lines = [f"HTTP/1.1 {page.status} {_PHRASES.get(page.status, '')}"]
    lines += [
        f"{name}: {value}"
        if name.lower() not in _SPECIAL and "\n" not in value and "\r" not in value
        else _line(name, value)
        for name, value in page.headers.items()
    ]
    lines.append(f"Content-Length: {len(page.body)}\r\n\r\n")
    return "\r\n".join(lines).encode("utf-8", "surrogateescape")


def _line(name: str, value: str) -> str:
    if "\n" in value or "\r" in value:
        value = " ".join(value.split())
    lower = name.lower()
    if lower in _PACKING:
        return f"{_ORIGINAL}{name}: {value}"
    if lower == "set-cookie":
        cookie, _, rest = value.partition("=")
        return f"{name}: {cookie}={''.join(rest.partition(';')[1:])}"
    return f"{name}: {value}"


# ---------------------------------------------------------------- reading


def parse(text: bytes) -> Record:
    """Return a record from its text.

    Raises:
        ValueError: it is not one.
    """
    head, separator, rest = text.partition(b"\r\n\r\n")
    version, *lines = head.decode("utf-8", "replace").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    length = int(headers.get("content-length", -1))
    if not version.startswith("WARC/") or not separator or not 0 <= length <= len(rest):
        raise ValueError(f"not a WARC record: {text[:40]!r}")
    return Record(headers, rest[:length])


def status_of(record: Record) -> int | None:
    """Return the status of the answer; None when there was no answer."""
    return None if record.kind == FAILURE else int(record.block.split(b" ", 2)[1])


def body_of(record: Record) -> bytes:
    """Return the body that stands in a record."""
    return record.block.partition(b"\r\n\r\n")[2]


def page_of(record: Record, body: bytes, request: Request) -> Page:
    """Return the page as the source saw it."""
    head = record.block.partition(b"\r\n\r\n")[0].decode("utf-8", "surrogateescape")
    status, *lines = head.split("\r\n")
    *pairs, _our_length = (line.partition(": ") for line in lines)
    headers = CIMultiDict((name.removeprefix(_ORIGINAL), value) for name, _, value in pairs)
    url = record.headers["warc-target-uri"]
    return Page(
        request.url if shown(request.url) == url else url,
        int(status.split(" ", 2)[1]),
        headers,
        body,
    )


def error_of(record: Record, request: Request) -> FetchError:
    """Return the error that stood in place of an answer."""
    told = json.loads(record.block)
    kind = _errors().get(told["error"])
    if kind is None:  # a later version of ours has written it
        return NotArchived(request.url, request.method)
    url = request.url
    return kind(*(_from_json(one, shown(url), url) for one in told["arguments"]))


def _as_json(argument: Any, url: str, safe_url: str) -> Any:
    if isinstance(argument, FailureKind):
        return {"kind": argument.value}
    return argument.replace(url, safe_url) if isinstance(argument, str) else argument


def _from_json(argument: Any, safe_url: str, url: str) -> Any:
    if isinstance(argument, dict):
        return FailureKind(argument["kind"])
    return argument.replace(safe_url, url) if isinstance(argument, str) else argument


def _errors(base: type[FetchError] = FetchError) -> dict[str, type[FetchError]]:
    below = {name: kind for sub in base.__subclasses__() for name, kind in _errors(sub).items()}
    return {base.__name__: base, **below}
