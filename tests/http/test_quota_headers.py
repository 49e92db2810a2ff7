from __future__ import annotations

import math
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from longline.core.clock import utc_datetime
from longline.core.http_headers import parse_retry_after
from longline.http.middleware.rate_limit import Quota, read_quotas

NOW = 1_800_000_000.0
NAMES = st.sampled_from(
    [
        *("RateLimit", "RateLimit-Policy", "RateLimit-Limit", "RateLimit-Remaining"),
        *("RateLimit-Reset", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"),
        *("X-Rate-Limit-Limit", "X-RateLimit-Limit-Second", "X-RATELIMIT-REMAINING", "limit"),
        *("X-RateLimit-Reset-After", "X-RateLimit-", "X-RateLimit-Limit-Fortnight"),
    ]
)
VALUES = st.one_of(
    st.text(max_size=40),
    st.floats().map(str),
    st.integers().map(str),
    st.from_regex(r'"[a-z]{1,4}"(;[rtqwx]=[-0-9a-z.]{0,8}){0,3}', fullmatch=True),
    st.from_regex(r"(limit|remaining|reset)=[-0-9.]{0,20}(, ?\w+=\d*)*", fullmatch=True),
    st.from_regex(r"\d{0,12}(, ?\d{1,9};w=\d{1,9})*", fullmatch=True),
)


def headers(**values: str) -> CIMultiDictProxy[str]:
    """Return headers as aiohttp gives them."""
    pairs = [(name.replace("_", "-"), value) for name, value in values.items()]
    return CIMultiDictProxy(CIMultiDict(pairs))


@pytest.mark.parametrize(
    ("said", "quotas"),
    [
        # the current draft
        (
            {"RateLimit": '"default";r=50;t=30', "RateLimit_Policy": '"default";q=100;w=60'},
            [Quota(100, 50, 30, 60)],
        ),
        ({"RateLimit": '"default";r=50;t=30'}, [Quota(None, 50, 30, None)]),
        ({"RateLimit": '"default";r=0'}, [Quota(None, 0, None, None)]),
        ({"RateLimit_Policy": '"burst";q=10;w=1'}, [Quota(10, None, None, 1)]),
        (
            {
                "RateLimit_Policy": '"bytes";q=65535;qu="content-bytes";w=10',
                "RateLimit": '"bytes";r=0',
            },
            [],
        ),
        (
            {
                "RateLimit_Policy": '"p";q=100;w=60;pk=:cHsdsRa894==:',
                "RateLimit": '"p" ; r=9 ; t=2',
            },
            [Quota(100, 9, 2, 60)],
        ),
        # the drafts before it
        ({"RateLimit": "limit=100, remaining=50, reset=5"}, [Quota(100, 50, 5, None)]),
        (
            {"RateLimit": "limit=100, remaining=50, reset=5", "RateLimit_Policy": "100;w=60"},
            [Quota(100, 50, 5, None), Quota(100, None, None, 60)],
        ),
        (
            {"RateLimit_Limit": "100", "RateLimit_Remaining": "0", "RateLimit_Reset": "7"},
            [Quota(100, 0, 7, None)],
        ),
        # of everyday use
        (
            {"X_RateLimit_Limit": "60", "X_RateLimit_Remaining": "0", "X_RateLimit_Reset": "9"},
            [Quota(60, 0, 9, None)],
        ),
        ({"x_ratelimit_reset": "1800000030"}, [Quota(None, None, 30, None)]),
        ({"X_RateLimit_Reset": "1800000030000"}, [Quota(None, None, 30, None)]),
        ({"X_RateLimit_Reset": "1799999999"}, [Quota(None, None, 0, None)]),
        ({"X_RateLimit_Reset": "Fri, 15 Jan 2027 08:00:30 GMT"}, [Quota(None, None, 30, None)]),
        ({"X_RateLimit_Reset_After": "0.5"}, [Quota(None, None, 0.5, None)]),
        ({"X_Rate_Limit_Remaining": "3"}, [Quota(None, 3, None, None)]),
        ({"X_RATELIMIT_REMAINING": "3"}, [Quota(None, 3, None, None)]),
        (
            {"X_RateLimit_Limit_Second": "5", "X_RateLimit_Remaining_Second": "4"},
            [Quota(5, 4, None, 1)],
        ),
        ({"X_RateLimit_Limit_Minute": "120"}, [Quota(120, None, None, 60)]),
        # nonsense
        ({"X_RateLimit_Remaining": "-1"}, []),
        ({"X_RateLimit_Remaining": "nan"}, []),
        ({"X_RateLimit_Remaining": "inf"}, []),
        ({"X_RateLimit_Remaining": "1e3"}, []),
        ({"X_RateLimit_Remaining": "٣"}, []),
        ({"X_RateLimit_Limit": "unlimited"}, []),
        ({"X_RateLimit_Limit": "9" * 30}, []),
        ({"X_RateLimit_Reset": "9" * 15}, []),
        ({"RateLimit": "so many"}, []),
        # something else
        ({"Content_Type": "text/html", "Server": "nginx"}, []),
        ({"X_Upload_Limit": "5"}, []),
    ],
)
def test_every_family_is_read(said: dict[str, str], quotas: list[Quota]) -> None:
    assert read_quotas(headers(**said), NOW) == quotas


def test_several_policies_are_several_quotas() -> None:
    said = headers(
        RateLimit='"burst";r=9;t=1, "day";r=0;t=3600',
        RateLimit_Policy='"burst";q=10;w=1, "day";q=1000;w=86400',
    )

    assert set(read_quotas(said, NOW)) == {Quota(10, 9, 1, 1), Quota(1000, 0, 3600, 86_400)}


def test_a_header_in_several_lines_is_one() -> None:
    said = CIMultiDict([("RateLimit", '"a";r=1'), ("RateLimit", '"b";r=2')])

    assert {quota.remaining for quota in read_quotas(said, NOW)} == {1, 2}


def test_plain_mappings_will_do() -> None:
    assert read_quotas({"x-ratelimit-remaining": "3"}, NOW) == [Quota(remaining=3)]


@pytest.mark.parametrize(
    ("quota", "rate"),
    [(Quota(100, window=50), 2.0), (Quota(100), None), (Quota(0, window=9), None), (Quota(), None)],
)
def test_a_rate_needs_a_limit_and_a_window(quota: Quota, rate: float | None) -> None:
    assert quota.rate == rate


@settings(max_examples=30)  # these strategies are slow
@given(st.dictionaries(NAMES, VALUES, max_size=8))
def test_any_headers_yield_only_valid_quotas(said: dict[str, str]) -> None:
    for quota in read_quotas(CIMultiDict(said), NOW):
        values = (quota.limit, quota.remaining, quota.reset_seconds, quota.window, quota.rate)
        assert all(one is None or (math.isfinite(one) and one >= 0) for one in values)
        assert quota != Quota()


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 31_000_000))
def test_the_current_draft_is_read_back(limit: int, left: int, seconds: int) -> None:
    said = {
        "ratelimit-policy": f'"default";q={limit};w={seconds}',
        "ratelimit": f'"default";r={left};t={seconds}',
    }

    assert read_quotas(said, NOW) == [Quota(limit, left, seconds, seconds)]


@given(st.integers(0, 31_000_000))
def test_a_pause_is_read_in_both_forms(seconds: int) -> None:
    at = format_datetime(utc_datetime(NOW + seconds), usegmt=True)

    assert parse_retry_after(str(seconds), NOW) == seconds
    assert parse_retry_after(at, NOW) == seconds


@settings(max_examples=30)
@given(VALUES)
def test_a_pause_is_a_valid_number_or_none(text: str) -> None:
    pause = parse_retry_after(text, NOW)

    assert pause is None or 0 <= pause <= 366 * 86_400


@pytest.mark.parametrize(
    "text", ["", "soon", "-5", "1e9", "nan", "²", "9" * 400, "1_0", "Fri, 99 Foo 2027", "."]
)
def test_a_pause_that_cannot_be_read_is_none(text: str) -> None:
    assert parse_retry_after(text, NOW) is None


def test_a_date_that_has_passed_is_a_pause_of_zero() -> None:
    assert parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT", NOW) == 0


def test_a_date_without_a_zone_is_meant_as_gmt() -> None:
    assert parse_retry_after("Fri, 15 Jan 2027 08:00:30", NOW) == 30
