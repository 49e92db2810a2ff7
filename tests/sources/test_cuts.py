"""Discovery that ends early reports it: which ends are cuts, and which are the end of the list."""

from __future__ import annotations

import re
from typing import Any

import pytest
import scrapy
from scrapy.http import Response

from longline.core.errors import NothingToStore
from longline.core.model import CUT, WARNING, Cursor, Item
from longline.sources.base import Visit
from longline.sources.n8n.source import N8n
from longline.sources.scrapy import pack_request, scrapy_source
from tests.sources.api_bench import ApiSite, Bench
from tests.sources.manifested import SITE, linked, source_of
from tests.sources.scripted import ScriptedWeb
from tests.sources.test_api_pagination import manifest
from tests.sources.test_n8n_discovery import SEARCHING, ShiftingList
from tests.virtual import VirtualClock

LIST = f"{SITE}/list"


def paged(pages: str) -> str:
    return f"start: {LIST}\nitems: h3 a\npages: {pages}"


def next_link(to: str) -> str:
    return f'<a class="next" href="{to}">x</a>'


def urlset(*addresses: str, tag: str = "url") -> str:
    root = "urlset" if tag == "url" else "sitemapindex"
    entries = "".join(f"<{tag}><loc>{SITE}{one}</loc></{tag}>" for one in addresses)
    return f"<{root}>{entries}</{root}>"


async def walked(
    text: str, script: dict[str, Any], clock: VirtualClock, cursor: Any = None
) -> tuple[Visit, list[Item | Cursor]]:
    visit = Visit(ScriptedWeb(script), clock, cursor=cursor)
    return visit, [one async for one in source_of(text).discover(visit)]


def test_a_cut_and_a_warning_become_events_once_each(clock: VirtualClock) -> None:
    visit = Visit(ScriptedWeb({}), clock)

    for _ in range(2):
        visit.cut("too long")
        visit.warn("odd")

    assert [(one.type, dict(one.data)) for one in visit.usage.events] == [
        (CUT, {"reason": "too long"}),
        (WARNING, {"reason": "odd"}),
    ]


# ---------------------------------------------------------------- html


@pytest.mark.parametrize("back", ["/list", "/list?page=2", "/list?page=3"])
async def test_the_usual_last_page_is_the_end_of_a_list(back: str, clock: VirtualClock) -> None:
    script = {
        LIST: linked("/p/1", more=next_link("/list?page=2")),
        f"{LIST}?page=2": linked("/p/2", more=next_link("/list?page=3")),
        f"{LIST}?page=3": linked("/p/3", more=next_link(back)),
    }

    visit, _ = await walked(paged("a.next"), script, clock)

    assert visit.cuts == visit.warnings == []


async def test_a_next_link_into_the_middle_is_a_cut(clock: VirtualClock) -> None:
    script = {LIST: linked("/p/1", more=next_link("/list?page=2"))}
    script |= {
        f"{LIST}?page={n}": linked(f"/p/{n}", more=next_link(f"/list?page={n + 1}"))
        for n in range(2, 5)
    }
    script[f"{LIST}?page=5"] = linked("/p/5", more=next_link("/list?page=2"))

    visit, _ = await walked(paged("a.next"), script, clock)

    assert len(visit.cuts) == 1


async def test_a_next_page_that_the_selector_misses_is_warned_of(clock: VirtualClock) -> None:
    script = {LIST: linked("/p/1", more='<a rel="next" href="/list?page=2">x</a>')}

    missed, _ = await walked(paged("a.nxet"), script, clock)
    whole, _ = await walked(paged("a.next"), {LIST: linked("/p/1")}, clock)

    assert (len(missed.warnings), whole.warnings) == (1, [])


async def test_more_that_has_nothing_at_its_path_is_warned_of(clock: VirtualClock) -> None:
    more = '{kind: more, url: "{start}?page={page}", links: item}'
    script = {LIST: linked("/p/1"), f"{LIST}?page=2": '{"items": ["/p/2"]}'}

    visit, _ = await walked(paged(more), script, clock)

    assert len(visit.warnings) == 1


@pytest.mark.parametrize("third", [linked(), None])
async def test_a_list_that_ends_before_the_number_the_site_names_is_a_cut(
    third: str | None, clock: VirtualClock
) -> None:
    numbers = "<nav><a>1</a><a>2</a><a>9</a></nav>"
    script = {LIST: linked("/p/1", more=numbers), f"{LIST}?page=2": linked("/p/2", more=numbers)}
    if third is not None:
        script[f"{LIST}?page=3"] = third

    visit, _ = await walked(paged("{kind: numbered, last: nav a}"), script, clock)

    assert len(visit.cuts) == 1


