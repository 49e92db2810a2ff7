"""The link that obeys robots.txt, by RFC 9309."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

from longline.core.backoff import backoff
from longline.core.clock import Clock
from longline.core.errors import FailureKind, FetchError, RobotsUnreachable
from longline.core.model import Usage
from longline.http.errors import BadAnswer, RobotsDisallowed
from longline.http.messages import Page, Request, origin_of
from longline.http.middleware.base import Middleware
from longline.http.middleware.responses import RedirectMiddleware, StatusMiddleware
from longline.http.middleware.retry import RetryMiddleware
from longline.http.robots_rules import (
    AGENT,
    EVERYONE,
    LARGEST,
    Explanation,
    RobotsText,
    Rules,
    explain,
    text_of,
)
from longline.limits.backends.cells import Cells
from longline.limits.backends.memory import MemoryCells
from longline.limits.errors import CircuitOpen, Deferred
from longline.limits.retry import RETRIED_KINDS, RetryHandler

# ---------------- Where the robots.txt of a host comes from: the site itself, or what was kept of

LIFETIME = 24 * 3600.0
"""Seconds for which a copy may speak for the site, by RFC 9309 2.4."""
_FIRST = 1_000_000  # the priority of what all other requests to a host wait for
_ABSENT = frozenset(range(400, 500)) - {429}  # there is none, so there are no rules
_GOOD = range(200, 300)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What robots.txt says about an address, and how that is known.

    `found` is None when nobody knows the rules; then `problem` says why, and nothing is asked.
    """

    explanation: Explanation | None
    found: RobotsText | None
    is_kept: bool
    problem: str | None = None

    @property
    def is_allowed(self) -> bool:
        """Whether the address may be asked for."""
        return self.explanation is not None and self.explanation.is_allowed


class RobotsReader:
    """Reads robots.txt through `inner`: with redirects, a few tries, and a token for each.

    What was read is kept by origin (`https://host`) in `cells`, for other runs and processes.
    """

    def __init__(self, inner: Middleware, clock: Clock, cells: Cells[RobotsText]) -> None:
        retry = RetryHandler(circuit_breaker_threshold=None, jitter=0.1, clock=clock)
        self._link = RetryMiddleware(
            RedirectMiddleware(StatusMiddleware(inner, clock)), retry, clock
        )
        self._clock = clock
        self._cells = cells

    async def kept(self, origin: str) -> RobotsText | None:
        """Return the copy that is kept, however old it is."""
        copy, _now = await self._cells.read(origin)
        return copy

    async def ask(self, origin: str, usage: Usage) -> RobotsText:
        """Read it from the site, and keep it.

        Raises:
            FetchError: nobody knows the rules now (5xx, 429, no connection); that is no permission.
        """
        # A cached answer would count as younger than it is.
        request = Request(
            f"{origin}/robots.txt",
            headers={"cache-control": "no-cache"},
            accept=_ABSENT,
            priority=_FIRST,
            enough=LARGEST + 1,  # one more says that there is a rest
        )
        page = await self._link(request, usage)
        text = text_of(page.body) if page.status in _GOOD else ""
        found = RobotsText(text, page.status, self._clock.now())
        await self._cells.change(origin, lambda _old, _now: (found, None))
        return found

    def is_fresh(self, copy: RobotsText) -> bool:
        """Whether a copy still speaks for the site."""
        # One that claims to be from the future comes from a clock that was wrong.
        return 0 <= self._clock.now() - copy.fetched_at < LIFETIME

    async def judge(self, url: str, *, agent: str = AGENT, is_fresh: bool = False) -> Verdict:
        """Say what holds for an address; with `is_fresh`, ask the site whatever is kept."""
        origin = "://".join(origin_of(url))
        copy, problem = await self.kept(origin), None
        is_kept = not is_fresh and copy is not None and self.is_fresh(copy)
        if not is_kept:
            try:
                copy = await self.ask(origin, Usage())
            except FetchError as error:
                is_kept, problem = copy is not None, str(error)
        explanation = None if copy is None else explain(copy.text, url, agent)
        return Verdict(explanation, copy, is_kept, problem)


