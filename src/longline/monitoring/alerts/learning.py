"""Whether a value of a run is unusual, judged by earlier runs of the same source.

The usual range is taken from quantiles, so that single odd runs do not widen it, plus a margin: a
share of the median, the spread of the values and the noise of counting, whichever is largest. The
margin is wider while there are few runs. Values that are out of range are not learned from, until
as many in a row are on the same side that they must be the new normal.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import median

MIN_RUNS = 5
"""Earlier runs without which nothing is learned."""
LEARNED_RUNS = 30
"""Earlier runs from which a range is learned."""
ADAPTED_AFTER = 10
"""Unusual values in a row, on the same side, that are the new normal."""
_SPREADS = 2.5  # interquartile ranges beyond the quantiles
_DEVIATIONS = 4.0  # standard deviations of counting noise
_WEEK, _SAME_TIME = 7 * 86_400.0, 6 * 3600.0
_MIN_WEEKS = 3  # runs at the same time of the week
_STEADY = 0.25  # their spread, as a share of their median
_WEEKLY_MARGIN = 0.1  # in addition to the share
_WITHIN_WEEK = 0.45  # share of the median while earlier runs cover less than a week
_NEVER_ZERO = 8  # lowest count of earlier runs with which a count of zero is unusual
_TREND_RUNS = 15  # runs without which no trend is seen
_TREND_PART = 3  # the oldest third is compared with the newest runs
_TREND_OLDEST = 5  # values before the last week, if values have a weekly rhythm
_HALF_DAY = 43_200.0
_MEDIAN_NOISE = 1.57  # variance of a median, relative to that of a mean
_QUARTILES = 1.35  # the interquartile range in standard deviations


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of one run; of a share, `size` is the number that it is a share of."""

    at: float
    value: float
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far out of its usual range a value is unusual.

    `share` is a share of the median, `least` an amount. `is_low` and `is_high` are the sides that
    matter. With `is_count`, it is a number of things, and varies as such; with `is_weekly`, a value
    far below those of the same time of the week is unusual even within the range of all. `recent`
    is how many of the newest runs show a trend; 0: a trend is not unusual.
    """

    share: float = 0.0
    least: float = 0.0
    is_low: bool = False
    is_high: bool = False
    is_count: bool = False
    is_weekly: bool = False
    recent: int = 0


@dataclass(frozen=True, slots=True)
class Unusual:
    """A value that is out of its usual range, the range, and from how many runs it was learned.

    With `is_trend`, `observed` is the median of the newest runs, and `usual` that of the oldest.
    """

    observed: float
    low: float
    high: float
    usual: float
    runs: int
    is_trend: bool = False


def find_unusual(samples: Sequence[Sample], tolerance: Tolerance) -> Unusual | None:
    """Return in which way the last of these values, oldest first, is unusual; None: it is not."""
    if len(samples) <= MIN_RUNS:
        return None
    values = [one.value for one in samples]
    if max(values) - min(values) <= tolerance.least:
        return None
    return _out_of_range(samples, tolerance) or _find_trend(samples, tolerance)


def usual_range(history: Sequence[Sample], tolerance: Tolerance, sample: Sample) -> Unusual:
    """Return the range in which a value is usual, after these earlier ones."""
    ordered = sorted(one.value for one in history)
    return _range_of(ordered, history, tolerance, sample)


def _out_of_range(samples: Sequence[Sample], tolerance: Tolerance) -> Unusual | None:
    # One pass from the oldest value to the newest: each is judged by those before it.
    kept: deque[Sample] = deque()
    ordered: list[float] = []
    rejected: list[tuple[bool, Sample]] = []
    found: Unusual | None = None
    for sample in samples:
        found = None
        if len(kept) >= MIN_RUNS:
            usual = _range_of(ordered, kept, tolerance, sample)
            if not usual.low <= sample.value <= usual.high:
                found = usual
        if found is None:
            rejected.clear()
        else:
            is_low = sample.value < found.low
            rejected = [one for one in rejected if one[0] == is_low] + [(is_low, sample)]
            if len(rejected) <= ADAPTED_AFTER:
                continue
            found = None
            kept.clear()
            kept.extend(one for _, one in rejected[:-1])
            ordered = sorted(one.value for one in kept)
            rejected.clear()
        kept.append(sample)
        insort(ordered, sample.value)
        if len(kept) > LEARNED_RUNS:
            ordered.remove(kept.popleft().value)
    return found


def _range_of(
    ordered: Sequence[float], history: Sequence[Sample], tolerance: Tolerance, sample: Sample
) -> Unusual:
    count = len(ordered)
    middle = ordered[count // 2] if count % 2 else sum(ordered[count // 2 - 1 : count // 2 + 1]) / 2
    tenth, quarter = (count - 1) // 10, (count - 1) // 4
    spread = ordered[count - 1 - quarter] - ordered[quarter]
    share = tolerance.share
    if tolerance.is_weekly and sample.at - history[0].at < _WEEK:
        share = max(share, _WITHIN_WEEK)  # the weekend may be yet to come
    margin = max(
        share * abs(middle),
        tolerance.least,
        _SPREADS * spread,
        _DEVIATIONS * _noise(middle, sample.size, is_count=tolerance.is_count),
    )
    margin *= 1 + 3 / count
    low, high = ordered[tenth] - margin, ordered[count - 1 - tenth] + margin
    if tolerance.is_count and ordered[0] >= _NEVER_ZERO:
        low = max(low, 1.0)
    if tolerance.is_weekly:
        low = max(low, _weekly_low(history, tolerance, sample.at))
    return Unusual(
        observed=sample.value,
        low=low if tolerance.is_low else -inf,
        high=high if tolerance.is_high else inf,
        usual=middle,
        runs=count,
    )


def _noise(middle: float, size: int | None, *, is_count: bool) -> float:
    """Return the standard deviation of a value that only chance changes."""
    if is_count:
        return sqrt(max(middle, 0.0))
    if size is None:
        return 0.0
    share = (min(max(middle, 0.0), 1.0) * size + 1) / (size + 2)
    return sqrt(share * (1 - share) / max(size, 1))


def _weekly_low(history: Sequence[Sample], tolerance: Tolerance, at: float) -> float:
    same = [
        one.value
        for one in history
        if abs((at - one.at + _WEEK / 2) % _WEEK - _WEEK / 2) <= _SAME_TIME
    ]
    if len(same) < _MIN_WEEKS or max(same) - min(same) > _STEADY * median(same):
        return -inf
    noise = _DEVIATIONS * sqrt(max(min(same), 0.0))
    return min(same) - max(min(same) * (tolerance.share + _WEEKLY_MARGIN), noise)


def _find_trend(samples: Sequence[Sample], tolerance: Tolerance) -> Unusual | None:
    if not tolerance.recent or len(samples) < _TREND_RUNS:
        return None
    last = samples[-1]
    oldest = sorted(one.value for one in samples[: len(samples) // _TREND_PART])
    newest = [one.value for one in samples[-tolerance.recent :]]
    if tolerance.is_weekly:
        # Whole weeks, of which the newest days count no more than the others.
        spread = list({one.at // _HALF_DAY: one for one in reversed(samples)}.values())
        oldest = sorted(one.value for one in spread if last.at - one.at >= _WEEK)
        newest = [one.value for one in spread if last.at - one.at < _WEEK]
    if len(newest) < tolerance.recent or len(oldest) < _TREND_OLDEST:
        return None
    before, now = median(oldest), median(newest)
    quarter = (len(oldest) - 1) // 4
    noise = max(
        _noise(before, last.size, is_count=tolerance.is_count),
        (oldest[len(oldest) - 1 - quarter] - oldest[quarter]) / _QUARTILES,
    )
    noise *= _DEVIATIONS * sqrt(_MEDIAN_NOISE * (1 / len(newest) + 1 / len(oldest)))
    low = min(before - max(tolerance.share * abs(before), tolerance.least, noise), oldest[0])
    if now >= low or max(one.value for one in samples[-tolerance.recent :]) >= low:
        return None
    return Unusual(now, low, inf, before, len(samples), is_trend=True)
