"""Rate-limit and concurrency middlewares: wait for slots, and obey limits in responses."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b

from longline.core.clock import Clock
from longline.core.errors import Deferred, FailureKind
from longline.core.http_headers import parse_http_date, parse_number
from longline.core.model import Usage
from longline.http.messages import FIRST_ERROR, Middleware, Page, Request, joined_header
from longline.http.transport import ConnectionLimit
from longline.limits.backends.state import MemoryStateBackend, StateBackend
from longline.limits.concurrency import ConcurrencyLimiter
from longline.limits.limiter import AcquiredSlot, RateLimiter
from longline.limits.retry import LONGEST_RETRY_AFTER, LONGEST_WAIT_IN_PLACE

_TOO_MANY = 429
_UNAVAILABLE = 503
_DEFAULT_PAUSE = {_TOO_MANY: 5.0, _UNAVAILABLE: 1.0}
"""Seconds to pause after such a status without Retry-After."""
_LONGEST_FACTOR = 8  # times the pause of a domain that a repeatedly refused URL waits
_REFUSALS_IN_PLACE = 3  # refusals with short pauses until an item waits longer than its domain
_RECENT = 1000  # successful requests that are remembered of each domain
_LONGEST_WINDOW = 60.0  # seconds; a longer quota may be used at our own rate until it is used up


class RateLimitMiddleware(Middleware):
    """Every request takes a slot of its domain; limits that the site declares are obeyed.

    429, 503 or Retry-After bar the domain in all processes. So does an exhausted quota, before the
    site refuses anything. With `connections`, a request also takes a connection before its
    timeout starts.

    A URL that is refused again and again while others succeed bars nothing but itself: its item is
    deferred. `refused_urls` is where processes share which URLs were refused.

    With `per_proxy`, each proxy has a slot of its own for a domain, unless robots.txt, the site or
    a person has set the limit of the domain.
    """

    def __init__(
        self,
        inner: Middleware,
        limiter: RateLimiter,
        clock: Clock,
        connections: ConnectionLimit | None = None,
        refused_urls: StateBackend[RefusedUrls] | None = None,
        *,
        per_proxy: bool = False,
    ) -> None:
        self._inner = inner
        self._limiter = limiter
        self._clock = clock
        self._connections = connections
        self._refused_urls = refused_urls or MemoryStateBackend[RefusedUrls](clock)
        self._per_proxy = per_proxy
        self._refused_here: set[str] = set()
        self._successes: defaultdict[str, deque[tuple[float, str]]] = defaultdict(
            partial(deque, maxlen=_RECENT)
        )
        self._outstanding: Counter[str] = Counter()

    async def __call__(self, request: Request, usage: Usage) -> Page:
        slot = await self._acquire_slot(request, usage)
        if self._connections is None:
            return await self._send_with_slot(request, slot, usage)
        if not self._connections.try_acquire(request.domain):
            started = self._clock.now()
            with usage.waiting:
                await self._connections.acquire(request.domain)
            usage.waits += 1
            usage.waited += self._clock.now() - started
            try:
                # Requests that waited together must not leave together: each takes a new slot.
                slot = await self._acquire_slot(request, usage)
            except BaseException:
                self._connections.release(request.domain)
                raise
        try:
            return await self._send_with_slot(request, slot, usage)
        finally:
            self._connections.release(request.domain)

    async def _acquire_slot(self, request: Request, usage: Usage) -> AcquiredSlot:
        domain = request.domain
        proxy = request.proxy if self._per_proxy else None
        if proxy is not None and not await self._limiter.is_from_site(domain):
            domain = f"{domain} via {proxy.address}"
        if self._limiter.try_acquire(domain):
            return AcquiredSlot(domain, self._clock.now(), 0.0, is_limited=False)
        with usage.waiting:
            usage.slot_waits += 1
            try:
                slot = await self._limiter.acquire(domain, request.url, priority=request.priority)
            finally:
                usage.slot_waits -= 1
        if slot.waited:
            usage.waits += 1
            usage.waited += slot.waited
        return slot

    async def _send_with_slot(self, request: Request, slot: AcquiredSlot, usage: Usage) -> Page:
        domain = slot.domain
        self._outstanding[domain] += 1
        try:
            if slot.is_limited:
                before_write = partial(self._confirm, request, slot, usage)
                page = await self._inner(replace(request, before_write=before_write), usage)
            else:
                page = await self._inner(request, usage)
        finally:
            self._outstanding[domain] -= 1
        if page.status < FIRST_ERROR:
            self._successes[domain].append((slot.at, request.url))
            if request.url in self._refused_here:
                self._refused_here.discard(request.url)
                await self._refused_urls.change(
                    domain, lambda state, _now: (state and state.without(request.url), None)
                )
        is_plain = page.status < FIRST_ERROR and "retry-after" not in page.headers
        if slot.is_limited or not is_plain or _may_have_quotas(page):
            await self._obey_limits(request, page, slot, usage)
        return page

    async def _confirm(self, request: Request, slot: AcquiredSlot, usage: Usage) -> None:
        """Wait for another slot if the request was delayed until its own was void."""
        with usage.waiting:
            confirmed = await self._limiter.confirm(slot, request.url)
        if confirmed is not slot:
            usage.waits += 1
            usage.waited += confirmed.waited

    async def _obey_limits(
        self, request: Request, page: Page, slot: AcquiredSlot, usage: Usage
    ) -> None:
        domain, status, now = slot.domain, page.status, self._clock.now()
        pause = page.retry_after(now)
        quotas = read_quotas(page.headers, now) if _may_have_quotas(page) else []
        if quotas:
            until_reset = await self._respect(quotas, domain, usage)
            pause = until_reset if pause is None else pause
        if status == _TOO_MANY or (status == _UNAVAILABLE and pause is not None):
            if quotas or status != _TOO_MANY or request.method != "GET":  # about the domain
                await self._bar_domain(slot, status, pause, usage)
            else:
                await self._handle_refusal(request, slot, pause, usage)
        elif status == _UNAVAILABLE or pause:
            await self._limiter.penalise(domain, _bounded_pause(pause, status))
        elif slot.is_limited:
            await self._limiter.record_accepted(slot, outstanding=self._outstanding[domain])
        if slot.is_limited and (rate := self._limiter.changed_rate(domain)) is not None:
            usage.add_event("limit.learned", domain=domain, rate=rate)

    async def _handle_refusal(
        self, request: Request, slot: AcquiredSlot, requested: float | None, usage: Usage
    ) -> None:
        """Bar the domain after a 429, unless it is about the URL alone.

        Raises:
            Deferred: it is about the URL alone, or came too often: the item waits, and longer
                than its domain, so that requests for others come first.
        """
        url, domain, status = request.url, slot.domain, _TOO_MANY
        pause = _bounded_pause(requested, status)
        is_first_here = url not in self._refused_here
        if is_first_here:  # before anything is awaited, so that no other request goes
            await self._bar_domain(slot, status, requested, usage)
        self._refused_here.add(url)

        def update(state: RefusedUrls | None, now: float) -> tuple[RefusedUrls, RefusedUrls]:
            known = (state or RefusedUrls()).having(url, now)
            return known, known

        known = await self._refused_urls.change(domain, update)
        count = known.count(url)
        others = (at for at, address in self._successes[domain] if address != url)
        is_alone = not is_first_here and known.is_only_url(url, others)
        if is_alone:
            usage.add_event("limit.refused_address", domain=domain, status=status, pause=pause)
        elif not is_first_here:
            await self._bar_domain(slot, status, requested, usage)
        is_repeated = count > (1 if pause > LONGEST_WAIT_IN_PLACE else _REFUSALS_IN_PLACE)
        if (is_alone or is_repeated) and status not in request.accept:
            factor = 1 if is_alone else min(count, _LONGEST_FACTOR)
            until = self._clock.now() + min(pause * factor, LONGEST_RETRY_AFTER)
            problem = f"{url} returned {status} {count} times"
            raise Deferred(url, until, problem, FailureKind.OVERLOAD)

    async def _bar_domain(
        self, slot: AcquiredSlot, status: int, requested: float | None, usage: Usage
    ) -> None:
        domain, pause = slot.domain, _bounded_pause(requested, status)
        await self._limiter.record_refused(slot, pause)
        rate = self._limiter.rate(domain)
        usage.add_event("limit.refused", domain=domain, status=status, pause=pause, rate=rate)

    async def _respect(self, quotas: Sequence[Quota], domain: str, usage: Usage) -> float | None:
        """Respect the lowest rate of short quotas.

        Return the seconds to pause when the requests in flight use up what remains.
        """
        short = [one for one in quotas if one.rate and (one.window or 0) <= _LONGEST_WINDOW]
        slowest = min(short, key=lambda quota: quota.rate or 0.0, default=None)
        if slowest and slowest.rate and await self._limiter.set_published(domain, slowest.rate):
            limit, window = slowest.limit, slowest.window
            usage.add_event("limit.published", domain=domain, limit=limit, window=window)
        in_flight = self._outstanding[domain]
        spent = (one for one in quotas if one.remaining is not None and one.remaining <= in_flight)
        resets = [one.reset_seconds for one in spent if one.reset_seconds is not None]
        return max(resets, default=None)


def _may_have_quotas(page: Page) -> bool:
    """Return quickly whether a response may declare a quota; nearly none does."""
    names = " ".join(page.headers)
    return "imit" in names or "IMIT" in names


def _bounded_pause(pause: float | None, status: int) -> float:
    return _DEFAULT_PAUSE[status] if pause is None else min(pause, LONGEST_RETRY_AFTER)


# ---------------- Is a 429 about the whole domain, or about one URL?

_PROOF = 3  # successful requests for other URLs, for each URL that was refused meanwhile
_MEMORY = 3600.0  # seconds for which a URL is remembered after its last refusal
_MOST_URLS = 200  # URLs of one domain that are remembered


@dataclass(frozen=True, slots=True)
class RefusedUrls:
    """URLs of one domain that were refused: first and last time, and how often. Stored as JSON."""

    addresses: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def having(self, url: str, now: float) -> RefusedUrls:
        """Return the state with one more refusal of a URL."""
        recent = {key: one for key, one in self.addresses.items() if now - one[1] <= _MEMORY}
        first, _, count = recent.get(_hash_of(url), (now, now, 0))
        recent[_hash_of(url)] = (first, now, count + 1)
        latest = sorted(recent, key=lambda key: recent[key][1])[-_MOST_URLS:]
        return RefusedUrls({key: recent[key] for key in latest})

    def without(self, url: str) -> RefusedUrls:
        """Return the state after a URL succeeded."""
        mark = _hash_of(url)
        return RefusedUrls({key: one for key, one in self.addresses.items() if key != mark})

    def count(self, url: str) -> int:
        """Return how often a URL was refused."""
        return int(self.addresses[_hash_of(url)][2])

    def is_only_url(self, url: str, successes: Iterable[float]) -> bool:
        """Return whether only this URL is refused, and not its domain.

        Args:
            url: the URL, whose last refusal is already included.
            successes: when successful requests for other URLs of the domain were sent.
        """
        first, _, count = self.addresses[_hash_of(url)]
        others = sum(one[1] >= first for one in self.addresses.values()) - 1
        # Of a domain that refuses many, the same URL may be hit twice by chance.
        if count < (3 if others else 2):
            return False
        return sum(at > first for at in successes) >= _PROOF * (1 + others)


def _hash_of(url: str) -> str:
    return blake2b(url.encode(errors="replace"), digest_size=8).hexdigest()


# ---------------- Requests in flight

_SHORTEST_WAIT = 0.001  # below this, the time went into the call, not into waiting


class ConcurrencyMiddleware(Middleware):
    """Holds a slot of the request's domain until the response has arrived."""

    def __init__(self, inner: Middleware, limiter: ConcurrencyLimiter) -> None:
        self._inner = inner
        self._limiter = limiter

    async def __call__(self, request: Request, usage: Usage) -> Page:
        slot = self._limiter.slot(request.domain, priority=request.priority)
        async with usage.waiting.to_enter(slot) as waited:
            if waited >= _SHORTEST_WAIT:
                usage.waits += 1
                usage.waited += waited
            return await self._inner(request, usage)


