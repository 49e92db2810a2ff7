"""The practice sites with pages: every page together shows exactly the data of the site."""

from __future__ import annotations

import gzip
import re
from datetime import date

import pytest
from aiohttp import ClientSession
from selectolax.lexbor import LexborHTMLParser

from longline.sandbox.sites.formats import written_date, written_money
from longline.sandbox.sites.generated import Frame, Look, Pager
from longline.sandbox.web import PracticeWeb, WebOptions
from tests.sandbox.client import status_at


async def tree_at(client: ClientSession, url: str) -> LexborHTMLParser:
    async with client.get(url) as answer:
        assert answer.status == 200
        return LexborHTMLParser(await answer.text())


def texts(tree: LexborHTMLParser, selector: str) -> list[str]:
    return [node.text(strip=True) for node in tree.css(selector)]


def links(tree: LexborHTMLParser, selector: str) -> list[str]:
    return [node.attributes["href"] or "" for node in tree.css(selector)]


async def every_page(client: ClientSession, site: str, path: str) -> list[LexborHTMLParser]:
    """Follow every kind of link to a further page until none is new."""
    todo, trees = [path], {}
    while todo:
        path = todo.pop()
        trees[path] = await tree_at(client, f"{site}{path}")
        found = links(trees[path], "nav a, .next a, a[rel=next], .pages a")
        here = path.partition("?")[0]
        whole = [f"{here}{one}" if one.startswith("?") else one for one in found]
        todo += [one for one in dict.fromkeys(whole) if one not in trees and one not in todo]
    return list(trees.values())


async def test_next_links_lead_to_every_quote(client: ClientSession, web: PracticeWeb) -> None:
    pages = await every_page(client, web.url, "/quotes/")

    shown = [text for page in pages for text in texts(page, ".quote .text")]
    assert [text[1:-1] for text in shown] == [q["text"] for q in web.sites.quotes.truth()["quotes"]]
    assert len(pages) == 5


async def test_a_quote_leads_to_its_author(client: ClientSession, web: PracticeWeb) -> None:
    truth = web.sites.quotes.truth()
    quote = truth["quotes"][12]

    page = await tree_at(client, web.url + quote["author_path"])

    author = next(one for one in truth["authors"] if one["name"] == quote["author"])
    assert texts(page, "h1") == [quote["author"]]
    assert texts(page, ".author-born-date") == [
        written_date(date.fromisoformat(author["born"]), "en")
    ]


async def test_the_categories_contain_every_product_once(
    client: ClientSession, web: PracticeWeb
) -> None:
    home = await tree_at(client, f"{web.url}/shop/")
    paths = links(home, ".categories a")

    pages = [page for path in paths for page in await every_page(client, web.url, path)]

    listed = [link for page in pages for link in links(page, ".products a")]
    assert sorted(set(listed)) == sorted(row["path"] for row in web.sites.shop.truth()["products"])
    assert len(pages) > len(paths) == 5


@pytest.mark.parametrize(("offset", "shown"), [(0, 20), (50, 10), (60, 0)])
async def test_all_products_are_paginated_by_offset(
    client: ClientSession, web: PracticeWeb, offset: int, shown: int
) -> None:
    page = await tree_at(client, f"{web.url}/shop/all?offset={offset}")

    assert len(links(page, ".products a")) == shown


async def test_more_products_are_loaded_until_there_are_none(
    client: ClientSession, web: PracticeWeb
) -> None:
    answers = [
        await (await client.get(f"{web.url}/shop/more.json?page={page}")).json()
        for page in range(1, 5)
    ]

    assert [answer["has_more"] for answer in answers] == [True, True, True, False]
    assert [item["id"] for answer in answers for item in answer["items"]] == list(range(1, 61))


@pytest.mark.parametrize(
    ("cents", "language", "text"),
    [
        (123450, "en", "€1,234.50"),
        (123450, "de", "1.234,50 €"),
        (5, "fr", "0,05\N{NO-BREAK SPACE}€"),
    ],
)
def test_money_is_formatted_for_the_language(cents: int, language: str, text: str) -> None:
    assert written_money(cents, language) == text


async def test_a_product_is_shown_in_two_locales(client: ClientSession, web: PracticeWeb) -> None:
    row = web.sites.shop.truth()["products"][3]

    english = await tree_at(client, web.url + row["path"])
    german = await tree_at(client, web.url + row["path"].replace("/shop/", "/shop/de/"))

    assert texts(english, ".price") == [written_money(row["cents"], "en")]
    assert texts(german, ".price") == [written_money(row["cents"], "de")]


