"""Values that are hard to parse or store: each affects only its own record."""

from __future__ import annotations

import random
from collections import deque, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any
from uuid import UUID

import orjson
import pytest
from aiohttp import web
from pydantic import AnyUrl, BaseModel
from yarl import URL

from longline.core.errors import UnexpectedShape
from longline.core.json import read_json, to_json
from longline.core.model import ItemState
from longline.http.messages import Page
from longline.orchestrator import Orchestrator
from longline.sources.html.sitemaps import read_sitemap
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

MANIFEST = """
manifest: api
name: odd
rate: unlimited
base_url: {url}
endpoints: {{things: {{path: /things, key: id}}}}
"""
STORED = {
    "an integer of 309 digits": "9" * 309,
    "an integer of 5,000 digits": "9" * 5_000,
    "a decimal beyond all": "1e999",
    "a negative one": "-1e999",
    "no number": "NaN",
    "infinity": "-Infinity",
    "half a character": r'"\ud800"',
    "half a character and no number": r'["\ud800", NaN]',
    "a zero byte": r'"a\u0000b"',
    "the same name twice": '{"a": 1, "a": 2}',
    "a value of 200 levels": "[" * 200 + "]" * 200,
}
QUARANTINED = {
    "a value of 300 levels": "[" * 300 + "]" * 300,
    "a value of 900 levels": "[" * 900 + "]" * 900,
    "objects of 900 levels": '{"a":' * 900 + "1" + "}" * 900,
}


async def states_of(value: str, site: ScriptedSite, home: Path, clock: VirtualClock) -> list[str]:
    """Return the states of three records, of which the second has this value."""
    text = f'[{{"id": 1, "v": 1}}, {{"id": 2, "v": {value}}}, {{"id": 3, "v": 3}}]'

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=text.encode(), content_type="application/json")

    site.answers["/things"] = answer
    path = home / "odd.yaml"
    path.write_text(MANIFEST.format(url=site.url))
    async with Orchestrator(str(path), home=home, clock=clock) as orchestrator:
        report = await orchestrator.execute()
        rows = await orchestrator.store.queue.finished(report.job)
    return [row["state"] for row in sorted(rows, key=lambda row: str(row["key"]))]


@pytest.mark.parametrize("name", STORED)
async def test_an_odd_value_is_stored(
    name: str, site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    states = await states_of(STORED[name], site, tmp_path, clock)

    assert states == [ItemState.STORED] * 3


@pytest.mark.parametrize("name", QUARANTINED)
async def test_a_value_too_deep_to_store_costs_its_record(
    name: str, site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    states = await states_of(QUARANTINED[name], site, tmp_path, clock)

    assert states == [ItemState.STORED, ItemState.QUARANTINED, ItemState.STORED]


@pytest.mark.parametrize("text", ["9" * 309, "1e999", "-1e999", "NaN", "Infinity", "-Infinity"])
def test_a_number_that_cannot_be_held_is_its_text(text: str) -> None:
    assert read_json(f'{{"a": {text}, "b": 1.5}}') == {"a": text, "b": 1.5}


@pytest.mark.parametrize("encoding", ["utf-7", "undefined", "no-such"])
def test_a_sitemap_of_an_unknown_encoding_is_read_as_utf_8(encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?><urlset><url><loc>http://a.test/é</loc></url></urlset>'

    assert read_sitemap(Page("http://a.test/", 200, {}, text.encode())).urls == ("http://a.test/é",)


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe\x00",
        b"<urlset>" * 50_000,
    ],
)
def test_a_sitemap_that_cannot_be_read_is_an_unexpected_shape(body: bytes) -> None:
    with pytest.raises(UnexpectedShape):
        read_sitemap(Page("http://site.test/sitemap.xml", 200, {}, body))


Place = namedtuple("Place", "lat lon")  # noqa: PYI024  # as code of old has them


class Colour(Enum):
    RED = "red"


class Price(BaseModel):
    amount: Decimal


@dataclass
class Size:
    width: int


class Length(float):
    """A number of a class of its own, as those of numpy are."""


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (datetime(2026, 1, 31, 10, tzinfo=UTC), "2026-01-31T10:00:00+00:00"),
        (date(2026, 1, 31), "2026-01-31"),
        (time(10, 30), "10:30:00"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Colour.RED, "red"),
        (PurePosixPath("a/b"), "a/b"),
        (AnyUrl("https://shop.test/a"), "https://shop.test/a"),
        (URL("https://shop.test/a"), "https://shop.test/a"),
        (Price(amount=Decimal("1.5")), {"amount": "1.5"}),
        (Size(5), {"width": 5}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        ((1, 2), [1, 2]),
        (Place(1, 2), [1, 2]),
        (deque([2, 1]), [2, 1]),
        (Length(1.5), 1.5),
        (float("nan"), None),
    ],
)
def test_a_value_with_one_right_form_has_that(value: Any, form: Any) -> None:
    assert orjson.loads(to_json({"a": [value]})) == {"a": [form]}


def test_a_set_is_a_list_in_an_order_of_its_own() -> None:
    words = [f"word {number}" for number in range(100)]
    shuffled = random.Random(7).sample(words, len(words))

    assert orjson.loads(to_json(set(shuffled))) == sorted(words)
    assert orjson.loads(to_json({"b", 10, "a", 9, None})) == [9, 10, "a", "b", None]
    assert orjson.loads(to_json({frozenset("b"), frozenset("a")})) == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"o": object()}, r"\bo\b.*\bobject\b"),
        ({"b": b"\xff"}, r"\bb\b.*\bbytes\b"),
        ({"a": 1, "o": [0, {"x": lambda: 0}]}, r"\bo\.1\.x\b.*\bfunction\b"),
        ({"s": {1, b"a"}}, r"\bs\b.*\bset\b"),
        ({"d": Size(b"a")}, r"\bd\b.*\bSize\b"),  # type: ignore[arg-type]  # on purpose
        ({"e": ValueError("x")}, r"\be\b.*\bValueError\b"),
        ({"c": 1j}, r"\bc\b.*\bcomplex\b"),
        ({"t": "\ud800"}, r"\bt\b.*UTF-8"),
        ({"n": 10**400}, r"\bn\b.*64-bit"),
        ({"o": {(1, 2): 3}}, r"\bo\b.*\btuple\b"),
        ({b"a": 3}, "bytes"),
    ],
)
def test_a_value_that_is_not_data_is_reported_with_its_field_and_type(
    value: Any, problem: str
) -> None:
    with pytest.raises(TypeError, match=problem):
        to_json(value)


def test_what_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(TypeError, match="Recursion limit"):
        to_json({"a": endless})