# ---------------- Quotas: the rate limit that a site declares in its responses

_LARGEST = 1e9  # requests; larger values are not credible
_EPOCH = 1e9  # a larger reset is a time since the epoch, not a duration
_EPOCH_MILLISECONDS = 1e12
_LONGEST_RESET = 366 * 86_400.0  # seconds
_UNITS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86_400.0}
_PREFIXES = ("x-ratelimit-", "x-rate-limit-", "ratelimit-")
_FIELDS = {"limit", "remaining", "reset"}


@dataclass(frozen=True, slots=True)
class Quota:
    """`limit` requests in a `window` of seconds, of which `remaining` are left until the reset.

    Values that the site does not send are None.
    """

    limit: float | None = None
    remaining: float | None = None
    reset_seconds: float | None = None
    window: float | None = None

    @property
    def rate(self) -> float | None:
        """Requests per second, when limit and window are known; a limit below 1 is ignored."""
        if not self.limit or not self.window or self.limit < 1:
            return None
        return self.limit / self.window


def read_quotas(headers: Mapping[str, str], now: float) -> list[Quota]:
    """Return every quota that a response declares; invalid ones are left out."""
    names = [name for name in headers if "imit" in name.lower()]
    fields = {name.lower(): joined_header(headers, name) for name in names}
    quotas = (*_draft_quotas(fields), *_unnamed_quotas(fields, now), *_family_quotas(fields, now))
    return [quota for quota in dict.fromkeys(quotas) if quota != Quota()]


