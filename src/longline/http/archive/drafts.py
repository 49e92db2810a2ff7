"""Answers on their way into the archive: as they come, and packed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from multidict import CIMultiDict

from longline.core.errors import FetchError
from longline.http.archive import records
from longline.http.archive.base import Answer
from longline.http.archive.files import packed
from longline.http.archive.records import About
from longline.http.messages import Clicks, Page, Request


class Load(NamedTuple):
    """A page to be packed, in plain values: cheap to make, and to send to another process.

    Not the page itself: what its reader makes of it, a tree above all, is large.
    """

    job: str
    at: float
    method: str
    asked: str
    sent: Sequence[tuple[str, str]]
    body: bytes | None
    url: str
    status: int
    headers: Sequence[tuple[str, str]]
    content: bytes
    is_rendered: bool = False
    clicks: Clicks | None = None


class Draft(NamedTuple):
    """An answer packed with its body; `head` stands before it."""

    about: About
    head: bytes
    member: bytes
    has_body: bool


def load_of(answer: Answer, page: Page) -> Load:
    """Return what is to be packed of a page."""
    request = answer.request
    return Load(
        answer.job,
        answer.at,
        request.method,
        request.url,
        [(str(name), str(value)) for name, value in request.headers.items()],
        None if request.body is None else bytes(request.body),
        page.url,
        page.status,
        [(str(name), str(value)) for name, value in page.headers.items()],
        bytes(page.body),
        request.is_rendered,
        request.clicks,
    )


def pack_page(load: Load) -> Draft:
    """Return a page as it will stand in the archive."""
    request = Request(
        load.asked,
        load.method,
        CIMultiDict(load.sent),
        load.body,
        is_rendered=load.is_rendered,
        clicks=load.clicks,
    )
    page = Page(load.url, load.status, CIMultiDict(load.headers), load.content)
    digest = records.digest_of(page.body)
    key = records.key_of(request)
    about = About(load.job, records.shown(page.url), load.at, key, digest, page.status)
    head = records.http_head(page)
    member = packed(records.response(about, head, page.body))
    return Draft(about, head, member, has_body=bool(page.body))


def pack_failure(answer: Answer, error: FetchError) -> Draft:
    """Return the error in place of a page as it will stand in the archive."""
    url = answer.request.url
    about = About(answer.job, records.shown(url), answer.at, records.key_of(answer.request))
    return Draft(about, b"", packed(records.failure(about, url, error)), has_body=False)
