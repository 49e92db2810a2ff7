"""Discovery on index pages: links, elements, keys, follow rules."""

from __future__ import annotations

import gzip
import re
from typing import Any

import pytest

from longline.core.errors import DiscoveryFailed, Gone, UnexpectedShape
from longline.core.model import Cursor, Item
from longline.sources.base import Visit
from tests.sources.manifested import SITE, found_keys, linked, source_of
from tests.sources.scripted import ScriptedWeb, collect, discovered, notes_on
from tests.virtual import VirtualClock

LINKS = f"start: {SITE}/list\nitems: h3 a"
QUOTES = f"""
start: {SITE}/list
items: {{elements: .quote}}
fields: {{text: .text, author: {{css: .author, required: true}}}}
"""


def quote(text: str, author: str = "Gull") -> str:
    return f'<p class="quote"><b class="text">{text}</b><i class="author">{author}</i></p>'


def urlset(*paths: str, tag: str = "url") -> bytes:
    entries = "".join(f"<{tag}><loc>{SITE}{path}</loc></{tag}>" for path in paths)
    root = "urlset" if tag == "url" else "sitemapindex"
    return f"<{root}>{entries}</{root}>".encode()


# ---------------------------------------------------------------- start addresses


async def test_without_items_the_start_urls_are_items(clock: VirtualClock) -> None:
    text = f"start: {{url: '{SITE}/{{kind}}/{{n}}', each: {{kind: [a, b], n: {{from: 1, to: 2}}}}}}"

    assert await found_keys(text, {}, clock) == ["/a/1", "/a/2", "/b/1", "/b/2"]


async def test_a_range_has_a_step_and_leading_zeros(clock: VirtualClock) -> None:
    text = f"start: {{url: '{SITE}/{{n}}', each: {{n: {{from: 0, to: 25, step: 10, digits: 3}}}}}}"

    assert await found_keys(text, {}, clock) == ["/000", "/010", "/020"]


async def test_parameters_fill_a_url(clock: VirtualClock) -> None:
    text = """
    parameters: {base: https://shop.test, count: 3}
    start: {url: "{base}/p/{n}", each: {n: {from: 1, to: "{count}"}}}
    key: {url: "/p/(.+)"}
    """

    items, _ = await discovered(source_of(text, count=2), ScriptedWeb({}), clock)

    assert [item.key for item in items] == ["1", "2"]
    assert items[0].url == f"{SITE}/p/1"


async def test_a_range_whose_end_is_not_a_number_is_refused(clock: VirtualClock) -> None:
    text = """
    parameters: {count: many}
    start: {url: "https://shop.test/{n}", each: {n: {from: 1, to: "{count}"}}}
    """

    with pytest.raises(UnexpectedShape, match="many"):
        await found_keys(text, {}, clock)


async def test_start_urls_continue_after_a_crash(clock: VirtualClock) -> None:
    source = source_of(f"start: {{url: '{SITE}/{{n}}', each: {{n: {{from: 1, to: 450}}}}}}")
    _, cursors = await discovered(source, ScriptedWeb({}), clock)

    items, _ = await discovered(source, ScriptedWeb({}), clock, cursors[-1].value)

    assert [cursor.value for cursor in cursors] == [{"start": 200}, {"start": 400}]
    assert items[0].key == "/401"
    assert len(items) == 50


# ---------------------------------------------------------------- items on an index page


async def test_links_lead_to_items_each_once(clock: VirtualClock) -> None:
    page = linked("/p/1", "p/2?x=1", "/p/1#reviews", "mailto:me", "https://else.test/p/3")

    assert await found_keys(LINKS, {f"{SITE}/list": page}, clock) == [
        "/p/1",
        "/p/2?x=1",
        "else.test/p/3",
    ]


async def test_a_heading_is_read_as_the_link_in_it(clock: VirtualClock) -> None:
    text = f"start: {SITE}/list\nitems: h3"

    assert await found_keys(text, {f"{SITE}/list": linked("/p/1")}, clock) == ["/p/1"]


async def test_a_pattern_alone_selects_every_matching_link(clock: VirtualClock) -> None:
    text = f"start: {SITE}/list\nitems: {{match: '/p/\\d+$'}}"
    page = linked("/p/1", "/about", "/p/x") + '<a href="/p/2">x</a>'

    assert await found_keys(text, {f"{SITE}/list": page}, clock) == ["/p/1", "/p/2"]


async def test_a_key_comes_from_the_link_or_from_its_url(clock: VirtualClock) -> None:
    page = '<h3><a href="/p/7-cod" data-id="A7">x</a></h3>'

    assert await found_keys(f"{LINKS}\nkey: '@data-id'", {f"{SITE}/list": page}, clock) == ["A7"]
    by_address = f"{LINKS}\nkey: {{url: '/p/(\\d+)'}}"
    assert await found_keys(by_address, {f"{SITE}/list": page}, clock) == ["7"]