_SHORTEST_PAUSE = 60.0  # seconds until robots.txt that could not be had is asked for again
_LONGEST_PAUSE = 3600.0
_SILENT = frozenset({FailureKind.NETWORK, FailureKind.TIMEOUT})
_MOST_SILENT = 3  # failures in a row without an answer, with 3 minutes of pauses between them
_MOST_FAILURES = 8  # failures in a row of a host that answers, with 2 hours of pauses
_FEW_RULES = 500  # up to so many, finding the one that decides takes no time worth mentioning

Restrain = Callable[[str, float], None]
"""Told a domain and the requests a second that it allows at most."""


@dataclass(frozen=True, slots=True)
class _Host:
    """What is known of a host until then: its rules, or why nobody knows them."""

    until: float
    rules: Rules | None = None
    failure: FetchError | None = None
    failures: int = 0

    @property
    def is_given_up(self) -> bool:
        """Whether robots.txt failed so often that items fail, too, instead of waiting for it."""
        is_silent = self.failure is not None and self.failure.kind in _SILENT
        return self.failures >= (_MOST_SILENT if is_silent else _MOST_FAILURES)


class RobotsMiddleware(Middleware):
    """Refuses what a host's robots.txt disallows, unless the host was named as an override.

    A host without one (any 4xx but 429) allows all. One whose rules cannot be had (5xx, 429, no
    connection) is asked for nothing else: its requests are put off, since that may pass. After
    several failures in a row they fail with that reason. Rules known from before go on to count
    meanwhile, however old.

    Args:
        inner: The rest of the chain; robots.txt itself is asked for through it.
        clock: What a copy's age is measured by.
        ignored: Hosts, with or without their port, whose rules do not count.
        cells: Keeps what was read for other runs and processes.
        restrain: Told how fast a domain may be asked, where its robots.txt says so.
        agent: Our product token.
    """

    def __init__(
        self,
        inner: Middleware,
        clock: Clock,
        *,
        ignored: frozenset[str] = frozenset(),
        cells: Cells[RobotsText] | None = None,
        restrain: Restrain | None = None,
        agent: str = AGENT,
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._ignored = ignored
        self._reader = RobotsReader(inner, clock, MemoryCells(clock) if cells is None else cells)
        self._restrain = restrain
        self._agent = agent
        self._hosts: dict[str, _Host] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._told: set[str] = set()

    async def __call__(self, request: Request, usage: Usage) -> Page:
        await self._permit(request.url, usage)
        if request.is_rendered:
            # A click, a form or a script may lead the browser to pages that nobody here asked for.
            request = replace(request, permit=lambda url: self._permit(url, usage))
        return await self._inner(request, usage)

    async def _permit(self, url: str, usage: Usage) -> None:
        scheme, host = origin_of(url)
        origin = f"{scheme}://{host}"
        if self._ignored and self._is_ignored(host):
            await self._override(origin, host, url, usage)
            return
        known = self._hosts.get(origin)
        if known is None or known.until <= self._clock.now():
            try:
                known = await self._learn(origin, host, usage)
            finally:
                usage.status = None  # that of robots.txt is not the request's own
        _check(known, url)

    async def _learn(self, origin: str, host: str, usage: Usage) -> _Host:
        """Find out about a host, once for all who wait."""
        async with usage.waiting.to_enter(self._locks[origin]):
            known = self._hosts.get(origin)
            if known is None or known.until <= self._clock.now():
                known = await self._find_out(origin, host, known, usage)
                self._hosts[origin] = known
            return known

    async def _find_out(self, origin: str, host: str, before: _Host | None, usage: Usage) -> _Host:
        copy = await self._reader.kept(origin)
        if copy is None or not self._reader.is_fresh(copy):
            try:
                copy = await self._reader.ask(origin, usage)
            except FetchError as error:
                old = None if copy is None else self._rules(host, copy, usage)
                known = self._unreachable(error, old, before)
                usage.add_event(
                    "robots.unreachable", host=host, reason=str(error), until=known.until
                )
                return known
        return _Host(copy.fetched_at + LIFETIME, self._rules(host, copy, usage))

    def _rules(self, host: str, copy: RobotsText, usage: Usage) -> Rules:
        """Read a copy, and pass on the pace that it asks for."""
        rules = Rules(copy.text, self._agent)
        if rules.rate is not None:
            usage.add_event("robots.pace", host=host, rate=rules.rate)
            if self._restrain is not None:
                self._restrain(host, rules.rate)
        return rules

    def _unreachable(self, error: FetchError, old: Rules | None, before: _Host | None) -> _Host:
        """Decide what holds while the rules cannot be read; `before` is what held until now.

        Raises:
            FetchError: the request for robots.txt is not what failed, or the host bans us.
        """
        is_open = isinstance(error, CircuitOpen) and error.kind is not FailureKind.BLOCKED
        is_answer = error.kind in RETRIED_KINDS or isinstance(error, BadAnswer)
        if old is None and not is_open and (isinstance(error, CircuitOpen) or not is_answer):
            raise error
        failures = before.failures + 1 if before else 1
        until = self._clock.now() + pause_after(failures)
        if isinstance(error, (CircuitOpen, Deferred)):
            until = error.until
        # An open breaker says nothing new: what has opened it is the reason.
        earlier = before.failure if before and isinstance(error, CircuitOpen) else None
        return _Host(until, old, earlier or error, failures)

    def _is_ignored(self, host: str) -> bool:
        return host in self._ignored or _without_port(host) in self._ignored

    async def _override(self, origin: str, host: str, url: str, usage: Usage) -> None:
        """Say once that an override was needed, as far as is known without asking the site."""
        if host in self._told:
            return
        if (known := self._hosts.get(origin)) is None:
            copy = await self._reader.kept(origin)
            rules = Rules(copy.text, self._agent) if copy else None
            known = self._hosts[origin] = _Host(math.inf, rules)
        if known.rules is None or not known.rules.allows(url):
            self._told.add(host)
            reason = _reason(known.rules, url) if known.rules else "robots.txt was not asked for"
            usage.add_event("robots.ignored", host=host, url=url, reason=reason)


def pause_after(failures: int) -> float:
    """Return the seconds until robots.txt is asked for again, after so many failures in a row."""
    return backoff(failures, base=_SHORTEST_PAUSE, ceiling=_LONGEST_PAUSE)


def _check(known: _Host, url: str) -> None:
    """Return when an address may be asked for.

    Raises:
        RobotsDisallowed: it may not.
        Deferred: nobody knows, and that may pass.
        CircuitOpen: the same, and the breaker of the host is open.
        RobotsUnreachable: robots.txt could not be read after several attempts.
        BadAnswer: nobody knows, and that will not.
    """
    if known.rules is not None:
        if not known.rules.allows(url):
            raise RobotsDisallowed(url, _reason(known.rules, url))
        return
    if isinstance(known.failure, BadAnswer):
        raise BadAnswer(known.failure.url, known.failure.problem)
    kind = known.failure.kind if known.failure else FailureKind.NETWORK
    if known.is_given_up:
        raise RobotsUnreachable(url, str(known.failure), kind) from known.failure
    if isinstance(known.failure, CircuitOpen):
        raise CircuitOpen(url, known.until, known.failure.reason, kind)
    raise Deferred(url, known.until, str(known.failure), kind, is_for_domain=True)


def _reason(rules: Rules, url: str) -> str:
    if rules.problem:
        return rules.problem
    rule = rules.deciding(url) if rules.count <= _FEW_RULES else None
    line = f"line {rule.number}, {str(rule)!r}, " if rule else ""
    return f"{line}for {'everyone' if rules.group == EVERYONE else rules.group}"


def _without_port(host: str) -> str:
    return host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
