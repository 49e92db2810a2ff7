"""Files that a scripted site serves, with validators and ranges, and the chain that stores them."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from longline.core.clock import Clock
from longline.core.model import Usage
from longline.http.files.store import FileStore, FolderStore, KnownFile
from longline.http.messages import FileWish, Middleware, Page, Request
from longline.http.middleware.files import FilesMiddleware, FileStorage
from longline.http.middleware.status import RedirectMiddleware, StatusMiddleware
from longline.http.transport import HttpOptions, HttpTransport
from longline.limits.backends.state import MemoryStateBackend, StateBackend
from tests.scripted_site import ScriptedSite

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4
LONG = b"0123456789abcdef" * 150_000


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class ServedFile:
    """One file of a site; `cuts` are the numbers of bytes after which responses break off."""

    content: bytes
    type: str = "image/png"
    etag: str | None = '"1"'
    modified: str | None = None
    has_ranges: bool = True
    cuts: list[int] = field(default_factory=list)
    requests: list[web.Request] = field(default_factory=list)
    sent: int = 0

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        headers = {"Content-Type": self.type}
        if self.etag:
            headers["ETag"] = self.etag
            if request.headers.get("If-None-Match") == self.etag:
                return web.Response(status=304, headers=headers)
        if self.modified:
            headers["Last-Modified"] = self.modified
        start, total = 0, len(self.content)
        wanted = request.headers.get("Range", "")
        if (
            wanted
            and self.has_ranges
            and request.headers.get("If-Range") == (self.etag or self.modified)
        ):
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            if start >= total:
                return web.Response(status=416)
            headers["Content-Range"] = f"bytes {start}-{total - 1}/{total}"
        response = web.StreamResponse(status=206 if start else 200, headers=headers)
        response.content_length = total - start
        await response.prepare(request)
        cut = self.cuts.pop(0) if self.cuts else None
        await response.write(self.content[start : None if cut is None else start + cut])
        self.sent += total - start if cut is None else cut
        if cut is not None:
            assert request.transport is not None
            request.transport.close()
        return response


def serve(site: ScriptedSite, path: str, content: bytes, **how: object) -> ServedFile:
    """Let a site serve a file."""
    served = ServedFile(content, **how)  # type: ignore[arg-type]  # fields of the class
    site.answers[path] = served
    return served


@dataclass
class Downloads:
    """A chain that stores files in a folder, as one job after another."""

    folder: Path
    clock: Clock
    known: StateBackend[KnownFile]
    inner: Middleware
    largest: int = 10_000_000
    store: FileStore | None = None

    async def get(
        self, url: str, *, job: str = "job-1", usage: Usage | None = None, **wish: object
    ) -> Page:
        """Download one file in a job."""
        chain: Middleware = FilesMiddleware(self.inner, self.storage, job)
        chain = RedirectMiddleware(StatusMiddleware(chain, self.clock))
        wanted = FileWish(**wish)  # type: ignore[arg-type]  # fields of the class
        return await chain(Request(url, file=wanted), usage or Usage())

    @property
    def storage(self) -> FileStorage:
        """Where the files are."""
        store = self.store or FolderStore(self.folder)
        return FileStorage(store, self.known, self.largest)

    @property
    def stored(self) -> list[Path]:
        """The stored files; drafts are not among them."""
        return sorted(one for one in self.folder.glob("[0-9a-f]*/*/*") if one.is_file())

    @property
    def drafts(self) -> list[str]:
        """The names of the drafts."""
        return sorted(one.name for one in (self.folder / ".drafts").iterdir())


@asynccontextmanager
async def downloads(folder: Path, clock: Clock) -> AsyncIterator[Downloads]:
    """Open a chain over real HTTP."""
    transport = HttpTransport(HttpOptions(), clock)
    try:
        yield Downloads(folder, clock, MemoryStateBackend(clock), transport)
    finally:
        await transport.close()
