"""One ad for a property: its site, and the facts that it shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random
from typing import Any

from longline.sandbox.seeded import chance, draw, stream
from longline.sandbox.sites.listings import words
from longline.sandbox.sites.listings.properties import Property, make_property
from longline.sandbox.templates.titles import make_slug

SITES = {"listings_imoti": "bg", "listings_homes": "en", "listings_wohnen": "de"}
"""The sites by the name of their source, and the language each is written in."""
IMOTI, HOMES, WOHNEN = SITES

SQUARE_FOOT = 0.09290304
"""In square metres."""

LEVS = 1.95583
"""For a euro, by law."""
_POUNDS = 0.86  # only the site knows how it came to its prices
_ONLY_LEVS, _ONLY_POUNDS = 0.06, 0.04
_GAP, _MOST_GAPS = 0.075, 2
_NEARLY_EMPTY = 0.06  # of the properties with a single ad
_SAME_SITE_AGAIN = 0.25
_FIRST_DAY, _DAYS = date(2026, 1, 5), 260
_FACTS = (
    "city", "neighbourhood", "rooms", "area_m2", "floor", "floors", "price",
    "building_type", "year",
)  # fmt: skip
_TEXTS = ("agency", "date", "description")


@dataclass(frozen=True, slots=True)
class Ad:
    """An ad, and the record that should be collected from it."""

    site: str
    key: str
    property: int
    """The same number on two ads means the same property."""
    path: str
    values: Mapping[str, Any]
    """In the same terms and units on all sites; None for what the ad does not show."""


def ads_of(seed: int, number: int, count: int) -> Iterator[Ad]:
    """Yield this many ads of a property: on several sites, or relisted on one."""
    home = make_property(seed, number)
    is_bare = (
        count == 1 and not home.has_neighbours and chance(seed, "bare", number) < _NEARLY_EMPTY
    )
    known: dict[str, dict[str, Any]] = {}
    for nth in range(count):
        draws = stream(seed, "ad", f"{number}.{nth}")
        site = _site(draws, known)
        earlier = known.get(site)
        values = _again(earlier, draws) if earlier else _values(home, site, draws)
        known.setdefault(site, values)
        shown = _bare(values, site, draws) if is_bare else values
        yield _ad(seed, site, f"{number}.{nth}", shown, number)


def _site(draws: Random, known: Mapping[str, Any]) -> str:
    if known and draws.random() < _SAME_SITE_AGAIN:
        return draws.choice(tuple(known))
    return draws.choice([name for name in SITES if name not in known] or list(SITES))


def _ad(seed: int, site: str, name: str, values: dict[str, Any], number: int) -> Ad:
    bits = draw(seed, "key", name)
    slug = make_slug(words.in_latin(values["title"]))
    if site == IMOTI:
        key = f"1b{bits:016x}"
        return Ad(site, key, number, f"/imoti/obiava-{key}-{slug}", values)
    if site == HOMES:
        key = str(10**12 + bits % 10**12)
        return Ad(site, key, number, f"/homes/property/{key}", values)
    key = f"w{bits % 36**9:x}"
    return Ad(site, key, number, f"/wohnen/{slug}-ID{key}.html", values)


def _values(home: Property, site: str, draws: Random) -> dict[str, Any]:
    language = SITES[site]
    values: dict[str, Any] = {
        "city": home.city,
        "neighbourhood": _neighbourhood(home, site, draws),
        "rooms": home.rooms,
        "area_m2": _area(home.area + draws.uniform(-0.2, 0.2), site),
        "floor": home.floor,
        "floors": home.floors,
        **_price(home.price * draws.uniform(0.98, 1.02), site, draws),
        "building_type": home.building_type,
        "year": home.year,
        "agency": draws.choice(words.AGENCIES[language]),
        "date": (_FIRST_DAY + timedelta(days=draws.randrange(_DAYS))).isoformat(),
        "description": _description(language, draws),
    }
    facts = [name for name in _FACTS if draws.random() < _GAP]
    texts = [name for name in _TEXTS if draws.random() < _GAP]
    # With more gaps than these, two ads have hardly anything in common to compare.
    gaps = {*draws.sample(facts, min(len(facts), _MOST_GAPS)), *texts}
    # Two flats of a building cannot be distinguished by ads that hide what differs.
    kept = {"floor", "area_m2"} if home.has_neighbours else set()
    _drop(values, gaps - kept)
    return {"title": _title(values, language), **values}


def _drop(values: dict[str, Any], gaps: set[str]) -> None:
    if "price" in gaps:
        gaps |= {"currency", "price_eur"}
    values.update(dict.fromkeys(gaps))


def _again(earlier: dict[str, Any], draws: Random) -> dict[str, Any]:
    """Return a relisted ad: with a later date, and often a lower price."""
    values = dict(earlier)
    if values["price"] is not None:
        values["price"] = float(round(values["price"] * draws.uniform(0.96, 1.0) / 100) * 100)
        values["price_eur"] = values["price"] if values["currency"] == "EUR" else None
    if values["date"] is not None:
        day = date.fromisoformat(values["date"]) + timedelta(days=draws.randint(7, 40))
        values["date"] = day.isoformat()
    return values


def _bare(values: dict[str, Any], site: str, draws: Random) -> dict[str, Any]:
    """Return the facts of an ad with almost none: its title, and one more."""
    kept = draws.choice((("city",), ("price", "currency", "price_eur"), ()))
    shown = {name: values[name] if name in kept else None for name in values}
    return {**shown, "title": words.OFFERS[SITES[site]]}


def _neighbourhood(home: Property, site: str, draws: Random) -> str:
    name = words.plain_name(home.neighbourhood)
    # Only people of the place write what kind of place it is, and not always.
    return home.neighbourhood if site == IMOTI and draws.random() < 0.8 else name  # noqa: PLR2004


def _area(measured: float, site: str) -> float:
    if site == IMOTI:
        return float(round(measured))
    if site == HOMES:
        return round(round(measured / SQUARE_FOOT) * SQUARE_FOOT, 6)
    return round(measured, 1)


def _price(euros: float, site: str, draws: Random) -> dict[str, Any]:
    euros = float(round(euros / 500) * 500)
    odd = draws.random()
    if site == IMOTI and odd < _ONLY_LEVS:
        return {"price": round(euros * LEVS, 2), "currency": "BGN", "price_eur": None}
    if site == HOMES and odd < _ONLY_POUNDS:
        pounds = float(round(euros * _POUNDS / 500) * 500)
        return {"price": pounds, "currency": "GBP", "price_eur": None}
    return {"price": euros, "currency": "EUR", "price_eur": euros}


def _title(values: Mapping[str, Any], language: str) -> str:
    with_rooms, without, with_place = words.TITLES[language]
    rooms, place = values["rooms"], values["neighbourhood"]
    title = with_rooms.format(words.ROOMS[language][rooms - 1]) if rooms else without
    if not place:
        return title
    return with_place.format(title, place if language == "bg" else words.in_latin(place))


def _description(language: str, draws: Random) -> str:
    first, second = draws.sample(words.MIDDLES[language], 2)
    opening = draws.choice(words.OPENINGS[language])
    closing = draws.choice(words.CLOSINGS[language])
    return f"{opening}: {first}, {second}. {closing}"
