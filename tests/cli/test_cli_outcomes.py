"""The summary of a run, by the real command against a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from longline.sandbox.web import PracticeWeb, WebOptions
from tests.fork_server import ForkServer, Result
from tests.hostile_data import env_of


@dataclass
class Site:
    """A web server in a thread; `pages` holds bodies by path, the others answer 404."""

    url: str = ""
    pages: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Command:
    """The command line in a folder of its own."""

    server: ForkServer
    folder: Path

    def __call__(self, *words: str, **how: Any) -> Result:
        env = env_of(self.folder, LONGLINE_HOME=str(self.folder / "home"))
        answer = self.server.run(*words, env=env, cwd=str(self.folder), **how)
        assert b"Traceback" not in answer.err
        return answer

    def result(self, *words: str, **how: Any) -> tuple[int, Any]:
        """Return the exit code and the last line of stdout, as JSON."""
        answer = self(*words, "--json", **how)
        lines = answer.out.splitlines()
        assert lines, answer
        return answer.code, json.loads(lines[-1])

    def write(self, text: str, name: str = "shop.yaml") -> str:
        (self.folder / name).write_text(text)
        return name


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer() as server:
        yield server


@pytest.fixture
def longline(server: ForkServer, tmp_path: Path) -> Command:
    return Command(server, tmp_path)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = site.pages.get(self.path)
            body = (text or "").encode()
            kinds = {b"{": "application/json", b"<?": "application/xml"}
            self.send_response(404 if text is None else 200)
            self.send_header("Content-Type", kinds.get(body[:2].rstrip(b'"'), "text/html"))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_parts: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        site.url = f"http://127.0.0.1:{web.server_address[1]}"
        thread = Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield site
        web.shutdown()
        thread.join()


def html(items: str, more: str = "", fields: str = "{title: b}") -> str:
    return f"""
manifest: html
name: shop
rate: unlimited
start: "URL/list"
items: {items}
fields: {fields}
{more}
"""


def listed(number: int, more: str = "") -> str:
    return f"<li><b>Item {number}</b></li>{more}"


def leads_to(target: str) -> str:
    return f'<a class="next" href="{target}">next</a>'


# ---------------------------------------------------------------- lists that were cut


def endless(site: Site) -> str:
    site.pages["/list"] = listed(1, leads_to("/list2"))
    for number in range(2, 20):
        site.pages[f"/list{number}"] = listed(number, leads_to(f"/list{number + 1}"))
    return html("{elements: li}", "pages: {kind: next, css: a.next, most_pages: 3}")


def back_into_the_middle(site: Site) -> str:
    site.pages["/list"] = listed(1, leads_to("/list2"))
    for number in range(2, 5):
        site.pages[f"/list{number}"] = listed(number, leads_to(f"/list{number + 1}"))
    site.pages["/list5"] = listed(5, leads_to("/list2"))
    return html("{elements: li}", "pages: a.next")


def fewer_than_named(site: Site) -> str:
    numbers = "<nav><a>1</a><a>2</a><a>9</a></nav>"
    site.pages["/list"] = listed(1, numbers)
    site.pages["/list?page=2"] = listed(2, numbers)
    return html("{elements: li}", "pages: {kind: numbered, last: nav a}")


def deep(site: Site) -> str:
    site.pages["/list"] = listed(0, '<nav><a href="/c/1">x</a></nav>')
    for number in range(1, 9):
        site.pages[f"/c/{number}"] = listed(number, f'<nav><a href="/c/{number + 1}">x</a></nav>')
    return html("{elements: li}", "follow: {links: nav a}")


def lost_sitemap(site: Site) -> str:
    site.pages["/sitemap.xml"] = (
        f"<?xml version='1.0'?><sitemapindex><sitemap><loc>{site.url}/a.xml</loc></sitemap>"
        f"<sitemap><loc>{site.url}/b.xml</loc></sitemap></sitemapindex>"
    )
    site.pages["/a.xml"] = (
        f"<?xml version='1.0'?><urlset><url><loc>{site.url}/p/1</loc></url></urlset>"
    )
    site.pages["/p/1"] = "<b>One</b>"
    return html("{sitemap: true}")


def unreadable_sitemap(site: Site) -> str:
    text = lost_sitemap(site)
    site.pages["/b.xml"] = site.pages["/a.xml"]
    site.pages["/a.xml"] = "<urlset><url><loc>"
    return text


def unreadable_category(site: Site) -> str:
    links = "".join(f'<nav><a href="/c/{number}">x</a></nav>' for number in range(1, 4))
    site.pages |= {"/list": listed(0, links), "/c/1": listed(1), "/c/3": listed(3)}
    site.pages["/c/2"] = listed(2) + "<div>" * 100_000
    return html("{elements: li}", "follow: {links: nav a}")


def more_without_a_cursor(site: Site) -> str:
    site.pages["/things"] = '{"items": [{"id": 1}, {"id": 2}], "more": true, "cursor": null}'
    return """
