"""An archive of WARC files: any tool that knows the format can read them."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import zlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from longline.clock import moment
from longline.errors import FetchError, StoreError, StoreFull, StoreUnreachable
from longline.fetching.archives import records
from longline.fetching.archives.base import Answer, Archive, Findings, Totals
from longline.fetching.archives.checking import check
from longline.fetching.archives.files import WarcFile, packed, read_member
from longline.fetching.archives.index import Entry, Index, Place
from longline.fetching.archives.records import About, Original
from longline.fetching.messages import Request

T = TypeVar("T")
LARGEST_FILE = 500_000_000
"""Bytes after which the next file is begun."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_COMPANY = 0.02  # seconds that answers wait for each other
_MANY = 64  # answers that are company enough
_DESCRIPTION = "bodies are stored unpacked; what cookies were set to is left out"
_SMALL = 64_000  # bytes of a body that is packed at once, where it is


@dataclass(frozen=True, slots=True)
class _Draft:
    """An answer on its way into the archive, packed with its body; `head` stands before it."""

    about: About
    head: bytes
    member: bytes
    has_body: bool


_Waiting = tuple[Answer, "asyncio.Future[None]"]


class WarcArchive(Archive):
    """Records in files that only this process writes, and an index that all processes share.

    One thread writes; whatever arrives meanwhile is written together next. Small answers are packed
    before they are handed over, many in a row: it takes a twentieth of a millisecond each, and a
    thread that has to win the interpreter back from a busy event loop after each of them would take
    longer, from both.
    """

    def __init__(self, folder: Path, *, largest_file: int = LARGEST_FILE) -> None:
        self._folder = folder
        self._largest_file = largest_file
        self._index = Index(folder)
        self._file: WarcFile | None = None
        self._stem: str | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="longline-archive")
        self._waiting: list[_Waiting] = []
        self._writing: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def keep(self, answer: Answer) -> asyncio.Future[None]:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((_bare(answer), written))
        self._write_soon()
        return written

    async def find(
        self, job: str, request: Request, *, until: float | None = None
    ) -> Answer | None:
        return await self._in_thread(lambda: self._find(job, request, until))

    async def count(self, job: str) -> int:
        return await self._in_thread(lambda: self._index.count(job))

    async def totals(self) -> Totals:
        return await self._in_thread(self._index.totals)

    async def verify(self) -> Findings:
        return await self._in_thread(self._verify)

    async def rebuild(self) -> None:
        """Make the index anew from the files."""
        await self._in_thread(self._index.rebuild)

    async def close(self) -> None:
        await self._catch_up()
        with suppress(RuntimeError):  # the thread has ended before
            await self._in_thread(self._close)
        self._thread.shutdown()

    # ------------------------------------------------------------ in the event loop

    async def _catch_up(self) -> None:
        """Wait until all that was handed over is written, or has failed to be."""
        while self._writing is not None or self._waiting:
            if self._writing is None:
                self._write_next()
            else:
                await asyncio.wait([self._writing])

    async def _in_thread(self, work: Callable[[], T]) -> T:
        await self._catch_up()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._guarded, work)

    def _write_soon(self) -> None:
        """Have what waits written: in a moment, so that more may share the work, or at once."""
        if self._writing is not None or not self._waiting:
            return
        if len(self._waiting) >= _MANY:
            self._write_next()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_COMPANY, self._write_next)

    def _write_next(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        group, self._waiting = self._waiting, []
        handed = [_drafted(answer) if _is_small(answer) else answer for answer, _ in group]
        work = partial(self._write, handed)
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(self._thread, self._guarded, work)
        self._writing.add_done_callback(partial(self._settle, group))

    def _settle(self, group: list[_Waiting], writing: asyncio.Future[None]) -> None:
        self._writing = None
        error = writing.exception()
        for _, written in group:
            if written.done():  # whoever waited was cancelled
                continue
            if error is None:
                written.set_result(None)
            else:
                written.set_exception(error)
                written.exception()  # it has been looked at, whether or not somebody waits for it
        self._write_soon()

    # ------------------------------------------------------------ in the thread

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            raise self._translated(error) from error

    def _write(self, handed: list[Answer | _Draft]) -> None:
        try:
            self._append([_drafted(one) if isinstance(one, Answer) else one for one in handed])
        except (OSError, StoreError):
            if self._file is not None:  # nothing is ever added behind a cut record
                self._file.abandon()
                self._file = None
            raise

    def _append(self, drafts: list[_Draft]) -> None:
        originals = self._index.known(one.about.digest for one in drafts if one.has_body)
        file = self._file_for(drafts[0].about)
        offset, members, entries = file.size, [], []
        for draft in drafts:
            member, entry = _finished(draft, originals, offset)
            members.append(member)
            entries.append(entry)
            offset += len(member)
            if entry.is_whole:
                originals[entry.digest] = Original(entry.url, entry.at)
        file.append(members)
        self._index.add(file.name, file.size, entries)

    def _file_for(self, about: About) -> WarcFile:
        if self._file is not None and self._file.size >= self._largest_file:
            self._file.close()
            self._file = None
        if self._file is None:
            self._stem = self._stem or _stem(about)
            self._file = WarcFile(self._folder, self._stem)
            self._file.append([_opening(self._file.name, about)])
        return self._file

    def _find(self, job: str, request: Request, until: float | None) -> Answer | None:
        record = self._read(self._index.find(job, records.key_of(request), until))
        if record is None:
            return None
        if record.kind == records.FAILURE:
            return Answer(job, request, records.error_of(record, request), record.at)
        body = self._body(record)
        if body is None:
            return None
        return Answer(job, request, records.page_of(record, body, request), record.at)

    def _verify(self) -> Findings:
        self._index.follow()
        return check(self._folder, self._index.ends(), self._index.lost())

    def _body(self, record: records.Record) -> bytes | None:
        """Return the body of an answer, if it is still what it was."""
        is_elsewhere = record.kind == records.REVISIT
        holder = self._read(self._index.body(record.digest)) if is_elsewhere else record
        if holder is None:
            return None
        body = records.body_of(holder)
        return body if records.digest_of(body) == record.digest else None

    def _read(self, place: Place | None) -> records.Record | None:
        if place is None:
            return None
        try:
            return records.parse(read_member(self._folder / place.file, place.offset, place.length))
        except (OSError, zlib.error, ValueError):  # deleted or damaged: not archived any more
            return None

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._index.close()

    def _translated(self, error: OSError) -> StoreError:
        if error.errno in _NO_ROOM:
            return StoreFull(str(self._folder))
        return StoreUnreachable(str(self._folder), error.strerror or str(error))


@asynccontextmanager
async def open_warc(
    folder: Path, *, largest_file: int = LARGEST_FILE
) -> AsyncIterator[WarcArchive]:
    """Open the archive in a folder, which is made when it is first used."""
    archive = WarcArchive(folder, largest_file=largest_file)
    try:
        yield archive
    finally:
        await archive.close()


def _stem(about: About) -> str:
    """Return how the names of a process's files begin: job, moment of the first answer, pid."""
    job = re.sub(r"[^\w.-]+", "_", about.job)
    return f"{job}-{moment(about.at):%Y%m%dT%H%M%SZ}-{os.getpid()}"


def _is_small(answer: Answer) -> bool:
    return isinstance(answer.result, FetchError) or len(answer.result.body) <= _SMALL


def _bare(answer: Answer) -> Answer:
    """Return the answer without what its reader makes of the page: a tree is large."""
    page = answer.result
    return answer if isinstance(page, FetchError) else replace(answer, result=replace(page))


def _drafted(answer: Answer) -> _Draft:
    result, job, at = answer.result, answer.job, answer.at
    key = records.key_of(answer.request)
    if isinstance(result, FetchError):
        url = answer.request.url
        about = About(job, records.shown(url), at, key)
        return _Draft(about, b"", packed(records.failure(about, url, result)), has_body=False)
    digest = records.digest_of(result.body)
    about = About(job, records.shown(result.url), at, key, digest, result.status)
    head = records.http_head(result)
    member = packed(records.response(about, head, result.body))
    return _Draft(about, head, member, has_body=bool(result.body))


def _finished(draft: _Draft, originals: dict[str, Original], offset: int) -> tuple[bytes, Entry]:
    """Return the member of an answer, and what the index says of it."""
    about, member, is_whole = draft.about, draft.member, draft.has_body
    if is_whole and about.digest in originals:
        is_whole = False
        member = packed(records.revisit(about, draft.head, originals[about.digest]))
    entry = Entry(
        offset,
        len(member),
        about.job,
        about.key,
        about.at,
        about.url,
        about.status,
        about.digest,
        is_whole,
    )
    return member, entry


def _opening(name: str, about: About) -> bytes:
    fields = {
        "software": "longline",
        "format": "WARC File Format 1.1",
        "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
        "isPartOf": about.job,
        "description": _DESCRIPTION,
    }
    return packed(records.warcinfo(name, about.at, fields))
