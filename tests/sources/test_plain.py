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

from longline.core.json import to_json

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
