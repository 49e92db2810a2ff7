"""The template web site: pages, sitemaps, robots.txt and images."""

from __future__ import annotations

import re

import pytest
from aiohttp import ClientSession
from selectolax.lexbor import LexborHTMLParser

from longline.sandbox.templates.pages import to_html, to_text
from longline.sandbox.web import PracticeWeb, WebOptions
from tests.sandbox.client import status_at
from tests.virtual import VirtualClock


async def text_at(client: ClientSession, url: str) -> str:
    async with client.get(url) as answer:
        assert answer.status == 200
        return await answer.text()


async def test_the_sitemap_index_lists_every_template(
    client: ClientSession, web: PracticeWeb
) -> None:
    index = await text_at(client, f"{web.url}/sitemap_index.xml")
    sitemap = await text_at(client, re.findall(r"<loc>(.+?)</loc>", index)[0])

    addresses = re.findall(r"<loc>(.+?)</loc>", sitemap)
    assert addresses == [web.url + web.catalogue.path(number) for number in web.catalogue.ids]
    assert re.fullmatch(rf"{web.url}/workflows/\d+-[a-z0-9-]+/", addresses[0])


async def test_a_page_shows_its_template(client: ClientSession, web: PracticeWeb) -> None:
    number = web.catalogue.ids[7]
    template = web.catalogue.template(number)

    tree = LexborHTMLParser(await text_at(client, web.url + web.catalogue.path(number)))

    title = tree.css_first("#__nuxt h1")
    assert title is not None
    assert title.text() == template.name
    assert attribute(tree, 'meta[property="og:title"]', "content") == (
        f"{template.name} | n8n workflow template"
    )
    assert (
        attribute(tree, 'meta[property="og:image"]', "content") == f"{web.url}/images/{number}.png"
    )
    assert attribute(tree, 'meta[name="description"]', "content")
    assert (
        attribute(tree, ".byline a", "href") == f"/creators/{template.detail['user']['username']}/"
    )
    assert len(tree.css('a[href^="/integrations/"]')) >= len(template.integrations)


async def test_a_page_ends_with_boilerplate(client: ClientSession, web: PracticeWeb) -> None:
    number = web.catalogue.ids[7]

    tree = LexborHTMLParser(await text_at(client, f"{web.url}/workflows/{number}"))

    others = tree.css('section.section-creator-workflows a[href^="/workflows/"]')
    assert len(others) == 3
    assert tree.css_first('[role="dialog"]') is not None


@pytest.mark.parametrize("form", ["{id}", "{id}/", "{id}-any-slug", "{id}-any-slug/"])
async def test_the_slug_of_a_page_does_not_matter(
    client: ClientSession, web: PracticeWeb, form: str
) -> None:
    number = web.catalogue.ids[0]

    page = await text_at(client, f"{web.url}/workflows/{form.format(id=number)}")

    assert f'<link rel="canonical" href="{web.url}{web.catalogue.path(number)}">' in page


async def test_robots_txt_allows_everything(client: ClientSession, web: PracticeWeb) -> None:
    robots = await text_at(client, f"{web.url}/robots.txt")

    assert "Disallow" not in robots
    assert f"Sitemap: {web.url}/sitemap_index.xml" in robots


async def test_robots_txt_can_disallow_the_api(client: ClientSession, clock: VirtualClock) -> None:
    async with PracticeWeb(WebOptions(items=5, disallow=True), clock=clock) as web:
        robots = await text_at(client, f"{web.url}/robots.txt")

    assert "User-agent: *\nDisallow: /api/\n" in robots


@pytest.mark.parametrize("folder", ["images", "avatars"])
async def test_images_are_png(client: ClientSession, web: PracticeWeb, folder: str) -> None:
    async with client.get(f"{web.url}/{folder}/12.png") as answer:
        body = await answer.read()

    assert answer.content_type == "image/png"
    assert body.startswith(b"\x89PNG\r\n\x1a\n")
    assert body.endswith(b"IEND\xaeB`\x82")


async def test_every_link_of_the_front_page_works(client: ClientSession, web: PracticeWeb) -> None:
    tree = LexborHTMLParser(await text_at(client, f"{web.url}/"))

    links = [link.attributes["href"] for link in tree.css("li a")]
    statuses = [await status_at(client, f"{web.url}{link}") for link in links]

    assert len(links) > 8
    assert set(statuses) == {200}


def test_markdown_becomes_html() -> None:
    text = "# Hi\nSome **bold** [link](https://x.example)\n\n1. one\n2. two\n\n![pic](fileId:4)"

    assert to_html(text, {4: "/4.png"}) == (
        '<h2>Hi</h2>\n<p>Some <strong>bold</strong> <a href="https://x.example">link</a></p>\n'
        '<ol><li>one</li><li>two</li></ol>\n<p><img alt="pic" src="/4.png"></p>'
    )


def test_html_in_markdown_is_escaped() -> None:
    assert to_html("<script>alert(1)</script>", {}) == (
        "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>"
    )


def test_a_summary_is_plain_text() -> None:
    assert to_text("## Head\n\n**Bold** ![a](b) and [c](d)", 100) == "Head Bold a and c"


def attribute(tree: LexborHTMLParser, selector: str, name: str) -> str | None:
    node = tree.css_first(selector)
    return node.attributes[name] if node else None
