"""Which values are data, in which form, and what is told of those that are none."""

from __future__ import annotations

import random
from collections import deque, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any
from uuid import UUID

import orjson
import pytest
from pydantic import AnyUrl, BaseModel
from yarl import URL

from longline.sources.plain import to_json

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
        ({"o": object()}, "field o is of type object, which is no data; return text, numbers, "),
        ({"b": b"\xff"}, "field b is of type bytes, which is no data; return "),
        ({"a": 1, "o": [0, {"x": lambda: 0}]}, "field o.1.x is of type function, "),
        ({"s": {1, b"a"}}, "field s is of type set, "),
        ({"d": Size(b"a")}, "field d is of type Size, "),  # type: ignore[arg-type]  # on purpose
        ({"e": ValueError("x")}, "field e is of type ValueError, "),
        ({"c": 1j}, "field c is of type complex, "),
        ({"t": "\ud800"}, "field t: str is not valid UTF-8"),
        ({"n": 10**400}, "field n: Integer exceeds 64-bit range"),
        ({"o": {(1, 2): 3}}, "field o has a name that is no text: it is of type tuple"),
        ({b"a": 3}, "it has a name that is no text: it is of type bytes"),
    ],
)
def test_what_is_no_data_is_told_with_its_field_and_type(value: Any, problem: str) -> None:
    with pytest.raises(TypeError) as told:
        to_json(value)

    assert str(told.value).startswith(problem)


def test_what_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(TypeError, match="Recursion limit"):
        to_json({"a": endless})
