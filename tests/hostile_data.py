"""A home full of data that attacks terminals, and a site on this machine that serves more of it."""

from __future__ import annotations

import http.server
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from longline.storage.monitoring.logs import LogLine
from longline.storage.store import open_store
from tests.fork_server import ForkServer, Result

# A title, a cleared screen, a link, a colour, C1, a bell, backspaces, overrides, marks, separators.
ATTACK = (
    "PWND\x1b]0;title\x07\x1b[2J\x1b]8;;http://evil.test\x1b\\\x1b[38;5;201m\x9b41m\x08\x7f\x0b"
    "\u202e\u2066\u200e\u200f\u2028\u2029\u200b\ufeff\u061c\U000e0041"
    "[bold]b[/bold][link=http://evil.test]l[/link]:skull:"
)
_LITERAL = ascii(ATTACK)

EVIL = f'''
"""A source whose site attacks: {ATTACK.encode("ascii", "backslashreplace").decode()}"""

from longline import Item, Options, Source, layer

ATTACK = {_LITERAL}


class EvilOptions(Options):
    """Which round it is."""

    run: int = 1
    is_broken: bool = False


class Evil(Source):
    """Keys, values, names and errors that attack."""

    name = "evil"
    Options = EvilOptions

    async def discover(self, visit):
        if self.options.is_broken:
            raise ValueError(ATTACK + "\\nspoofed line")
        for number in range(4):
            address = f"https://evil.test/{{number}}?" + ATTACK
            yield Item(f"{{number}}{{ATTACK}}\\nspoofed line", address)

    @layer()
    async def page(self, visit):
        if visit.item.key.startswith("3"):
            raise ValueError(ATTACK + "\\nspoofed line")
        visit.note("title", ATTACK)
        return {{
            "title": f"{{ATTACK}} {{visit.item.key[0]}} {{self.options.run}}",
            ATTACK: ATTACK,
            "nested": {{ATTACK: [ATTACK]}},
            "price": self.options.run,
            "size": 3,
            "colour": ATTACK,
            "kind": ATTACK,
        }}
'''
GOODS = f"""
import json
print(json.dumps({{"sku": {_LITERAL}, "title": {_LITERAL}, "price": {_LITERAL}}}))
print(json.dumps({{"sku": "b", "title": "b", "price": 2}}))
"""
GOODS_MANIFEST = """
manifest: command
name: goods
command: [python3, goods.py]
key: sku
pipeline:
  - validate:
      properties: {price: {type: number}}
"""
LIST_MANIFEST = """
manifest: html
name: listed
start: "{url}/list"
items:
  elements: .item
  link: a@href
key: {{css: a@href}}
fields:
  title: h1
  "text": .text
"""
TASK = """
enrich: worth
sources: [evil]
enricher:
  currency: {field: price, assume: BGN, to: EUR, rates: {BGN: 0.5}, date: 2026-01-02}
"""
RULES = """
match: thing
sources: [evil, goods]
block:
  - [size]
compare:
  size: {weight: 5}
  colour: {weight: 1}
  kind: {weight: 1}
threshold: 2
"""
PAGE = f"<html><title>{ATTACK}</title><h1>{ATTACK}</h1><p class=text>{ATTACK}</p></html>"
LIST = "".join(
    f'<div class=item><a href="/page/{one}?{ATTACK}">{ATTACK} {one}</a></div>' for one in range(3)
)
ROBOTS = f"User-agent: *\nDisallow: /closed{ATTACK}\nSitemap: http://a.test/{ATTACK}\n"


class Site(http.server.BaseHTTPRequestHandler):
    """Answers every path with an attack."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # the name that http.server calls
        text = PAGE
        if self.path == "/robots.txt":
            text = ROBOTS
        elif self.path.startswith("/list"):
            text = f"<html><body>{LIST}</body></html>"
        body = text.encode()
        self.send_response(404 if self.path.startswith("/gone") else 200)
        kind = "text/plain" if self.path == "/robots.txt" else "text/html"
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name there
        """Say nothing."""


@contextmanager
def attacking_site() -> Iterator[str]:
    """Serve the attacking site on a free port; yield its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True, slots=True)
class World:
    """A folder with sources, a home with data, and the jobs that made it."""

    folder: Path
    home: Path
    url: str
    jobs: dict[str, str]

    def env(self, **more: str) -> dict[str, str]:
        return env_of(self.folder, LONGLINE_HOME=str(self.home), **more)


def env_of(folder: Path, **more: str) -> dict[str, str]:
    """Return an environment without anything of the developer's own."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "TERM": "xterm-256color",
        "COLUMNS": "160",
        "LANG": "C.UTF-8",
        "PYTHONWARNINGS": "default",
        **more,
    }


def make_world(folder: Path, url: str, server: ForkServer) -> World:
    """Write the sources and collect from them."""
    files = {
        "evil.py": EVIL,
        "goods.py": GOODS,
        "goods.yaml": GOODS_MANIFEST,
        "listed.yaml": LIST_MANIFEST.format(url=url),
        "task.yaml": TASK,
        "rules.yaml": RULES,
    }
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    jobs: dict[str, str] = {}
    world = World(folder, folder / "home", url, jobs)

    def run(*words: str) -> Result:
        return server.run(*words, env=world.env(), cwd=str(folder))

    commands = {
        "old": ("run", "evil.py", "--json"),
        "evil": ("run", "evil.py", "--set", "run=2", "--fresh", "--json"),
        "goods": ("run", "goods.yaml", "--json"),
        "listed": ("run", "listed.yaml", "--archive", "--cache", "--rate", "unlimited", "--json"),
    }
    for name, words in commands.items():
        answer = run(*words)
        assert answer.code in {0, 3}, (words, answer)
        jobs[name] = json.loads(answer.out.splitlines()[-1])["job"]
    for words in (("enrich", "run", "task.yaml"), ("duplicates", "find", "rules.yaml")):
        answer = run(*words)
        assert answer.code == 0, (words, answer)
    hostile = f"{ATTACK}\nspoofed line"
    line = LogLine(
        *(time.time(), logging.ERROR, ATTACK, hostile, hostile, jobs["evil"]),
        domain=ATTACK,
        fields={ATTACK: hostile},
    )
    with open_store(f"sqlite:///{world.home}/longline.sqlite") as store:
        store.logs.add_soon([line], max_per_job=None)
    return world
