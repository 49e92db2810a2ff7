"""The properties behind the practice listings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from longline.sandbox.seeded import stream
from longline.sandbox.sites.listings import words

_BLOCK, _IN_ONE_BUILDING = 30, 3
_NEW_BUILDINGS = (2016, 2027)
_OLD_BUILDINGS = (1955, 2021)
_GROUND_FLOORS = 0.08
_LARGEST = (48, 74, 105, 140, 180)  # square metres, by rooms
_SPREAD = 0.35


@dataclass(frozen=True, slots=True)
class Property:
    """The facts of a flat; ads round, translate or omit them."""

    number: int
    city: str
    neighbourhood: str
    rooms: int
    area: float
    floor: int
    floors: int
    price: float
    building_type: str
    year: int
    has_neighbours: bool = False
    """Whether other flats of its building are listed, which differ only in floor or area."""


def make_property(seed: int, number: int) -> Property:
    """Return the property of this number, from 1; of each thirty, three share a building."""
    block, place = divmod(number - 1, _BLOCK)
    if place >= _IN_ONE_BUILDING:
        return _alone(stream(seed, "property", number), number)
    base = _in_new_building(stream(seed, "building", block), number)
    return _neighbour(base, place, stream(seed, "neighbour", block))


def _alone(draws: Random, number: int) -> Property:
    city = draws.choice(tuple(words.CITIES))
    rooms = draws.choices((1, 2, 3, 4, 5), (15, 35, 32, 13, 5))[0]
    area = round(_LARGEST[rooms - 1] * (1 - draws.random() * _SPREAD), 1)
    floors = draws.randint(3, 16)
    floor = 0 if draws.random() < _GROUND_FLOORS else draws.randint(1, floors)
    price = area * words.PRICES[city] * draws.uniform(0.6, 1.8)
    kind = draws.choices(words.BUILDING_TYPES, (40, 30, 15, 15))[0]
    years = _NEW_BUILDINGS if kind == "new" else _OLD_BUILDINGS
    return Property(
        number=number,
        city=city,
        neighbourhood=draws.choice(words.CITIES[city]),
        rooms=rooms,
        area=area,
        floor=floor,
        floors=floors,
        price=price,
        building_type=kind,
        year=draws.randint(*years),
    )


def _in_new_building(draws: Random, number: int) -> Property:
    year = draws.randint(*_NEW_BUILDINGS)
    return replace(_alone(draws, number), building_type="new", year=year, has_neighbours=True)


def _neighbour(base: Property, place: int, draws: Random) -> Property:
    """Return the flat itself, the one above or below it, or a larger one next to it."""
    step, growth = draws.randint(1, base.floors), draws.uniform(1.07, 1.12)
    if place == 1:
        # Floors from 0 to the last, so that some have a ground floor among them.
        floor = (base.floor + step) % (base.floors + 1)
        return replace(base, floor=floor, price=base.price * 1.01)
    larger = replace(base, area=round(base.area * growth, 1), price=base.price * growth)
    return larger if place else base
