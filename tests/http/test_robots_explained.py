"""Why an address may be asked for: the group, the rule, the line, and the pace."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longline.http.robots import Rules, explain, robots_agent, text_of
from tests.http.robots_table import CASES, Case

TEXT = """# rules
User-agent: *
Disallow: /all

User-agent: longline
User-agent: other
Disallow: /shop/   # nothing to see
Allow: /shop/open$
Crawl-delay: 2.5
Request-rate: 1/10
Sitemap: https://x.test/a.xml
Sitemap: https://x.test/b.xml
"""

PATHS = st.text("ab/.*$?%2F=é", max_size=8).map(lambda text: f"/{text}")
RULES = st.lists(st.tuples(st.sampled_from(["Allow", "Disallow"]), PATHS), max_size=6)
PLAIN_RULES = st.lists(
    st.tuples(
        st.sampled_from(["Allow", "Disallow"]),
        st.from_regex(r"/[ab/*]{0,6}\$?", fullmatch=True),
    ),
    max_size=6,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_explanation_ends_as_the_decision_did(case: Case) -> None:
    explained = explain(text_of(case.body), f"http://x.test{case.path}")

    assert explained.is_allowed == case.is_allowed


@settings(deadline=None)  # the machine may be busy
@given(rules=RULES, path=PATHS)
def test_an_explanation_agrees_with_the_decision_whatever_the_rules(
    rules: list[tuple[str, str]], path: str
) -> None:
    text = "\n".join(["User-agent: *", *(f"{field}: {rule}" for field, rule in rules)])
    url = f"http://x.test{path}"

    assert explain(text, url).is_allowed == Rules(text).allows(url)


@settings(deadline=None)  # the machine may be busy
@given(rules=RULES, path=PATHS)
def test_looking_for_an_end_changes_no_decision_about_other_rules(
    rules: list[tuple[str, str]], path: str
) -> None:
    plain = [(field, rule.replace("$", "")) for field, rule in rules]
    text = "\n".join(["User-agent: *", *(f"{field}: {rule}" for field, rule in plain)])
    url = f"http://x.test{path}"

    assert Rules(text).allows(url) == Rules(f"{text}\nDisallow: /nowhere/else$").allows(url)


def by_the_letter(rules: list[tuple[str, str]], path: str) -> bool:
    """Decide as RFC 9309 2.2.2 is written, for paths that need no escapes."""
    matching = [
        (len(rule), field == "Allow")
        for field, rule in rules
        if re.match(re.escape(rule).replace(r"\*", ".*").replace(r"\$", "$"), path)
    ]
    return max(matching, default=(0, True))[1]


@given(rules=PLAIN_RULES, path=st.text("ab/", max_size=8).map(lambda text: f"/{text}"))
def test_decisions_follow_the_letter_of_the_rfc(rules: list[tuple[str, str]], path: str) -> None:
    text = "\n".join(["User-agent: *", *(f"{field}: {rule}" for field, rule in rules)])

    assert Rules(text).allows(f"http://x.test{path}") == by_the_letter(rules, path)


def test_the_rule_that_decided_is_named_with_its_line() -> None:
    refused = explain(TEXT, "http://x.test/shop/hat")
    allowed = explain(TEXT, "http://x.test/shop/open")
    free = explain(TEXT, "http://x.test/all")

    assert (refused.is_allowed, refused.line, refused.rule) == (False, 7, "Disallow: /shop/")
    assert (allowed.is_allowed, allowed.line, allowed.rule) == (True, 8, "Allow: /shop/open$")
    assert (free.is_allowed, free.line, free.rule) == (True, None, None)


def test_the_group_that_applied_is_named() -> None:
    url = "http://x.test/all"

    assert explain(TEXT, url, "LongLine/2.0").group == "longline"
    assert explain(TEXT, url, "another").group == "*"
    assert explain("User-agent: other\nDisallow: /", url).group is None


def test_lines_are_counted_whatever_they_end_in() -> None:
    text = TEXT.replace("\n", "\r\n")

    assert explain(text, "http://x.test/shop/hat").line == 7


def test_rate_and_sitemaps_are_returned() -> None:
    explained = explain(TEXT, "http://x.test/")

    assert (explained.crawl_delay, explained.rate) == (2.5, 0.1)
    assert explained.sitemaps == ("https://x.test/a.xml", "https://x.test/b.xml")


@pytest.mark.parametrize(
    ("lines", "rate"),
    [
        (["Crawl-delay: 4"], 0.25),
        (["Crawl-delay: 0.5"], 2.0),
        (["Crawl-delay: 0"], None),
        (["Crawl-delay: soon"], None),
        (["Crawl-delay: -1"], None),
        (["Crawl-delay: inf"], None),
        (["Request-rate: 3/1"], 3.0),
        (["Request-rate: 1/2m"], 1 / 120),
        (["Request-rate: 10/60 0600-0845"], 1 / 6),
        (["Request-rate: often"], None),
        (["Request-rate: 1/10s"], 0.1),
        (["Request-rate: 90/15m"], 0.1),
        (["Request-rate: 360/1h"], 0.1),
        (["Request-rate: 8640/1d"], 0.1),
        (["Request-rate: 1 / 10"], 0.1),
        (["Request-rate: 1/10 s"], 0.1),
        (["Request-rate: 6/1 min"], 0.1),
        (["Request-rate: 6/minute"], 0.1),
        (["Request-rate: 0.5/5"], 0.1),
        (["Request-rate: 1/10 seconds"], 0.1),
        (["Request-rate: 1/10s 0600 - 0845"], 0.1),
        (["Request-rate: 1/10 06:00-08:45 UTC"], 0.1),
        (["Request-rate: 1/"], None),
        (["Request-rate: 10"], None),
        (["Request-rate: 0/10"], None),
        (["Request-rate: 1/0"], None),
        (["Request-rate: -1/10"], None),
        (["Crawl-delay: 4", "Request-rate: 1/1"], 0.25),
        (["Crawl-delay: 1", "Request-rate: 1/4"], 0.25),
        (["Crawl-delay: 10", "Crawl-delay: 2"], 0.1),
        (["Disallow: /x", "crawl delay: 4"], 0.25),
        ([], None),
    ],
)
def test_of_several_paces_the_slowest_counts(lines: list[str], rate: float | None) -> None:
    assert Rules("\n".join(["User-agent: *", *lines])).rate == rate


def test_a_pace_binds_the_agents_named_before_it() -> None:
    text = "User-agent: other\nCrawl-delay: 60\n\nUser-agent: longline\nDisallow: /x\n"

    assert Rules(text).rate is None
    assert Rules(text, "other").rate == 1 / 60


@pytest.mark.parametrize(
    ("text", "delay"),
    [
        ("User-agent: longline\nCrawl-delay: 1\nUser-agent: b\nCrawl-delay: 60\n", 1),
        ("User-agent: *\nCrawl-delay: 1\n\nUser-agent: b\nCrawl-delay: 60\nDisallow: /\n", 1),
        ("User-agent: longline\nCrawl-delay: 1\nUser-agent: b\nDisallow: /\nCrawl-delay: 60\n", 1),
        ("User-agent: a\nUser-agent: longline\nUser-agent: b\nCrawl-delay: 2\n", 2),
        ("User-agent: longline\nDisallow: /x\nCrawl-delay: 2\nCrawl-delay: 3\n", 3),
        (
            (
                "User-agent: longline\nCrawl-delay: 1\nUser-agent: b\nCrawl-delay: 60\n"
                "User-agent: longline\nCrawl-delay: 4\n"
            ),
            4,
        ),
    ],
)
def test_a_crawl_delay_of_a_later_group_is_not_ours(text: str, delay: float) -> None:
    assert Rules(text).crawl_delay == delay


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"\xef\xbb", b"\xef"])
def test_a_byte_order_mark_may_be_incomplete(mark: bytes) -> None:
    text = text_of(mark + b"User-agent: *\nDisallow: /\n")

    assert not Rules(text).allows("http://x.test/a")


def test_other_bytes_at_the_beginning_are_not_a_byte_order_mark() -> None:
    text = text_of(b"\xef\x11\xbfUser-agent: *\nDisallow: /\n")

    assert Rules(text).allows("http://x.test/a")


def test_a_forgotten_colon_may_be_a_tab() -> None:
    assert not Rules("User-agent\t*\nDisallow\t/a\n").allows("http://x.test/a")


def test_a_group_of_our_own_says_all_about_our_pace() -> None:
    text = "User-agent: *\nCrawl-delay: 60\nDisallow: /\n\nUser-agent: longline\nDisallow: /x\n"

    assert Rules(text).rate is None


@pytest.mark.parametrize(
    ("text", "is_open"),
    [
        ("", True),
        ("User-agent: *\nDisallow:\n", True),
        ("User-agent: *\nAllow: /a\nCrawl-delay: 1\n", True),
        ("User-agent: other\nDisallow: /\n", True),
        ("User-agent: *\nAllow: /\nDisallow: /a\n", False),
    ],
)
def test_rules_that_disallow_nothing_are_open(text: str, *, is_open: bool) -> None:
    assert Rules(text).is_open == is_open


@pytest.mark.parametrize(
    ("user_agent", "agent"),
    [
        ("longline/0.1.0 (no contact given)", "longline"),
        ("Acme-Prices/2.0 longline/0.1.0", "acme-prices"),
        ("Mozilla/5.0 (compatible; AcmeBot/1.0; +https://acme.test/bot)", "acmebot"),
        ("Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/140.0", "longline"),
        ("", "longline"),
    ],
)
def test_the_agent_for_robots_txt_is_in_our_user_agent(user_agent: str, agent: str) -> None:
    assert robots_agent(user_agent) == agent


def test_a_sentence_that_begins_like_a_rule_begins_no_group() -> None:
    text = "User-agent: *\nDisallow: /a\nUser-agent must match exactly: see below\nDisallow: /b\n"

    assert not Rules(text).allows("http://x.test/b")
