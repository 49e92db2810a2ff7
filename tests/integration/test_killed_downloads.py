"""Downloads that are killed with -9: every file is whole and stored once, a long one continues."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from longline.core.model import JobState
from longline.storage.query import RecordQuery
from longline.storage.store import open_store
from tests.fork_server import ForkServer

COUNT = 12
KILLED_AT = (3, 7)  # requests of small files
LONG = bytes(range(256)) * 24_000
SHOP = """
manifest: html
name: shop
rate: unlimited
start: {url}/list
items: a
fields: {{file: {{css: "b@title", type: file, required: true}}}}
"""


class Shop(ThreadingHTTPServer):
    """Serves pages with one file each, of which the first is long; kills its visitor at times."""

    daemon_threads = True

    def __init__(self, visitors: ForkServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.hits: Counter[str] = Counter()
        self.kills = 0
        self.sent_of_long = 0
        self.is_long_cut = False
        self._visitors = visitors
        self._lock = threading.Lock()

    def count(self, path: str) -> None:
        with self._lock:
            self.hits[path] += 1
            small = sum(n for one, n in self.hits.items() if one.startswith("/file/"))
            if self.kills < len(KILLED_AT) and small >= KILLED_AT[self.kills]:
                self.kill()

    def kill(self) -> None:
        self.kills += 1
        for process in psutil.Process(self._visitors.pid).children():
            process.kill()


class _Handler(BaseHTTPRequestHandler):
    server: Shop

    def do_GET(self) -> None:  # the name that http.server calls
        self.server.count(self.path)
        kind, _, name = self.path[1:].partition("/")
        match kind:
            case "list":
                links = "".join(f'<a href="/page/{n}">{n}</a>' for n in range(COUNT))
                self._send(links.encode(), "text/html")
            case "page":
                path = "/long" if name == "0" else f"/file/{name}"
                self._send(f'<b title="{path}">x</b>'.encode(), "text/html")
            case "file":
                self._send(content(int(name)), "image/jpeg")
            case "long":
                self._send_long()
            case _:
                self.send_error(404)

    def _send(self, body: bytes, kind: str, start: int = 0, until: int | None = None) -> None:
        self.send_response(206 if start else 200)
        self.send_header("content-type", kind)
        self.send_header("etag", '"1"')
        if start:
            self.send_header("content-range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("content-length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start:until])

    def _send_long(self) -> None:
        asked = self.headers.get("Range", "bytes=0-") if self.headers.get("If-Range") else ""
        start = int(asked.removeprefix("bytes=").rstrip("-") or 0)
        until = None if self.server.kills >= len(KILLED_AT) else start + 2_000_000
        self._send(LONG, "video/mp4", start, until)
        self.server.sent_of_long += (until or len(LONG)) - start
        if until is not None:
            self.connection.close()

    def log_message(self, *_values: object) -> None:
        pass


def content(number: int) -> bytes:
    return hashlib.shake_128(str(number).encode()).digest(5000)


@pytest.fixture
def shop() -> Iterator[tuple[Shop, ForkServer]]:
    with ForkServer() as visitors, Shop(visitors) as shop:
        threading.Thread(target=shop.serve_forever, args=[0.01], daemon=True).start()
        yield shop, visitors
        shop.shutdown()


async def test_killed_downloads_store_every_file_once(
    shop: tuple[Shop, ForkServer], tmp_path: Path
) -> None:
    site, visitors = shop
    source = tmp_path / "shop.yaml"
    source.write_text(SHOP.format(url=site.url))
    home = tmp_path / "home"
    env = {**os.environ, "LONGLINE_HOME": str(home)}

    words = ("run", str(source), "--concurrency", "2")
    codes = [visitors.run(*words, env=env).code for _ in range(3)]

    store = open_store(f"sqlite:///{home}/longline.sqlite")
    (job,) = await store.jobs.list()
    records = {row["key"]: row["data"]["file"] for row in store.records.stream(RecordQuery())}
    store.close()
    wanted = {f"page/{n}": content(n) for n in range(1, COUNT)} | {"page/0": LONG}
    assert (codes[:2], codes[2], job.state) == ([-9, -9], 0, JobState.COMPLETE)
    stored = {
        key.strip("/"): (home / "files" / file["path"]).read_bytes()
        for key, file in records.items()
    }
    assert stored == wanted
    assert len([one for one in (home / "files").glob("*/*/*") if one.is_file()]) == COUNT
    repeated = sum(n - 1 for path, n in site.hits.items() if path.startswith("/file/"))
    assert repeated <= 2 * 2  # kills times concurrency
