"""Freshness: whether a stored response may be reused at a time."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.http.messages import Request
from longline.http.middleware.cache import (
    Directives,
    age_of,
    is_usable_on_error,
    lifetime_of,
    may_reuse,
    read_request,
)
from tests.http.cache_given import entry
from tests.virtual import EPOCH


def asking(control: str = "", **headers: str) -> Directives:
    all_headers = {"Cache-Control": control} | headers if control else headers
    return read_request(Request("http://site.test/a", headers=all_headers)).control


def date(offset: float) -> str:
    return formatdate(EPOCH + offset, usegmt=True)


@pytest.mark.parametrize(
    ("control", "age", "may"),
    [
        ("max-age=60", 59, True),
        ("max-age=60", 60, False),
        ("max-age=0", 0, False),
        ("max-age=60, no-cache", 1, False),
        ('max-age=60, no-cache="a"', 1, False),
        ("max-age=60, must-revalidate", 59, True),
        ("max-age=60, s-maxage=1", 59, True),
        ("s-maxage=60", 1, False),
        ("max-age=60, stale-while-revalidate=30", 89, False),
        ("max-age=60, stale-while-revalidate=30", 90, False),
        ("max-age=60, stale-while-revalidate=30, must-revalidate", 70, False),
        ("public", 0, False),
    ],
)
def test_what_the_site_says_is_obeyed(control: str, age: float, *, may: bool) -> None:
    assert may_reuse(entry({"Cache-Control": control}), asking(), EPOCH + age) is may


@pytest.mark.parametrize(
    ("asked", "said", "age", "may"),
    [
        ("no-cache", "max-age=60", 1, False),
        ("max-age=10", "max-age=60", 10, True),
        ("max-age=10", "max-age=60", 11, False),
    ],
)
def test_what_the_request_says_is_obeyed(asked: str, said: str, age: float, *, may: bool) -> None:
    assert may_reuse(entry({"Cache-Control": said}), asking(asked), EPOCH + age) is may


def test_pragma_counts_without_cache_control() -> None:
    fresh = entry({"Cache-Control": "max-age=60"})

    assert may_reuse(fresh, asking(Pragma="no-cache"), EPOCH) is False
    assert may_reuse(fresh, asking("max-age=9", Pragma="no-cache"), EPOCH) is True


def test_expires_counts_from_the_date_of_the_site() -> None:
    stored = entry({"Expires": date(100), "Date": date(40)})

    assert lifetime_of(stored) == 60


def test_max_age_wins_over_expires() -> None:
    assert lifetime_of(entry({"Expires": date(100), "Cache-Control": "max-age=5"})) == 5


@pytest.mark.parametrize("expires", ["0", "-1", "now"])
def test_an_expiry_that_cannot_be_read_has_passed(expires: str) -> None:
    assert lifetime_of(entry({"Expires": expires})) == 0


def test_the_age_counts_what_others_kept_it_and_the_way() -> None:
    stored = entry({"Age": "30", "Date": date(0)})
    slow = type(stored)(*(stored.url, "", (), 200, stored.headers), EPOCH - 4, EPOCH, EPOCH, EPOCH)

    assert age_of(stored, EPOCH + 5) == 35
    assert age_of(slow, EPOCH + 5) == 39


def test_the_age_is_never_less_than_the_clocks_tell() -> None:
    assert age_of(entry({"Age": "30", "Date": date(-100)}), EPOCH + 5) == 105
    assert age_of(entry({"Date": date(100)}), EPOCH + 5) == 5


@pytest.mark.parametrize("age", ["abc", "-1", "7.0", "0, 0", "7;a=b"])
def test_an_age_that_cannot_be_read_means_stale(age: str) -> None:
    stored = entry({"Cache-Control": "max-age=60", "Age": age})

    assert may_reuse(stored, asking(), EPOCH) is False


@pytest.mark.parametrize(
    ("asked", "said", "age", "may"),
    [
        ("", "max-age=60", 61, False),
        ("", "max-age=60, stale-if-error=30", 90, True),
        ("", "max-age=60, stale-if-error=30", 91, False),
        ("stale-if-error=30", "max-age=60", 90, True),
        ("stale-if-error=90", "max-age=60, stale-if-error=10", 140, True),
        ("stale-if-error=30", "max-age=60, must-revalidate", 61, False),
        ("", "max-age=60, stale-if-error=30, no-cache", 1, False),
        ("no-cache", "max-age=60, stale-if-error=30", 1, False),
    ],
)
def test_a_stale_response_is_used_on_errors_only_if_allowed(
    asked: str, said: str, age: float, *, may: bool
) -> None:
    stored = entry({"Cache-Control": said})

    assert is_usable_on_error(stored, asking(asked), EPOCH + age) is may


@given(st.integers(0, 10_000), st.floats(0, 20_000), st.floats(0, 20_000))
def test_a_later_request_never_reuses_more(lifetime: int, now: float, more: float) -> None:
    stored = entry({"Cache-Control": f"max-age={lifetime}"})
    earlier, later = (may_reuse(stored, asking(), EPOCH + at) for at in (now, now + more))

    assert earlier >= later