async def test_an_item_without_its_key_is_kept_under_its_path_with_a_note(
    clock: VirtualClock,
) -> None:
    visit = Visit(ScriptedWeb({f"{SITE}/list": linked("/p/1")}), clock)

    found = [one async for one in source_of(f"{LINKS}\nkey: '@data-id'").discover(visit)]

    assert [one.key for one in found if isinstance(one, Item)] == ["/p/1"]
    assert re.search(rf"\b1\b.*{SITE}/list", notes_on(visit, "discovery")[0])


# ---------------------------------------------------------------- elements that are items


async def test_elements_are_records_without_another_request(clock: VirtualClock) -> None:
    web = ScriptedWeb({f"{SITE}/list": quote("a") + quote("b")})
    source = source_of(QUOTES)
    items, _ = await discovered(source, web, clock)

    data, visit = await collect(source, web, items[1], clock)

    assert data == {"text": "b", "author": "Gull"}
    assert visit.origins["text"] == f"page {SITE}/list css .text"
    assert web.addresses == [f"{SITE}/list"]


async def test_rows_of_a_table_are_elements_too(clock: VirtualClock) -> None:
    text = f"start: {SITE}/list\nitems: {{elements: tr}}\nkey: td\nfields: {{n: 'td:last-child'}}"
    page = "<table><tr><td>a<td>1</tr><tr><td>b<td>2</tr></table>"
    web = ScriptedWeb({f"{SITE}/list": page})

    items, _ = await discovered(source_of(text), web, clock)

    assert [(item.key, item.data["fields"]["n"]) for item in items] == [("a", "1"), ("b", "2")]


async def test_an_element_without_a_required_field_is_found_and_refused(
    clock: VirtualClock,
) -> None:
    web = ScriptedWeb({f"{SITE}/list": quote("a", author="")})
    source = source_of(QUOTES)
    items, _ = await discovered(source, web, clock)

    with pytest.raises(UnexpectedShape, match=r"author.*css \.author"):
        await collect(source, web, items[0], clock)


async def test_notes_of_an_element_come_with_it(clock: VirtualClock) -> None:
    web = ScriptedWeb({f"{SITE}/list": quote("")})
    source = source_of(QUOTES)
    items, _ = await discovered(source, web, clock)

    _, visit = await collect(source, web, items[0], clock)

    (note,) = notes_on(visit, "text")
    assert "css .text" in note


async def test_elements_with_one_key_and_different_contents_are_all_kept(
    clock: VirtualClock,
) -> None:
    text = f"{QUOTES}\nkey: .author"
    page = quote("a") + quote("b") + quote("a")

    keys = await found_keys(text, {f"{SITE}/list": page}, clock)

    assert keys[0] == keys[2] == "Gull"
    assert keys[1].startswith("Gull ")


async def test_an_element_may_lead_to_a_page_and_bring_fields_of_its_own(
    clock: VirtualClock,
) -> None:
    text = f"""
    start: {SITE}/list
    items: {{elements: .card, link: a, fields: {{rank: b}}}}
    """
    page = '<div class="card"><a href="/p/1">x</a><b>7</b></div>'
    web = ScriptedWeb({f"{SITE}/list": page, f"{SITE}/p/1": "<h1>Cod</h1>"})
    source = source_of(text)
    items, _ = await discovered(source, web, clock)

    data, visit = await collect(source, web, items[0], clock)

    assert data == {"rank": "7", "title": "Cod"}
    assert visit.origins == {
        "rank": f"page {SITE}/list css b",
        "title": f"page {SITE}/p/1 css h1",
    }


# ---------------------------------------------------------------- following


FOLLOWING = f"""
start: {SITE}/
items: h3 a
follow: {{links: nav a, match: /c/}}
"""


async def test_index_pages_are_followed_each_once_on_their_own_host(clock: VirtualClock) -> None:
    nav = '<nav><a href="/c/1">1</a><a href="/c/2">2</a><a href="/x">x</a>'
    nav += '<a href="https://else.test/c/3">3</a></nav>'
    web = ScriptedWeb(
        {
            f"{SITE}/": linked(more=nav),
            f"{SITE}/c/1": linked("/p/1", more=nav),
            f"{SITE}/c/2": linked("/p/2", more=nav),
        }
    )

    items, _ = await discovered(source_of(FOLLOWING), web, clock)

    assert [item.key for item in items] == ["/p/1", "/p/2"]
    assert web.addresses == [f"{SITE}/", f"{SITE}/c/1", f"{SITE}/c/2"]


