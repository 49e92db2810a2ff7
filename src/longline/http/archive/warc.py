"""An archive of WARC files: any tool that knows the format can read them."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from longline.core.clock import utc_datetime
from longline.core.errors import StoreError, StoreFull, StoreUnreachable
from longline.http.archive import records
from longline.http.archive.base import Answer, Archive, Findings, Totals
from longline.http.archive.drafts import Draft, Load, load_of, pack_failure, pack_page
from longline.http.archive.files import SUFFIX, WarcFile, is_cut, members, packed, read_member
from longline.http.archive.index import Entry, Index, Place
from longline.http.archive.packing import Packer
from longline.http.archive.records import (
    RESPONSE,
    REVISIT,
    About,
    Original,
    body_of,
    digest_of,
    parse,
)
from longline.http.messages import Page, Request

# ---------------- Whether the files of an archive still hold what was written to them


def check(folder: Path, ends: Mapping[str, int], lost: Mapping[str, int]) -> Findings:
    """Read every record, and say what is wrong or gone.

    Args:
        folder: where the files are.
        ends: where, by the index, the last answer in a file ends.
        lost: how many answers that the index knew are no longer in a file.
    """
    checking = _Checking(ends)
    for name, count in lost.items():
        checking.problems.append(f"{name}: {_answers(count)} written to it, and gone from it")
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        checking.read(path)
    return checking.findings()


class _Checking:
    """What was found so far; a record may refer to a body in any other file."""

    def __init__(self, ends: Mapping[str, int]) -> None:
        self.problems: list[str] = []
        self._notes: list[str] = []
        self._ends = ends
        self._bodies: set[str] = set()
        self._referred: dict[str, str] = {}  # digests that records refer to, and one that does

    def read(self, path: Path) -> None:
        size, end = path.stat().st_size, 0
        for offset, length, text in members(path):
            self._read_record(f"{path.name} at {offset}", text)
            end = offset + length
        if end < size:
            self._judge_rest(path, end, size - end)

    def findings(self) -> Findings:
        lost = (where for digest, where in self._referred.items() if digest not in self._bodies)
        missing = (f"{where}: refers to a body that is in no file" for where in lost)
        return Findings((*self.problems, *missing), tuple(self._notes))

    def _read_record(self, where: str, text: bytes) -> None:
        try:
            record = parse(text)
        except ValueError:
            self.problems.append(f"{where}: not a WARC record")
            return
        if record.kind == REVISIT:
            self._referred.setdefault(record.digest, where)
        elif record.kind == RESPONSE and digest_of(body_of(record)) != record.digest:
            self.problems.append(f"{where}: the body is not what its digest says")
        elif record.kind == RESPONSE:
            self._bodies.add(record.digest)

    def _judge_rest(self, path: Path, end: int, size: int) -> None:
        where = f"{path.name} at {end}"
        if end >= self._ends.get(path.name, 0) and is_cut(path, end):
            # Nobody has relied on it: an answer counts as kept when its record is whole.
            self._notes.append(f"{where}: the last record was cut when its process ended")
        else:
            self.problems.append(f"{where}: {size} bytes that are no whole record")


def _answers(count: int) -> str:
    return "1 answer was" if count == 1 else f"{count} answers were"


T = TypeVar("T")
LARGEST_FILE = 500_000_000
"""Bytes after which the next file is begun."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_COMPANY = 0.05  # seconds that answers wait for each other
_MANY = 128  # answers that are company enough
_DESCRIPTION = "bodies are stored unpacked; what cookies were set to is left out"
_SMALL = 64_000  # bytes of a body that is worth sending to the packer


class _Group:
    """Answers that are packed and written together, at the latest when somebody waits for it."""

    def __init__(self, hurry: Callable[[], None]) -> None:
        self._hurry = hurry
        self.is_urgent = False
        self.waiting: list[Load | Draft] = []
        self.written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __await__(self) -> Generator[Any, None, None]:
        self.is_urgent = True
        self._hurry()
        # Shielded: one of those who wait may be cancelled, and the others wait on.
        return asyncio.shield(self.written).__await__()


class WarcArchive(Archive):
    """Records in files that only this process writes, and an index that all processes share.

    One thread writes; whatever arrives meanwhile is packed and written together next.
    """

    def __init__(self, folder: Path, *, largest_file: int = LARGEST_FILE) -> None:
        self._folder = folder
        self._largest_file = largest_file
        self._index = Index(folder)
        self._file: WarcFile | None = None
        self._stem: str | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="longline-archive")
        self._packer = Packer()
        self._group: _Group | None = None
        self._writing: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def keep(self, answer: Answer) -> Awaitable[None]:
        if self._group is None:
            self._group = _Group(self._write_soon)
        group = self._group
        group.waiting.append(_loaded(answer))
        self._write_soon()
        return group

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
        while self._writing is not None or self._group is not None:
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
        if self._writing is not None or self._group is None:
            return
        if self._group.is_urgent or len(self._group.waiting) >= _MANY:
            self._write_next()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_COMPANY, self._write_next)

    def _write_next(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._group is None:
            return
        group, self._group = self._group, None
        work = partial(self._write, group.waiting)
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(self._thread, self._guarded, work)
        self._writing.add_done_callback(partial(self._settle, group))

    def _settle(self, group: _Group, writing: asyncio.Future[None]) -> None:
        self._writing = None
        error = writing.exception()
        if error is None:
            group.written.set_result(None)
        else:
            group.written.set_exception(error)
            group.written.exception()  # it has been looked at, whether or not somebody waits for it
        self._write_soon()

    # ------------------------------------------------------------ in the thread

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            raise self._translated(error) from error

    def _write(self, handed: list[Load | Draft]) -> None:
        try:
            self._append(self._packed(handed))
        except (OSError, StoreError):
            if self._file is not None:  # nothing is ever added behind a cut record
                self._file.abandon()
                self._file = None
            raise

    def _packed(self, handed: list[Load | Draft]) -> list[Draft]:
        small = [one for one in handed if isinstance(one, Load) and len(one.content) <= _SMALL]
        drafts = iter(self._packer.pack(small))
        return [
            one
            if isinstance(one, Draft)
            else (next(drafts) if len(one.content) <= _SMALL else pack_page(one))
            for one in handed
        ]

    def _append(self, drafts: list[Draft]) -> None:
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
        self._packer.close()
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
    return f"{job}-{utc_datetime(about.at):%Y%m%dT%H%M%SZ}-{os.getpid()}"


def _loaded(answer: Answer) -> Load | Draft:
    result = answer.result
    return load_of(answer, result) if isinstance(result, Page) else pack_failure(answer, result)


def _finished(draft: Draft, originals: dict[str, Original], offset: int) -> tuple[bytes, Entry]:
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
