"""robots.txt written to cost as much as possible: it costs its size, and never more."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from longline.http.errors import RobotsDisallowed
from longline.http.robots import LARGEST, MOST_RULES, Rules, explain
from longline.http.transport import HttpOptions, HttpTransport
from tests.http.robots_bench import Bench, Calendar
from tests.scripted_site import ScriptedSite

_LINE = b"Disallow: /closed\n"


@pytest.fixture
async def bench(site: ScriptedSite) -> AsyncIterator[Bench]:
    clock = Calendar()
    transport = HttpTransport(HttpOptions(largest_body=1_000_000), clock)
    yield Bench(site, clock, transport)
    await transport.close()


def peak_bytes(text: str) -> int:
    tracemalloc.start()
    Rules(text)
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("agent", ["bot{}", "*"])
def test_agents_and_crawl_delays_cost_linear_memory(agent: str) -> None:
    def text(count: int) -> str:
        pairs = (f"User-agent: {agent.format(n)}\nCrawl-delay: {n}\n" for n in range(count))
        return "".join(pairs)

    assert peak_bytes(text(2_000)) < 8 * peak_bytes(text(500))


def test_a_crawl_delay_binds_the_agents_before_it() -> None:
    text = "User-agent: a\nCrawl-delay: 3\nUser-agent: longline\nCrawl-delay: 2\nDisallow: /x\n"

    assert Rules(text).crawl_delay == 2
    assert Rules(text, "a").crawl_delay == 3


def test_the_longest_of_very_many_crawl_delays_counts() -> None:
    lines = "".join(f"Crawl-delay: {1 + n % 100}\n" for n in range(30_000))

    assert Rules(f"User-agent: *\n{lines}").crawl_delay == 100


@pytest.mark.parametrize(
    "line",
    [
        "Crawl-delay: 1e300",
        f"Request-rate: 1/{'9' * 400}",
        f"Request-rate: {'9' * 400}/1",
        f"Request-rate: 1/{'9' * 400}d",
    ],
)
def test_absurd_paces_stay_within_a_day_and_a_microsecond(line: str) -> None:
    rate = Rules(f"User-agent: *\n{line}\n").rate

    assert rate is not None
    assert 1 / (24 * 3600) <= rate <= 1e6


def test_too_many_rules_allow_nothing_but_robots_txt() -> None:
    lines = "".join(f"Disallow: /*{n}\n" for n in range(MOST_RULES + 1))
    rules = Rules(f"User-agent: *\n{lines}")

    assert not rules.allows("http://site.test/open")
    assert rules.allows("http://site.test/robots.txt")
    assert not explain(f"User-agent: *\n{lines}", "http://site.test/open").is_allowed


def test_a_rule_that_is_repeated_counts_once() -> None:
    rules = Rules("User-agent: *\n" + "Disallow: /closed\n" * (MOST_RULES * 2))

    assert rules.allows("http://site.test/open")
    decided = rules.decisive_rule("http://site.test/closed")
    assert decided is not None
    assert decided.number == 2


async def test_too_many_rules_refuse_the_page(bench: Bench) -> None:
    lines = "".join(f"Disallow: /*{n}\n" for n in range(MOST_RULES + 1))
    bench.site.says("/robots.txt", f"User-agent: *\n{lines}")

    with pytest.raises(RobotsDisallowed):
        await bench.get(bench.middleware(), "/open")


async def test_an_endless_robots_txt_counts_its_first_part(bench: Bench) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"User-agent: *\n")
        try:
            while sent < 100 * LARGEST:
                await response.write(_LINE * 1000)
                sent += len(_LINE) * 1000
        except ConnectionError:
            pass
        return response

    bench.site.answers["/robots.txt"] = endless
    robots = bench.middleware()

    page = await bench.get(robots, "/open")

    assert page.status == 404
    with pytest.raises(RobotsDisallowed):
        await bench.get(robots, "/closed")
    assert sent < 50 * LARGEST
    assert bench.site.hits["/robots.txt"] == 1
