"""The robots.txt middleware: what it fetches, stores and refuses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from longline.http.errors import BadAnswer, RobotsDisallowed
from longline.http.messages import Request
from longline.http.robots import RobotsText
from longline.http.transport import HttpOptions, HttpTransport
from tests.http.robots_bench import CLOSED, DAY, Bench, Calendar
from tests.limit_backends import SqliteStates
from tests.scripted_site import ScriptedSite


@pytest.fixture
async def bench(site: ScriptedSite) -> AsyncIterator[Bench]:
    clock = Calendar()
    transport = HttpTransport(HttpOptions(), clock)
    yield Bench(site, clock, transport)
    await transport.close()


# ---------------------------------------------------------------- asking and keeping


async def test_all_waiters_share_one_request(bench: Bench) -> None:
    bench.site.says("/robots.txt", CLOSED)
    robots = bench.middleware()

    await asyncio.gather(*(bench.get(robots, f"/{number}") for number in range(5)))

    assert bench.site.hits["/robots.txt"] == 1


async def test_a_question_that_is_cancelled_is_asked_by_the_next(bench: Bench) -> None:
    is_asked = asyncio.Event()

    async def slow(_request: web.Request) -> web.StreamResponse:
        is_asked.set()
        await asyncio.sleep(5)
        return web.Response(text=CLOSED)

    bench.site.answers["/robots.txt"] = slow
    robots = bench.middleware()
    first = asyncio.create_task(bench.get(robots, "/a"))
    second = asyncio.create_task(bench.get(robots, "/b"))
    await is_asked.wait()
    first.cancel()

    page = await second

    assert page.status == 404
    assert bench.site.hits["/robots.txt"] == 2
    assert first.cancelled()


async def test_rules_are_asked_for_again_after_a_day(bench: Bench) -> None:
    bench.site.says("/robots.txt", CLOSED)
    robots = bench.middleware()

    await bench.get(robots, "/a")
    bench.clock.skipped += DAY - 60
    await bench.get(robots, "/a")
    before = bench.site.hits["/robots.txt"]
    bench.clock.skipped += 120
    bench.site.says("/robots.txt", "User-agent: *\nDisallow: /a\n")
    with pytest.raises(RobotsDisallowed):
        await bench.get(robots, "/a")

    assert (before, bench.site.hits["/robots.txt"]) == (1, 2)


async def test_another_run_does_with_what_was_kept(bench: Bench) -> None:
    bench.site.says("/robots.txt", CLOSED)
    await bench.get(bench.middleware(), "/a")

    with pytest.raises(RobotsDisallowed):
        await bench.get(bench.middleware(), "/closed")

    assert bench.site.hits["/robots.txt"] == 1


async def test_a_host_without_rules_is_remembered_too(bench: Bench) -> None:
    await bench.get(bench.middleware(), "/a")
    await bench.get(bench.middleware(), "/a")

    assert bench.site.hits["/robots.txt"] == 1
    assert (await bench.cells.all())[bench.site.url].status == 404


async def test_a_copy_survives_in_a_file(bench: Bench, tmp_path: Path) -> None:
    cells = SqliteStates(tmp_path / "pace.sqlite", "robots", RobotsText, bench.clock)
    bench.cells = cells
    rules = b"\xef\xbb\xbfUser-agent: *\nDisallow: /caf\xe9\nDisallow: /\xd0\xbf\n"

    async def robots_txt(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=rules)

    bench.site.answers["/robots.txt"] = robots_txt
    await bench.get(bench.middleware(), "/a")

    for path in ("/caf%E9", "/п"):
        with pytest.raises(RobotsDisallowed):
            await bench.get(bench.middleware(), path)

    assert bench.site.hits["/robots.txt"] == 1
    await cells.close()


async def test_each_port_of_a_host_has_its_own_rules(bench: Bench) -> None:
    bench.site.says("/robots.txt", "User-agent: *\nDisallow: /\n")
    robots = bench.middleware()

    async with ScriptedSite() as other:
        page = await robots(Request(f"{other.url}/a"), bench.usage)

    assert page.status == 404
    assert bench.site.hits["/robots.txt"] == 0


# ---------------------------------------------------------------- the answer


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 418, 451])
async def test_a_client_error_allows_all(bench: Bench, status: int) -> None:
    bench.site.says("/robots.txt", "User-agent: *\nDisallow: /\n", status=status)
    bench.site.says("/a", "x")

    assert (await bench.get(bench.middleware(), "/a")).text == "x"


async def test_five_redirects_are_followed_and_the_rules_count_for_the_first_host(
    bench: Bench,
) -> None:
    async with ScriptedSite() as other:
        for number in range(4):
            bench.site.says(f"/{number}", status=301, headers={"Location": f"/{number + 1}"})
        bench.site.says("/robots.txt", status=302, headers={"Location": "/0"})
        bench.site.says("/4", status=308, headers={"Location": f"{other.url}/robots.txt"})
        other.says("/robots.txt", "User-agent: *\nDisallow: /a\n")

        with pytest.raises(RobotsDisallowed):
            await bench.get(bench.middleware(), "/a")

    assert bench.site.hits["/a"] == 0


async def test_rules_that_lie_behind_endless_redirects_are_no_permission(bench: Bench) -> None:
    bench.site.says("/robots.txt", status=302, headers={"Location": "/robots.txt"})
    robots = bench.middleware()

    for _ in range(2):
        with pytest.raises(BadAnswer, match=r"robots\.txt.*\b10\b"):
            await bench.get(robots, "/a")

    assert bench.site.hits == {"/robots.txt": 11}


async def test_an_answer_from_a_cache_in_between_is_not_wanted(bench: Bench) -> None:
    seen = []

    async def robots_txt(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Cache-Control"])
        return web.Response(text="")

    bench.site.answers["/robots.txt"] = robots_txt
    await bench.get(bench.middleware(), "/a")

    assert seen == ["no-cache"]


# ---------------------------------------------------------------- pace


async def test_a_crawl_delay_restrains_the_pace_of_the_domain(bench: Bench) -> None:
    bench.site.says("/robots.txt", "User-agent: *\nCrawl-delay: 4\nRequest-rate: 1/2\n")

    await bench.get(bench.middleware(), "/a")
    await bench.get(bench.middleware(), "/a")

    assert bench.rates == [(bench.host, 0.25), (bench.host, 0.25)]
    assert bench.events_of("robots.rate") == [{"host": bench.host, "rate": 0.25}] * 2


async def test_an_old_copy_goes_on_to_restrain_the_pace(bench: Bench) -> None:
    bench.site.says("/robots.txt", "User-agent: *\nCrawl-delay: 4\n")
    await bench.get(bench.middleware(), "/a")
    bench.clock.skipped += 2 * DAY
    bench.site.says("/robots.txt", status=500)
    bench.rates.clear()

    await bench.get(bench.middleware(), "/a")

    assert bench.rates == [(bench.host, 0.25)]


async def test_without_a_crawl_delay_nothing_is_restrained(bench: Bench) -> None:
    bench.site.says("/robots.txt", CLOSED)

    await bench.get(bench.middleware(), "/a")

    assert bench.rates == []


# ---------------------------------------------------------------- refusals and overrides


async def test_a_refusal_names_the_line(bench: Bench) -> None:
    bench.site.says("/robots.txt", CLOSED)

    with pytest.raises(RobotsDisallowed) as refused:
        await bench.get(bench.middleware(), "/closed/a")

    assert re.search(r"\b2\b.*'Disallow: /closed'", refused.value.reason)


async def test_an_override_is_reported_once_and_needs_no_robots_txt(bench: Bench) -> None:
    robots = bench.middleware(ignored=frozenset({"127.0.0.1"}))

    await bench.get(robots, "/a")
    await bench.get(robots, "/b")

    assert bench.site.hits == {"/a": 1, "/b": 1}
    assert bench.events_of("robots.ignored") == [{"host": bench.host, "url": f"{bench.site.url}/a"}]


async def test_an_override_holds_for_its_host_only(bench: Bench) -> None:
    bench.site.says("/robots.txt", "User-agent: *\nDisallow: /\n")
    robots = bench.middleware(ignored=frozenset({"localhost"}))

    with pytest.raises(RobotsDisallowed):
        await bench.get(robots, "/a")
