"""How the headers of caching are read."""

from __future__ import annotations

from math import inf

import pytest
from multidict import CIMultiDict

from longline.core.http_headers import parse_http_date
from longline.http.messages import joined_header
from longline.http.middleware.cache import parse_directives


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("max-age=60", 60),
        ("MaX-aGe=60, public", 60),
        ('max-age="60"', 60),
        ("max-age=0060", 60),
        ("max-age=99999999999999999999999", inf),
        ("max-age=60, max-age=10", 10),
        ('extension="max-age=60", max-age=1', 1),
        ('max-age=1, extension="a, max-age=60"', 1),
        ("public", None),
        ("", None),
    ],
)
def test_a_number_of_seconds_is_read(header: str, seconds: float | None) -> None:
    assert parse_directives(header).seconds("max-age") == seconds


@pytest.mark.parametrize(
    "value", ["=-60", "=6.0", "=a60", "=60a", "='60'", " =60", "= 60", "=", "=+60", "=6_0", "=٦"]
)
def test_what_is_no_number_means_stale(value: str) -> None:
    assert parse_directives(f"max-age{value}").seconds("max-age") == 0


@pytest.mark.parametrize(
    "text",
    [
        "Fri, 15 Jan 2027 08:00:00 GMT",
        "Friday, 15-Jan-27 08:00:00 GMT",
        "Fri Jan 15 08:00:00 2027",
    ],
)
def test_the_three_forms_of_a_date_are_equal(text: str) -> None:
    assert parse_http_date(text) == 1_800_000_000


@pytest.mark.parametrize("text", ["", "0", "-1", "soon", "Fri, 15 Jan 99999 08:00:00 GMT"])
def test_what_is_no_date_is_none(text: str) -> None:
    assert parse_http_date(text) is None


def test_several_lines_are_one_list() -> None:
    headers = CIMultiDict([("Cache-Control", "public"), ("cache-control", "max-age=1")])

    assert joined_header(headers, "cache-control") == "public, max-age=1"
    assert joined_header({"cache-control": "public"}, "cache-control") == "public"
    assert joined_header(headers, "vary") == ""
