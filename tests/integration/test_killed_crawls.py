"""A crawl that is killed with -9 again and again collects every page once."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from longline.core.model import ItemState, JobState
from longline.storage.query import RecordQuery
from longline.storage.store import open_store
from tests.fork_server import ForkServer

PAGES = 60
KILLED_AT = (4, 20, 45)  # requests
CRAWL = """
manifest: html
name: tree
rate: unlimited
start: {url}/page/1
crawl: {{items: {{allow: "/page/[0-9]*[13579]$"}}}}
fields: {{title: h1}}
"""


class Tree(ThreadingHTTPServer):
    """Serves a tree of pages in which every page also links back; kills its visitor at times."""

    daemon_threads = True

    def __init__(self, visitors: ForkServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.hits: Counter[str] = Counter()
        self.kills = 0
        self._visitors = visitors
        self._lock = threading.Lock()

    def answer(self, path: str) -> str:
        if not path.startswith("/page/"):
            return ""
        with self._lock:
            self.hits[path] += 1
            if self.kills < len(KILLED_AT) and self.hits.total() >= KILLED_AT[self.kills]:
                self.kills += 1
                for process in psutil.Process(self._visitors.pid).children():
                    process.kill()
        number = int(path.rpartition("/")[2])
        near = [one for one in (2 * number, 2 * number + 1, number // 2) if 0 < one <= PAGES]
        links = "".join(f'<a href="/page/{one}?utm_source=x">{one}</a>' for one in near)
        return f"<h1>Page {number}</h1>{links}"


class _Handler(BaseHTTPRequestHandler):
    server: Tree

    def do_GET(self) -> None:  # the name that http.server calls
        body = self.server.answer(self.path).encode()
        self.send_response(200 if body else 404)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_values: object) -> None:
        pass


@pytest.fixture
def tree() -> Iterator[tuple[Tree, ForkServer]]:
    with ForkServer() as visitors, Tree(visitors) as tree:
        threading.Thread(target=tree.serve_forever, args=[0.01], daemon=True).start()
        yield tree, visitors
        tree.shutdown()


async def test_a_killed_crawl_collects_every_page_once(
    tree: tuple[Tree, ForkServer], tmp_path: Path
) -> None:
    site, visitors = tree
    source = tmp_path / "tree.yaml"
    source.write_text(CRAWL.format(url=site.url))
    env = {**os.environ, "LONGLINE_HOME": str(tmp_path / "home")}

    codes = [visitors.run("run", str(source), env=env).code for _ in range(len(KILLED_AT) + 1)]

    store = open_store(f"sqlite:///{tmp_path / 'home' / 'longline.sqlite'}")
    (job,) = await store.jobs.list()
    rows = await store.queue.finished(job.id)
    records = await store.records.list(RecordQuery(source="tree", limit=1000))
    store.close()
    odd = [number for number in range(1, PAGES + 1) if number % 2]
    assert codes == [-9] * len(KILLED_AT) + [0]
    assert job.state is JobState.COMPLETE
    assert Counter(row["state"] for row in rows) == {
        ItemState.STORED: len(odd),
        ItemState.SKIPPED: PAGES - len(odd),
    }
    assert sorted(row["data"]["title"] for row in records) == sorted(f"Page {n}" for n in odd)
    assert max(site.hits.values()) <= 1 + len(KILLED_AT)