def _draft_quotas(fields: Mapping[str, str]) -> Iterator[Quota]:
    """Read the IETF draft: named policies (`"a";q=100;w=60`), and the rest (`"a";r=50;t=30`)."""
    policies = _named_members(fields.get("ratelimit-policy", ""))
    left = _named_members(fields.get("ratelimit", ""))
    for name in policies.keys() | left.keys():
        policy, rest = policies.get(name, {}), left.get(name, {})
        if policy.get("qu", '"requests"') != '"requests"':
            continue  # it counts bytes or concurrent requests
        yield Quota(
            limit=_parse_bounded(policy.get("q"), _LARGEST),
            remaining=_parse_bounded(rest.get("r"), _LARGEST),
            reset_seconds=_parse_bounded(rest.get("t"), _LONGEST_RESET),
            window=_parse_bounded(policy.get("w"), _LONGEST_RESET),
        )


def _unnamed_quotas(fields: Mapping[str, str], now: float) -> Iterator[Quota]:
    """Read the drafts before: `limit=100, remaining=50, reset=5`, and the policy `100;w=60`."""
    values = dict(map(_split_pair, fields.get("ratelimit", "").split(",")))
    yield Quota(
        limit=_parse_bounded(values.get("limit"), _LARGEST),
        remaining=_parse_bounded(values.get("remaining"), _LARGEST),
        reset_seconds=_parse_reset(values.get("reset"), now),
    )
    for member in fields.get("ratelimit-policy", "").split(","):
        size, *parameters = member.split(";")
        window = dict(map(_split_pair, parameters)).get("w")
        if (limit := _parse_bounded(size, _LARGEST)) is not None:
            yield Quota(limit=limit, window=_parse_bounded(window, _LONGEST_RESET))


