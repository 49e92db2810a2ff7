"""longline sources new: the items that a page really has, in what it prints and what it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from tests.cli.terminal import Terminal
from tests.devtools.propose.generated_sites import HOST, LAYOUTS, MadeSite

Serve = Callable[[MadeSite], str]


class _Handler(BaseHTTPRequestHandler):
    """Answers with the pages of a made site."""

    site: MadeSite

    def do_GET(self) -> None:
        found = self.site.pages.get(self.path)
        kind, text = found or ("text/plain", "")
        own = f"http://{self.headers['Host']}"
        body = text.replace(HOST, own).encode()
        self.send_response(200 if found else 404)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_parts: Any) -> None:
        """Print nothing."""


@contextmanager
def serving(site: MadeSite) -> Iterator[str]:
    handler = type("Handler", (_Handler,), {"site": site})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}{site.start}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    open_sites = []

    def serve(site: MadeSite) -> str:
        manager = serving(site)
        open_sites.append(manager)
        return manager.__enter__()

    yield serve
    for one in open_sites:
        one.__exit__(None, None, None)


@pytest.mark.parametrize("layout", ["quotes", "jobs", "api", "next_data", "shell", "definitions"])
def test_a_proposed_manifest_collects_every_item(
    longline: Terminal, serve: Serve, tmp_path: Path, layout: str
) -> None:
    site = LAYOUTS[layout](1005)
    path = tmp_path / "proposed.yaml"

    new = longline("sources", "new", serve(site), "--yes", "-o", path)
    run = longline("run", path, "--json", "--rate", "unlimited")

    assert new.code == 0, new.err
    assert run.code == 0, run.err
    assert run.last["stored"] == len(site.truth)


QUOTE = """<div class="quote"><span class="text">Sentence {n} of many words</span>
<span>by <small class="author">Person {who}</small> <a href="/author/{who}">(about)</a></span>
<div class="tags">Tags: <a class="tag" href="/tag/t{n}/">t{n}</a>
<a class="tag" href="/tag/u{n}/">u{n}</a></div></div>"""


def test_the_tags_of_quotes_are_not_their_pages(
    longline: Terminal, serve: Serve, tmp_path: Path
) -> None:
    """Every quote has a first tag that no other has: a link of its own, but not its page."""
    site = MadeSite("quotes", 0)
    path = tmp_path / "quotes.yaml"
    quotes = [QUOTE.format(n=n, who=n % 4) for n in range(10)]
    site.html("/list", "Quotes to Scrape", f"<h1>Quotes to Scrape</h1>{''.join(quotes)}")
    for n, quote in enumerate(quotes):
        for tag in (f"t{n}", f"u{n}"):
            site.html(f"/tag/{tag}/", "Quotes", f"<h1>Quotes to Scrape</h1>{quote}")

    answer = longline("sources", "new", serve(site), "--yes", "-o", path)
    run = longline("run", path, "--json", "--rate", "unlimited")

    assert answer.code == 0
    assert yaml.safe_load(path.read_text())["items"] == {"elements": "div.quote"}
    assert run.last["stored"] == 10


def test_json_shows_candidates_fields_and_warnings(longline: Terminal, serve: Serve) -> None:
    answer = longline("sources", "new", serve(LAYOUTS["cards"](1007)), "--json", "-o", "cards.yaml")

    result = answer.last
    assert answer.code == 0
    assert [one["kind"] for one in result["candidates"]] == ["pages", "elements", "page"]
    assert all(one["reasons"] for one in result["candidates"])
    assert result["proposal"]["items"] == result["candidates"][0]
    assert {"title", "price"} <= {one["name"] for one in result["proposal"]["fields"]}
    assert result["proposal"]["warnings"] == []
    assert Path(result["path"]).read_text() == result["proposal"]["manifest"]


def test_a_candidate_is_chosen_by_its_number(longline: Terminal, serve: Serve) -> None:
    url = serve(LAYOUTS["cards"](1007))

    answer = longline("sources", "new", url, "--yes", "--candidate", "2", "-o", "cards.yaml")

    assert answer.code == 0
    assert set(yaml.safe_load(Path("cards.yaml").read_text())["items"]) == {"elements"}


def test_a_number_that_no_candidate_has_is_refused(longline: Terminal, serve: Serve) -> None:
    answer = longline("sources", "new", serve(LAYOUTS["cards"](1007)), "--candidate", "9", "--yes")

    assert answer.code == 2


def test_warnings_make_exit_code_3(longline: Terminal, serve: Serve) -> None:
    site = LAYOUTS["cards"](1007)
    for path in [one for one in site.pages if not one.startswith(site.start)]:
        del site.pages[path]

    answer = longline("sources", "new", serve(site), "--json", "-o", "cards.yaml")

    assert answer.code == 3
    (warning,) = answer.last["proposal"]["warnings"]
    assert warning["code"] == "pages_unreadable"
    comments = [one for one in Path("cards.yaml").read_text().splitlines() if one[:1] == "#"]
    assert any(warning["text"][:50] in comment for comment in comments)


def test_a_dry_run_writes_nothing(longline: Terminal, serve: Serve, tmp_path: Path) -> None:
    answer = longline("sources", "new", serve(LAYOUTS["cards"](1007)), "--json", "--dry-run")

    assert answer.code == 0
    assert answer.last["path"] is None
    assert list(tmp_path.glob("*.yaml")) == []


def test_a_page_drawn_by_scripts_without_data_is_exit_code_1(
    longline: Terminal, serve: Serve, tmp_path: Path
) -> None:
    site = MadeSite("empty", 0)
    site.html("/list", "App", '<div id="root"></div><script>start()</script>')

    answer = longline("sources", "new", serve(site), "--yes")

    assert answer.code == 1
    assert "--transport browser" in answer.err
    assert list(tmp_path.glob("*.yaml")) == []
