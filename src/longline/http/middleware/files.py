"""File middleware: store what is requested as a file, and describe it in place of its body.

It is outside cache and coalescing, and inside the archive, which thus keeps the description and
not the file. A URL is downloaded once in a job. A file of an earlier job is validated with its ETag
or Last-Modified, so that a site sends it again only when it has changed.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import urldefrag

import orjson
from multidict import CIMultiDict

from longline.core.model import Usage
from longline.http.browser.transport import BrowserPage
from longline.http.errors import BadAnswer, BodyCut
from longline.http.files.receiving import Receiving, off_loop_whole, sweep
from longline.http.files.store import FileStore, KnownFile, StoredFile
from longline.http.messages import (
    CAPTURE_HEADERS,
    FILE_TYPE,
    FileWish,
    Middleware,
    Page,
    Request,
    joined_header,
    with_header,
)
from longline.limits.backends.state import StateBackend

_NOT_MODIFIED = 304
_UNSATISFIABLE = 416
_WITH_FILE = frozenset({200, 206})
_WITHOUT_FILE = frozenset(range(200, 301)) - _WITH_FILE
_BODY_HEADERS = ("content-type", "content-length", "content-encoding", "content-range")
_TYPES = {"screenshot": "image/png", "pdf": "application/pdf"}
_NO_BROWSER = "the source opens no browser: set its transport to browser"


@dataclass(frozen=True, slots=True)
class FileStorage:
    """Where the files of a home are, what its URLs had, and the size of the largest file."""

    store: FileStore
    known: StateBackend[KnownFile]
    largest: int


class FilesMiddleware(Middleware):
    """Stores files and captures of pages; a page then describes them as JSON.

    `job` is the job in which a URL is requested once; empty for requests of no job.
    """

    def __init__(self, inner: Middleware, storage: FileStorage, job: str) -> None:
        self._inner = inner
        self._store = storage.store
        self._known = storage.known
        self._largest = storage.largest
        self._job = job
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}
        self._is_swept = False

    async def __call__(self, request: Request, usage: Usage) -> Page:
        if request.captures:
            return await self._keep_captures(request, await self._inner(request, usage))
        if request.file is None:
            return _without_descriptions(await self._inner(request, usage))
        if not self._is_swept:
            self._is_swept = True
            await off_loop_whole(lambda: sweep(self._store))
        url = urldefrag(request.url).url
        async with self._turn(url, usage):
            return await self._file_page(replace(request, url=url), request.file, usage)

    async def _file_page(self, request: Request, wish: FileWish, usage: Usage) -> Page:
        name = hashlib.sha256(request.url.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        known, _now = await self._known.read(name)
        if known is not None and not await off_loop_whole(partial(self._has, known)):
            known = None
        if known is not None and known.job and known.job == self._job:
            _check_known(request.url, known, wish, wish.largest or self._largest)
            return self._describe(request, known.file, 200, {})
        largest = wish.largest or self._largest
        async with Receiving(
            self._store, request.url, largest=largest, is_image=wish.is_image
        ) as sink:
            sent = with_header(request, "Accept-Encoding", "identity")
            if sink.headers:
                sent = replace(sent, headers={**sent.headers, **sink.headers})
            elif known is not None:
                sent = _with_conditions(sent, known)
            with usage.waiting:  # a long download must not count against the time of its item
                page = await self._inner(replace(sent, sink=sink), usage)
            if page.status == _UNSATISFIABLE and sink.headers:
                await sink.give_up_draft()
                raise BodyCut(request.url, 0)  # the next attempt starts again
            if page.status == _NOT_MODIFIED and known is not None:
                _check_known(request.url, known, wish, largest)
                file = known.file
            elif page.status in _WITH_FILE:
                if not sink.has_begun:  # HTML, and transports without streams
                    await sink.begin(page.status, _without_length(page.headers))
                    await sink.write(page.body)
                file = await sink.finish()
            elif page.status in _WITHOUT_FILE:
                # Not returned: its headers and body could describe a file that is not ours.
                raise BadAnswer(request.url, f"status {page.status} does not come with a file")
            else:
                return page  # a redirect or an error
        # Of an unchanged file, a site need not repeat the validators.
        same = known if page.status == _NOT_MODIFIED else None
        found = KnownFile.of(
            file,
            etag=page.headers.get("etag") or (same.etag if same else None),
            modified=page.headers.get("last-modified") or (same.modified if same else None),
            job=self._job,
        )
        await self._known.change(name, lambda _old, _now: (found, None))
        return self._describe(request, file, page.status, page.headers, page)

    def _has(self, known: KnownFile) -> bool:
        self._store.prepare()
        return self._store.has(known.place, known.size)

    def _describe(
        self,
        request: Request,
        file: StoredFile,
        status: int,
        headers: Mapping[str, str],
        page: Page | None = None,
    ) -> Page:
        kept = CIMultiDict(headers)
        for name in _BODY_HEADERS:
            kept.popall(name, None)
        kept["Content-Type"] = FILE_TYPE
        body = orjson.dumps(self._reference(file))
        if page is None:
            return Page(request.url, status, kept, body, is_cached=True)
        # 304 and 206 are details of the transfer: the file is complete.
        is_cached = page.status == _NOT_MODIFIED
        return Page(page.url, 200, kept, body, page.seconds, is_cached, page.size)

    def _reference(self, file: StoredFile) -> dict[str, Any]:
        return {
            self._store.kind: file.place,
            "sha256": file.sha256,
            "md5": file.md5,
            "bytes": file.size,
            "type": file.type,
            "name": file.name,
        }

    async def _keep_captures(self, request: Request, page: Page) -> Page:
        """Store the captures of a page, and describe them in its headers."""
        taken: Mapping[str, bytes | str] = page.captures if isinstance(page, BrowserPage) else {}
        headers = CIMultiDict(_without_descriptions(page).headers)
        for name in request.captures:
            found = taken.get(name, _NO_BROWSER)
            if isinstance(found, str):
                described: dict[str, Any] = {"problem": found}
            else:
                described = self._reference(await self._store_capture(request, name, found))
                described["source_url"] = page.url
                del described["md5"]
            headers[CAPTURE_HEADERS[name]] = orjson.dumps(described).decode()
        # Without the captures, which would otherwise be kept with the page.
        if isinstance(page, BrowserPage):
            return replace(page, headers=headers, captures={})
        return replace(page, headers=headers)

    async def _store_capture(self, request: Request, name: str, content: bytes) -> StoredFile:
        async with Receiving(self._store, f"{name}:{request.url}", largest=len(content)) as sink:
            await sink.begin(200, {"content-type": _TYPES[name]})
            await sink.write(content)
            return replace(await sink.finish(), name=None)

    @asynccontextmanager
    async def _turn(self, url: str, usage: Usage) -> AsyncIterator[None]:
        """Wait until no other task of this job downloads this URL."""
        lock, waiting = self._turns.get(url, (asyncio.Lock(), 0))
        self._turns[url] = lock, waiting + 1
        try:
            with usage.waiting:
                await lock.acquire()
            try:
                yield
            finally:
                lock.release()
        finally:
            lock, waiting = self._turns.pop(url)
            if waiting > 1:
                self._turns[url] = lock, waiting - 1


def _without_descriptions(page: Page) -> Page:
    """Return the page of a site without headers that would describe files of ours."""
    forged = [one for one in CAPTURE_HEADERS.values() if one in page.headers]
    if page.headers.get("content-type") == FILE_TYPE:
        forged.append("content-type")
    if not forged:
        return page
    headers = CIMultiDict(page.headers)
    for name in forged:
        headers.popall(name)
    return replace(page, headers=headers)


def _with_conditions(request: Request, known: KnownFile) -> Request:
    if known.etag:
        request = with_header(request, "If-None-Match", known.etag)
    if known.modified:
        request = with_header(request, "If-Modified-Since", known.modified)
    return request


def _check_known(url: str, known: KnownFile, wish: FileWish, largest: int) -> None:
    """Raise BadAnswer when a file that is here is not what this request wants."""
    if wish.is_image and known.not_image is not None:
        raise BadAnswer(url, known.not_image)
    if known.size > largest:
        raise BadAnswer(
            url,
            f"the file has {known.size:,} bytes, and the largest that is stored has {largest:,} "
            "(largest_file)",
        )


def _without_length(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a body in memory, whose length may be that of its encoding."""
    return {
        name.lower(): joined_header(headers, name)
        for name in headers
        if name.lower() not in ("content-length", "content-encoding")
    }
