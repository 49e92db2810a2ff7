"""Ads of the three property sites, and their changes in a second round."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from longline.sandbox.seeded import chance, draw, stream
from longline.sandbox.sites.listings import words
from longline.sandbox.sites.listings.ads import HOMES, IMOTI, SITES, WOHNEN, Ad, ads_of

__all__ = [
    "ADS",
    "HOMES",
    "IMOTI",
    "PROPERTIES",
    "SITES",
    "WOHNEN",
    "Ad",
    "Changes",
    "changes",
    "make_ads",
]

PROPERTIES, ADS = 1800, 3000


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of the ads between the first and the second round, by site and key."""

    changed: frozenset[tuple[str, str]]
    vanished: frozenset[tuple[str, str]]
    new: frozenset[tuple[str, str]]


def make_ads(
    seed: int = 7,
    properties: int = PROPERTIES,
    ads: int = ADS,
    round: int = 1,  # noqa: A002  # the word for it on this web
) -> list[Ad]:
    """Return all ads, in the order in which the sites list them.

    Round 2 is some days later: of a hundred ads five have changed, two are gone, three are new.
    """
    first = _first_round(seed, properties, ads)
    return first if round == 1 else _second_round(seed, properties, first)[0]


def changes(seed: int = 7, properties: int = PROPERTIES, ads: int = ADS) -> Changes:
    """Return what differs between the first round and the second."""
    return _second_round(seed, properties, _first_round(seed, properties, ads))[1]


def _first_round(seed: int, properties: int, ads: int) -> list[Ad]:
    counts = _ads_by_property(seed, properties, ads)
    found = (ad for number, count in counts.items() for ad in ads_of(seed, number, count))
    return _listed(seed, found)


def _second_round(seed: int, properties: int, first: list[Ad]) -> tuple[list[Ad], Changes]:
    shuffled = sorted(first, key=lambda ad: chance(seed, "second round", ad.key))
    vanished, rest = _cut(shuffled, len(first) * 2 // 100)
    editable = [ad for ad in rest if ad.values["description"] is not None]
    changed, _ = _cut(editable, len(first) * 5 // 100)
    added = _added(seed, properties, first)
    left = {ad.key: ad for ad in rest} | {ad.key: _edited(seed, ad) for ad in changed}
    changes = Changes(_names(changed), _names(vanished), _names(added))
    return _listed(seed, [*left.values(), *added]), changes


def _cut(ads: list[Ad], count: int) -> tuple[list[Ad], list[Ad]]:
    return ads[:count], ads[count:]


def _names(ads: list[Ad]) -> frozenset[tuple[str, str]]:
    return frozenset((ad.site, ad.key) for ad in ads)


def _listed(seed: int, ads: Iterable[Ad]) -> list[Ad]:
    return sorted(ads, key=lambda ad: draw(seed, "listed", ad.key))


def _ads_by_property(seed: int, properties: int, ads: int) -> dict[int, int]:
    """Return how many ads each property has: one at least, some two, a few three."""
    counts = dict.fromkeys(range(1, properties + 1), 1)
    more = ads - properties
    shuffled = sorted(counts, key=lambda number: draw(seed, "often", number))
    often = shuffled[: max(1, more * 5 // 6)]
    for nth in range(more):
        counts[often[nth % len(often)]] += 1
    return counts


def _added(seed: int, properties: int, first: list[Ad]) -> list[Ad]:
    """Return the ads of the second round: every other one is of a property known before."""
    counts: dict[int, int] = {}
    for ad in first:
        counts[ad.property] = counts.get(ad.property, 0) + 1
    count = len(first) * 3 // 100
    again = sorted(counts, key=lambda number: draw(seed, "again", number))[: count // 2]
    relisted = [list(ads_of(seed, number, counts[number] + 1))[-1] for number in again]
    fresh = range(properties + 1, properties + 1 + count - len(relisted))
    return [*relisted, *(next(ads_of(seed, number, 1)) for number in fresh)]


def _edited(seed: int, ad: Ad) -> Ad:
    draws = stream(seed, "edit", ad.key)
    values = dict(ad.values)
    if values["price"] is not None and draws.random() < 0.6:  # noqa: PLR2004  # six of ten
        share = draws.uniform(0.92, 0.98)
        values["price"] = float(round(values["price"] * share / 100) * 100)
        if values["currency"] == "EUR":
            values["price_eur"] = values["price"]
    else:
        values["description"] += f" {words.NEWS[SITES[ad.site]]}"
    return replace(ad, values=values)
