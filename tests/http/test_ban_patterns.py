"""Telling bans from answers, by pages of both kinds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.http.middleware.bans import find_ban, is_suspicious_page
from tests.http.blocked_pages import BLOCKED, INNOCENT, LONG, answer, html


@pytest.mark.parametrize("name", BLOCKED)
def test_a_page_that_blocks_us_is_found_out(name: str) -> None:
    assert find_ban(BLOCKED[name])


@pytest.mark.parametrize("name", INNOCENT)
def test_a_page_that_only_looks_like_a_ban_passes(name: str) -> None:
    assert find_ban(INNOCENT[name]) is None


# "Are You Human?" is a light sign: a source that expects more than a song finds it there.
@pytest.mark.parametrize("name", [name for name in INNOCENT if name != "a song"])
def test_missing_what_is_expected_is_no_ban_by_itself(name: str) -> None:
    assert find_ban(INNOCENT[name], ["#listing"]) is None


@pytest.mark.parametrize("name", [name for name in BLOCKED if "as data" not in name])
def test_a_page_with_what_is_expected_is_never_blocked(name: str) -> None:
    page = BLOCKED[name]
    body = page.body + b"<div id='listing'></div>"
    whole = answer(body.decode("latin-1"), page.status, charset="latin-1", **dict(page.headers))

    assert find_ban(whole, [".price", "#listing"]) is None


@pytest.mark.parametrize(
    ("body", "sign"),
    [
        (html("<h1>Are You Human?</h1>", "site.test"), "'Are You Human'"),
        (html("<p>Enable JavaScript and cookies to continue</p>"), "JavaScript and cookies"),
        (html(f"<h1>I'm not a robot</h1>{LONG}"), "I'm not a robot"),
        (html("<h1>Acceso denegado</h1>"), "Acceso denegado"),
        (html("<div class='cf-turnstile'></div>" + "<p>words and more words</p>" * 30), "captcha"),
    ],
    ids=["a question", "a request", "a heading", "a denial", "a captcha"],
)
def test_a_light_sign_counts_where_all_that_is_expected_is_missing(body: str, sign: str) -> None:
    page = answer(body)

    found = find_ban(page, ["#listing", ".price"])

    assert find_ban(page) is None
    assert found is not None
    assert sign in found
    assert "#listing, .price" in found


@pytest.mark.parametrize(
    ("name", "evidence"),
    [
        ("denied and nothing else", ["403", "'Access denied'"]),
        ("cloudflare, by its header alone", ["cf-mitigated: challenge"]),
        ("cloudflare, a challenge with status 200", ["#challenge-form"]),
        ("datadome, by its header", ["403", "x-dd-b"]),
        ("a captcha and no word", ["captcha"]),
        (
            "akamai, access denied with a reference",
            ["403", "'Access Denied'", "'Reference #18.5f2c1702.1700000000."],
        ),
    ],
)
def test_the_evidence_names_what_was_found(name: str, evidence: list[str]) -> None:
    found = find_ban(BLOCKED[name]) or ""

    assert [part for part in evidence if part not in found] == []


@pytest.mark.parametrize("status", [403, 429, 503])
def test_a_page_nested_deeper_than_python_is_looked_through(status: int) -> None:
    deep = "<div>" * 5_000 + "You have been blocked" + "</div>" * 5_000

    assert find_ban(answer(html(deep), status))


def test_ordinary_pages_are_not_even_looked_at_closely() -> None:
    assert not is_suspicious_page(
        answer(html(LONG, "The harbour", "<meta name='robots' content='all'>"))
    )
    assert not is_suspicious_page(answer('{"challenge": "captcha"}', 200, "application/json"))
    assert not is_suspicious_page(answer("x", 404, "text/plain"))
    assert not is_suspicious_page(answer(html("<i>captcha</i>" * 300)))
    assert not is_suspicious_page(answer(html("<h1>captcha</h1>")), ["h1"])


def test_a_page_that_is_too_large_is_no_challenge() -> None:
    assert not is_suspicious_page(answer(html("captcha" + LONG * 200)))


@given(st.binary(max_size=2_000), st.integers(100, 999), st.sampled_from(["", "text/html", "x"]))
def test_any_bytes_are_looked_at_without_a_fault(body: bytes, status: int, kind: str) -> None:
    page = answer(body.decode("latin-1"), status, kind, "latin-1")

    assert find_ban(page, ["h1"]) is None or is_suspicious_page(page, ["h1"])


@given(st.integers(200, 599), st.sampled_from([LONG, f"<h1>Blocked</h1>{LONG}", "<p>Hello</p>"]))
def test_a_status_alone_is_never_a_ban(status: int, body: str) -> None:
    assert find_ban(answer(html(body), status)) is None
