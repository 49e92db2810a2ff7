"""The check of proxies, through real ones: what is alive, what a site learns, what a page says."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.http.messages import Page
from longline.http.proxies.check import (
    Checked,
    Echo,
    JudgeUnreachable,
    anonymity_of,
    is_same_network,
    parse_echo,
)
from longline.http.proxies.configuration import CheckOptions
from longline.http.proxies.judge import LONGEST_HEADER, MOST_HEADERS, echo, judge_running
from longline.http.proxies.proxy import CredentialFiles, Proxy, parse_proxy
from longline.wiring import open_proxy_checker
from tests.forward_proxy import ForwardProxy
from tests.proxy_servers import ProxyServers
from tests.scripted_site import ScriptedSite

pytestmark = pytest.mark.real_time
OWN = Echo("198.51.100.7", {"accept": "*/*"})


async def check(folder: Path, proxies: list[Proxy], **options: Any) -> Checked:
    """Check proxies with these options."""
    made = CheckOptions.model_validate({"timeout": 5, **options})
    async with open_proxy_checker(Settings(home=folder), SystemClock(), made) as checker:
        return await checker.check_all(proxies)


def proxies_of(*lines: str, folder: Path | None = None) -> list[Proxy]:
    """Return the proxies of lines, with files for their credentials."""
    parsed = [parse_proxy(line) for line in lines]
    if folder is None:
        return [one.proxy for one in parsed]
    return [CredentialFiles(folder / "credentials").keep(one) for one in parsed]


async def test_living_proxies_of_every_scheme_are_told_from_dead(
    proxy_servers: ProxyServers, tmp_path: Path
) -> None:
    lines = [*proxy_servers.alive, proxy_servers.with_login, proxy_servers.dead]

    checked = await check(tmp_path, proxies_of(*lines, folder=tmp_path))

    results = {proxy.port: result for proxy, result in checked.results}
    assert (checked.alive, checked.unchecked) == (4, [])
    assert results[proxy_servers.any_port].exit_address == "127.0.0.1"
    assert results[proxy_servers.any_port].anonymity == "elite"
    assert 0 < (results[proxy_servers.any_port].latency or 0) < 5
    assert results[proxy_servers.login_port].anonymity == "anonymous"
    assert "no connection" in (results[proxy_servers.dead_port].problem or "")


async def test_a_proxy_that_hangs_up_does_not_stop_the_check(
    proxy_servers: ProxyServers, tmp_path: Path
) -> None:
    hanging_up = await ForwardProxy("hang-up").start()

    checked = await check(tmp_path, proxies_of(hanging_up.line, proxy_servers.alive[0]))
    await hanging_up.close()

    results = {proxy.address: result for proxy, result in checked.results}
    assert checked.alive == 1
    assert results[hanging_up.line].problem == "it closed the connection"


async def test_a_wrong_login_is_dead_and_not_quoted(
    proxy_servers: ProxyServers, tmp_path: Path
) -> None:
    line = f"http://ada:Wr0ng-pw@127.0.0.1:{proxy_servers.login_port}"

    checked = await check(tmp_path, proxies_of(line, folder=tmp_path))

    ((_, result),) = checked.results
    assert (result.is_alive, "407" in (result.problem or "")) == (False, True)
    assert "Wr0ng-pw" not in repr(checked)


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("bids", None),
        ("offers", "the page does not contain the word"),
        (None, "the page responded with status 403"),
    ],
)
async def test_a_page_must_contain_its_word(
    proxy_servers: ProxyServers,
    site: ScriptedSite,
    tmp_path: Path,
    word: str | None,
    problem: str | None,
) -> None:
    status = 200 if word else 403

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="<p>12 bids</p>", status=status, headers={"server": "nginx"})

    site.answers["/page"] = answer

    checked = await check(
        tmp_path, proxies_of(proxy_servers.alive[0]), page=f"{site.url}/page", word=word
    )

    ((_, result),) = checked.results
    assert (result.problem, result.is_alive) == (problem, problem is None)
    assert (result.anonymity, result.latency is not None) == (None, True)


async def test_too_little_anonymity_is_refused(proxy_servers: ProxyServers, tmp_path: Path) -> None:
    (proxy,) = proxies_of(proxy_servers.with_login, folder=tmp_path)

    checked = await check(tmp_path, [proxy], anonymity="elite")

    ((_, result),) = checked.results
    assert result.problem == "it is anonymous; the least is elite"


async def test_without_a_judge_nothing_is_judged(
    proxy_servers: ProxyServers, site: ScriptedSite, tmp_path: Path
) -> None:
    proxies = proxies_of(*proxy_servers.alive)

    with pytest.raises(JudgeUnreachable):
        await check(tmp_path, proxies, judge=f"{site.url}/none")
    with pytest.raises(JudgeUnreachable):
        await check(tmp_path, proxies, judge=proxy_servers.dead)


async def test_a_response_that_is_not_the_judges_is_refused(
    proxy_servers: ProxyServers, site: ScriptedSite, tmp_path: Path
) -> None:
    """A proxy that answers itself, for example with a page of its own, is not alive."""
    copies = [orjson.dumps(echo("127.0.0.1", [("accept", "*/*")]))]

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=copies[0], content_type="application/json")

    site.answers["/judge"] = answer

    checked = await check(tmp_path, proxies_of(proxy_servers.alive[0]), judge=f"{site.url}/judge")

    ((_, result),) = checked.results
    assert (result.is_alive, "not that of the judge" in (result.problem or "")) == (False, True)


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("198.51.100.7, 203.0.113.9", "198.51.100.7"),
        ("2001:DB8::1", "2001:db8::1"),
        ("<b>\x1b[31m" * 100_000, None),
    ],
)
async def test_only_an_address_is_an_exit(
    proxy_servers: ProxyServers,
    site: ScriptedSite,
    tmp_path: Path,
    written: str,
    address: str | None,
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(echo(written, request.headers.items()))

    site.answers["/judge"] = answer

    checked = await check(tmp_path, proxies_of(proxy_servers.alive[0]), judge=f"{site.url}/judge")

    ((_, result),) = checked.results
    assert (result.is_alive, result.exit_address) == (True, address)


def test_several_addresses_of_this_machine_are_known() -> None:
    own = Echo("10.0.0.1, 198.51.100.7", {"accept": "*/*"})
    seen = Echo("203.0.113.9", {"accept": "*/*", "x-client": "198.51.100.7"})

    assert anonymity_of(seen, own) == "transparent"


async def test_proxies_that_hang_are_left_at_the_deadline(
    proxy_servers: ProxyServers, tmp_path: Path
) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    hosts = [f"127.0.0.{number}" for number in range(1, 4)]
    server = await asyncio.start_server(hang, hosts, 0)
    places = [one.getsockname() for one in server.sockets]
    several = proxies_of(*(f"http://{host}:{port}" for host, port in places))
    good = proxies_of(proxy_servers.alive[0])[0]

    checked = await check(tmp_path, [good, *several], deadline="1s", concurrency=2)
    slow = await check(tmp_path, several[:1], timeout="0.3s")
    server.close()

    assert [proxy for proxy, _ in checked.results] == [good]
    assert len(checked.unchecked) == 3
    assert slow.results[0][1].problem == "no response within 0.3 s"


async def test_many_proxies_are_checked_together(
    proxy_servers: ProxyServers, site: ScriptedSite, tmp_path: Path
) -> None:
    running, most = 0, 0

    async def answer(_request: web.Request) -> web.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        return web.Response(text="x")

    site.answers["/page"] = answer
    (proxy,) = proxies_of(proxy_servers.alive[0])
    several = [replace(proxy, host=f"127.0.0.{number}") for number in range(1, 3)] * 6
    alive = [one for one in several if one.host == "127.0.0.1"]

    await check(tmp_path, alive, page=f"{site.url}/page", concurrency=3)

    assert most == 3


# ---------------- Anonymity


@pytest.mark.parametrize(
    ("headers", "level"),
    [
        ({}, "elite"),
        ({"accept": "text/html", "connection": "close"}, "elite"),
        ({"via": "1.1 squid"}, "anonymous"),
        ({"x-forwarded-for": "203.0.113.9"}, "anonymous"),
        ({"x-forwarded-for": "unknown"}, "anonymous"),
        ({"forwarded": "for=_hidden"}, "anonymous"),
        ({"proxy-connection": "keep-alive"}, "anonymous"),
        ({"x-proxy-id": "7"}, "anonymous"),
        ({"x-forwarded-for": "198.51.100.7"}, "transparent"),
        ({"forwarded": 'for="198.51.100.7:4711";proto=http'}, "transparent"),
        ({"x-forwarded-for": "10.0.0.1, 198.51.100.7"}, "transparent"),
        ({"x-anything": "::ffff:198.51.100.7"}, "transparent"),
        ({"x-forwarded-for": "198.51.100.70"}, "anonymous"),
        ({"host": "198.51.100.7:8400"}, "elite"),
    ],
)
def test_anonymity_is_what_the_headers_say(headers: dict[str, str], level: str) -> None:
    assert anonymity_of(Echo("203.0.113.9", headers), OWN) == level


def test_headers_of_a_server_before_the_judge_do_not_count() -> None:
    own = Echo("10.0.0.1", {"via": "1.1 balancer", "x-real-ip": "198.51.100.7"})
    through = Echo("10.0.0.1", {"via": "1.1 balancer", "x-real-ip": "203.0.113.9"})

    assert anonymity_of(through, own) == "elite"


@pytest.mark.parametrize(
    ("own", "other", "is_same"),
    [
        ("198.51.100.7", "198.51.100.200", True),
        ("198.51.100.7", "198.51.101.7", False),
        ("2001:db8:1::7", "2001:db8:1:ffff::1", True),
        ("2001:db8:1::7", "2001:db8:2::7", False),
        ("127.0.0.1", "127.0.0.1", False),
        ("198.51.100.7", None, False),
        ("198.51.100.7", "2001:db8::1", False),
        ("unknown", "198.51.100.7", False),
    ],
)
def test_the_network_of_an_exit(own: str, other: str | None, is_same: bool) -> None:  # noqa: FBT001  # a parameter of pytest
    assert is_same_network(own, other) is is_same


# ---------------- The judge


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"{}", b'{"headers": 1}', b'{"headers": null, "address": "x"}'],
)
def test_other_responses_are_not_a_judges(body: bytes) -> None:
    assert parse_echo(Page("http://judge.test/", 200, {}, body)) is None


def test_the_format_of_httpbin_is_read() -> None:
    body = b'{"origin": "198.51.100.7", "headers": {"Accept": "*/*"}}'

    assert parse_echo(Page("http://judge.test/", 200, {}, body)) == OWN


def test_an_echo_is_bounded() -> None:
    many = [(f"x-{number}", "a") for number in range(1000)]

    found = echo("198.51.100.7", [("long", "b" * 100_000), ("a", "1"), ("A", "2"), *many])

    assert len(found["headers"]) < MOST_HEADERS
    assert len(found["headers"]["long"]) == LONGEST_HEADER
    assert found["headers"]["a"] == "1, 2"


async def test_a_judge_runs_only_for_a_check() -> None:
    async with judge_running() as url:
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.split(":")[2].split("/")[0]))
        writer.close()

    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection("127.0.0.1", int(url.split(":")[2].split("/")[0]))
