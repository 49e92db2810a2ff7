"""Archive: keep the responses of jobs in WARC files, and replay them."""

from __future__ import annotations

import asyncio
import errno
import marshal
import os
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from longline.core.clock import Clock, utc_datetime
from longline.core.errors import FetchError, StoreError, StoreFull, StoreUnreachable
from longline.core.model import Usage
from longline.core.piped_program import PipedProgram
from longline.http.archive import packing, records
from longline.http.archive.index import ArchiveIndex, IndexEntry, RecordPlace, Totals
from longline.http.archive.packing import Unpacked, compress, digest_of, pack_responses
from longline.http.archive.records import (
    SUFFIX,
    Original,
    RecordInfo,
    WarcFile,
    is_cut,
    members,
    read_member,
)
from longline.http.errors import NotArchived
from longline.http.messages import Middleware, Page, Request
from longline.http.middleware.status import RedirectMiddleware, StatusMiddleware


@dataclass(frozen=True, slots=True)
class Answer:
    """What a job received for a request, and when: a page, or the error in its place."""

    job: str
    request: Request
    result: Page | FetchError
    at: float


@dataclass(frozen=True, slots=True)
class ArchiveCheck:
    """The result of a verification, a sentence each; notes are harmless."""

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


T = TypeVar("T")
LARGEST_FILE = 500_000_000
"""Bytes after which the next file is started."""
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_GATHERING = 0.05  # seconds that answers wait to be written together
_FAST_GROUP = 16  # responses together, of a job for which a process of its own is worthwhile
_PACKING_TIMEOUT = 60.0  # seconds
_LARGEST_GROUP = 128  # answers that are written without waiting for more
_WARCINFO = {
    "software": "longline",
    "format": "WARC File Format 1.1",
    "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
    "description": "bodies are stored decoded; values of cookies are left out",
}


