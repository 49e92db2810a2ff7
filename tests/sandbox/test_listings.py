"""The three property sites: their ads, pages, share links and rounds."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

import pytest
from aiohttp import ClientSession

from longline.core.errors import BadOption
from longline.sandbox.sites.listings.ads import SITES
from longline.sandbox.sites.listings.board import Board
from longline.sandbox.sites.listings.properties import Property, make_property
from longline.sandbox.sites.listings.rounds import Ad, changes, make_ads
from longline.sandbox.sites.listings.words import plain_name
from longline.sandbox.web import PracticeWeb
from tests.sandbox.client import status_at

FACTS = ("city", "rooms", "floor", "floors", "building_type", "year")
EXACT = ("city", "year", "floor", "floors", "rooms", "building_type")
MAY_LACK = (*FACTS, "neighbourhood", "area_m2", "price", "agency", "date", "description")


@pytest.fixture(scope="module")
def ads() -> list[Ad]:
    return make_ads()


@pytest.fixture(scope="module")
def pairs(ads: list[Ad]) -> list[tuple[Ad, Ad]]:
    """All pairs of ads for the same property."""
    by_property = defaultdict(list)
    for ad in ads:
        by_property[ad.property].append(ad)
    return [pair for group in by_property.values() for pair in combinations(group, 2)]


def values(ads: list[Ad], name: str) -> list[Any]:
    return [ad.values[name] for ad in ads]


def shown(ad: Ad) -> int:
    return sum(ad.values[name] is not None for name in MAY_LACK)


def named(ads: list[Ad]) -> dict[tuple[str, str], Ad]:
    return {(ad.site, ad.key): ad for ad in ads}


# ---------------------------------------------------------------- how many


def test_there_are_3000_ads_of_1800_properties_on_three_sites(ads: list[Ad]) -> None:
    assert len(named(ads)) == len(ads) == 3000
    assert {ad.property for ad in ads} == set(range(1, 1801))
    assert min(Counter(ad.site for ad in ads).values()) > 900
    assert {ad.site for ad in ads} == set(SITES)


def test_properties_overlap_between_sites_and_within_them(pairs: list[tuple[Ad, Ad]]) -> None:
    within = sum(left.site == right.site for left, right in pairs)

    assert len(pairs) == 1400
    assert 200 < within < 500


def test_the_same_seed_makes_the_same_ads_and_another_seed_others() -> None:
    assert make_ads(3, 30, 50) == make_ads(3, 30, 50)
    assert make_ads(3, 30, 50) != make_ads(4, 30, 50)


@pytest.mark.parametrize(("properties", "count"), [(1, 1), (30, 30), (10, 25), (30, 200)])
def test_any_number_of_ads_can_be_generated(properties: int, count: int) -> None:
    ads = make_ads(7, properties, count)

    assert len(named(ads)) == count
    assert len({ad.property for ad in ads}) == properties


@pytest.mark.parametrize(("properties", "ads"), [(0, 5), (10, 9)])
def test_a_board_without_an_ad_for_every_property_is_refused(properties: int, ads: int) -> None:
    with pytest.raises(BadOption, match="ads"):
        Board(7, properties=properties, ads=ads)


# ---------------------------------------------------------------- traps


@pytest.mark.parametrize("name", MAY_LACK)
def test_each_field_is_missing_from_about_one_ad_in_twelve(ads: list[Ad], name: str) -> None:
    assert 0.06 < values(ads, name).count(None) / len(ads) < 0.11


def test_some_ads_have_few_fields_and_look_the_same(ads: list[Ad]) -> None:
    bare = [ad for ad in ads if shown(ad) <= 1]

    assert 20 < len(bare) < 90
    assert len({ad.values["title"] for ad in bare}) == 3
    assert len({ad.property for ad in bare}) == len(bare)


def test_a_ground_floor_is_not_a_missing_one(ads: list[Ad]) -> None:
    floors = values(ads, "floor")

    assert floors.count(0) > 100
    assert floors.count(None) > 100


def test_areas_of_one_property_differ_by_rounding_only(pairs: list[tuple[Ad, Ad]]) -> None:
    areas = [(a.values["area_m2"], b.values["area_m2"]) for a, b in pairs]
    known = [(left, right) for left, right in areas if left and right]

    assert max(abs(left - right) for left, right in known) < 1.2
    assert sum(round(left) != round(right) for left, right in known) > 100


def test_prices_of_one_property_differ_by_a_few_percent(pairs: list[tuple[Ad, Ad]]) -> None:
    prices = [(a.values["price_eur"], b.values["price_eur"]) for a, b in pairs]
    gaps = [abs(left / right - 1) for left, right in prices if left and right]

    assert max(gaps) < 0.1
    assert sum(gap > 0.01 for gap in gaps) > 300


def test_prices_that_are_not_in_euros_are_not_converted(ads: list[Ad]) -> None:
    currencies = Counter(values(ads, "currency"))

    assert {ad.values["price_eur"] for ad in ads if ad.values["currency"] in {"BGN", "GBP"}} == {
        None
    }
    assert currencies["BGN"] > 20
    assert currencies["GBP"] > 20


def test_neighbourhoods_have_prefixes_on_one_site_only(ads: list[Ad]) -> None:
    with_prefix = {
        ad.site for ad in ads if (n := ad.values["neighbourhood"]) and plain_name(n) != n
    }
    names = set(values(ads, "neighbourhood"))

    assert with_prefix == {"listings_imoti"}
    assert {"с. Бистрица", "Студентски град", "Симеоново", "Свети Никола", "Селеметя"} <= names


def test_a_neighbourhood_of_the_same_name_is_in_several_cities(ads: list[Ad]) -> None:
    cities = {ad.values["city"] for ad in ads if ad.values["neighbourhood"] == "Център"}

    assert len(cities - {None}) == 5


def neighbours() -> Iterator[tuple[Property, Property]]:
    homes = [make_property(7, number) for number in range(1, 1801)]
    by_building = defaultdict(list)
    for home in homes:
        if home.has_neighbours:
            by_building[(home.number - 1) // 30].append(home)
    for group in by_building.values():
        yield from combinations(group, 2)


def shared(home: Property) -> tuple[Any, ...]:
    return (home.city, home.neighbourhood, home.rooms, home.floors, home.building_type, home.year)


def test_flats_of_one_building_differ_in_floor_or_area_alone() -> None:
    found = list(neighbours())

    assert len(found) == 180
    assert {shared(left) == shared(right) for left, right in found} == {True}
    same_floor = [(one.area, other.area) for one, other in found if one.floor == other.floor]
    assert min(larger / smaller for smaller, larger in same_floor) > 1.06
    assert len(same_floor) == 60


def test_flats_of_one_building_always_show_floor_and_area(ads: list[Ad]) -> None:
    several = [ad for ad in ads if make_property(7, ad.property).has_neighbours]

    assert len(several) > 200
    assert None not in values(several, "floor")
    assert None not in values(several, "area_m2")


class Look(NamedTuple):
    """What an ad shows that can be compared; None for what it does not."""

    property: int
    key: str
    exact: tuple[Any, ...]
    measured: tuple[float | None, float | None]

    @classmethod
    def of(cls, ad: Ad) -> Look:
        name, values = ad.values["neighbourhood"], ad.values
        exact = (*(values[one] for one in EXACT), name and plain_name(name))
        return cls(ad.property, ad.key, exact, (values["area_m2"], values["price_eur"]))


def look_the_same(left: Look, right: Look) -> bool:
    """Whether two ads agree in all that both show, and both show enough."""
    known = 0
    for one, other in zip(left.exact, right.exact, strict=True):
        if one is None or other is None:
            continue
        if one != other:
            return False
        known += 1
    for one, other, slack in zip(left.measured, right.measured, (0.02, 0.06), strict=True):
        if not one or not other:
            continue
        if abs(one / other - 1) > slack:
            return False
        known += 1
    return known >= 4


def test_hardly_any_two_properties_look_the_same(ads: list[Ad], pairs: list[tuple[Ad, Ad]]) -> None:
    by_floor = [[Look.of(ad) for ad in ads if ad.values["floor"] in {n, None}] for n in range(17)]

    alike = {
        (left.key, right.key)
        for group in by_floor
        for left, right in combinations(group, 2)
        if look_the_same(left, right) and left.property != right.property
    }
    assert len(alike) < 0.003 * len(pairs)


# ---------------------------------------------------------------- the second round


def test_in_the_second_round_exactly_these_shares_differ(ads: list[Ad]) -> None:
    told = changes()

    assert (len(told.changed), len(told.vanished), len(told.new)) == (150, 60, 90)
    before, after = named(ads), named(make_ads(round=2))
    assert before.keys() - after.keys() == told.vanished
    assert after.keys() - before.keys() == told.new
    both = before.keys() & after.keys()
    assert {name for name in both if before[name] != after[name]} == told.changed


def test_a_changed_ad_differs_in_price_or_description_and_stays_where_it_is(ads: list[Ad]) -> None:
    before, after = named(ads), named(make_ads(round=2))

    edits = [(before[name], after[name]) for name in changes().changed]
    fields = Counter(
        name for old, new in edits for name in old.values if old.values[name] != new.values[name]
    )
    assert {old.path for old, _ in edits} == {new.path for _, new in edits}
    assert fields.keys() == {"price", "price_eur", "description"}
    assert fields["price"] + fields["description"] == 150


def test_some_new_ads_are_of_properties_known_before(ads: list[Ad]) -> None:
    known = {ad.property for ad in ads}
    after = named(make_ads(round=2))

    new = [after[name].property for name in changes().new]
    assert sum(number in known for number in new) == 45


@pytest.fixture
def web(web: PracticeWeb) -> PracticeWeb:
    web.sites.listings.board.begin(properties=120, ads=200)
    return web


async def text_at(client: ClientSession, url: str, charset: str | None = None) -> str:
    async with client.get(url) as answer:
        assert answer.status == 200
        return await answer.text(charset)


async def test_lists_declare_the_charset_in_the_header_and_ads_in_the_page(
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


async def test_prices_are_in_two_currencies(client: ClientSession, web: PracticeWeb) -> None:
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


async def test_past_the_last_page_lists_are_empty_or_404(
    client: ClientSession, web: PracticeWeb
) -> None:
    assert "obiava" not in await text_at(client, f"{web.url}/imoti/prodazhbi/p-99")
    assert await status_at(client, f"{web.url}/homes/for-sale?page=99") == 404
    assert await text_at(client, f"{web.url}/wohnen/mehr?seite=99") == '{"html":"","mehr":false}'


async def test_only_one_site_has_json_ld(client: ClientSession, web: PracticeWeb) -> None:
    paths = [one.truth()["ads"][0]["path"] for one in web.sites.listings.sites]

    pages = [await text_at(client, web.url + path, "latin-1") for path in paths]

    assert [page.count("application/ld+json") for page in pages] == [0, 3, 0]


async def test_a_request_starts_the_second_round(client: ClientSession, web: PracticeWeb) -> None:
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


async def test_the_index_links_to_the_three_sites(client: ClientSession, web: PracticeWeb) -> None:
    page = await text_at(client, f"{web.url}/listings/")

    links = re.findall(r'href="([^"]+)">(\w+)<', page)
    assert [name for _, name in links] == list(SITES)
    assert [await status_at(client, web.url + path) for path, _ in links] == [200, 200, 200]
