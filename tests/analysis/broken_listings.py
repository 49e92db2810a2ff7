"""Listings that are broken in twenty ways, a source that refuses them, and one that is fixed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

from longline.core.model import Cursor, Item
from longline.pipeline.map import Map
from longline.pipeline.pipeline import Validate
from longline.pipeline.stages import Draft, Stage
from longline.sources.base import Options, Source, Visit, layer

GOOD: dict[str, Any] = {
    "title": "Flat",
    "price": {"amount": 90_000, "currency": "EUR"},
    "area": 64.5,
    "rooms": ["kitchen", "bedroom"],
    "kind": "flat",
    "mail": "owner@listings.test",
    "link": "https://listings.test/7",
    "day": "2026-01-31",
    "code": "AB-12",
}
_GONE = object()
BREAKS: dict[str, dict[str, Any]] = {
    "no title": {"title": _GONE},
    "empty title": {"title": ""},
    "null title": {"title": None},
    "title is a number": {"title": 5},
    "title too long": {"title": "x" * 300},
    "no price": {"price": _GONE},
    "price is text": {"price": {"amount": "90 000", "currency": "EUR"}},
    "price below zero": {"price": {"amount": -1, "currency": "EUR"}},
    "price without currency": {"price": {"amount": 1}},
    "unknown currency": {"price": {"amount": 1, "currency": "XXX"}},
    "area is nothing": {"area": 0},
    "area is true": {"area": True},
    "rooms is no list": {"rooms": "two"},
    "rooms twice": {"rooms": ["bath", "bath"]},
    "unknown kind": {"kind": "castle"},
    "bad mail": {"mail": "owner"},
    "bad link": {"link": "no address"},
    "bad day": {"day": "31.01.2026"},
    "half a pair": {"title": "half a pair: \ud800"},
    "number too large": {"area": 2**70},
}
MANY = 50
CODE_NOTE = "as it was written"
CODE_ORIGIN = "page, the code"
KEYS = [f"{number}-{copy}" for copy in range(MANY) for number in range(len(BREAKS))]

STRICT = {
    "type": "object",
    "required": ["title", "price"],
    "properties": {
        "title": {"type": "string", "minLength": 1, "maxLength": 200},
        "price": {
            "type": "object",
            "required": ["amount", "currency"],
            "properties": {
                "amount": {"type": "number", "minimum": 0},
                "currency": {"enum": ["EUR", "BGN"]},
            },
        },
        "area": {"type": "number", "exclusiveMinimum": 0},
        "rooms": {"type": "array", "uniqueItems": True},
        "kind": {"enum": ["flat", "house"]},
        "mail": {"type": "string", "format": "email"},
        "link": {"type": "string", "format": "uri"},
        "day": {"type": "string", "format": "date"},
        "code": {"type": "string", "pattern": "^[A-Z]{2}-"},
    },
}


class Killed(BaseException):
    """What no `except Exception` stops, as a signal is not stopped."""


def page_of(key: str) -> str:
    """Return the page of an item, as JSON of which every sign is ASCII."""
    change = list(BREAKS.values())[int(key.partition("-")[0])]
    fields = {**GOOD, **change, "id": key}
    return json.dumps({name: value for name, value in fields.items() if value is not _GONE})


class ListingOptions(Options):
    site: str


class Strict(Source):
    """Takes none of the broken ones."""

    name = "listings"
    Options = ListingOptions
    pipeline: ClassVar[tuple[Stage, ...]] = (Map({"*": "*", "id": None}), Validate(STRICT))

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        del visit
        for key in KEYS:
            yield Item(key, f"{self.options.site}/{key}")

    @layer()
    async def page(self, visit: Visit) -> Mapping[str, Any]:
        answer = await visit.fetch(visit.item.url)
        visit.note("code", CODE_NOTE)
        visit.origins["code"] = CODE_ORIGIN
        fields: dict[str, Any] = json.loads(answer.text)
        return fields


class Repair:
    """Makes text and numbers such that they can be kept."""

    name = "repair"

    def __call__(self, draft: Draft) -> Draft:
        return draft.with_data({name: _kept(value) for name, value in draft.data.items()})


def _kept(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return str(value) if isinstance(value, int) and value > 2**63 else value


class Fixed(Strict):
    """Takes them all."""

    pipeline = (Map({"*": "*", "id": None}), Repair(), Validate({"type": "object"}))


class HalfMended(Strict):
    """Takes all but those without a title."""

    pipeline = (Repair(), Validate({"type": "object", "required": ["title"]}))


class Mortal(Fixed):
    """Takes them all, and is killed on the way."""

    def compose(self, item: Item, layers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        if item.key == KEYS[450]:
            raise Killed
        return super().compose(item, layers)


class Stranger(Fixed):
    """Another source altogether."""

    name = "stranger"


class Silent(Strict):
    """Has no pipeline: what no database can hold reaches it."""

    pipeline = ()


class Buggy(Strict):
    """Breaks in its own code after its last request."""

    pipeline = ()

    def compose(self, item: Item, layers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        del item
        return {"amount": layers["page"]["price"]["amount"] + 1}
