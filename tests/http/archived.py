"""What tests of the archive begin with, and how strangers read it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from warcio.archiveiterator import (  # type: ignore[import-untyped]  # ships no types
    ArchiveIterator,
)

from longline.core.errors import FetchError
from longline.http.archive.warc import Answer, Archive
from longline.http.messages import Page, Request
from tests.virtual import EPOCH

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it warns of itself when imported
    from fastwarc.warc import ArchiveIterator as FastIterator

URL = "https://shop.test/a?b=c"
HTML = {"Content-Type": "text/html; charset=utf-8", "ETag": '"1"'}


def page(body: bytes = b"hello", url: str = URL, status: int = 200, **values: Any) -> Page:
    return Page(url, status, values.pop("headers", HTML), body, **values)


def answer(
    result: Page | FetchError | bytes = b"hello",
    *,
    job: str = "shop-1",
    at: float = 1.0,
    request: Request | None = None,
) -> Answer:
    given = page(result) if isinstance(result, bytes) else result
    return Answer(job, request or Request(given.url), given, EPOCH + at)


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.warc.gz"))


def records_in(folder: Path) -> list[Any]:
    """Return every record, as warcio reads it; raise when a digest is wrong."""
    found = []
    for path in files_of(folder):
        with path.open("rb") as file:
            for record in ArchiveIterator(file, check_digests="raise"):
                record.body = record.content_stream().read()
                found.append(record)
    return found


def read_by_fastwarc(folder: Path) -> list[tuple[bool, bytes]]:
    """Return, of every answer, whether its digest is right, and its body."""
    found = []
    for path in files_of(folder):
        with path.open("rb") as file:
            found += [
                (record.verify_payload_digest(), record.reader.read())
                for record in FastIterator(file, parse_http=True)
                if record.is_http
            ]
    return found


async def found(archive: Archive, request: Request | str = URL, job: str = "shop-1") -> Page:
    """Return an archived page, which must be there."""
    request = Request(request) if isinstance(request, str) else request
    answer = await archive.find(job, request)
    assert answer is not None
    assert isinstance(answer.result, Page)
    return answer.result