def _named_members(text: str) -> dict[str, dict[str, str]]:
    members = {}
    for member in text.split(","):
        name, *parameters = member.split(";")
        if name.strip().startswith('"'):
            members[name.strip()] = dict(map(_split_pair, parameters))
    return members


def _split_pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip().lower(), value.strip()


def _family_quotas(fields: Mapping[str, str], now: float) -> Iterator[Quota]:
    """Read headers with one number each (`X-RateLimit-Limit: 100`), by prefix and unit."""
    groups: dict[tuple[str, str], dict[str, str]] = {}
    for name, text in fields.items():
        prefix = next((one for one in _PREFIXES if name.startswith(one)), None)
        word, _, unit = name.removeprefix(prefix).partition("-") if prefix else ("", "", "")
        if word == "reset" and unit == "after":
            unit = ""
        if prefix and word in _FIELDS and unit in {"", *_UNITS}:
            groups.setdefault((prefix, unit), {})[word] = text
    for (_, unit), values in groups.items():
        yield Quota(
            limit=_parse_bounded(values.get("limit"), _LARGEST),
            remaining=_parse_bounded(values.get("remaining"), _LARGEST),
            reset_seconds=_parse_reset(values.get("reset"), now),
            window=_UNITS.get(unit),
        )


def _parse_bounded(text: str | None, most: float) -> float | None:
    value = parse_number(text) if text else None
    return value if value is not None and value <= most else None


def _parse_reset(text: str | None, now: float) -> float | None:
    """Return seconds from now; the site may send a duration or a time."""
    value = parse_number(text or "")
    if value is None:
        value = parse_http_date(text or "")
    if value is None:
        return None
    if value >= _EPOCH_MILLISECONDS:
        value /= 1000
    seconds = max(0.0, value - now) if value >= _EPOCH else value
    return seconds if seconds <= _LONGEST_RESET else None
