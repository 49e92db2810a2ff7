"""The link that waits for the site's pace, and slows down when the site says so."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from longline.core.clock import Clock
from longline.core.errors import FailureKind
from longline.core.model import Usage
from longline.http.headers import date, number, retry_after
from longline.http.messages import Page, Request
from longline.http.middleware.base import Middleware
from longline.http.middleware.responses import FIRST_BAD
from longline.http.transports.aiohttp import ConnectionLimit
from longline.limits.backends.cells import Cells
from longline.limits.backends.memory import MemoryCells
from longline.limits.errors import Deferred
from longline.limits.limiter import (
    Grant,
    RateLimiter,
    Refusals,
    forget,
    is_about_address,
    note,
    times,
)
from longline.limits.retry import LONGEST_RETRY_AFTER, LONGEST_WAIT_IN_PLACE

# ---------------- What a site says about its limit in the headers of an answer

_LARGEST = 1e9  # requests, and seconds: more is nonsense
_EPOCH = 1e9  # a reset from here on is a moment; no window is thirty years long
_EPOCH_MILLISECONDS = 1e12
_LONGEST_RESET = 366 * 86_400.0
_UNITS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86_400.0}
_PREFIXES = ("x-ratelimit-", "x-rate-limit-", "ratelimit-")
_WORDS = {"limit", "remaining", "reset"}


@dataclass(frozen=True, slots=True)
class Quota:
    """`limit` requests in a `window` of seconds, of which `remaining` are left until the reset.

    What the site does not say is None.
    """

    limit: float | None = None
    remaining: float | None = None
    reset_seconds: float | None = None
    window: float | None = None

    @property
    def rate(self) -> float | None:
        """Requests a second, when limit and window are both known; a limit below 1 is none."""
        if not self.limit or not self.window or self.limit < 1:
            return None
        return self.limit / self.window


def has_quotas(headers: Mapping[str, str]) -> bool:
    """Say quickly whether an answer may speak of a quota; nearly none does."""
    names = " ".join(headers)
    return "imit" in names or "IMIT" in names


def read_quotas(headers: Mapping[str, str], now: float) -> list[Quota]:
    """Return every quota that an answer speaks of; what makes no sense is left out."""
    if not has_quotas(headers):
        return []
    names = [name for name in headers if "imit" in name.lower()]
    said = {name.lower(): _joined(headers, name) for name in names}
    quotas = (*_structured(said), *_listed(said, now), *_families(said, now))
    return [quota for quota in dict.fromkeys(quotas) if quota != Quota()]


def _joined(headers: Mapping[str, str], name: str) -> str:
    """Return all lines of a header as one; a header may be sent in several."""
    getall = getattr(headers, "getall", None)
    return ", ".join(getall(name)) if getall else headers[name]


# ------------------------------------------------------- RateLimit: "default";r=50;t=30


def _structured(said: Mapping[str, str]) -> Iterator[Quota]:
    """Read the current draft: policies by name, and what is left of each."""
    policies = dict(_items(said.get("ratelimit-policy", "")))
    # Some limits count bytes, or requests at once: those are not ours to pace by.
    foreign = {name for name, values in policies.items() if _is_foreign(values)}
    left = dict(_items(said.get("ratelimit", "")))
    for name in (policies.keys() | left.keys()) - foreign:
        policy, rest = policies.get(name, {}), left.get(name, {})
        yield Quota(
            limit=_count(policy.get("q")),
            remaining=_count(rest.get("r")),
            reset_seconds=_seconds(rest.get("t")),
            window=_seconds(policy.get("w")),
        )


def _items(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the quoted members of a list, each with its parameters."""
    for member in text.split(","):
        name, *parameters = member.split(";")
        if name.strip().startswith('"'):
            yield name.strip(), dict(_pair(parameter) for parameter in parameters)


def _is_foreign(values: Mapping[str, str]) -> bool:
    return values.get("qu", '"requests"').strip('"') != "requests"


# ------------------------------------------------------- RateLimit: limit=100, remaining=50


def _listed(said: Mapping[str, str], now: float) -> Iterator[Quota]:
    """Read the older drafts, in which a policy has no name: `100;w=60`."""
    values = dict(_pair(part) for part in said.get("ratelimit", "").split(",") if "=" in part)
    windows = list(_windows(said.get("ratelimit-policy", "")))
    limit = _count(values.get("limit"))
    window = next((window for size, window in windows if limit in (None, size)), None)
    yield Quota(
        limit=limit,
        remaining=_count(values.get("remaining")),
        reset_seconds=_reset(values.get("reset"), now),
        window=window if limit is not None else None,
    )
    for size, seconds in windows:
        yield Quota(limit=size, window=seconds)


def _windows(text: str) -> Iterator[tuple[float, float]]:
    for member in text.split(","):
        size, *parameters = member.split(";")
        limit = _count(size)
        window = _seconds(dict(_pair(parameter) for parameter in parameters).get("w"))
        if limit is not None and window is not None:
            yield limit, window


