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
from functools import partial
from pathlib import Path
from typing import TypeVar

from longline.clock import moment
from longline.errors import FetchError, StoreError, StoreFull, StoreUnreachable
from longline.fetching.archives import records
from longline.fetching.archives.base import Answer, Archive, Totals
from longline.fetching.archives.checking import problems_in
from longline.fetching.archives.files import WarcFile, packed, read_member
from longline.fetching.archives.index import Entry, Index, Place
from longline.fetching.archives.records import Original
from longline.fetching.messages import Request

T = TypeVar("T")
LARGEST_FILE = 500_000_000
"""Bytes after which the next file is begun."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DESCRIPTION = "bodies are stored unpacked; what cookies were set to is left out"
_Waiting = tuple[Answer, "asyncio.Future[None]"]


class WarcArchive(Archive):
    """Records in files that only this process writes, and an index that all processes share.

    One thread does all the work. Whatever arrives while it writes is written together next; the
    event loop only hands over.
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

    async def keep(self, answer: Answer) -> None:
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((answer, written))
        if self._writing is None:
            self._write_next()
        await written

    async def find(
        self, job: str, request: Request, *, until: float | None = None
    ) -> Answer | None:
        return await self._in_thread(lambda: self._find(job, request, until))

    async def count(self, job: str) -> int:
        return await self._in_thread(lambda: self._index.count(job))

    async def totals(self) -> Totals:
        return await self._in_thread(self._index.totals)

    async def verify(self) -> list[str]:
        return await self._in_thread(lambda: problems_in(self._folder))

    async def rebuild(self) -> None:
        """Make the index anew from the files."""
        await self._in_thread(self._index.rebuild)

    async def close(self) -> None:
        while self._writing is not None:
            await asyncio.wait([self._writing])
        with suppress(RuntimeError):  # the thread has ended before
            await self._in_thread(self._close)
        self._thread.shutdown()

    # ------------------------------------------------------------ in the event loop

    async def _in_thread(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._guarded, work)

    def _write_next(self) -> None:
        group, self._waiting = self._waiting, []
        work = partial(self._write, [answer for answer, _ in group])
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
        if self._waiting:
            self._write_next()

    # ------------------------------------------------------------ in the thread

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            raise self._translated(error) from error

    def _write(self, answers: list[Answer]) -> None:
        try:
            self._append(answers)
        except (OSError, StoreError):
            if self._file is not None:  # nothing is ever added behind a cut record
                self._file.abandon()
                self._file = None
            raise

    def _append(self, answers: list[Answer]) -> None:
        digests = [_digest(answer) for answer in answers]
        originals = self._index.known(filter(None, digests))
        file = self._file_for(answers[0])
        offset, members, entries = file.size, [], []
        for answer, digest in zip(answers, digests, strict=True):
            member, entry = _drafted(answer, digest, originals, offset)
            members.append(member)
            entries.append(entry)
            offset += len(member)
            if entry.is_whole:
                originals[digest] = Original(entry.url, entry.at)
        file.append(members)
        self._index.add(file.name, file.size, entries)

    def _file_for(self, answer: Answer) -> WarcFile:
        if self._file is not None and self._file.size >= self._largest_file:
            self._file.close()
            self._file = None
        if self._file is None:
            self._stem = self._stem or _stem(answer)
            self._file = WarcFile(self._folder, self._stem)
            self._file.append([_opening(self._file.name, answer)])
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


def _stem(answer: Answer) -> str:
    """Return how the names of a process's files begin: job, moment of the first answer, pid."""
    job = re.sub(r"[^\w.-]+", "_", answer.job)
    return f"{job}-{moment(answer.at):%Y%m%dT%H%M%SZ}-{os.getpid()}"


def _digest(answer: Answer) -> str:
    return "" if isinstance(answer.result, FetchError) else records.digest_of(answer.result.body)


def _drafted(
    answer: Answer, digest: str, originals: dict[str, Original], offset: int
) -> tuple[bytes, Entry]:
    """Return the member of an answer, and what the index says of it."""
    result, key = answer.result, records.key_of(answer.request)
    status, is_whole = None, False
    if isinstance(result, FetchError):
        url = answer.request.url
        text = records.failure(answer, result, key)
    elif result.body and digest in originals:
        url, status = result.url, result.status
        text = records.revisit(answer, result, key, digest, originals[digest])
    else:
        url, status, is_whole = result.url, result.status, bool(result.body)
        text = records.response(answer, result, key, digest)
    member = packed(text)
    shown = records.shown(url)
    entry = Entry(offset, len(member), answer.job, key, answer.at, shown, status, digest, is_whole)
    return member, entry


def _opening(name: str, answer: Answer) -> bytes:
    fields = {
        "software": "longline",
        "format": "WARC File Format 1.1",
        "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
        "isPartOf": answer.job,
        "description": _DESCRIPTION,
    }
    return packed(records.warcinfo(name, answer.at, fields))
