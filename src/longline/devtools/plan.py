"""Estimate the requests and the duration of a run before it starts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from statistics import fmean, stdev
from typing import Any

from longline.config.settings import Settings
from longline.core.clock import Clock
from longline.core.errors import BudgetSpent, DiscoveryFailed
from longline.core.model import Item, Outcome, OutcomeAction
from longline.devtools.session import Exchange, SourceSession, find_items
from longline.http.messages import origin_of
from longline.limits.rate_limit import BucketState, RateLimit
from longline.wiring import open_limit_backends


class Certainty(StrEnum):
    """Whether the number of items is exact or a bound."""

    KNOWN = "known"
    AT_MOST = "at most"
    """The user set a limit, and the list continues."""
    AT_LEAST = "at least"
    """The list continues, or items lead to more items."""


@dataclass(frozen=True, slots=True)
class DomainPlan:
    """The requests to one domain; a `rate` of None is unlimited, `rate_origin` says who set it.

    `seconds` is the shortest duration that the rate allows.
    """

    domain: str
    requests: float
    rate: float | None
    burst: int | None
    rate_origin: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The expected items, requests and duration of a run.

    `discovery_requests` find the items; `spent` ones were sent to make the plan. `bound` names the
    bottleneck. `error` is the relative error of the duration, because items differ.
    """

    source: str
    items: int
    certainty: Certainty
    requests: int
    requests_per_item: float
    fewest_per_item: int
    most_per_item: int
    discovery_requests: int
    seconds: float
    error: float
    bound: str
    domains: Sequence[DomainPlan]
    concurrency: int
    spent: int
    samples: int
    notes: Sequence[str] = ()

    @property
    def is_open(self) -> bool:
        """Whether the numbers are lower bounds."""
        return self.certainty is Certainty.AT_LEAST

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints; unknown values are null."""
        values = asdict(self)
        for name in ("items", "requests", "seconds"):
            values[name] = None if self.is_open else getattr(self, name)
            values[f"{name}_at_least"] = getattr(self, name) if self.is_open else None
        return values


MIN_SAMPLES = 12
MAX_SAMPLES = 400
_GOLDEN = (math.sqrt(5) - 1) / 2  # golden ratio: each step falls into the widest gap so far
_PRECISE = 0.08  # relative error of the mean from which on further samples add little
_UNSEEN = 3.0  # times the mean: the assumed cost of an expensive item that was not sampled


@dataclass(frozen=True, slots=True)
class Sample:
    """The requests of one sampled item."""

    item: Item
    outcome: Outcome
    exchanges: Sequence[Exchange]

    @property
    def requests(self) -> int:
        """The number of requests, without retries."""
        return sum(requests_by_domain(self.exchanges).values())


def spread_items(items: Sequence[Item], most: int) -> Iterator[Item]:
    """Yield at most half of the items, or the minimum, each once and evenly spread."""
    count = min(most, max(MIN_SAMPLES, len(items) // 2), len(items))
    places: set[int] = set()
    number = 0
    while len(places) < count:
        place = int((0.5 + number * _GOLDEN) % 1 * len(items))
        number += 1
        if place not in places:
            places.add(place)
            yield items[place]


def uncertainty(
    samples: Sequence[Sample], population: int, rate_of: Callable[[str], float | None]
) -> float:
    """Return the relative error of the mean duration of an item at its slowest domain.

    It is twice the standard error (95 % confidence), computed with one more expensive item, since a
    few equal samples do not prove that all items are equal. It is 0 when all items were sampled.
    """
    each = [requests_by_domain(one.exchanges) for one in samples]
    costs = [
        [one[domain] / rate for one in each]
        for domain in {name for one in each for name in one}
        if (rate := rate_of(domain))
    ]
    slowest = max(costs, key=fmean, default=[])
    if not slowest or not fmean(slowest):
        return 0.0
    left = max(0.0, 1 - len(slowest) / population)
    deviation = stdev([*slowest, _UNSEEN * fmean(slowest)])
    return 2 * deviation * math.sqrt(left / len(slowest)) / fmean(slowest)


def is_precise(
    samples: Sequence[Sample], population: int, rate_of: Callable[[str], float | None]
) -> bool:
    """Return whether further samples would add little."""
    return len(samples) >= MIN_SAMPLES and uncertainty(samples, population, rate_of) <= _PRECISE


def requests_by_domain(exchanges: Sequence[Exchange]) -> Counter[str]:
    """Return the number of requests per domain, without retries."""
    counts: Counter[str] = Counter()
    for one in exchanges:
        counts[one.request.domain] += one.requests - one.retries
    return counts


REQUESTS = 5
"""Default budget of requests for discovery."""
_MANY = 1_000_000  # items after which an endless list is cut


@dataclass(frozen=True, slots=True)
class _Discovered:
    """The result of discovery; the first `lead` exchanges came before the first item."""

    items: Sequence[Item]
    exchanges: Sequence[Exchange]
    lead: int
    certainty: Certainty
    is_crawled: bool = False


async def make_plan(
    session: SourceSession,
    settings: Settings,
    clock: Clock,
    *,
    requests: int = REQUESTS,
    samples: int = MAX_SAMPLES,
) -> Plan:
    """Discover items with a few requests, run some of them, and extrapolate.

    Args:
        session: the source.
        settings: the home, whose limits and copies of robots.txt apply.
        clock: measures durations.
        requests: the budget of requests for discovery.
        samples: the maximum number of items to run; fewer when their costs are alike.

    Raises:
        LonglineError: discovery found no item.
    """
    known = await _hosts_with_robots(settings, clock)
    found = await _discover_items(session, requests)
    ran: list[Sample] = []
    for item in spread_items(found.items, samples):
        outcome = await session.collector.collect(item)
        await outcome.usage.settle()
        ran.append(Sample(item, outcome, session.log.take()))
        if is_precise(ran, len(found.items), session.fetching.limiter.rate):
            break
    spent = sum(one.requests for one in (*found.exchanges, *_exchanges_of(ran)))
    # They are cached now, so a run of the same day does not fetch them again.
    left = await _hosts_with_robots(settings, clock) - known
    found = replace(found, exchanges=_without_robots(found.exchanges, left))
    ran = [replace(one, exchanges=_without_robots(one.exchanges, left)) for one in ran]
    return _Estimate(session, settings, found, ran).plan(spent)


async def _hosts_with_robots(settings: Settings, clock: Clock) -> set[str]:
    async with open_limit_backends(settings, clock) as backends:
        return {origin_of(name)[1] for name in await backends.robots.all()}


async def _discover_items(session: SourceSession, budget: int) -> _Discovered:
    log, limit = session.log, session.spec.limit
    log.max_requests = budget
    items: dict[str, Item] = {}
    lead = 0
    try:
        async for item in find_items(session, limit or _MANY, session.collector.visit()):
            lead = lead if items else len(log.exchanges)
            items[item.key] = item
    except (BudgetSpent, DiscoveryFailed):
        if not items or not log.is_exhausted:
            raise
    finally:
        log.max_requests = None
    if not items:
        problem = f"no item was found with {budget} requests; allow more with --requests"
        raise DiscoveryFailed(
            session.source.name, problem if log.is_exhausted else "no item was found"
        )
    certainty = Certainty.KNOWN
    if log.is_exhausted and len(items) < (limit or _MANY):
        certainty = Certainty.AT_MOST if limit else Certainty.AT_LEAST
    is_crawled = any(one.refills for one in items.values())
    return _Discovered(list(items.values()), log.take(), lead, certainty, is_crawled)


def _exchanges_of(samples: Sequence[Sample]) -> Iterator[Exchange]:
    return (exchange for one in samples for exchange in one.exchanges)


def _without_robots(exchanges: Sequence[Exchange], hosts: set[str]) -> list[Exchange]:
    """Subtract the request for robots.txt from the first exchange with each of these hosts.

    A host is removed from `hosts` when its request was subtracted.
    """
    kept = []
    for one in exchanges:
        is_first = one.request.domain in hosts and one.requests > 0
        if is_first:
            hosts.discard(one.request.domain)
        kept.append(replace(one, requests=one.requests - is_first))
    return kept


class _Estimate:
    """Computes a plan from the discovered and the sampled items."""

    def __init__(
        self,
        session: SourceSession,
        settings: Settings,
        found: _Discovered,
        samples: Sequence[Sample],
    ) -> None:
        self._spec = session.spec
        self._fetching = session.fetching
        self._name = session.source.name
        self._concurrency = session.spec.concurrency or settings.concurrency
        self._found = found
        self._samples = samples
        self._is_growing = any(one.outcome.found for one in samples) or found.is_crawled
        self._certainty = found.certainty
        self._items = len(found.items)
        if found.certainty is Certainty.AT_MOST and session.spec.limit:
            self._items = session.spec.limit
        if self._is_growing and self._items < (session.spec.limit or _MANY):
            self._certainty = Certainty.AT_LEAST
        # Discovery takes requests in proportion to the items.
        self._share = self._items / len(found.items)

    def plan(self, spent: int) -> Plan:
        """Return the plan."""
        found, counts = self._found, [one.requests for one in self._samples]
        domains = self._domains()
        discovery = math.ceil(sum(requests_by_domain(found.exchanges).values()) * self._share)
        hosts = Counter(origin_of(item.url)[1] for item in found.items)
        rounds = math.ceil(max(hosts.values()) * self._share / self._concurrency)
        per_item = fmean(_service(one.exchanges) for one in self._samples)
        bounds = {
            **{f"the rate limit of {one.domain}": one.seconds for one in domains},
            f"the limit of {self._concurrency} concurrent items": rounds * per_item,
            "discovery": _service(found.exchanges) * self._share,
        }
        bound = max(bounds, key=lambda name: bounds[name])
        return Plan(
            source=self._name,
            items=self._items,
            certainty=self._certainty,
            requests=round(discovery + self._items * fmean(counts)),
            requests_per_item=fmean(counts),
            fewest_per_item=min(counts),
            most_per_item=max(counts),
            discovery_requests=discovery,
            seconds=_service(found.exchanges[: found.lead]) + bounds[bound] + per_item,
            error=uncertainty(self._samples, self._items, self._fetching.limiter.rate),
            bound=bound,
            domains=domains,
            concurrency=self._concurrency,
            spent=spent,
            samples=len(counts),
            notes=list(self._plan_notes()),
        )

    def _domains(self) -> list[DomainPlan]:
        limiter = self._fetching.limiter
        discovery = requests_by_domain(self._found.exchanges)
        each = [requests_by_domain(one.exchanges) for one in self._samples]
        plans = []
        for name in sorted({*discovery, *(name for one in each for name in one)}):
            for_items = self._items * fmean(one[name] for one in each)
            requests = math.ceil(discovery[name] * self._share) + for_items
            limit, rate = limiter.limit(name), limiter.rate(name)
            seconds = 0.0 if limit is None or rate is None else _time_for(requests, limit, rate)
            burst = limit.capacity if limit else None
            plans.append(DomainPlan(name, requests, rate, burst, self._rate_origin(rate), seconds))
        return plans

    def _rate_origin(self, rate: float | None) -> str:
        if rate is None:
            return "unlimited"
        if self._fetching.rate == "auto":
            return "learned so far"
        if self._fetching.rate is not None and math.isclose(rate, self._fetching.rate):
            return "declared by the source" if self._spec.rate is None else "given for this run"
        return "set by the site, or pinned"

    def _plan_notes(self) -> Iterator[str]:
        if self._certainty is Certainty.AT_LEAST:
            why = "items lead to more items" if self._is_growing else "the list continues"
            yield f"the number of items is unknown: {why}"
        for one in self._samples:
            outcome = one.outcome
            if outcome.action is not OutcomeAction.STORE:
                yield f"{one.item.key} did not become a record: {outcome.reason}"
        if (proxies := self._fetching.proxies) is not None:
            share = "is that of each proxy" if proxies.per_proxy else "of a domain stays the same"
            yield f"requests go through proxies; the rate limit {share}"
        if self._fetching.rate == "auto":
            yield "the rate is learned during the run and may change"
        if any(one.outcome.usage.rate_limited for one in self._samples):
            yield "the site refused a request (429): it allows less than this rate"
        if any(one.retries for one in (*self._found.exchanges, *_exchanges_of(self._samples))):
            yield "some requests were retried: retries are not part of the plan"


def _service(exchanges: Sequence[Exchange]) -> float:
    """Return the seconds that exchanges took without waits for the rate limit."""
    return sum(max(0.0, one.seconds - one.waited) for one in exchanges)


def _time_for(requests: float, limit: RateLimit, rate: float) -> float:
    """Return the seconds until the last request is allowed, from a full bucket."""
    late = max(0.0, requests - limit.capacity)
    return late / rate + (limit.hold(BucketState(0.0)) if late else 0.0)