# ------------------------------------------------------- X-RateLimit-Limit: 100


def _families(said: Mapping[str, str], now: float) -> Iterator[Quota]:
    """Read the headers with one figure each, grouped by prefix and unit."""
    groups: dict[tuple[str, str], dict[str, str]] = {}
    for name, text in said.items():
        prefix = next((one for one in _PREFIXES if name.startswith(one)), None)
        word, _, unit = name.removeprefix(prefix).partition("-") if prefix else ("", "", "")
        if word == "reset" and unit == "after":
            unit = ""
        if prefix and word in _WORDS and unit in {"", *_UNITS}:
            groups.setdefault((prefix, unit), {})[word] = text
    for (_, unit), values in groups.items():
        size, *windows = values.get("limit", "").split(",")
        named = next((window for _, window in _windows(",".join(windows))), None)
        yield Quota(
            limit=_count(size.partition(";")[0]),
            remaining=_count(values.get("remaining")),
            reset_seconds=_reset(values.get("reset"), now),
            window=_UNITS.get(unit, named),
        )


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip().lower(), value.strip()


def _count(text: str | None) -> float | None:
    value = number(text) if text else None
    return value if value is not None and value <= _LARGEST else None


def _seconds(text: str | None) -> float | None:
    value = number(text) if text else None
    return value if value is not None and value <= _LONGEST_RESET else None


def _reset(text: str | None, now: float) -> float | None:
    """Return seconds from now, whether the site counts them or names the moment."""
    if not text:
        return None
    value = number(text)
    if value is None:
        value = date(text)
    if value is None:
        return None
    if value >= _EPOCH_MILLISECONDS:
        value /= 1000
    seconds = max(0.0, value - now) if value >= _EPOCH else value
    return seconds if seconds <= _LONGEST_RESET else None


_TOO_MANY = 429
_UNAVAILABLE = 503
_PAUSE_UNASKED = {_TOO_MANY: 5.0, _UNAVAILABLE: 1.0}
"""Seconds of rest after such an answer when it does not say how long."""
_LONGEST_FACTOR = 8  # times the rest of a domain that an address waits which is refused again
_IN_PLACE = 3  # refusals with short pauses until an item waits longer than its domain
_RECENT = 1000  # requests that succeeded are remembered, of each domain
_LONGEST_WINDOW = 60.0  # seconds; a longer quota may be spent at our own pace, until it is used up


