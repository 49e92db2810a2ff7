"""The proof that files of records are complete and stored once, whatever kills the process."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from aiohttp import web

from children import BENCH, LONGLINE, environment, peak_memory
from home import Home
from proofs import Figure, Proof, Sizes, at_least, at_most, exactly, none, nothing_wrong, unjudged

NAME = "files"
_SIZE = 50_000  # bytes of a small file
_CONCURRENCY = 8
_WORK = 1.5  # seconds of work after which a process is killed at the latest
_LAST_LIFE = 1800.0  # seconds that the last process may take
_LOOK = 0.05
_LARGEST_MEMORY = 200.0
_LARGEST_FILE = "100GB"
_BLOCK = 1_000_000
_CUTS = 4  # of the large file: the server breaks off, or the process is killed
_ETAG = '"large"'


@dataclass
class Site:
    """Files by number, and one large one; it counts what it sends, by process."""

    large_blocks: int
    requests: list[Counter[str]] = field(default_factory=lambda: [Counter()])
    sent_of_large: int = 0
    ranges: int = 0
    first: asyncio.Event = field(default_factory=asyncio.Event)
    cuts: list[int] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        name = request.match_info["name"]
        self.requests[-1][name] += 1
        self.first.set()
        if name == "0" and self.large_blocks:
            return await self._send_large(request)
        headers = {"Content-Type": "image/jpeg", "ETag": f'"{name}"'}
        return web.Response(body=content(int(name)), headers=headers)

    async def _send_large(self, request: web.Request) -> web.StreamResponse:
        size, start = self.large_blocks * _BLOCK, 0
        headers = {"Content-Type": "video/mp4", "ETag": _ETAG}
        wanted = request.headers.get("Range")
        if wanted and request.headers.get("If-Range") == _ETAG:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
            self.ranges += 1
        response = web.StreamResponse(status=206 if start else 200, headers=headers)
        response.content_length = size - start
        await response.prepare(request)
        until = self.cuts.pop(0) if self.cuts else size
        place = start
        while place < until:
            block = content(place // _BLOCK, _BLOCK)[place % _BLOCK :]
            try:
                await response.write(block)
            except ConnectionError:  # the process was killed
                return response
            self.sent_of_large += len(block)
            place += len(block)
        if until < size and request.transport is not None:
            request.transport.close()
        return response


@lru_cache(maxsize=4)
def content(number: int, size: int = _SIZE) -> bytes:
    """Return the content of a small file, or of a block of the large one."""
    return hashlib.shake_128(str(number).encode()).digest(size)


def prove(sizes: Sizes) -> Proof:
    """Download many small files with kills, and one large file with interruptions."""
    small = asyncio.run(_download_small(sizes))
    large = asyncio.run(_download_large(sizes))
    about = (
        f"A source downloads {sizes.files:,} files of {_SIZE // 1000} kB, {_CONCURRENCY} at a time."
        f" Its process is killed with SIGKILL up to {_WORK:g} s after its first request, started "
        f"again with the same command each time, and finally runs to its end. Then another home "
        f"downloads one file of {sizes.file_bytes / 1e9:g} GB; the server breaks off "
        f"{_CUTS // 2} times, and the process is killed {_CUTS // 2} times. Seed {sizes.seed}."
    )
    return Proof(NAME, about, [*small, *large])


async def _download_small(sizes: Sizes) -> list[Figure]:
    draw = random.Random(sizes.seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        home, site, peaks, kills = Path(name) / "home", Site(0), [0], 0
        async with _serving(site) as url:
            command = _command(url, sizes.files, home)
            code: int | None = -1
            while kills < sizes.file_kills and code != 0:
                code = await _live(command, site, peaks, draw.uniform(0, _WORK))
                kills += code != 0
                site.requests.append(Counter())
            if code != 0:
                code = await _live(command, site, peaks, _LAST_LIFE)
        seconds = time.monotonic() - began
        return [
            at_least("kills", kills, sizes.file_kills),
            exactly("exit code of the last process", code or 0, 0),
            nothing_wrong(
                f"{sizes.files:,} files, each stored once with the right hash",
                _problems(home, sizes.files),
            ),
            none(
                "files that one process requested twice",
                sum(count > 1 for life in site.requests for count in life.values()),
            ),
            at_most(
                "repeated requests (limit: kills x concurrency)",
                sum(site.requests, Counter()).total() - sizes.files,
                kills * _CONCURRENCY,
            ),
            at_most("peak memory", max(peaks) / 1e6, _LARGEST_MEMORY, "MB"),
            unjudged("all files after", f"{seconds:.0f} s"),
        ]


async def _download_large(sizes: Sizes) -> list[Figure]:
    blocks = max(10, sizes.file_bytes // _BLOCK)
    size = blocks * _BLOCK
    site = Site(blocks, cuts=[size // 5, size * 2 // 5])
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        home, peaks = Path(name) / "home", [0]
        async with _serving(site) as url:
            command = [*_command(url, 1, home), "--timeout", "60"]
            for kill in range(_CUTS // 2):
                await _live_until(command, site, peaks, size * (5 + 2 * kill) // 10)
            code = await _live(command, site, peaks, _LAST_LIFE)
        seconds = time.monotonic() - began
        stored = [path for path in (home / "files").glob("*/*/*") if path.is_file()]
        digest, wanted = hashlib.sha256(), hashlib.sha256()
        for path in stored:
            with path.open("rb") as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
        for number in range(blocks):
            wanted.update(content(number, _BLOCK))
    is_right = len(stored) == 1 and digest.digest() == wanted.digest()
    return [
        exactly("large file: exit code", code or 0, 0),
        nothing_wrong("large file: stored with the right hash", [] if is_right else ["it is not"]),
        at_least("large file: continued with Range", site.ranges, _CUTS),
        at_most("large file: sent, in sizes of the file", site.sent_of_large / size, 1.1),
        at_most("large file: peak memory", max(peaks) / 1e6, _LARGEST_MEMORY, "MB"),
        unjudged("large file: complete after", f"{seconds:.0f} s"),
    ]


def _problems(home: Path, count: int) -> list[str]:
    problems = []
    jobs = Home(home).query("SELECT id FROM jobs")
    if len(jobs) != 1:
        problems.append(f"{len(jobs)} jobs: one had ended before the last kill")
    rows = Home(home).query("SELECT key, data FROM records")
    if len(rows) != count:
        problems.append(f"{len(rows)} records")
    for key, data in rows:
        file = json.loads(data)["file"]
        wanted = content(int(key))
        path = home / "files" / file["path"]
        is_right = file["sha256"] == hashlib.sha256(wanted).hexdigest()
        if not is_right or file["bytes"] != _SIZE or path.read_bytes() != wanted:
            problems.append(f"file {key} is wrong")
    stored = sum(path.is_file() for path in (home / "files").glob("[0-9a-f]*/*/*"))
    if stored != count:
        problems.append(f"{stored} files in the store")
    return problems


def _command(url: str, count: int, home: Path) -> list[str]:
    source = f"{BENCH / 'files_source.py'}:Files"
    values = ("--set", f"site={url}", "--set", f"count={count}")
    limits = ("--rate", "unlimited", "--concurrency", str(_CONCURRENCY))
    return [LONGLINE, "run", source, *values, *limits, "--home", str(home)]


@asynccontextmanager
async def _serving(site: Site) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/file/{name}", site.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _live(command: list[str], site: Site, peaks: list[int], seconds: float) -> int:
    """Run a process until this long after its first request; return its exit code."""
    site.first = asyncio.Event()
    process = await _start(command)
    try:
        ended = asyncio.create_task(process.wait())
        first = asyncio.create_task(site.first.wait())
        await asyncio.wait([ended, first], return_when=asyncio.FIRST_COMPLETED)
        first.cancel()
        until = time.monotonic() + seconds
        while process.returncode is None and time.monotonic() < until:
            peaks.append(peak_memory(process.pid) or 0)
            await asyncio.wait([ended], timeout=min(_LOOK, max(0, until - time.monotonic())))
    finally:
        code = await _kill(process)
    return code


async def _live_until(command: list[str], site: Site, peaks: list[int], sent: int) -> None:
    """Run a process until the site has sent so many bytes of the large file, and kill it."""
    process = await _start(command)
    try:
        while process.returncode is None and site.sent_of_large < sent:
            peaks.append(peak_memory(process.pid) or 0)
            await asyncio.sleep(_LOOK)
    finally:
        await _kill(process)


async def _start(command: list[str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**environment(), "LONGLINE_LARGEST_FILE": _LARGEST_FILE},
    )


async def _kill(process: asyncio.subprocess.Process) -> int:
    if process.returncode is None:
        process.kill()
    return await process.wait()