async def test_a_last_page_in_the_manifest_is_no_promise_of_the_site(clock: VirtualClock) -> None:
    script = {LIST: linked("/p/1"), f"{LIST}?page=2": linked()}

    visit, _ = await walked(paged("{kind: numbered, last: 9}"), script, clock)

    assert visit.cuts == []


async def test_a_second_page_that_repeats_the_first_is_warned_of(clock: VirtualClock) -> None:
    script = {LIST: linked("/p/1"), f"{LIST}?page=2": linked("/p/1")}

    visit, _ = await walked(paged("{kind: numbered}"), script, clock)

    assert (visit.cuts, len(visit.warnings)) == ([], 1)


async def test_a_repeated_last_page_after_others_is_fine(clock: VirtualClock) -> None:
    script = {
        LIST: linked("/p/1"),
        f"{LIST}?page=2": linked("/p/2"),
        f"{LIST}?page=3": linked("/p/2"),
    }

    visit, _ = await walked(paged("{kind: numbered}"), script, clock)

    assert visit.cuts == visit.warnings == []


async def test_the_cut_of_a_whole_run_comes_again_after_a_crash(clock: VirtualClock) -> None:
    text = f"{paged('a.next')}\nmost_pages: 2"
    script = {LIST: linked("/p/1", more=next_link("/list?page=2"))}
    script |= {
        f"{LIST}?page={n}": linked(f"/p/{n}", more=next_link(f"/list?page={n + 1}"))
        for n in range(2, 9)
    }
    first, found = await walked(text, script, clock)
    cursors = [one.value for one in found if isinstance(one, Cursor)]

    again = [(await walked(text, script, clock, cursor))[0].cuts for cursor in cursors]

    assert len(first.cuts) == 1
    assert again == [first.cuts] * len(cursors)


@pytest.mark.parametrize(("said", "cuts"), [("", 1), (", depth: 5", 0), (", depth: 9", 0)])
async def test_links_beyond_the_default_depth_are_a_cut(
    said: str, cuts: int, clock: VirtualClock
) -> None:
    text = f"start: {SITE}/c/0\nitems: h3 a\nfollow: {{links: nav a{said}}}"
    pages = {
        f"{SITE}/c/{n}": linked(f"/p/{n}", more=f'<nav><a href="/c/{n + 1}">x</a></nav>')
        for n in range(8)
    }
    pages[f"{SITE}/c/8"] = linked("/p/8", more='<nav><a href="/c/0">x</a></nav>')

    visit, _ = await walked(text, pages, clock)

    assert len(visit.cuts) == cuts


async def test_links_back_from_the_deepest_page_are_no_cut(clock: VirtualClock) -> None:
    text = f"start: {SITE}/c/0\nitems: h3 a\nfollow: {{links: nav a}}"
    pages = {
        f"{SITE}/c/{n}": linked(f"/p/{n}", more=f'<nav><a href="/c/{(n + 1) % 6}">x</a></nav>')
        for n in range(6)
    }

    visit, _ = await walked(text, pages, clock)

    assert visit.cuts == []


async def test_sitemaps_beyond_most_pages_are_a_cut(clock: VirtualClock) -> None:
    text = f"start: {SITE}\nitems: {{sitemap: true}}\nmost_pages: 2"
    script = {
        f"{SITE}/sitemap.xml": urlset("/a.xml", "/b.xml", tag="sitemap"),
        f"{SITE}/a.xml": urlset("/p/1"),
        f"{SITE}/b.xml": urlset("/p/2"),
    }

    visit, _ = await walked(text, script, clock)

    assert len(visit.cuts) == 1


async def test_a_sitemap_that_the_index_names_and_is_gone_is_a_cut(clock: VirtualClock) -> None:
    text = f"start: {SITE}\nitems: {{sitemap: true}}"
    script = {
        f"{SITE}/sitemap.xml": urlset("/a.xml", "/b.xml", tag="sitemap"),
        f"{SITE}/a.xml": urlset("/p/1"),
    }

    visit, _ = await walked(text, script, clock)

    assert len(visit.cuts) == 1


