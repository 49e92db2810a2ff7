"""The check of proxies: reachable, latency, anonymity, exit address, and what a page contains.

It asks a judge (`judge.py`) what a request through the proxy looks like, and compares that with a
request without one. Nothing is requested but the judge and the page of the options.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from longline.core.clock import Clock
from longline.core.errors import ConfigError, LonglineError
from longline.core.logging import redact_text
from longline.core.model import Usage
from longline.http.errors import ProxyFailed, TimedOut
from longline.http.messages import Middleware, Page, Request
from longline.http.proxies.configuration import CheckOptions
from longline.http.proxies.pool import Anonymity, CheckResult
from longline.http.proxies.proxy import Proxy

SendThrough = Callable[[Proxy, Request], Awaitable[Page]]
"""Sends a request through a proxy."""

_NONCE = "x-judge-nonce"
_ENOUGH = 2_000_000  # bytes of a page in which its word is searched
_LONGEST_PROBLEM = 200
_OK = 200
_ADDRESS = re.compile(r"[0-9A-Fa-f:.]*[0-9A-Fa-f][0-9A-Fa-f:.]*")
_OF_PROXIES = re.compile(
    r"via|forwarded|x-forwarded(-\w+)*|forwarded-for(-ip)?|x-real-ip|(x-)?client-ip|"
    r"x-cluster-client-ip|true-client-ip|proxy-\w+|x-proxy-\w+|x-proxy|xroxy-connection|"
    r"x-bluecoat-via|max-forwards|x-remote-\w+|x-originating-ip|cf-connecting-ip"
)
_RANKS: Mapping[str, int] = {"transparent": 0, "anonymous": 1, "elite": 2}


class JudgeUnreachable(ConfigError):
    """The judge does not respond to a request without a proxy, so no proxy can be judged."""

    url: str
    problem: str
    message = "the judge {url} cannot be used: {problem}"
    hint = "Check proxies.check.judge in the settings; `longline serve` has one at /judge."


@dataclass(frozen=True, slots=True)
class Echo:
    """What a judge has seen of a request."""

    address: str
    headers: Mapping[str, str]


@dataclass(slots=True)
class Checked:
    """The results of a check; `unchecked` were not reached before the deadline."""

    results: list[tuple[Proxy, CheckResult]] = field(default_factory=list)
    unchecked: list[Proxy] = field(default_factory=list)

    @property
    def alive(self) -> int:
        """How many proxies passed."""
        return sum(result.is_alive for _, result in self.results)


class ProxyChecker:
    """Checks proxies against a judge and a page.

    Args:
        options: what is checked; without a judge and a page, only `judge` is used.
        send: sends a request through a proxy.
        direct: sends a request without one.
        clock: the time of the results.
        judge: the URL of the judge; None: proxies are checked with the page only.
    """

    def __init__(
        self,
        options: CheckOptions,
        send: SendThrough,
        direct: Middleware,
        clock: Clock,
        *,
        judge: str | None,
    ) -> None:
        self._options = options
        self._send = send
        self._direct = direct
        self._clock = clock
        self._judge = judge
        self._own: Echo | None = None

    async def check_all(self, proxies: Iterable[Proxy]) -> Checked:
        """Check proxies, several at the same time, until the deadline.

        Raises:
            JudgeUnreachable: the judge does not respond without a proxy either.
        """
        if self._judge is not None:
            self._own = await self._ask_directly(self._judge)
        waiting = list(proxies)
        checked = Checked()
        queue = iter(waiting)

        async def work() -> None:
            for proxy in queue:
                checked.results.append((proxy, await self.check(proxy)))

        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.deadline), asyncio.TaskGroup() as group:
                for _ in range(min(self._options.concurrency, len(waiting))):
                    group.create_task(work())
        known = {proxy.address for proxy, _ in checked.results}
        checked.unchecked = [one for one in waiting if one.address not in known]
        return checked

    async def check(self, proxy: Proxy) -> CheckResult:
        """Check one proxy; `check_all` has asked the judge before."""
        at = self._clock.now()
        try:
            return await self._try(proxy, at)
        except ProxyFailed as error:
            problem = _short(error.problem)
        except (TimedOut, TimeoutError):
            problem = f"no response within {self._options.timeout:g} s"
        except LonglineError as error:
            problem = _short(str(error))
        return CheckResult(is_alive=False, checked_at=at, problem=problem)

    async def _try(self, proxy: Proxy, at: float) -> CheckResult:
        latency: float | None = None
        seen: Echo | None = None
        if self._judge is not None:
            nonce = secrets.token_hex(8)
            page = await self._request(proxy, self._judge, {_NONCE: nonce})
            latency = page.seconds
            seen = parse_echo(page)
            if seen is None or seen.headers.get(_NONCE) != nonce:
                problem = f"the response is not that of the judge (status {page.status})"
                return CheckResult(is_alive=False, checked_at=at, problem=problem)
        level = None if seen is None or self._own is None else anonymity_of(seen, self._own)
        exit_address = None if seen is None else _first_address(seen.address)
        problem_found = self._refusal(level, exit_address)
        if problem_found is None and self._options.page is not None:
            page = await self._request(proxy, self._options.page, {})
            latency = page.seconds if latency is None else latency
            problem_found = self._problem_of(page)
        return CheckResult(
            is_alive=problem_found is None,
            checked_at=at,
            latency=latency,
            anonymity=level,
            exit_address=exit_address,
            problem=problem_found,
        )

    async def _request(self, proxy: Proxy, url: str, headers: Mapping[str, str]) -> Page:
        request = Request(url, headers=dict(headers), timeout=self._options.timeout, enough=_ENOUGH)
        # A transport has its own timeout, which does not cover every library below it.
        async with asyncio.timeout(self._options.timeout + 1.0):
            return await self._send(proxy, request)

    async def _ask_directly(self, url: str) -> Echo:
        try:
            page = await self._direct(Request(url, timeout=self._options.timeout), Usage())
        except LonglineError as error:
            raise JudgeUnreachable(redact_text(url), _short(str(error))) from error
        found = parse_echo(page)
        if found is None:
            problem = f"its response (status {page.status}) is not that of a judge"
            raise JudgeUnreachable(redact_text(url), problem)
        return found

    def _refusal(self, level: Anonymity | None, exit_address: str | None) -> str | None:
        wanted = self._options.anonymity
        if level is not None and _RANKS[level] < _RANKS[wanted]:
            return f"it is {level}; the least is {wanted}"
        own = None if self._own is None else _first_address(self._own.address)
        is_near = self._options.own_network == "drop" and is_same_network(own, exit_address)
        return "its exit is in the network of this machine" if is_near else None

    def _problem_of(self, page: Page) -> str | None:
        if page.status != _OK:
            return f"the page responded with status {page.status}"
        if self._options.word is not None and self._options.word not in page.text:
            return "the page does not contain the word"
        return None


def parse_echo(page: Page) -> Echo | None:
    """Return what a judge has seen; None if the response is not that of a judge.

    Other services use `origin` for the address.
    """
    if page.status != _OK:
        return None
    try:
        found: Any = orjson.loads(page.body)
        headers = {str(name).lower(): str(value) for name, value in found["headers"].items()}
        return Echo(str(found.get("address") or found.get("origin") or ""), headers)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def anonymity_of(seen: Echo, own: Echo) -> Anonymity:
    """Return what a site learns: our own address, that a proxy is used, or nothing.

    Headers that a request without a proxy has too, such as those of a server in front of the judge,
    do not count as headers of the proxy.
    """
    addresses = _addresses_in(own.address)  # other services may return several
    added = {
        name: value
        for name, value in seen.headers.items()
        if name not in {"host", _NONCE, "referer"} and own.headers.get(name) != value
    }
    if any(addresses & _addresses_in(value) for value in added.values()):
        return "transparent"
    is_visible = any(_OF_PROXIES.fullmatch(name) for name in added.keys() - own.headers.keys())
    return "anonymous" if is_visible else "elite"


def is_same_network(own: str | None, other: str | None) -> bool:
    """Return whether two addresses are in the same /24, or /48 of IPv6; loopback never is."""
    first, second = _address(own or ""), _address(other or "")
    if first is None or second is None or first.version != second.version or first.is_loopback:
        return False
    network = ipaddress.ip_network((first, 24 if first.version == 4 else 48), strict=False)  # noqa: PLR2004  # versions of IP
    return second in network


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(text: str) -> Address | None:
    with suppress(ValueError):
        found = ipaddress.ip_address(text.strip("[]"))
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        return mapped or found
    return None


def _first_address(text: str) -> str | None:
    """Return the first address of an echo; None without one: a proxy may have written the text."""
    found = _address(text.partition(",")[0].strip())
    return None if found is None else str(found)


def _addresses_in(text: str) -> set[Address]:
    words: Sequence[str] = _ADDRESS.findall(text)
    # An IPv4 address may be followed by a port, and any by punctuation.
    several = [*words, *(one.strip(":.") for one in words)]
    several += [one.partition(":")[0] for one in words if "." in one]
    return {found for one in several if (found := _address(one)) is not None}


def _short(text: str) -> str:
    line = " ".join(redact_text(text).split())
    return line if len(line) <= _LONGEST_PROBLEM else f"{line[: _LONGEST_PROBLEM - 1]}…"