async def test_links_are_followed_up_to_the_depth(clock: VirtualClock) -> None:
    text = f"start: {SITE}/c/0\nitems: h3 a\nfollow: {{links: nav a, depth: 2}}"
    pages = {
        f"{SITE}/c/{n}": linked(f"/p/{n}", more=f'<nav><a href="/c/{n + 1}">x</a></nav>')
        for n in range(9)
    }

    assert await found_keys(text, pages, clock) == ["/p/0", "/p/1", "/p/2"]


async def test_a_category_that_is_gone_is_noted_and_the_rest_is_read(clock: VirtualClock) -> None:
    nav = '<nav><a href="/c/1">1</a><a href="/c/2">2</a></nav>'
    web = ScriptedWeb({f"{SITE}/": linked(more=nav), f"{SITE}/c/2": linked("/p/2")})
    visit = Visit(web, clock)

    found = [one async for one in source_of(FOLLOWING).discover(visit)]

    assert [one.key for one in found if isinstance(one, Item)] == ["/p/2"]
    assert f"{SITE}/c/1" in notes_on(visit, "discovery")[0]


async def test_a_start_url_that_is_gone_is_an_error(clock: VirtualClock) -> None:
    with pytest.raises(Gone):
        await found_keys(LINKS, {}, clock)


async def test_of_several_start_urls_one_that_is_gone_is_a_cut(clock: VirtualClock) -> None:
    text = f"start: [{SITE}/a, {SITE}/b]\nitems: h3 a"
    visit = Visit(ScriptedWeb({f"{SITE}/b": linked("/p/1")}), clock)

    found = [one async for one in source_of(text).discover(visit)]

    assert [one.key for one in found if isinstance(one, Item)] == ["/p/1"]
    assert f"{SITE}/a" in visit.cuts[0]


async def test_following_goes_on_after_a_crash_without_what_was_read(clock: VirtualClock) -> None:
    nav = '<nav><a href="/c/1">1</a><a href="/c/2">2</a></nav>'
    script = {
        f"{SITE}/": linked("/p/0", more=nav),
        f"{SITE}/c/1": linked("/p/1", more=nav),
        f"{SITE}/c/2": linked("/p/2", more='<a class="next" href="/c/2b">x</a>' + nav),
        f"{SITE}/c/2b": linked("/p/2b"),
    }
    source = source_of(f"{FOLLOWING}\npages: a.next")
    _, cursors = await discovered(source, ScriptedWeb(script), clock)
    between, within = ScriptedWeb(script), ScriptedWeb(script)

    after_a_list, _ = await discovered(source, between, clock, cursors[1].value)
    after_a_page, _ = await discovered(source, within, clock, cursors[2].value)

    assert between.addresses == [f"{SITE}/c/2", f"{SITE}/c/2b"]
    assert [item.key for item in after_a_list] == ["/p/2", "/p/2b"]
    assert within.addresses == [f"{SITE}/c/2b"]
    assert [item.key for item in after_a_page] == ["/p/2b"]


async def test_a_list_that_ends_with_the_last_page_that_may_be_read_is_whole(
    clock: VirtualClock,
) -> None:
    text = f"start: {SITE}/c/0\nitems: h3 a\nmost_pages: 2\npages: a.next"
    next_page = '<a class="next" href="/c/1">x</a>'
    pages = {f"{SITE}/c/0": linked("/p/0", more=next_page), f"{SITE}/c/1": linked("/p/1")}
    visit = Visit(ScriptedWeb(pages), clock)

    found = [one async for one in source_of(text).discover(visit)]

    assert len([one for one in found if isinstance(one, Item)]) == 2
    assert visit.notes == []


async def test_a_run_reads_no_more_index_pages_than_it_may(clock: VirtualClock) -> None:
    text = f"start: {SITE}/c/0\nitems: h3 a\nmost_pages: 3\npages: a.next"
    pages: dict[str, Any] = {
        f"{SITE}/c/{n}": linked(f"/p/{n}", more=f'<a class="next" href="/c/{n + 1}">x</a>')
        for n in range(9)
    }
    visit = Visit(ScriptedWeb(pages), clock)

    found = [one async for one in source_of(text).discover(visit)]

    assert len([one for one in found if isinstance(one, Item)]) == 3
    assert "most_pages" in visit.cuts[0]


# ---------------------------------------------------------------- sitemaps


SITEMAP = f"start: {SITE}\nitems: {{sitemap: true, match: /p/, sitemaps: products}}"