async def test_a_url_that_is_too_long_is_left_out_with_a_warning(clock: VirtualClock) -> None:
    text = f"start: {SITE}\nitems: {{sitemap: true}}"
    script = {f"{SITE}/sitemap.xml": urlset("/p/1", "/" + "x" * 100_000)}

    visit, found = await walked(text, script, clock)

    assert [one.url for one in found if isinstance(one, Item)] == [f"{SITE}/p/1"]
    assert len(visit.warnings) == 1


async def test_elements_without_a_link_are_warned_of(clock: VirtualClock) -> None:
    text = f"start: {LIST}\nitems: {{elements: li, link: a}}"
    script = {LIST: '<li><a href="/p/1">1</a></li><li>no link</li>'}

    visit, _ = await walked(text, script, clock)

    assert (visit.cuts, len(visit.warnings)) == ([], 1)


# ---------------------------------------------------------------- apis


@pytest.mark.parametrize(
    ("pagination", "answer"),
    [
        ("{kind: cursor, path: cursor, has_more: more}", {"more": True, "cursor": None}),
        ("{kind: next, path: next, total: total}", {"total": 2, "next": "/products?page=2"}),
        ("{kind: page, total: total, has_more: more}", {"total": 2, "more": True}),
    ],
)
async def test_an_api_that_says_there_is_more_is_a_cut(
    api: ApiSite, bench: Bench, pagination: str, answer: dict[str, Any]
) -> None:
    api.says("/products", {"items": [{"id": 1}, {"id": 2}], **answer})

    await bench.find(manifest(pagination))

    assert len(bench.cuts) == 1


@pytest.mark.parametrize(("page", "cuts"), [("1", 0), ("2", 1)])
async def test_a_list_that_a_rule_skips_half_way_is_a_cut(
    api: ApiSite, bench: Bench, page: str, cuts: int
) -> None:
    def reply(query: dict[str, str], _body: bytes) -> Any:
        return {"busy": query["page"] == page, "items": [{"id": query["page"]}]}

    api.says("/products", reply)
    rule = "handlers: [{when: {body: busy}, do: skip}]"
    text = manifest("{kind: page, most_pages: 9}", rule)

    await bench.find(f"{text}\nmay_be_empty: true")

    assert len(bench.cuts) == cuts


async def test_numbered_pages_that_repeat_the_last_one_are_whole(
    api: ApiSite, bench: Bench
) -> None:
    def reply(query: dict[str, str], _body: bytes) -> Any:
        return {"items": [{"id": min(int(query["page"]), 3)}]}

    api.says("/products", reply)

    found = await bench.find(manifest("{kind: page}"))

    assert {item.key for item in found} == {"1", "2", "3"}
    assert bench.cuts == []


# ---------------------------------------------------------------- n8n and scrapy


async def test_a_search_that_lists_less_than_it_counts_is_a_cut_after_a_crash(
    clock: VirtualClock,
) -> None:
    visit = Visit(ShiftingList(5, claimed=9), clock, cursor={"page": 2, "before": 2})

    found = [one async for one in N8n.with_options({**SEARCHING, "rows": 2}).discover(visit)]

    assert len([one for one in found if isinstance(one, Item)]) == 3
    (cut,) = visit.cuts
    assert re.findall(r"\d+", cut) == ["9", "5"]


class Deep(scrapy.Spider):
    name = "deep"
    start_urls = [SITE]  # noqa: RUF012  # as Scrapy has it
    custom_settings = {"DEPTH_LIMIT": 1, "CLOSESPIDER_PAGECOUNT": 5}  # noqa: RUF012  # the same

    def parse(self, response: Response, **_kwargs: Any) -> Any:
        yield scrapy.Request(f"{response.url}/further")


async def test_links_beyond_the_depth_limit_of_a_spider_are_a_cut(clock: VirtualClock) -> None:
    source = scrapy_source(Deep).with_options({})
    begin = Visit(ScriptedWeb({}), clock)
    _ = [one async for one in source.discover(begin)]
    spider = source._crawl.spider  # type: ignore[attr-defined]  # the way in for one request

    cuts = []
    for depth in (0, 1):
        packed = pack_request(scrapy.Request(SITE, meta={"depth": depth}), spider)
        item = Item("k", SITE, data={"request": packed})
        visit = Visit(ScriptedWeb({SITE: "x"}), clock, item=item)
        with pytest.raises(NothingToStore):
            await source.record(visit)  # type: ignore[attr-defined]  # its one layer
        cuts.append(len(visit.cuts))

    assert cuts == [0, 1]
    assert len(begin.warnings) == 1
