"""The three sites for property over HTTP: lists, pages, share links and rounds."""

from __future__ import annotations

import re

import pytest
from aiohttp import ClientSession

from longline.sandbox.sites.listings.ads import SITES
from longline.sandbox.web import PracticeWeb
from tests.asking import status_at


@pytest.fixture
def web(web: PracticeWeb) -> PracticeWeb:
    web.sites.listings.board.begin(properties=120, ads=200)
    return web


async def text_at(client: ClientSession, url: str, charset: str | None = None) -> str:
    async with client.get(url) as answer:
        assert answer.status == 200
        return await answer.text(charset)


async def test_a_list_tells_its_charset_in_the_header_and_an_ad_in_the_page(
    client: ClientSession, web: PracticeWeb
) -> None:
    ad = web.sites.listings.imoti.truth()["ads"][0]

    async with client.get(f"{web.url}/imoti/prodazhbi/") as answer:
        assert answer.headers["content-type"] == "text/html; charset=windows-1251"
        assert ad["title"] in (await answer.read()).decode("windows-1251")
    async with client.get(web.url + ad["path"]) as answer:
        body = await answer.read()
        assert answer.headers["content-type"] == "text/html"
        assert b"charset=windows-1251" in body
        assert ad["title"] in body.decode("windows-1251")


async def test_prices_stand_in_two_currencies(client: ClientSession, web: PracticeWeb) -> None:
    ads = web.sites.listings.imoti.truth()["ads"]
    ad = next(one for one in ads if one["currency"] == "EUR")

    page = await text_at(client, web.url + ad["path"], "windows-1251")

    found = re.search(r'id="cena">([\d ]+) €<br>([\d .]+) лв\.', page)
    assert found
    assert float(found[1].replace(" ", "")) == ad["price_eur"]
    assert float(found[2].replace(" ", "")) == round(ad["price_eur"] * 1.95583, 2)


async def test_lists_have_links_without_a_scheme_and_share_links_like_ads(
    client: ClientSession, web: PracticeWeb
) -> None:
    page = await text_at(client, f"{web.url}/imoti/prodazhbi/")

    host = web.url.removeprefix("http:")
    assert len(re.findall(f'href="{host}/imoti/obiava-', page)) == 40
    assert len(re.findall(r'href="viber://[^"]*/obiava-', page)) == 20
    assert len(re.findall(r'href="/imoti/spodeli\?adres=/imoti/obiava-', page)) == 20


async def test_an_ad_is_pinned_to_every_page(client: ClientSession, web: PracticeWeb) -> None:
    first = web.sites.listings.imoti.truth()["ads"][0]

    assert f"obiava-{first['key']}-" in await text_at(client, f"{web.url}/imoti/prodazhbi/p-2")


async def test_behind_the_last_page_lists_are_empty_missing_or_over(
    client: ClientSession, web: PracticeWeb
) -> None:
    assert "obiava" not in await text_at(client, f"{web.url}/imoti/prodazhbi/p-99")
    assert await status_at(client, f"{web.url}/homes/for-sale?page=99") == 404
    assert await text_at(client, f"{web.url}/wohnen/mehr?seite=99") == '{"html":"","mehr":false}'


async def test_only_one_site_has_json_ld(client: ClientSession, web: PracticeWeb) -> None:
    paths = [one.truth()["ads"][0]["path"] for one in web.sites.listings.sites]

    pages = [await text_at(client, web.url + path, "latin-1") for path in paths]

    assert [page.count("application/ld+json") for page in pages] == [0, 3, 0]


async def test_the_sites_are_moved_on_by_a_request(client: ClientSession, web: PracticeWeb) -> None:
    board = web.sites.listings.board
    vanished = board.changes().vanished
    gone = [
        ad["path"]
        for ad in web.sites.listings.truth()["ads"]
        if (ad["site"], ad["key"]) in vanished
    ]

    async with client.post(f"{web.url}/listings/round/2") as answer:
        assert await answer.json() == {"round": 2}

    assert await text_at(client, f"{web.url}/listings/round") == '{"round":2}'
    assert [await status_at(client, web.url + path) for path in gone] == [404] * 4
    assert {ad["path"] for ad in web.sites.listings.truth()["ads"]}.isdisjoint(gone)


async def test_there_is_no_third_round(client: ClientSession, web: PracticeWeb) -> None:
    async with client.post(f"{web.url}/listings/round/3") as answer:
        assert answer.status == 404

    assert web.sites.listings.board.round == 1


async def test_the_first_page_leads_to_the_three_sites(
    client: ClientSession, web: PracticeWeb
) -> None:
    page = await text_at(client, f"{web.url}/listings/")

    links = re.findall(r'href="([^"]+)">(\w+)<', page)
    assert [name for _, name in links] == list(SITES)
    assert [await status_at(client, web.url + path) for path, _ in links] == [200, 200, 200]