async def test_a_sitemap_lists_items_packed_or_not(clock: VirtualClock) -> None:
    script = {
        f"{SITE}/sitemap.xml": urlset(
            "/products-1.xml", "/products-2.xml.gz", "/b.xml", tag="sitemap"
        ),
        f"{SITE}/products-1.xml": urlset("/p/1", "/about", "/p/1"),
        f"{SITE}/products-2.xml.gz": gzip.compress(urlset("/p/2")),
    }

    assert await found_keys(SITEMAP, script, clock) == ["/p/1", "/p/2"]


async def test_sitemaps_go_on_after_a_crash_with_the_next_one(clock: VirtualClock) -> None:
    script = {
        f"{SITE}/sitemap.xml": urlset("/products-1.xml", "/products-2.xml", tag="sitemap"),
        f"{SITE}/products-1.xml": urlset("/p/1"),
        f"{SITE}/products-2.xml": urlset("/p/2"),
    }
    _, cursors = await discovered(source_of(SITEMAP), ScriptedWeb(script), clock)
    web = ScriptedWeb(script)

    items, _ = await discovered(source_of(SITEMAP), web, clock, cursors[1].value)

    assert [item.key for item in items] == ["/p/2"]
    assert web.addresses == [f"{SITE}/products-2.xml"]


async def test_an_index_that_lists_itself_ends(clock: VirtualClock) -> None:
    index = urlset("/sitemap.xml", "/products.xml", tag="sitemap")
    script = {f"{SITE}/sitemap.xml": index, f"{SITE}/products.xml": urlset("/p/1")}

    assert await found_keys(SITEMAP, script, clock) == ["/p/1"]


async def test_a_site_without_the_sitemap_fails_discovery(clock: VirtualClock) -> None:
    with pytest.raises(DiscoveryFailed, match=r"sitemap\.xml"):
        await found_keys(SITEMAP, {}, clock)


async def test_a_compressed_sitemap_that_is_broken_is_refused(clock: VirtualClock) -> None:
    with pytest.raises(UnexpectedShape, match=r"sitemap\.xml"):
        await found_keys(SITEMAP, {f"{SITE}/sitemap.xml": b"\x1f\x8bnonsense"}, clock)


async def test_a_list_on_which_nothing_is_found_is_a_failure(clock: VirtualClock) -> None:
    with pytest.raises(DiscoveryFailed, match="may_be_empty"):
        await found_keys(LINKS, {f"{SITE}/list": "<p>We have moved"}, clock)


async def test_a_list_that_may_be_empty_is_none(clock: VirtualClock) -> None:
    text = f"{LINKS}\nmay_be_empty: true"

    assert await found_keys(text, {f"{SITE}/list": "<p>Nothing today"}, clock) == []


async def test_a_discovery_that_is_left_early_closes_its_pages(clock: VirtualClock) -> None:
    web = ScriptedWeb({f"{SITE}/list": linked("/p/1", "/p/2")})
    stream = source_of(LINKS).discover(Visit(web, clock))

    first = await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]  # an async generator, as the engine knows

    assert not isinstance(first, Cursor)


async def test_elements_that_share_a_key_have_the_same_names_after_a_crash(
    clock: VirtualClock,
) -> None:
    source = source_of(f"""
        start: {SITE}/1
        items: {{elements: .row}}
        pages: a.next
        key: "@data-id"
        fields: {{text: b}}
        """)
    texts = ["first", "second", "first"]
    row = '<p class="row" data-id="a"><b>{}</b></p><a class="next" href="/{}">next</a>'
    script = {f"{SITE}/{n}": row.format(text, n + 1) for n, text in enumerate(texts, 1)}
    script[f"{SITE}/4"] = ""
    whole, cursors = await discovered(source, ScriptedWeb(script), clock)

    rest, _ = await discovered(source, ScriptedWeb(script), clock, cursors[0].value)

    keys = [item.key for item in whole]
    assert len(set(keys)) == 2
    assert [item.key for item in rest] == keys[1:]


async def test_elements_without_a_link_and_links_with_a_shared_key_are_noted(
    clock: VirtualClock,
) -> None:
    text = f"""
        start: {SITE}/list
        items: {{elements: .row, link: a@href}}
        key: {{url: "/(p)/"}}
        """
    rows = "".join(f'<p class="row"><a href="/p/{n}">{n}</a></p>' for n in range(3))
    web = ScriptedWeb({f"{SITE}/list": f'{rows}<p class="row">none</p>'})

    visit = Visit(web, clock)
    _ = [one async for one in source_of(text).discover(visit)]
    notes = notes_on(visit, "discovery")

    assert any(re.search(r"\b1\b.*link", note) for note in notes)
    assert any(re.search(r"\b2\b.*key", note) for note in notes)
