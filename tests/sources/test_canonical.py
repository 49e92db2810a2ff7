"""Links to one page have one canonical URL, however they are written."""

from __future__ import annotations

import pytest

from longline.sources.html.canonical import UrlRules, pattern_of

SITE = "https://shop.test"


def canonical(url: str, **rules: object) -> str | None:
    made = UrlRules.model_validate(rules)
    cleaned = made.clean(url)
    return None if cleaned is None else made.canonical(cleaned)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("HTTPS://Shop.TEST:443/a/../b#top", "/b"),
        ("https://shop.test", "/"),
        ("https://shop.test/%7eann/%c3%bc", "/~ann/%C3%BC"),
        ("https://shop.test/ü?q=ä b", "/%C3%BC?q=%C3%A4+b"),
        ("https://shop.test/?b=2&a=1&&a=0", "/?a=0&a=1&b=2"),
        ("https://shop.test/a?utm_source=x&gclid=1&id=7", "/a?id=7"),
        ("https://shop.test/a?PHPSESSID=abc", "/a"),
        ("https://shop.test/a;jsessionid=1A2B?x=1", "/a?x=1"),
        ("https://shop.test/(S(lit3py55t21z5v55vlm25s55))/cart", "/cart"),
        ("https://shop.test/?sid=0123456789abcdef0123", "/"),
        ("https://shop.test/story?sid=42", "/story?sid=42"),
    ],
)
def test_one_page_has_one_canonical_url(url: str, expected: str) -> None:
    assert canonical(url) == SITE + expected


def test_parameters_can_be_dropped_kept_and_left_in_order() -> None:
    url = f"{SITE}/?ref=1&b=2&utm_id=3&a=4"

    assert canonical(url, drop="re*", keep=["utm_id"]) == f"{SITE}/?a=4&b=2&utm_id=3"
    assert canonical(url, sort=False) == f"{SITE}/?ref=1&b=2&a=4"


def test_what_is_not_a_url_has_no_canonical_one() -> None:
    assert canonical("https://[shop.test/") is None


def test_a_pattern_has_no_numbers_and_no_values() -> None:
    url = f"{SITE}/calendar/2026/11/day-3/0f3a2b9c4d5e6f70?view=7&from=2"

    assert pattern_of(url) == "shop.test/calendar/{n}/{n}/day-{n}/{id}?from&view"
