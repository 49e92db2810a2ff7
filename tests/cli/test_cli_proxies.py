"""longline proxies: what each command prints and exits with; credentials are never shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.proxy_servers import ProxyServers, proxies_running

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def proxy_servers() -> Iterator[ProxyServers]:
    with proxies_running() as servers:
        yield servers


def write_list(servers: ProxyServers) -> None:
    """Write a list of five proxies, one of which is dead."""
    lines = ["# mine", *servers.alive, servers.with_login, "", servers.dead]
    Path("list.txt").write_text("\n".join(lines))


def test_an_empty_pool_says_how_to_fill_it(longline: Terminal) -> None:
    shown = longline("proxies", "list")

    assert (shown.code, "longline proxies add" in shown.out) == (0, True)
    assert longline("proxies", "list", "--json").last == []
    assert longline("proxies", "stats", "--json").last["total"] == 0


def test_a_list_is_added_checked_and_shown(longline: Terminal, proxy_servers: ProxyServers) -> None:
    write_list(proxy_servers)

    added = longline("proxies", "add", "--file", "list.txt", "--tier", "mine", "--json").last
    checked = longline("proxies", "check", "--timeout", "5")
    listed = longline("proxies", "list")
    alive = longline("proxies", "list", "--state", "alive", "--json").last
    counted = longline("proxies", "stats", "--json").last

    assert (len(added["added"]), added["known"]) == (5, 0)
    assert checked.code == 3
    assert "4 of 5 proxies alive" in checked.out
    assert "Secr3t-9" not in added["added"][3] + checked.out + listed.out + repr(alive)
    assert {one["tier"] for one in alive} == {"mine"}
    assert sum(one["has_credentials"] for one in alive) == 1
    assert (counted["alive"], counted["dead"], counted["usable"]) == (4, 1, 4)


def test_one_proxy_is_checked_and_removed(longline: Terminal, proxy_servers: ProxyServers) -> None:
    longline("proxies", "add", proxy_servers.alive[0], proxy_servers.dead)

    good = longline("proxies", "check", proxy_servers.alive[0], "--json")
    bad = longline("proxies", "check", proxy_servers.dead)
    removed = longline("proxies", "remove", proxy_servers.dead)

    assert (good.code, good.last[0]["is_alive"]) == (0, True)
    assert bad.code == 1
    assert proxy_servers.dead in removed.out
    assert len(longline("proxies", "list", "--json").last) == 1


def test_the_pool_is_refreshed(longline: Terminal, proxy_servers: ProxyServers) -> None:
    write_list(proxy_servers)
    settings = Path("longline.yaml")
    settings.write_text("proxies: {minimum: 4, candidates: {mine: {file: list.txt}}}\n")

    enough = longline("proxies", "refresh")
    values = longline("proxies", "refresh", "--json")
    settings.write_text("proxies: {minimum: 5, candidates: {mine: {file: list.txt}}}\n")
    few = longline("proxies", "refresh")
    detached = longline("proxies", "refresh", "--detach", "--json")

    assert (enough.code, "4 of 5 candidates alive" in enough.out) == (0, True)
    assert (values.code, values.last["alive"], values.last["usable"]) == (0, 4, 4)
    assert (few.code, "minimum of 5" in few.out) == (3, True)
    assert (detached.code, detached.last["step"]) == (0, "collect")
    assert "plan" not in detached.last


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("add",), "give proxies such as"),
        (("add", "http://ada:Secr3t-9@10.0.0.1:80"), "--credentials or --file"),
        (("add", "10.0.0.1:80:ada:Secr3t-9"), "--credentials or --file"),
        (("add", "ftp://10.0.0.1:21"), "proxy 1: the scheme 'ftp' is not supported"),
        (("add", "10.0.0.1"), "proxy 1: the line has no host and port"),
        (("add", "10.0.0.1:99999"), "port"),
        (("add", "10.0.0.1:80", "--country", "Bulgaria"), "two letters"),
        (("add", "10.0.0.1:80", "--credentials", "Secr3t-9"), "env:NAME"),
        (("add", "--file", "none.txt"), "none.txt"),
        (("add", "--file", "/dev/zero"), "larger than"),
        (("add", "10.0.0.1:80", "--tier", "a b"), "tier: write letters"),
        (("add", "10.0.0.1:80", "--country", "BGR"), "country: write two letters"),
        (("remove", "10.0.0.1:99999:ada:Secr3t-9"), "its port is 99999"),
        (("list", "--domain", "http://shop.test/"), "--domain: write a host"),
        (("stats", "--domain", ""), "--domain: write a host"),
        (("remove", "10.0.0.1:80"), "the pool has no proxy 10.0.0.1:80"),
        (("check", "10.0.0.1:80"), "the pool has no proxy"),
        (("check", "--judge", "judge.test"), "http:// or https://"),
        (("check", "--word", "Shop"), "add --page"),
        (("check", "--timeout", "0"), "timeout"),
        (("refresh",), "nothing to refresh"),
        (("list", "--state", "good"), "state"),
    ],
)
def test_bad_input_is_a_sentence(longline: Terminal, words: tuple[str, ...], problem: str) -> None:
    answer = longline("proxies", *words)

    assert answer.code == 2
    assert problem in answer.err
    assert "Secr3t-9" not in answer.err
    assert answer.out == ""


def test_a_state_that_no_proxy_has_is_named(longline: Terminal) -> None:
    longline("proxies", "add", "10.0.0.1:80")

    listed = longline("proxies", "list", "--state", "alive")

    assert (listed.code, listed.out.strip()) == (0, "no proxy is alive")


def test_a_bad_line_of_a_file_is_named(longline: Terminal) -> None:
    Path("list.txt").write_text("# proxies\n\n10.0.0.1:80\nada:Secr3t-9@nowhere\n")

    answer = longline("proxies", "add", "--file", "list.txt")

    assert answer.code == 2
    assert "list.txt, line 4: the line has no host and port" in answer.err


def test_an_ipv6_proxy_may_be_written_on_the_command_line(longline: Terminal) -> None:
    added = longline("proxies", "add", "socks5://[::1]:1080", "http://[::1]:1080")
    ambiguous = longline("proxies", "remove", "[::1]:1080")

    assert (added.code, "added 2 proxies" in added.out) == (0, True)
    assert (ambiguous.code, "several proxies at [::1]:1080" in ambiguous.err) == (2, True)


def test_a_page_alone_cannot_show_anonymity(longline: Terminal) -> None:
    Path("longline.yaml").write_text("proxies: {check: {anonymity: elite}}\n")

    checked = longline("proxies", "check", "--page", "http://127.0.0.1:9/")

    assert (checked.code, "add --judge" in checked.err) == (2, True)


def test_an_invalid_file_is_noted_and_stops_a_refresh(longline: Terminal) -> None:
    Path("longline.yaml").write_text("proxies: {minimum: many}\n")

    listed = longline("proxies", "list")
    refreshed = longline("proxies", "refresh")
    validated = longline("config", "validate")

    assert (listed.code, "proxies.minimum" in listed.err) == (0, True)
    assert (refreshed.code, "longline.yaml:1:11" in refreshed.err) == (2, True)
    assert (validated.code, "proxies.minimum" in validated.err) == (2, True)