manifest: api
name: shop
rate: unlimited
base_url: "URL"
endpoints:
  things:
    path: /things
    records: items
    key: id
    pagination: {kind: cursor, path: cursor, has_more: more}
"""


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (endless, 3),
        (back_into_the_middle, 5),
        (fewer_than_named, 2),
        (deep, 6),
        (lost_sitemap, 1),
        (unreadable_sitemap, 1),
        (unreadable_category, 3),
        (more_without_a_cursor, 2),
    ],
)
def test_a_list_that_was_cut_is_partial_wherever_it_is_shown(
    longline: Command, site: Site, make: Callable[[Site], str], count: int
) -> None:
    path = longline.write(make(site).replace("URL", site.url))

    code, result = longline.result("run", path)
    _, (job,) = longline.result("jobs")
    reported, report = longline.result("report", result["job"])

    assert (code, result["state"]) == (3, "partial")
    assert result["stored"] == result["discovered"] == count
    assert (job["job"], job["state"], job["reason"]) == (result["job"], "partial", result["reason"])
    assert len(result["cuts"]) == 1
    assert result["cuts"][0] in result["reason"]
    assert (reported, report["cuts"]) == (3, result["cuts"])


# ---------------------------------------------------------------- records that look wrong


def test_equal_titles_cause_a_warning(longline: Command, site: Site) -> None:
    site.pages["/list"] = "".join(f'<p class="tag"><a href="/tag/{n}">{n}</a>' for n in range(12))
    for number in range(12):
        site.pages[f"/tag/{number}"] = "<title>Quotes to Scrape</title><h1>Quotes"
    path = longline.write(html(".tag a", fields="{title: title}").replace("URL", site.url))

    _, result = longline.result("run", path)
    answer = longline("run", path, "--fresh")

    assert result["stored"] == 12
    assert result["reason"]
    assert result["warnings"]
    assert all(text in result["reason"] for text in result["warnings"])
    assert result["warnings"][0] in answer.out.decode() + answer.err.decode()


def test_an_empty_column_is_reported_once(longline: Command, site: Site) -> None:
    site.pages["/list"] = "".join(listed(number) for number in range(12))
    fields = "{title: b, price: .price}"
    path = longline.write(html("{elements: li}", fields=fields).replace("URL", site.url))

    (_, first), (_, second) = [longline.result("run", path, "--fresh") for _ in range(2)]

    assert "price" in first["reason"]
    assert second["reason"] is None


@pytest.mark.real_time
async def test_usually_empty_fields_are_not_reported(longline: Command) -> None:
    async with PracticeWeb(WebOptions(items=30, seed=1)) as web:
        addresses = {"site_url": web.site_url, "api_url": web.api_url}
        settings = [f"--set={name}={value}" for name, value in addresses.items()]
        words = ("run", "n8n", *settings, "--set=transcripts=false", "--rate=unlimited")
        _, result = await asyncio.to_thread(longline.result, *words)

    assert (result["state"], result["reason"]) == ("complete", None)


# ---------------------------------------------------------------- one bad input


def test_a_broken_manifest_does_not_affect_other_sources(longline: Command, site: Site) -> None:
    site.pages["/list"] = listed(1)
    (longline.folder / "sources").mkdir()
    good = html("{elements: li}").replace("URL", site.url)
    longline.write(good, "sources/good.yaml")
    longline.write(good.replace("items:", "itmes:"), "sources/broken.yaml")

    answer = longline("run", "--all")
    _, count = longline.result("records", "count")

    assert (answer.code, count) == (2, {"records": 1})


def test_a_deeply_nested_page_fails_only_its_item(longline: Command, site: Site) -> None:
    site.pages["/list"] = '<h3><a href="/p/1">1</a></h3><h3><a href="/p/2">2</a></h3>'
    site.pages["/p/1"] = "<b>One</b>" + "<div>" * 1_000_000
    site.pages["/p/2"] = "<b>Two</b>"
    path = longline.write(html("h3 a").replace("URL", site.url))

    code, result = longline.result("run", path)

    assert (code, result["stored"], result["discovered"]) == (3, 1, 2)
