"""Sitemaps and feeds of every form, whole and broken."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from longline.core.errors import (
    CircuitOpen,
    DiscoveryFailed,
    FetchError,
    ServerFailed,
    UnexpectedShape,
)
from longline.core.model import Item
from longline.http.errors import BodyCut, RobotsDisallowed
from longline.http.messages import Page
from longline.sources.base import Visit
from longline.sources.html.sitemaps import Sitemap, read_sitemap
from tests.sources.manifested import SITE, source_of
from tests.sources.scripted import ScriptedWeb
from tests.sources.test_html_discovery import urlset
from tests.virtual import VirtualClock

ALL = f"start: {SITE}\nitems: {{sitemap: true}}"
NAMED = f"items: {{sitemap: ['{SITE}/a.xml', '{SITE}/b.xml']}}"
INDEX = {
    f"{SITE}/sitemap.xml": urlset("/1.xml", "/2.xml", "/3.xml", tag="sitemap"),
    f"{SITE}/1.xml": urlset("/p/1"),
    f"{SITE}/2.xml": urlset("/p/2"),
    f"{SITE}/3.xml": urlset("/p/3"),
}
TWO = ("http://a.test/1", "http://a.test/2")


def read(body: bytes | str) -> Sitemap:
    data = body.encode() if isinstance(body, str) else body
    return read_sitemap(Page("http://a.test/sitemap", 200, {}, data))


async def walked(
    text: str, script: dict[str, Any], clock: VirtualClock
) -> tuple[list[str], Visit, ScriptedWeb]:
    web = ScriptedWeb(script)
    visit = Visit(web, clock)
    found = [one async for one in source_of(text).discover(visit)]
    return [one.key for one in found if isinstance(one, Item)], visit, web


# ---------------------------------------------------------------- forms


@pytest.mark.parametrize(
    "body",
    [
        "http://a.test/1\nhttp://a.test/2\n",
        "\ufeffhttp://a.test/1\r\n\r\n  http://a.test/2",
        (
            "<urlset><url><loc>http://a.test/1</loc></url>"
            "<url><loc>\nhttp://a.test/2 </loc></url></urlset>"
        ),
        (
            "\n\n<?xml version='1.0'?><urlset><url><loc>http://a.test/1</loc></url>"
            "<url><loc><![CDATA[http://a.test/2]]></loc></url></urlset>"
        ),
        (
            "<rss version='2.0'><channel><link>http://a.test/</link>"
            "<item><link>http://a.test/1</link></item>"
            "<item><guid>http://a.test/2</guid></item>"
            "<item><guid isPermaLink='false'>http://a.test/3</guid></item></channel></rss>"
        ),
        (
            "<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#' "
            "xmlns='http://purl.org/rss/1.0/'><channel><link>http://a.test/</link></channel>"
            "<item><link>http://a.test/1</link></item><item><link>http://a.test/2</link></item></rdf:RDF>"
        ),
        (
            "<feed xmlns='http://www.w3.org/2005/Atom'><link href='http://a.test/'/>"
            "<entry><link rel='self' href='http://a.test/x'/><link href='http://a.test/1'/></entry>"
            "<entry><link rel='alternate' href='http://a.test/2'/>"
            "<link rel='enclosure' href='http://a.test/y'/></entry></feed>"
        ),
    ],
)
def test_every_form_of_the_protocol_is_read(body: str) -> None:
    assert read(body) == Sitemap(is_index=False, urls=TWO)


def test_an_ampersand_that_is_not_escaped_is_read_as_it_is() -> None:
    body = "<urlset><url><loc>http://a.test/?a=1&b=2&amp;c=3&copy=4</loc></url></urlset>"

    assert read(body) == Sitemap(is_index=False, urls=("http://a.test/?a=1&b=2&c=3&copy=4",))


def test_a_declared_charset_that_cannot_be_right_is_ignored() -> None:
    body = '<?xml version="1.0" encoding="utf-16"?>'

    assert read(f"{body}<urlset><url><loc>http://a.test/1</loc></url></urlset>").urls == TWO[:1]


@pytest.mark.parametrize(
    "body",
    ["", "  \n", "We have moved.", "<html><body>http://a.test/1</body></html>", "<p>x", "{}"],
)
def test_what_is_not_a_sitemap_is_refused(body: str) -> None:
    with pytest.raises(UnexpectedShape):
        read(body)


def test_entities_are_refused() -> None:
    with pytest.raises(UnexpectedShape):
        read(
            '<!DOCTYPE x [<!ENTITY a "b">]><urlset><url><loc>http://a.test/&a;</loc></url></urlset>'
        )


# ---------------------------------------------------------------- broken parts


@pytest.mark.parametrize(
    "body",
    [
        (
            "<urlset><url><loc>http://a.test/1</loc></url><url><loc>http://a.test/2</loc></url>"
            "<url><loc>http://a.test/thi"
        ),
        (
            "<urlset><url><loc>http://a.test/1</loc></url><url><loc>http://a.test/2</loc></url>"
            "<url><loc>http://a.test/3</wrong></url></urlset>"
        ),
        (
            "<rss><channel><item><link>http://a.test/1</link></item>"
            "<item><link>http://a.test/2</link></item><item><link>http://a.te"
        ),
        (
            "<feed><entry><link href='http://a.test/1'/></entry>"
            "<entry><link href='http://a.test/2'/></entry><entry><link href='http://"
        ),
        "http://a.test/1\nhttp://a.test/2\nnot an address\n",
        (
            b"<urlset><url><loc>http://a.test/1</loc></url><url><loc>http://a.test/\xff</loc></url>"
            b"<url><loc>http://a.test/2</loc></url></urlset>"
        ),
    ],
)
def test_what_is_intact_is_read_and_the_rest_reported(body: bytes | str) -> None:
    sitemap = read(body)

    assert sitemap.urls == TWO
    assert sitemap.problem


@pytest.mark.parametrize(
    "child",
    [
        urlset("/p/2", "/p/x").removesuffix(b"</loc></url></urlset>"),
        gzip.compress(urlset("/p/2") + b" " * 100, mtime=0)[:-8],
    ],
)
async def test_a_truncated_child_costs_its_missing_part_only(
    clock: VirtualClock, child: bytes
) -> None:
    keys, visit, _ = await walked(ALL, INDEX | {f"{SITE}/2.xml": child}, clock)

    assert keys == ["/p/1", "/p/2", "/p/3"]
    assert len(visit.cuts) == 1


async def test_a_truncated_gzipped_text_yields_no_partial_url(clock: VirtualClock) -> None:
    packed = gzip.compress(f"{SITE}/p/2\n{SITE}/p/22222".encode(), 0)

    keys, visit, _ = await walked(ALL, INDEX | {f"{SITE}/2.xml": packed[:-12]}, clock)

    assert keys == ["/p/1", "/p/2", "/p/3"]
    assert len(visit.cuts) == 1


async def test_a_packed_child_may_have_several_members(clock: VirtualClock) -> None:
    packed = gzip.compress(urlset("/p/2")[:20]) + gzip.compress(urlset("/p/2")[20:])

    keys, visit, _ = await walked(ALL, INDEX | {f"{SITE}/2.xml": packed}, clock)

    assert keys == ["/p/1", "/p/2", "/p/3"]
    assert not visit.cuts


@pytest.mark.parametrize(
    "child",
    [
        b"<html>not found</html>",
        b"\x1f\x8bnonsense",
        BodyCut(f"{SITE}/2.xml", 7),
        RobotsDisallowed(f"{SITE}/2.xml", "line 1"),
        ServerFailed(f"{SITE}/2.xml", 500),
    ],
)
async def test_a_child_that_cannot_be_read_does_not_stop_the_others(
    clock: VirtualClock, child: bytes | FetchError
) -> None:
    keys, visit, _ = await walked(ALL, INDEX | {f"{SITE}/2.xml": child}, clock)

    assert keys == ["/p/1", "/p/3"]
    assert len(visit.cuts) == 1


async def test_a_child_that_fails_for_a_while_is_read_later(clock: VirtualClock) -> None:
    child = [ServerFailed(f"{SITE}/2.xml", 500), urlset("/p/2")]

    keys, visit, _ = await walked(ALL, INDEX | {f"{SITE}/2.xml": child}, clock)

    assert keys == ["/p/1", "/p/3", "/p/2"]
    assert not visit.cuts


async def test_a_site_that_is_down_delays_discovery_as_a_whole(clock: VirtualClock) -> None:
    child = CircuitOpen(f"{SITE}/2.xml", 100.0, "five failures")

    with pytest.raises(CircuitOpen):
        await walked(ALL, INDEX | {f"{SITE}/2.xml": child}, clock)


async def test_one_of_several_named_sitemaps_may_be_broken(clock: VirtualClock) -> None:
    keys, visit, _ = await walked(NAMED, {f"{SITE}/b.xml": urlset("/p/1")}, clock)

    assert keys == ["/p/1"]
    assert len(visit.cuts) == 1


# ---------------------------------------------------------------- robots.txt


async def test_sitemaps_of_robots_txt_are_read_instead_of_the_usual_one(
    clock: VirtualClock,
) -> None:
    script = {
        f"{SITE}/robots.txt": f"User-agent: *\nSitemap: {SITE}/one.xml\nsitemap: /two.txt\n",
        f"{SITE}/one.xml": urlset("/p/1"),
        f"{SITE}/two.txt": f"{SITE}/p/2\n",
    }

    keys, visit, web = await walked(ALL, script, clock)

    assert keys == ["/p/1", "/p/2"]
    assert f"{SITE}/sitemap.xml" not in web.addresses
    assert not visit.cuts


async def test_sitemaps_of_robots_txt_are_chosen_like_those_of_an_index(
    clock: VirtualClock,
) -> None:
    text = f"start: {SITE}\nitems: {{sitemap: true, sitemaps: products}}"
    lines = f"Sitemap: {SITE}/news.xml\nSitemap: {SITE}/products.xml\n"
    script = {f"{SITE}/robots.txt": lines, f"{SITE}/products.xml": urlset("/p/1")}

    keys, visit, _ = await walked(text, script, clock)

    assert keys == ["/p/1"]
    assert not visit.cuts


async def test_an_index_in_robots_txt_need_not_match(clock: VirtualClock) -> None:
    text = f"start: {SITE}\nitems: {{sitemap: true, sitemaps: products}}"
    script = {
        f"{SITE}/robots.txt": f"Sitemap: {SITE}/index.xml\n",
        f"{SITE}/index.xml": urlset("/products.xml", "/news.xml", tag="sitemap"),
        f"{SITE}/products.xml": urlset("/p/1"),
    }

    keys, _, web = await walked(text, script, clock)

    assert keys == ["/p/1"]
    assert f"{SITE}/news.xml" not in web.addresses


@pytest.mark.parametrize("robots", [None, "User-agent: *\nDisallow: /x\n", ServerFailed(SITE, 500)])
async def test_without_sitemaps_in_robots_txt_the_usual_one_is_read(
    clock: VirtualClock, robots: str | FetchError | None
) -> None:
    script = {f"{SITE}/robots.txt": robots, f"{SITE}/sitemap.xml": urlset("/p/1")}

    keys, _, _ = await walked(ALL, script, clock)

    assert keys == ["/p/1"]


async def test_the_only_sitemap_of_robots_txt_must_exist(clock: VirtualClock) -> None:
    with pytest.raises(DiscoveryFailed):
        await walked(ALL, {f"{SITE}/robots.txt": f"Sitemap: {SITE}/none.xml"}, clock)