class _Group:
    """Answers that are written together."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __await__(self) -> Generator[Any, None, None]:
        if not self.written.done():
            # Shielded: one waiter may be cancelled while others go on.
            yield from asyncio.shield(self.written).__await__()
        return self.written.result()

    def settle(self, writing: asyncio.Future[None]) -> None:
        """Pass on the result of the write."""
        error = writing.exception()
        if error is None:
            self.written.set_result(None)
        else:
            self.written.set_exception(error)
            self.written.exception()  # marks it as retrieved, even if nothing awaits it


@dataclass(slots=True)
class _Draft:
    """A record: a compressed `member`, which a response gets when it is packed.

    `head` is its HTTP head, for a revisit record in its place.
    """

    info: RecordInfo
    member: bytes = b""
    head: bytes = b""
    unpacked: Unpacked | None = None
    has_body: bool = False


class Archive:
    """All responses of all jobs of a home, in files that each process writes for itself.

    All processes share the index. One thread writes; responses that arrive meanwhile are written
    together next. Of a fast job, a process of its own compresses them, which would otherwise take
    the interpreter lock from the event loop for every page.
    """

    def __init__(self, folder: Path, *, largest_file: int = LARGEST_FILE) -> None:
        self._folder = folder
        self._largest_file = largest_file
        self._index = ArchiveIndex(folder)
        self._file: WarcFile | None = None
        self._stem: str | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="longline-archive")
        self._packer = PipedProgram(packing.__file__, timeout=_PACKING_TIMEOUT)
        self._group: _Group | None = None

    def keep(self, answer: Answer) -> Awaitable[None]:
        """Add an answer; awaiting the result waits until it survives the end of this process.

        It is written in any case. Awaiting raises StoreError when it could not be written.
        """
        if self._group is None:
            self._group = _Group()
            asyncio.get_running_loop().call_later(_GATHERING, self._write_group)
        group = self._group
        group.answers.append(answer)
        if len(group.answers) >= _LARGEST_GROUP:
            self._write_group()
        return group

    async def find(
        self, job: str, request: Request, *, until: float | None = None
    ) -> Answer | None:
        """Return the newest answer to a request in a job; None without one.

        With `until`, the newest up to that time, or, if all are later, the newest of all.
        """
        return await self._run_after_flush(lambda: self._find(job, request, until))

    async def count(self, job: str) -> int:
        """Return the number of answers of a job."""
        return await self._run_after_flush(lambda: self._index.count(job))

    async def totals(self) -> Totals:
        """Return the size of the archive."""
        return await self._run_after_flush(self._index.totals)

    async def verify(self) -> ArchiveCheck:
        """Read all files; return what is damaged or missing."""
        return await self._run_after_flush(
            lambda: _check_files(self._folder, self._index.find_lost())
        )

    async def close(self) -> None:
        """Write what is queued, and close the files."""
        with suppress(RuntimeError):  # the thread has ended
            await self._run_after_flush(self._close_files)
        self._thread.shutdown()

    async def _run_after_flush(self, work: Callable[[], T]) -> T:
        # The one thread does this after all writes before it.
        self._write_group()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._translate_errors, work)

    def _write_group(self) -> None:
        if self._group is None:
            return
        group, self._group = self._group, None
        work = partial(self._write_answers, group.answers)
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(self._thread, self._translate_errors, work)
        writing.add_done_callback(group.settle)

    # ---------------- In the thread

    def _translate_errors(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            if error.errno in _DISK_FULL:
                raise StoreFull(str(self._folder)) from error
            raise StoreUnreachable(str(self._folder), error.strerror or str(error)) from error

    def _write_answers(self, answers: list[Answer]) -> None:
        try:
            self._append(self._draft(answers))
        except (OSError, StoreError):
            if self._file is not None:  # nothing is appended after a cut record
                self._file.abandon()
                self._file = None
            raise

    def _draft(self, answers: list[Answer]) -> list[_Draft]:
        """Return compressed records of all these answers."""
        drafts = [_describe(answer) for answer in answers]
        bodies = [one.unpacked for one in drafts if one.unpacked is not None]
        packed = iter(self._pack(bodies))
        for draft in drafts:
            if draft.unpacked is not None:
                digest, draft.member = next(packed)
                draft.info = draft.info._replace(digest=digest)
        return drafts

    def _pack(self, responses: list[Unpacked]) -> list[tuple[str, bytes]]:
        if len(responses) < _FAST_GROUP:
            return pack_responses(responses)
        answer = self._packer.ask(marshal.dumps(responses))
        if answer is None:
            return pack_responses(responses)
        packed: list[tuple[str, bytes]] = marshal.loads(answer)  # noqa: S302  # of our own process
        return packed

    def _append(self, drafts: list[_Draft]) -> None:
        originals = self._index.known(one.info.digest for one in drafts if one.has_body)
        file = self._file_for(drafts[0].info)
        offset, appended, entries = file.size, [], []
        for draft in drafts:
            info, member, is_whole = draft.info, draft.member, draft.has_body
            if is_whole and info.digest in originals:
                is_whole = False
                member = compress(records.revisit(info, draft.head, originals[info.digest]))
            appended.append(member)
            entries.append(IndexEntry(offset, len(member), info, is_whole))
            offset += len(member)
            if is_whole:
                originals[info.digest] = Original(info.url, info.at)
        file.append(appended)
        self._index.add(file.name, file.size, entries)

    def _file_for(self, info: RecordInfo) -> WarcFile:
        if self._file is not None and self._file.size >= self._largest_file:
            self._file.close()
            self._file = None
        if self._file is None:
            if self._stem is None:
                job = re.sub(r"[^\w.-]+", "_", info.job)
                self._stem = f"{job}-{utc_datetime(info.at):%Y%m%dT%H%M%SZ}-{os.getpid()}"
            self._file = WarcFile(self._folder, self._stem)
            fields = {**_WARCINFO, "isPartOf": info.job}
            self._file.append([compress(records.warcinfo(self._file.name, info.at, fields))])
        return self._file

    def _find(self, job: str, request: Request, until: float | None) -> Answer | None:
        record = self._read_record(self._index.find(job, records.key_of(request), until))
        if record is None:
            return None
        if record.kind == records.FAILURE:
            return Answer(job, request, records.error_of(record, request), record.at)
        is_elsewhere = record.kind == records.REVISIT
        holder = self._read_record(self._index.body(record.digest)) if is_elsewhere else record
        body = records.body_of(holder) if holder else b""
        if holder is None or digest_of(body) != record.digest:
            return None  # damaged or missing
        return Answer(job, request, records.page_of(record, body, request), record.at)

    def _read_record(self, place: RecordPlace | None) -> records.Record | None:
        if place is None:
            return None
        try:
            return records.parse(read_member(self._folder / place.file, place.offset, place.length))
        except (OSError, zlib.error, ValueError):  # deleted or damaged: no longer archived
            return None

    def _close_files(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._packer.close()
        self._index.close()


@asynccontextmanager
async def open_warc(folder: Path, *, largest_file: int = LARGEST_FILE) -> AsyncIterator[Archive]:
    """Open the archive in a folder, which is created on first use."""
    archive = Archive(folder, largest_file=largest_file)
    try:
        yield archive
    finally:
        await archive.close()


def _describe(answer: Answer) -> _Draft:
    """Return the record of an answer; that of a response is not packed yet."""
    request, result = answer.request, answer.result
    key = records.key_of(request)
    if isinstance(result, FetchError):
        info = RecordInfo(answer.job, key, answer.at, records.archived_url(request.url))
        return _Draft(info, compress(records.failure(info, request.url, result)))
    url = records.archived_url(result.url)
    info = RecordInfo(answer.job, key, answer.at, url, result.status)
    head = records.http_head(result)
    unpacked = records.response(info, head, result.body)
    return _Draft(info, head=head, unpacked=unpacked, has_body=bool(result.body))


def _check_files(folder: Path, lost_answers: Mapping[str, int]) -> ArchiveCheck:
    """Read every record; `lost_answers` are those that the index knew, by file."""
    problems = [f"{name}: responses missing: {count}" for name, count in lost_answers.items()]
    notes: list[str] = []
    bodies: set[str] = set()
    referred: dict[str, str] = {}  # digests that records refer to, and one of these records
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        end = 0
        for offset, length, text in members(path):
            end, where = offset + length, f"{path.name} at {offset}"
            try:
                record = records.parse(text)
            except ValueError:
                problems.append(f"{where}: not a WARC record")
                continue
            if record.kind == records.REVISIT:
                referred.setdefault(record.digest, where)
            elif record.kind == records.RESPONSE:
                if digest_of(records.body_of(record)) == record.digest:
                    bodies.add(record.digest)
                else:
                    problems.append(f"{where}: the body does not match its digest")
        rest = path.stat().st_size - end
        if rest and is_cut(path, end):
            notes.append(f"{path.name} at {end}: the last record is not complete")
        elif rest:
            problems.append(f"{path.name} at {end}: {rest} bytes that are not a complete record")
    lost = (where for digest, where in referred.items() if digest not in bodies)
    problems += (f"{where}: refers to a body that is in no file" for where in lost)
    return ArchiveCheck(tuple(problems), tuple(notes))


# ---------------- Keeping and replaying responses


class ArchiveMiddleware(Middleware):
    """Keeps what the source receives, of any status, hop by hop, cached or not.

    It is outside the middlewares that add secrets and inside the one that raises for statuses. An
    error in place of a response is kept too. Writing happens in the background; `usage.promises`
    makes the commit wait for it, so no item is committed whose responses could be lost.
    """

    def __init__(self, inner: Middleware, archive: Archive, job: str, clock: Clock) -> None:
        self._inner = inner
        self._archive = archive
        self._job = job
        self._clock = clock

    async def __call__(self, request: Request, usage: Usage) -> Page:
        try:
            page = await self._inner(request, usage)
        except FetchError as error:
            self._keep_result(request, error, usage)
            raise
        self._keep_result(request, page, usage)
        return page

    def _keep_result(self, request: Request, result: Page | FetchError, usage: Usage) -> None:
        if isinstance(result, Page):
            # A copy without the parsed tree, which is many times as large as the body.
            result = Page(result.url, result.status, result.headers, result.body)
        answer = Answer(self._job, request, result, self._clock.now())
        usage.promises.append(self._archive.keep(answer))


Arrive = Callable[[float], Awaitable[None]]
MISSING = "archive.missing"
"""The event when the archive has no answer."""


class ReplayTransport(Middleware):
    """Returns what a job received, errors included; sends no request.

    Answers count up to the time `until`; None is any. `arrive` is awaited with the time of each
    answer before it is returned.
    """

    def __init__(
        self,
        archive: Archive,
        job: str,
        *,
        until: float | None = None,
        arrive: Arrive | None = None,
    ) -> None:
        self._archive = archive
        self._job = job
        self._until = until
        self._arrive = arrive

    async def __call__(self, request: Request, usage: Usage) -> Page:
        answer = await self._archive.find(self._job, request, until=self._until)
        if answer is None:
            if request.file is not None:  # a missing file is null in the record, with a note
                raise NotArchived(request.url, request.method)
            usage.add_event(MISSING, url=request.url, method=request.method)
            raise NotArchived(request.url, request.method)
        if self._arrive is not None:
            await self._arrive(answer.at)
        if isinstance(answer.result, FetchError):
            raise answer.result
        usage.status = answer.result.status
        return answer.result


def build_replay(
    archive: Archive,
    job: str,
    clock: Clock,
    *,
    until: float | None = None,
    arrive: Arrive | None = None,
) -> Middleware:
    """Wrap an archive in the middlewares that interpret responses."""
    return RedirectMiddleware(
        StatusMiddleware(ReplayTransport(archive, job, until=until, arrive=arrive), clock)
    )
