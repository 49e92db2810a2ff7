"""Crawls follow links by rules, read each page once, and end on sites without an end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from longline.analysis.reextract import ReextractStatus, reextract, source_for
from longline.config.documents import read_document
from longline.core.errors import BadFile
from longline.core.model import ItemState, JobState
from longline.engine.report import JobReport
from longline.http.archive.warc import open_warc
from longline.http.messages import Page
from longline.orchestrator import Orchestrator
from longline.sources.base import Visit, layer
from longline.sources.html.crawl import Crawl, CrawlSource, ItemRule, LinkRule
from longline.sources.manifest import parse_manifest
from longline.storage.store import open_store
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

ITEMS = "{items: {allow: /p/}}"


def links(*paths: str) -> str:
    return "".join(f'<a href="{path}">{path}</a>' for path in paths)


@pytest.fixture
def crawl(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> Callable[..., Awaitable[tuple[JobReport, dict[str, Any]]]]:
    """Run a manifest whose items are below /p/; return the report and the states by key."""

    async def run(rules: str = ITEMS, **more: str) -> tuple[JobReport, dict[str, Any]]:
        path = tmp_path / "shop.yaml"
        others = {"start": f"{site.url}/", **more}
        lines = "".join(f"{name}: {value}\n" for name, value in others.items())
        path.write_text(
            "manifest: html\nname: shop\nrate: unlimited\nfields: {title: h1}\n"
            f"{lines}crawl: {rules}\n"
        )
        async with Orchestrator(
            str(path), home=tmp_path, clock=clock, archive=True
        ) as orchestrator:
            report = await orchestrator.execute()
            rows = await orchestrator.store.queue.finished(report.job)
        return report, {row["key"]: row["state"] for row in rows}

    return run


async def test_items_and_pages_are_found_from_link_to_link(
    site: ScriptedSite, crawl: Callable[..., Any]
) -> None:
    site.says("/", links("/list", "/p/1", "/p/1#top", "/photo.jpg", "https://other.test/p/9"))
    site.says("/list", links("/", "/p/2?utm_source=list", "//[", "mailto:a@b.test"))
    site.says("/p/1", "<h1>One</h1>" + links("/p/3"))
    site.says("/p/2", "<h1>Two</h1>")
    site.says("/p/3", "<h1>Three</h1>")

    report, states = await crawl()

    assert report.state is JobState.COMPLETE
    assert states == {
        "page /": ItemState.SKIPPED,
        "page /list": ItemState.SKIPPED,
        "/p/1": ItemState.STORED,
        "/p/2": ItemState.STORED,
        "/p/3": ItemState.STORED,
    }
    assert max(site.hits.values()) == 1


async def test_a_crawl_is_extracted_again_without_a_request(
    site: ScriptedSite, crawl: Callable[..., Any], tmp_path: Path, clock: VirtualClock
) -> None:
    site.says("/", links("/list"))
    site.says("/list", links("/p/1"))
    site.says("/p/1", "<h1>One</h1>")

    report, _ = await crawl()
    site.answers.clear()
    with open_store(f"sqlite:///{tmp_path}/longline.sqlite") as store:
        async with open_warc(tmp_path / "archive") as archive:
            job = await store.jobs.get(report.job)
            again = await reextract(store, archive, job, source_for(job, None, {}), clock)

    states = {one.key: one.status for one in again.comparisons}
    assert states == {
        "page /": ReextractStatus.SKIPPED,
        "page /list": ReextractStatus.SKIPPED,
        "/p/1": ReextractStatus.SAME,
    }


async def test_rules_say_which_links_count(site: ScriptedSite, crawl: Callable[..., Any]) -> None:
    site.says("/", f"<nav>{links('/a', '/login')}</nav>{links('/b', '/p/1')}")
    site.says("/a", links("/p/2", "/p/2/print"))
    site.says("/p/2", "<h1>Two</h1>" + links("/p/3"))

    _, states = await crawl(
        "{items: {allow: /p/, deny: print, follow: false}, follow: {links: nav a, deny: [login]}}"
    )

    assert set(states) == {"page /", "page /a", "/p/1", "/p/2"}


async def test_a_crawl_ends_at_its_limits_and_says_where(
    site: ScriptedSite, crawl: Callable[..., Any]
) -> None:
    site.says("/", links("/a"))
    site.says("/a", links("/b"))
    site.says("/b", links("/c"))

    deep, reached = await crawl("{items: {allow: /p/}, max_depth: 2}")
    cut, _ = await crawl("{items: {allow: /p/}, max_pages: 2}", about="two pages")

    assert set(reached) == {"page /", "page /a", "page /b"}
    assert deep.state is JobState.COMPLETE
    assert deep.caveats.warnings == (
        "none of 3 items became a record",
        f"links beyond max_depth (2) were not followed, such as {site.url}/c",
    )
    assert cut.state is JobState.PARTIAL
    assert cut.caveats.cuts == ("there are more pages than max_pages (2) of the crawl",)


async def test_items_left_out_for_a_repeated_text_make_the_job_partial(
    site: ScriptedSite, crawl: Callable[..., Any]
) -> None:
    site.says("/", links("/p/?id=1&t=a", "/p/?id=1&t=b", "/p/?id=1&t=c", "/list"))
    site.says("/p/", "<h1>One</h1>")
    site.says("/list", links("/deeper"))
    site.says("/deeper", links("/p/?id=2&t=d"))

    report, states = await crawl("{items: {allow: /p/}, traps: {same_text: 2}}")

    assert "/p/?id=2&t=d" not in states
    assert report.state is JobState.PARTIAL


async def test_lists_without_text_are_followed_while_they_lead_to_items(
    site: ScriptedSite, crawl: Callable[..., Any]
) -> None:
    async def images(request: web.Request) -> web.StreamResponse:
        page = int(request.query["page"])
        return web.Response(
            text=f'<a href="/p/{page}"></a><a href="/list?page={page + 1}"></a>',
            content_type="text/html",
        )

    site.answers["/list"] = images

    _, states = await crawl(
        "{items: {allow: /p/}, traps: {same_text: 2}, max_depth: 5}",
        start=f"{site.url}/list?page=0",
    )

    assert {f"/p/{page}" for page in range(5)} <= set(states)


async def test_links_that_one_page_has_too_many_of_make_the_job_partial(
    site: ScriptedSite, crawl: Callable[..., Any]
) -> None:
    site.says("/", links(*(f"/list/{number}" for number in range(10_001))))

    report, states = await crawl("{items: {allow: /p/}, max_pages: 3}")

    assert report.state is JobState.PARTIAL
    problem = f"{site.url}/ has more than 10,000 links to follow; the others were left out"
    assert problem in report.caveats.cuts
    assert len(states) == 3


async def test_links_of_every_selector_are_followed(
    site: ScriptedSite, crawl: Callable[..., Any]
) -> None:
    site.says("/", links("/a") + '<map><area href="/b"></map>')
    site.says("/a", f"<nav>{links('/p/1')}</nav><main>{links('/p/2')}</main>")

    _, states = await crawl("{items: {links: [nav a, main a], allow: /p/}}")

    assert set(states) == {"page /", "page /a", "page /b", "/p/1", "/p/2"}


async def test_a_start_on_another_domain_is_a_cut_of_its_own(
    site: ScriptedSite, crawl: Callable[..., Any]
) -> None:
    site.says("/", links("/p/1"))

    report, _ = await crawl(
        "{items: {allow: /p/}, domains: shop.test}",
        start="'{base}/'",
        parameters=f"{{base: '{site.url}'}}",
    )

    assert report.state is JobState.PARTIAL
    assert report.caveats.cuts == (f"the start URL {site.url}/ is not on a domain of the crawl",)


async def test_a_redirect_is_one_page_with_its_target(
    site: ScriptedSite, crawl: Callable[..., Any]
) -> None:
    site.says("/", links("/go", "/p/1", "/away"))
    site.says("/go", status=302, headers={"location": "/p/1"})
    site.says("/away", status=302, headers={"location": f"http://localhost:{site.port}/there"})
    site.says("/there", links("/p/2"))
    site.says("/p/1", "<h1>One</h1>")

    report, states = await crawl()

    assert states["/p/1"] == ItemState.STORED
    assert states["page /go"] == ItemState.SKIPPED
    assert report.progress.counts[ItemState.STORED] == 1
    assert "/p/2" not in states


async def test_a_start_without_links_makes_the_job_partial(
    site: ScriptedSite, crawl: Callable[..., Any]
) -> None:
    site.says("/", "<h1>Enable JavaScript</h1>")

    report, _ = await crawl()

    assert report.state is JobState.PARTIAL


class Books(CrawlSource):
    name = "books"
    rate = None
    crawl = Crawl(items=(ItemRule(allow=(r"/book/\d+",)),), follow=(LinkRule(deny=("/cart",)),))

    async def read(self, page: Page, visit: Visit) -> Mapping[str, Any]:
        return {"title": page.first_text("h1"), "depth": visit.item.data["crawl"]["depth"]}

    @layer()
    async def stock(self, visit: Visit) -> Mapping[str, Any]:
        return {"left": int((await visit.fetch(f"{visit.item.url}/stock")).text)}


async def test_a_class_crawls_and_reads_what_it_finds(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Books, "start", (f"{site.url}/",))
    site.says("/", links("/shelf", "/cart"))
    site.says("/shelf", links("/book/1"))
    site.says("/book/1", "<h1>Emma</h1>")
    site.says("/book/1/stock", "3")

    async with Orchestrator(f"{__name__}:Books", home=tmp_path, clock=clock) as orchestrator:
        report = await orchestrator.execute()
        record = await orchestrator.store.records.get("/book/1")

    assert report.state is JobState.COMPLETE
    assert record["data"] == {"title": "Emma", "depth": 2, "left": 3}
    assert Counter(site.hits)["/cart"] == 0


@pytest.mark.parametrize(
    ("rules", "line", "problem"),
    [
        ("crawl: {max_depth: 3}", 6, "a crawl needs items"),
        ("crawl:\n  items: {}", 7, "which links lead to items"),
        ("crawl:\n  items: {allow: '/p/('}", 7, "regular expression"),
        ("crawl:\n  items: a\n  domains: https://a.test/", 8, "write a.test"),
        ("crawl: {items: a, domains: other.test}", 6, "domains of crawl do not cover the start"),
        ("crawl: {items: a}\nitems: a", 7, "cannot be combined with crawl"),
        ("crawl: {items: a}\npages: a.next", 7, "pages cannot be combined with crawl"),
        ("transport: auto\ncrawl: {items: a}", 7, "not auto"),
    ],
)
def test_a_wrong_crawl_is_one_error_with_its_line(
    rules: str, line: int, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "shop.yaml"
    head = "manifest: html\nname: shop\nrate: 1\nfields: {title: h1}\nstart: https://shop.test\n"
    path.write_text(f"{head}{rules}\n")

    with pytest.raises(BadFile, match=problem) as error:
        parse_manifest(read_document(path))

    assert error.value.line == line
