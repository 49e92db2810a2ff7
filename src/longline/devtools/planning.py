"""What a run would take: how many requests, at what pace, for how long; known or estimated."""

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
from longline.core.model import Item, OutcomeAction
from longline.devtools.bench import Bench, find_items
from longline.devtools.exchanges import Exchange
from longline.engine.extractor import Extraction
from longline.http.messages import origin_of
from longline.limits.rate_limit import BucketState, RateLimit
from longline.wiring import open_limit_backends

# ---------------- Plan: what a run would take, as far as that can be known before it


class Certainty(StrEnum):
    """How well the number of items is known."""

    KNOWN = "known"
    AT_MOST = "at most"
    """A limit was given, and the list goes on."""
    AT_LEAST = "at least"
    """The list goes on, or items lead to more items."""


@dataclass(frozen=True, slots=True)
class DomainPlan:
    """What one domain will be asked; a `rate` of None is unlimited, `pace` says where it is from.

    `seconds` is how long its pace makes the run at least.
    """

    domain: str
    requests: float
    rate: float | None
    burst: int | None
    pace: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    """How many items and requests, and for how long; what is estimated says so in `notes`.

    `looking` requests find the items; `spent` ones were made to make the plan. `bound` is what the
    run waits for most. `error` is the share by which the duration may be off because items differ.
    """

    source: str
    items: int
    certainty: Certainty
    requests: int
    requests_per_item: float
    fewest_per_item: int
    most_per_item: int
    looking: int
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
        """Whether it may take more than is said here, and nobody knows how much."""
        return self.certainty is Certainty.AT_LEAST

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints; what cannot be known is null."""
        told = asdict(self)
        for name in ("items", "requests", "seconds"):
            told[name] = None if self.is_open else getattr(self, name)
            told[f"{name}_at_least"] = getattr(self, name) if self.is_open else None
        return told


# ---------------- Which items are tried for a plan, and how many are enough

FEWEST = 12
MOST = 400
_GOLDEN = (math.sqrt(5) - 1) / 2  # of a circle: each step falls into the widest gap so far
_PART = 2  # no more than every second item of a list is tried, beyond the fewest
_PRECISE = 0.08  # when the mean is known to so much of itself, more samples tell little
_UNSEEN = 3.0  # means; what an item costs of the sort that chance may have kept from us


@dataclass(frozen=True, slots=True)
class Sample:
    """What one item cost."""

    extraction: Extraction
    exchanges: Sequence[Exchange]

    @property
    def requests(self) -> int:
        """How many requests it took, retries aside."""
        return sum(asked(self.exchanges).values())


def spread(items: Sequence[Item], most: int) -> Iterator[Item]:
    """Yield some of the items, each once, so that any number of them is spread over the list."""
    count = min(most, max(FEWEST, len(items) // _PART), len(items))
    taken: set[int] = set()
    number = 0
    while len(taken) < count:
        place = int((0.5 + number * _GOLDEN) % 1 * len(items))
        number += 1
        if place not in taken:
            taken.add(place)
            yield items[place]


def uncertainty(
    samples: Sequence[Sample], population: int, rate_of: Callable[[str], float | None]
) -> float:
    """Return the share by which the mean time of an item at its slowest domain may be off.

    It is twice the standard error, of which 19 in 20 samples are right; as if one dear item more
    had been seen, since a few samples that agree do not prove that all others do. Of a list that
    was tried whole, it is 0.
    """
    each = [asked(one.exchanges) for one in samples]
    costs = [
        [one[domain] / rate for one in each]
        for domain in {name for one in each for name in one}
        if (rate := rate_of(domain))
    ]
    slowest = max(costs, key=fmean, default=[])
    if not slowest or not fmean(slowest):
        return 0.0
    left = max(0.0, 1 - len(slowest) / population)
    spread_out = stdev([*slowest, _UNSEEN * fmean(slowest)])
    return 2 * spread_out * math.sqrt(left / len(slowest)) / fmean(slowest)


def is_enough(
    samples: Sequence[Sample], population: int, rate_of: Callable[[str], float | None]
) -> bool:
    """Say whether more samples would tell little more."""
    return len(samples) >= FEWEST and uncertainty(samples, population, rate_of) <= _PRECISE


def asked(exchanges: Sequence[Exchange]) -> Counter[str]:
    """Return the requests by domain, retries aside."""
    counts: Counter[str] = Counter()
    for one in exchanges:
        counts[one.request.domain] += one.requests - one.retries
    return counts


REQUESTS = 5
"""Requests that looking for items may take, unless more are allowed."""
_MANY = 1_000_000  # items; a list that never ends must not be counted for ever


@dataclass(frozen=True, slots=True)
class _Found:
    """What looking for items gave."""

    items: Sequence[Item]
    exchanges: Sequence[Exchange]
    lead: Sequence[Exchange]
    """Those before the first item."""
    certainty: Certainty


async def make_plan(
    bench: Bench,
    settings: Settings,
    clock: Clock,
    *,
    requests: int = REQUESTS,
    samples: int = MOST,
) -> Plan:
    """Look for items with a few requests, try some of them, and work out the rest.

    Args:
        bench: the source.
        settings: the home, whose limits and robots.txt count.
        clock: what durations are measured by.
        requests: so many requests may go into looking for items.
        samples: so many items are tried at most; fewer when they cost much the same.

    Raises:
        LonglineError: not a single item can be found.
    """
    known = await _hosts_with_robots(settings, clock)
    found = await _look(bench, requests)
    tried = await _try_some(bench, found.items, samples)
    spent = sum(one.requests for one in (*found.exchanges, *_all(tried)))
    # Their copies are kept now: a run of today does not ask for them again.
    rules = await _hosts_with_robots(settings, clock) - known
    found, tried = _without_robots(found, tried, rules)
    return _Reckoning(bench, settings, found, tried).plan(spent)


async def _hosts_with_robots(settings: Settings, clock: Clock) -> set[str]:
    async with open_limit_backends(settings, clock) as backends:
        return {origin_of(name)[1] for name in await backends.robots.all()}


async def _look(bench: Bench, most: int) -> _Found:
    link, limit = bench.link, bench.spec.limit
    link.most = most
    items: dict[str, Item] = {}
    lead = 0
    try:
        async for item in find_items(bench, limit or _MANY, bench.collector.visit()):
            lead = lead if items else len(link.exchanges)
            items[item.key] = item
    except (BudgetSpent, DiscoveryFailed):
        if not items or not link.is_spent:
            raise
    finally:
        link.most = None
    if not items:
        problem = f"no item was found with {most} requests; allow more with --requests"
        raise DiscoveryFailed(bench.source.name, problem if link.is_spent else "it has no item")
    certainty = Certainty.KNOWN
    if link.is_spent and len(items) < (limit or _MANY):
        certainty = Certainty.AT_MOST if limit else Certainty.AT_LEAST
    exchanges = link.take()
    return _Found(list(items.values()), exchanges, exchanges[:lead], certainty)


async def _try_some(bench: Bench, items: Sequence[Item], most: int) -> list[Sample]:
    tried: list[Sample] = []
    for item in spread(items, most):
        tried.append(await _try(bench, item))
        if is_enough(tried, len(items), bench.fetching.limiter.rate):
            break
    return tried


async def _try(bench: Bench, item: Item) -> Sample:
    extraction = await bench.collector.collect(item)
    await extraction.usage.settle()
    return Sample(extraction, bench.link.take())


def _all(tried: Sequence[Sample]) -> Iterator[Exchange]:
    return (exchange for one in tried for exchange in one.exchanges)


def _without_robots(
    found: _Found, tried: Sequence[Sample], hosts: set[str]
) -> tuple[_Found, list[Sample]]:
    """Take the requests for robots.txt off the first exchange with each of these hosts."""
    left = set(hosts)

    def without(exchanges: Sequence[Exchange]) -> list[Exchange]:
        kept = []
        for one in exchanges:
            is_first = one.request.domain in left and one.requests > 0
            left.discard(one.request.domain if is_first else "")
            kept.append(replace(one, requests=one.requests - is_first))
        return kept

    exchanges = without(found.exchanges)
    lead = exchanges[: len(found.lead)]
    return (
        replace(found, exchanges=exchanges, lead=lead),
        [replace(one, exchanges=without(one.exchanges)) for one in tried],
    )


class _Reckoning:
    """Works out a plan from what was found and tried."""

    def __init__(
        self, bench: Bench, settings: Settings, found: _Found, tried: Sequence[Sample]
    ) -> None:
        self._spec = bench.spec
        self._fetching = bench.fetching
        self._name = bench.source.name
        self._concurrency = bench.spec.concurrency or settings.concurrency
        self._found = found
        self._tried = tried
        self._is_growing = any(one.extraction.found for one in tried)
        self._items = len(found.items)
        if found.certainty is Certainty.AT_MOST and bench.spec.limit:
            self._items = bench.spec.limit
        # A list of twice the items takes twice as many requests to read.
        self._share = self._items / len(found.items)

    def plan(self, spent: int) -> Plan:
        """Return the plan."""
        domains = self._domains()
        counts = [one.requests for one in self._tried]
        looking = math.ceil(sum(asked(self._found.exchanges).values()) * self._share)
        bounds = self._bounds(domains)
        bound = max(bounds, key=lambda name: bounds[name])
        return Plan(
            source=self._name,
            items=self._items,
            certainty=self._certainty,
            requests=round(looking + self._items * fmean(counts)),
            requests_per_item=fmean(counts),
            fewest_per_item=min(counts),
            most_per_item=max(counts),
            looking=looking,
            seconds=_service(self._found.lead) + bounds[bound] + self._service_of_an_item,
            error=uncertainty(self._tried, self._items, self._fetching.limiter.rate),
            bound=bound,
            domains=domains,
            concurrency=self._concurrency,
            spent=spent,
            samples=len(counts),
            notes=list(self._notes()),
        )

    @property
    def _certainty(self) -> Certainty:
        if self._is_growing and self._items < (self._spec.limit or _MANY):
            return Certainty.AT_LEAST
        return self._found.certainty

    @property
    def _service_of_an_item(self) -> float:
        """Seconds an item takes beside the waits for its turn."""
        return fmean(_service(one.exchanges) for one in self._tried)

    def _domains(self) -> list[DomainPlan]:
        looking = asked(self._found.exchanges)
        each = [asked(one.exchanges) for one in self._tried]
        names = sorted({*looking, *(name for one in each for name in one)})
        return [
            self._domain(
                name,
                math.ceil(looking[name] * self._share)
                + self._items * fmean(one[name] for one in each),
            )
            for name in names
        ]

    def _domain(self, name: str, requests: float) -> DomainPlan:
        pace, rate = self._fetching.limiter.pace(name), self._fetching.limiter.rate(name)
        seconds = 0.0 if pace is None or rate is None else _time_for(requests, pace, rate)
        burst = pace.capacity if pace else None
        return DomainPlan(name, requests, rate, burst, self._origin(rate), seconds)

    def _origin(self, rate: float | None) -> str:
        """Say where a pace comes from."""
        if rate is None:
            return "unlimited"
        if self._fetching.rate == "auto":
            return "learned so far"
        if self._fetching.rate is not None and math.isclose(rate, self._fetching.rate):
            return "declared by the source" if self._spec.rate is None else "given for this run"
        return "asked for by the site, or pinned"

    def _bounds(self, domains: Sequence[DomainPlan]) -> dict[str, float]:
        """Return how long each of the things that a run waits for takes."""
        hosts = Counter(origin_of(item.url)[1] for item in self._found.items)
        busiest = max(hosts.values()) * self._share
        rounds = math.ceil(busiest / self._concurrency)
        return {
            **{f"the pace of {one.domain}": one.seconds for one in domains},
            f"{self._concurrency} items at once": rounds * self._service_of_an_item,
            "finding the items": _service(self._found.exchanges) * self._share,
        }

    def _notes(self) -> Iterator[str]:
        if self._certainty is Certainty.AT_LEAST:
            why = "items lead to more items" if self._is_growing else "the list goes on"
            yield f"how many items there are cannot be known: {why}"
        for one in self._tried:
            outcome = one.extraction.outcome
            if outcome.action is not OutcomeAction.STORE:
                yield f"{one.extraction.item.key} did not become a record: {outcome.reason}"
        if self._fetching.rate == "auto":
            yield "the pace is learned on the way: it may become faster or slower"
        if any(one.extraction.usage.rate_limited for one in self._tried):
            yield "the site refused a request (429): it allows less than this pace"
        if any(one.retries for one in (*self._found.exchanges, *_all(self._tried))):
            yield "some requests had to be repeated: retries are not part of the plan"


def _service(exchanges: Sequence[Exchange]) -> float:
    """Return the seconds that exchanges took beside the waits for their turn."""
    return sum(max(0.0, one.seconds - one.waited) for one in exchanges)


def _time_for(requests: float, pace: RateLimit, rate: float) -> float:
    """Return the seconds until the last request may go, from a full bucket."""
    late = max(0.0, requests - pace.capacity)
    return late / rate + (pace.hold(BucketState(0.0)) if late else 0.0)