async def test_missing_fields_are_not_on_the_product_page(
    client: ClientSession, web: PracticeWeb
) -> None:
    rows = web.sites.shop.truth()["products"]
    bare = next(row for row in rows if row["rating"] is None)
    sold_out = next(row for row in rows if not row["stock"])

    page = await tree_at(client, web.url + bare["path"])
    other = await tree_at(client, web.url + sold_out["path"])

    assert page.css(".star-rating") == []
    assert texts(other, ".stock") == ["Out of stock"]
    assert any(row["description"] is None for row in rows)


async def test_the_sitemaps_of_the_news_list_every_article(
    client: ClientSession, web: PracticeWeb
) -> None:
    index = await (await client.get(f"{web.url}/news/sitemap_index.xml")).text()
    plain, packed = re.findall(r"<loc>(.+?)</loc>", index)

    listed = await (await client.get(plain)).text()
    listed += gzip.decompress(await (await client.get(packed)).read()).decode()

    paths = [one.removeprefix(web.url) for one in re.findall(r"<loc>(.+?)</loc>", listed)]
    articles = web.sites.news.truth()["articles"]
    assert [path for path in paths if path != "/news/about/"] == [row["path"] for row in articles]
    assert await status_at(client, web.url + articles[20]["path"]) == 200


async def test_an_anonymous_client_is_redirected_to_the_login_form(
    client: ClientSession, web: PracticeWeb
) -> None:
    async with client.get(f"{web.url}/members/", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["location"]) == (303, "/members/login")


async def test_a_session_expires(client: ClientSession, web: PracticeWeb) -> None:
    form = await tree_at(client, f"{web.url}/members/login")
    token = form.css("input[name=csrf_token]")[0].attributes["value"] or ""
    values = {"csrf_token": token, "user": "angler", "password": "practice"}
    async with client.post(
        f"{web.url}/members/login", data=values, headers={"cookie": f"visitor={token}"}
    ) as answer:
        session = answer.history[0].cookies["session"].value
    cookie = {"cookie": f"session={session}"}

    statuses = []
    for _ in range(21):
        async with client.get(
            f"{web.url}/members/note/1", headers=cookie, allow_redirects=False
        ) as answer:
            statuses.append(answer.status)

    assert set(statuses[:19]) == {200}
    assert statuses[-1] == 303


async def test_a_form_without_its_token_is_refused(client: ClientSession, web: PracticeWeb) -> None:
    values = {"user": "angler", "password": "practice"}
    async with client.post(f"{web.url}/members/login", data=values) as answer:
        assert answer.status == 403


async def test_the_app_shows_nothing_without_its_script(
    client: ClientSession, web: PracticeWeb
) -> None:
    page = await tree_at(client, f"{web.url}/app/")
    answer = await (await client.get(f"{web.url}/app/items.json?from=150")).json()

    assert page.css(".card") == []
    assert answer == {"items": web.sites.app.truth()["items"][150:], "total": 200}


@pytest.mark.parametrize("number", range(1, 13))
async def test_a_generated_site_can_be_read_to_its_end(
    client: ClientSession, web: PracticeWeb, number: int
) -> None:
    look, rows = Look.of(number), web.sites.generated.truth(number)["entries"]

    pages = await every_page(client, web.url, f"/generated/{number}/")
    detail = await tree_at(client, web.url + rows[-1]["path"])

    listed = {link for page in pages for link in links(page, f".{look.title} a")}
    assert listed == {row["path"] for row in rows}
    assert texts(detail, f".{look.code}") == [rows[-1]["code"]]
    assert (
        texts(detail, f".{look.price}")[0]
        == written_money(rows[-1]["cents"], look.language).strip()
    )


def test_generated_sites_cover_every_layout() -> None:
    looks = [Look.of(number) for number in range(60)]

    assert {look.pager for look in looks} == set(Pager)
    assert {look.frame for look in looks} == set(Frame)
    assert {look.language for look in looks} == {"en", "de", "fr", "bg"}


def test_the_same_seed_makes_the_same_sites() -> None:
    first, second = PracticeWeb(WebOptions(seed=3)), PracticeWeb(WebOptions(seed=3))
    other = PracticeWeb(WebOptions(seed=4))

    truths = [[one.truth() for one in web.sites] for web in (first, second, other)]
    assert truths[0] == truths[1]
    assert truths[0] != truths[2]


async def test_the_web_lists_its_sites(client: ClientSession, web: PracticeWeb) -> None:
    listed = await (await client.get(f"{web.url}/__practice__/sites")).json()

    assert list(listed) == [site.name for site in web.sites]