class RateLimitMiddleware(Middleware):
    """Every request takes a token of its domain; what the site says about its limit is obeyed.

    A 429, a 503 or Retry-After stops the domain for all, and so does a quota that is used up,
    before the site has to refuse anything. With `connections`, a request also takes a connection,
    before its deadline begins.

    An address that is refused again and again while others succeed stops nothing but itself: its
    item is deferred. `refusals` is where the processes share which addresses were refused.
    """

    def __init__(
        self,
        inner: Middleware,
        limiter: RateLimiter,
        clock: Clock,
        connections: ConnectionLimit | None = None,
        refusals: Cells[Refusals] | None = None,
    ) -> None:
        self._inner = inner
        self._limiter = limiter
        self._clock = clock
        self._connections = connections
        self._refusals = refusals or MemoryCells[Refusals](clock)
        self._refused: set[str] = set()
        self._successes: defaultdict[str, deque[tuple[float, str]]] = defaultdict(
            partial(deque, maxlen=_RECENT)
        )
        self._outstanding: Counter[str] = Counter()

    async def __call__(self, request: Request, usage: Usage) -> Page:
        grant = await self._acquire(request, usage)
        if self._connections is None:
            return await self._ask(request, grant, usage)
        if not self._connections.try_acquire(request.domain):
            begun = self._clock.now()
            with usage.waiting:
                await self._connections.acquire(request.domain)
            usage.waits += 1
            usage.waited += self._clock.now() - begun
            try:
                # Requests that waited together must not leave together: each takes a new slot.
                grant = await self._acquire(request, usage)
            except BaseException:
                self._connections.release(request.domain)
                raise
        try:
            return await self._ask(request, grant, usage)
        finally:
            self._connections.release(request.domain)

    async def _acquire(self, request: Request, usage: Usage) -> Grant:
        domain = request.domain
        if self._limiter.is_free(domain):
            return Grant(domain, self._clock.now(), 0.0, is_paced=False)
        with usage.waiting:
            grant = await self._limiter.acquire(domain, request.url, priority=request.priority)
        if grant.waited:
            usage.waits += 1
            usage.waited += grant.waited
        return grant

    async def _ask(self, request: Request, grant: Grant, usage: Usage) -> Page:
        domain = grant.domain
        self._outstanding[domain] += 1
        try:
            if grant.is_paced:
                before_write = partial(self._leave, request, grant, usage)
                page = await self._inner(replace(request, before_write=before_write), usage)
            else:
                page = await self._inner(request, usage)
        finally:
            self._outstanding[domain] -= 1
        if page.status < FIRST_BAD:
            self._successes[domain].append((grant.at, request.url))
            if request.url in self._refused:
                await self._forget(request.url, domain)
        if grant.is_paced or page.status >= FIRST_BAD or _has_wishes(page):
            await self._heed(request, page, grant, usage)
        return page

    async def _leave(self, request: Request, grant: Grant, usage: Usage) -> None:
        """Wait for another token when the request was held up until its own was void."""
        with usage.waiting:
            left = await self._limiter.leave(grant, request.url)
        if left is not grant:
            usage.waits += 1
            usage.waited += left.waited

    async def _heed(self, request: Request, page: Page, grant: Grant, usage: Usage) -> None:
        """Do as the answer says."""
        domain, status, now = grant.domain, page.status, self._clock.now()
        pause = retry_after(page.headers, now)
        if quotas := read_quotas(page.headers, now):
            await self._keep_to(quotas, domain, usage)
            pause = self._pause(quotas, domain) if pause is None else pause
        if status == _TOO_MANY or (status == _UNAVAILABLE and pause is not None):
            if quotas or status != _TOO_MANY or request.method != "GET":  # its domain is meant
                await self._slow_down(grant, status, pause, usage)
            else:
                await self._obey(request, grant, status, pause, usage)
        elif status == _UNAVAILABLE or pause:
            await self._limiter.penalise(domain, _sensible(pause, status))
        elif grant.is_paced:
            await self._limiter.accepted(grant, outstanding=self._outstanding[domain])
        if grant.is_paced and (rate := self._limiter.news(domain)) is not None:
            usage.add_event("limit.learned", domain=domain, rate=rate)

    async def _obey(
        self, request: Request, grant: Grant, status: int, asked: float | None, usage: Usage
    ) -> None:
        """Stop the domain after a refusal, unless it is about the address alone.

        Raises:
            Deferred: the refusal is about the address alone, or came too often: its item waits,
                and longer than its domain, so that requests for others come first.
        """
        url, domain, pause = request.url, grant.domain, _sensible(asked, status)
        is_first_here = url not in self._refused
        if is_first_here:  # before anything is waited for, so that no other request slips through
            await self._slow_down(grant, status, asked, usage)
        known = await self._noted(url, domain)
        count = times(known, url)
        others = (at for at, address in self._successes[domain] if address != url)
        is_alone = not is_first_here and is_about_address(known, url, others)
        if is_alone:
            usage.add_event("limit.refused_address", domain=domain, status=status, pause=pause)
        elif not is_first_here:
            await self._slow_down(grant, status, asked, usage)
        is_stubborn = count > (1 if pause > LONGEST_WAIT_IN_PLACE else _IN_PLACE)
        if (is_alone or is_stubborn) and status not in request.accept:
            factor = 1 if is_alone else min(count, _LONGEST_FACTOR)
            until = self._clock.now() + min(pause * factor, LONGEST_RETRY_AFTER)
            problem = f"{url} answered {status} {count} times"
            raise Deferred(url, until, problem, FailureKind.OVERLOAD)

    async def _forget(self, url: str, domain: str) -> None:
        self._refused.discard(url)
        await self._refusals.change(domain, lambda state, _now: (forget(state, url), None))

    async def _noted(self, url: str, domain: str) -> Refusals:
        self._refused.add(url)

        def step(state: Refusals | None, now: float) -> tuple[Refusals, Refusals]:
            known = note(state, url, now)
            return known, known

        return await self._refusals.change(domain, step)

    async def _slow_down(
        self, grant: Grant, status: int, asked: float | None, usage: Usage
    ) -> None:
        domain, pause = grant.domain, _sensible(asked, status)
        await self._limiter.refused(grant, pause)
        rate = self._limiter.rate(domain)
        usage.add_event("limit.refused", domain=domain, status=status, pause=pause, rate=rate)

    async def _keep_to(self, quotas: Sequence[Quota], domain: str, usage: Usage) -> None:
        short = [one for one in quotas if one.rate and (one.window or 0) <= _LONGEST_WINDOW]
        slowest = min(short, key=lambda quota: quota.rate or 0.0, default=None)
        if slowest is None or slowest.rate is None:
            return
        if await self._limiter.publish(domain, slowest.rate):
            usage.add_event(
                "limit.published", domain=domain, limit=slowest.limit, window=slowest.window
            )

    def _pause(self, quotas: Sequence[Quota], domain: str) -> float | None:
        """Return how long to stop when all that is left is spoken for by requests under way."""
        under_way = self._outstanding[domain]
        resets = (
            quota.reset_seconds
            for quota in quotas
            if quota.remaining is not None and quota.remaining <= under_way
        )
        return max((reset for reset in resets if reset is not None), default=None)


def _has_wishes(page: Page) -> bool:
    """Say quickly whether an answer speaks of a pause or a limit."""
    return "retry-after" in page.headers or has_quotas(page.headers)


def _sensible(pause: float | None, status: int) -> float:
    return _PAUSE_UNASKED[status] if pause is None else min(pause, LONGEST_RETRY_AFTER)
