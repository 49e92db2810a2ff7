"""Which items are tried for a plan, and how many are enough."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from longline.authoring.exchanges import Exchange
from longline.jobs.collector import Extraction
from longline.model import Item

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
