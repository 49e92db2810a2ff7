"""Robots middleware: fetch robots.txt of each host and obey it (RFC 9309)."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

from longline.core.clock import Clock, backoff
from longline.core.errors import CircuitOpen, Deferred, FailureKind, FetchError, RobotsUnreachable
from longline.core.model import Usage
from longline.http.errors import BadAnswer, RobotsDisallowed
from longline.http.messages import Page, Request, origin_of
from longline.http.middleware.base import Middleware
from longline.http.middleware.redirects import RedirectMiddleware
from longline.http.middleware.retry import RetryMiddleware
from longline.http.middleware.status import StatusMiddleware
from longline.http.robots import (
    AGENT,
    EVERYONE,
    LARGEST,
    Explanation,
    RobotsText,
    Rules,
    explain,
    text_of,
)
from longline.limits.backends.state import MemoryStateBackend, StateBackend
from longline.limits.retry import RETRIED_KINDS, RetryHandler

LIFETIME = 24 * 3600.0
"""Seconds for which a copy is valid, by RFC 9309 2.4."""
_FIRST = 1_000_000  # the priority of what all other requests to a host wait for
_ABSENT = frozenset(range(400, 500)) - {429}  # no robots.txt, so no rules
_GOOD = range(200, 300)


@dataclass(frozen=True, slots=True)
class RobotsCheck:
    """What robots.txt says about a URL, and how that is known.

    `found` is None when the rules are unknown; then `problem` says why, and nothing is allowed.
    """

    explanation: Explanation | None
    found: RobotsText | None
    is_kept: bool
    problem: str | None = None

    @property
    def is_allowed(self) -> bool:
        """Whether the URL may be fetched."""
        return self.explanation is not None and self.explanation.is_allowed


class RobotsReader:
    """Fetches robots.txt through `inner`, with redirects and retries.

    Copies are kept by origin (`https://host`) in `copies`, for other runs and processes.
    """

    def __init__(self, inner: Middleware, clock: Clock, copies: StateBackend[RobotsText]) -> None:
        retry = RetryHandler(circuit_breaker_threshold=None, clock=clock)
        self._chain = RetryMiddleware(
            RedirectMiddleware(StatusMiddleware(inner, clock)), retry, clock
        )
        self._clock = clock
        self._copies = copies

    async def kept(self, origin: str) -> RobotsText | None:
        """Return the copy that is kept, however old it is."""
        copy, _now = await self._copies.read(origin)
        return copy

    async def fetch(self, origin: str, usage: Usage) -> RobotsText:
        """Fetch it from the site, and keep a copy.

        Raises:
            FetchError: the rules are unknown (5xx, 429, no connection); nothing is allowed then.
        """
        # A cached response would count as younger than it is.
        request = Request(
            f"{origin}/robots.txt",
            headers={"cache-control": "no-cache"},
            accept=_ABSENT,
            priority=_FIRST,
            enough=LARGEST + 1,  # one more byte shows that there is a rest
        )
        page = await self._chain(request, usage)
        text = text_of(page.body) if page.status in _GOOD else ""
        found = RobotsText(text, page.status, self._clock.now())
        await self._copies.change(origin, lambda _old, _now: (found, None))
        return found

    def is_fresh(self, copy: RobotsText) -> bool:
        """Whether a copy is still valid."""
        # One from the future was made by a wrong clock.
        return 0 <= self._clock.now() - copy.fetched_at < LIFETIME

    async def check(self, url: str, *, agent: str = AGENT, is_fresh: bool = False) -> RobotsCheck:
        """Return what applies to a URL; with `is_fresh`, fetch even if a copy is kept."""
        origin = "://".join(origin_of(url))
        copy, problem = await self.kept(origin), None
        is_kept = not is_fresh and copy is not None and self.is_fresh(copy)
        if not is_kept:
            try:
                copy = await self.fetch(origin, Usage())
            except FetchError as error:
                is_kept, problem = copy is not None, str(error)
        explanation = None if copy is None else explain(copy.text, url, agent)
        return RobotsCheck(explanation, copy, is_kept, problem)


_SHORTEST_PAUSE = 60.0  # seconds until an unreachable robots.txt is fetched again
_LONGEST_PAUSE = 3600.0
_SILENT = frozenset({FailureKind.NETWORK, FailureKind.TIMEOUT})
_MOST_SILENT = 3  # failures in a row without a response, with 3 minutes of pauses between them
_MOST_FAILURES = 8  # failures in a row of a host that responds, with 2 hours of pauses

CapRate = Callable[[str, float], None]
"""Called with a domain and the maximum requests per second that it allows."""


@dataclass(frozen=True, slots=True)
class _Host:
    """What is known of a host until a time: its rules, or why they are unknown."""

    until: float
    rules: Rules | None = None
    failure: FetchError | None = None
    failures: int = 0

    @property
    def is_given_up(self) -> bool:
        """Whether robots.txt failed so often that items fail, too, instead of being deferred."""
        is_silent = self.failure is not None and self.failure.kind in _SILENT
        return self.failures >= (_MOST_SILENT if is_silent else _MOST_FAILURES)


class RobotsMiddleware(Middleware):
    """Refuses URLs that robots.txt disallows, unless the host is in `ignored`.

    A host without one (any 4xx but 429) allows everything. While it cannot be fetched (5xx, 429, no
    connection), all requests to the host are deferred. After several failures in a row they fail
    with that reason. An older copy stays valid meanwhile.

    Args:
        inner: the rest of the chain; robots.txt is fetched through it.
        clock: the clock.
        ignored: hosts, with or without port, whose rules are ignored.
        copies: where copies are kept for other runs and processes.
        cap_rate: called when robots.txt limits the rate of a domain.
        agent: our product token.
    """

    def __init__(
        self,
        inner: Middleware,
        clock: Clock,
        *,
        ignored: frozenset[str] = frozenset(),
        copies: StateBackend[RobotsText] | None = None,
        cap_rate: CapRate | None = None,
        agent: str = AGENT,
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._ignored = ignored
        copies = MemoryStateBackend(clock) if copies is None else copies
        self._reader = RobotsReader(inner, clock, copies)
        self._cap_rate = cap_rate
        self._agent = agent
        self._hosts: dict[str, _Host] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._overridden: set[str] = set()

    async def __call__(self, request: Request, usage: Usage) -> Page:
        await self._check(request.url, usage)
        if request.is_rendered:
            # A click, a form or a script may lead the browser to other pages.
            request = replace(request, permit=lambda url: self._check(url, usage))
        return await self._inner(request, usage)

    async def _check(self, url: str, usage: Usage) -> None:
        scheme, host = origin_of(url)
        origin = f"{scheme}://{host}"
        if self._ignored and (host in self._ignored or _without_port(host) in self._ignored):
            await self._report_override(origin, host, url, usage)
            return
        known = self._hosts.get(origin)
        if known is None or known.until <= self._clock.now():
            try:
                known = await self._look_up(origin, host, usage)
            finally:
                usage.status = None  # that of robots.txt is not the request's own
        _raise_unless_allowed(known, url)

    async def _look_up(self, origin: str, host: str, usage: Usage) -> _Host:
        """Load the rules of a host, once for all tasks that wait for them."""
        async with usage.waiting.to_enter(self._locks[origin]):
            known = self._hosts.get(origin)
            if known is None or known.until <= self._clock.now():
                known = self._hosts[origin] = await self._load(origin, host, known, usage)
            return known

    async def _load(self, origin: str, host: str, before: _Host | None, usage: Usage) -> _Host:
        copy = await self._reader.kept(origin)
        if copy is None or not self._reader.is_fresh(copy):
            try:
                copy = await self._reader.fetch(origin, usage)
            except FetchError as error:
                old = None if copy is None else self._parse(host, copy, usage)
                known = self._unreachable(error, old, before)
                usage.add_event(
                    "robots.unreachable", host=host, reason=str(error), until=known.until
                )
                return known
        return _Host(copy.fetched_at + LIFETIME, self._parse(host, copy, usage))

    def _parse(self, host: str, copy: RobotsText, usage: Usage) -> Rules:
        """Parse a copy, and pass on the rate limit in it."""
        rules = Rules(copy.text, self._agent)
        if rules.rate is not None:
            usage.add_event("robots.pace", host=host, rate=rules.rate)
            if self._cap_rate is not None:
                self._cap_rate(host, rules.rate)
        return rules

    def _unreachable(self, error: FetchError, old: Rules | None, before: _Host | None) -> _Host:
        """Return what applies while robots.txt cannot be fetched; `before` applied until now.

        Raises:
            FetchError: it is not the request for robots.txt that failed, or the host bans us.
        """
        is_open = isinstance(error, CircuitOpen) and error.kind is not FailureKind.BLOCKED
        is_response = error.kind in RETRIED_KINDS or isinstance(error, BadAnswer)
        if old is None and not is_open and (isinstance(error, CircuitOpen) or not is_response):
            raise error
        failures = before.failures + 1 if before else 1
        until = self._clock.now() + pause_after(failures)
        if isinstance(error, (CircuitOpen, Deferred)):
            until = error.until
        # The reason is the failure that opened the breaker, not the open breaker.
        earlier = before.failure if before and isinstance(error, CircuitOpen) else None
        return _Host(until, old, earlier or error, failures)

    async def _report_override(self, origin: str, host: str, url: str, usage: Usage) -> None:
        """Report once that a rule was ignored, as far as is known without a request."""
        if host in self._overridden:
            return
        if (known := self._hosts.get(origin)) is None:
            copy = await self._reader.kept(origin)
            rules = Rules(copy.text, self._agent) if copy else None
            known = self._hosts[origin] = _Host(math.inf, rules)
        if known.rules is None or not known.rules.allows(url):
            self._overridden.add(host)
            reason = (
                _disallowed_by(known.rules, url) if known.rules else "robots.txt was not fetched"
            )
            usage.add_event("robots.ignored", host=host, url=url, reason=reason)


def pause_after(failures: int) -> float:
    """Return the seconds until robots.txt is fetched again, after these failures in a row."""
    return backoff(failures, base=_SHORTEST_PAUSE, ceiling=_LONGEST_PAUSE)


def _raise_unless_allowed(known: _Host, url: str) -> None:
    """Return when a URL may be fetched.

    Raises:
        RobotsDisallowed: it may not.
        Deferred: the rules are unknown for now.
        CircuitOpen: the same, and the breaker of the host is open.
        RobotsUnreachable: robots.txt could not be fetched in several attempts.
        BadAnswer: the rules are unknown, and will stay so.
    """
    if known.rules is not None:
        if not (known.rules.is_open or known.rules.allows(url)):
            raise RobotsDisallowed(url, _disallowed_by(known.rules, url))
        return
    if isinstance(known.failure, BadAnswer):
        raise BadAnswer(known.failure.url, known.failure.problem)
    kind = known.failure.kind if known.failure else FailureKind.NETWORK
    if known.is_given_up:
        raise RobotsUnreachable(url, str(known.failure), kind) from known.failure
    if isinstance(known.failure, CircuitOpen):
        raise CircuitOpen(url, known.until, known.failure.reason, kind)
    raise Deferred(url, known.until, str(known.failure), kind, is_for_domain=True)


def _disallowed_by(rules: Rules, url: str) -> str:
    if rules.problem:
        return rules.problem
    rule = rules.decisive_rule(url)
    line = f"line {rule.number}, {str(rule)!r}, " if rule else ""
    return f"{line}for {'everyone' if rules.group == EVERYONE else rules.group}"


def _without_port(host: str) -> str:
    return host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
