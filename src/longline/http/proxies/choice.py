"""Choice of a proxy: scores from use, quarantine, tiers, and a weighted random choice.

A policy: it is passed the time and the scores; nothing is fetched or stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from longline.core.clock import backoff
from longline.core.errors import check_range
from longline.http.proxies.proxy import DEFAULT_TIER

EVERYWHERE = "*"
"""The domain of the score that a proxy has as a whole."""


class Result(StrEnum):
    """How a request through a proxy ended, as far as the proxy is concerned.

    `refused` is a failure of the proxy itself, whatever the site: no connection to it, or wrong
    credentials. `failed` is one on the way to this site. `banned` is the site's answer.
    """

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"
    BANNED = "banned"


@dataclass(frozen=True, slots=True)
class Score:
    """How requests through a proxy ended, at one domain or everywhere. Stored as JSON.

    `successes` and `failures` are decayed to the time `at`; `latency` is the average of recent
    successes in seconds. `requests`, `failed` and `bans` are totals. The last quarantine is from
    `since` until `until`, for `reason`; `quarantines` counts those in a row. After it, the proxy
    is recovering until a request succeeds.
    """

    at: float = 0.0
    successes: float = 0.0
    failures: float = 0.0
    latency: float | None = None
    requests: int = 0
    failed: int = 0
    bans: int = 0
    failures_in_a_row: int = 0
    quarantines: int = 0
    since: float = 0.0
    until: float | None = None
    is_ban: bool = False
    is_recovering: bool = False
    reason: str = ""

    def is_quarantined(self, now: float) -> bool:
        """Whether no request may use the proxy now."""
        return self.until is not None and now < self.until

    @property
    def is_proven(self) -> bool:
        """Whether it has worked, and not failed since."""
        return self.latency is not None and not self.failures_in_a_row and not self.is_recovering


@dataclass(frozen=True, slots=True)
class ProxyPolicy:
    """When a proxy is quarantined, for how long, and how proxies are weighted.

    A proxy that has not worked yet is quarantined after its first failure, another one after
    `failures` in a row; as a whole after `failures_everywhere` at any domains. Quarantines last
    `quarantine` seconds, bans `ban`; each further one twice as long, up to `longest`. One that
    comes long after the last counts as the first again. Counts halve every `half_life` seconds.
    The weight of a proxy is never below `trickle`, so a slow or failing one is tried now and then.

    Raises:
        BadOption: a value is out of range.
    """

    failures: int = 2
    failures_everywhere: int = 5
    quarantine: float = 60.0
    ban: float = 900.0
    longest: float = 21_600.0
    half_life: float = 600.0
    trickle: float = 0.005

    def __post_init__(self) -> None:
        for name in ("failures", "failures_everywhere"):
            check_range(name, getattr(self, name), "1 failure or more", at_least=1)
        for name in ("quarantine", "ban", "longest", "half_life"):
            check_range(name, getattr(self, name), "above 0 seconds", above=0)
        check_range("trickle", self.trickle, "above 0, up to 1", above=0, at_most=1)

    def decay(self, score: Score, now: float) -> float:
        """Return by how much the counts of a score have decayed at a time."""
        return 1.0 if now <= score.at else 0.5 ** ((now - score.at) / self.half_life)

    def decayed(self, score: Score, now: float) -> Score:
        """Return a score with its counts decayed to a time."""
        if now <= score.at:
            return score
        factor = self.decay(score, now)
        return replace(
            score, at=now, successes=score.successes * factor, failures=score.failures * factor
        )

    def quarantine_seconds(self, in_a_row: int, *, is_ban: bool) -> float:
        """Return how long the quarantine number `in_a_row` lasts."""
        base = self.ban if is_ban else self.quarantine
        return backoff(in_a_row, base=base, ceiling=max(base, self.longest))


_KEPT_LATENCY = 0.7  # share of the known latency in the average with a new one
_LONGEST_REASON = 200


def record_success(
    policy: ProxyPolicy, score: Score, now: float, seconds: float, count: int = 1
) -> Score:
    """Return the score of a pair, or of a proxy as a whole, after `count` successes."""
    score = policy.decayed(score, now)
    known = score.latency
    latency = seconds if known is None else _KEPT_LATENCY * known + (1 - _KEPT_LATENCY) * seconds
    is_held = score.is_quarantined(now)  # a late success from before a ban does not end it
    return replace(
        score,
        successes=score.successes + count,
        requests=score.requests + count,
        latency=latency,
        failures_in_a_row=0,
        is_recovering=is_held,
    )


def record_failure(
    policy: ProxyPolicy, score: Score, now: float, result: Result, reason: str, *, is_whole: bool
) -> Score:
    """Return the score of a pair, or with `is_whole` of the proxy as a whole, after a failure."""
    was_proven = score.latency is not None and not score.is_recovering
    score = policy.decayed(score, now)
    is_ban = result is Result.BANNED
    score = replace(
        score,
        requests=score.requests + 1,
        failed=score.failed + (not is_ban),
        bans=score.bans + is_ban,
        failures=score.failures + 1,
        failures_in_a_row=score.failures_in_a_row + 1,
    )
    if score.is_quarantined(now) and (score.is_ban or not is_ban):
        return score  # a late result: the request was sent before the quarantine
    if is_whole and result is not Result.REFUSED:
        most = policy.failures_everywhere
    else:
        most = policy.failures if was_proven else 1
    if not is_ban and score.failures_in_a_row < most:
        return score
    return _quarantined(policy, score, now, reason, is_ban=is_ban)


def _quarantined(
    policy: ProxyPolicy, score: Score, now: float, reason: str, *, is_ban: bool
) -> Score:
    # One that comes long after the last counts as the first again.
    ended = score.until or 0.0
    forget_at = ended + max(2 * (ended - score.since), policy.half_life)
    is_repeated = score.quarantines > 0 and score.is_ban == is_ban and now < forget_at
    level = score.quarantines + 1 if is_repeated else 1
    seconds = policy.quarantine_seconds(level, is_ban=is_ban)
    return replace(
        score,
        quarantines=level,
        since=now,
        until=now + seconds,
        is_ban=is_ban,
        is_recovering=True,
        reason=" ".join(reason.split())[:_LONGEST_REASON],
    )


# ---------------- Tiers


@dataclass(frozen=True, slots=True)
class Tier:
    """Proxies of one price; `budget` is the most that a day (UTC) may cost, None is any sum."""

    name: str
    cost: float = 0.0
    budget: float | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proxy as the choice sees it: where it is, and its scores here and everywhere.

    `latency` is that of its last check.
    """

    address: str
    tier: str = DEFAULT_TIER
    country: str | None = None
    score: Score = Score()
    whole: Score = Score()
    latency: float | None = None

    def held_until(self, now: float) -> float | None:
        """Return the end of its quarantine; None without one."""
        here, whole = self.score.until or 0.0, self.whole.until or 0.0
        until = max(here, whole)
        return until if now < until else None

    @property
    def is_proven(self) -> bool:
        """Whether it works as far as is known."""
        return self.score.is_proven and self.whole.failures_in_a_row == 0

    @property
    def is_banned(self) -> bool:
        """Whether the site has banned it, and its last quarantine was for that."""
        return self.score.is_ban and self.score.is_recovering


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which proxies a source uses: tiers in order (empty: all), countries (empty: any).

    Fewer than `minimum` usable ones count as none.
    """

    tiers: tuple[str, ...] = ()
    countries: tuple[str, ...] = ()
    minimum: int = 1


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen proxy; None if there is none, then until when, and why.

    With `is_banned`, the site has banned all that work. With `is_tried`, all usable ones were tried
    by this request.
    """

    address: str | None = None
    until: float | None = None
    reason: str = ""
    is_banned: bool = False
    is_tried: bool = False


_MOST_UNPROVEN = 3
"""Proxies that have not proved themselves and are tried together, if others have."""
_MOST_WEIGHED = 100
"""Proxies that are weighed for a request; of more, as many in a row from a random place on."""
_EMPTY_WAIT = 60.0  # seconds until a pool without a suitable proxy is read again


def choose(
    policy: ProxyPolicy,
    candidates: Sequence[Candidate],
    wanted: Wanted,
    now: float,
    random: float,
    *,
    tried: frozenset[str] = frozenset(),
    spent: frozenset[str] = frozenset(),
    tiers: Sequence[Tier] = (),
    in_flight: Mapping[str, int] | None = None,
) -> Choice:
    """Choose a proxy for one request to a domain.

    Args:
        policy: the policy.
        candidates: the pool, without dead proxies.
        wanted: which of them the source uses.
        now: the time.
        random: from 0 to 1, excluding 1.
        tried: addresses that this request has tried already.
        spent: tiers whose budget for today is spent.
        tiers: all tiers, in their order; others follow by name.
        in_flight: requests that this process sends through proxies now, by address.
    """
    busy = in_flight or {}
    fitting = [one for one in candidates if _fits(one, wanted)]
    affordable = [one for one in fitting if one.tier not in spent]
    usable = [one for one in affordable if one.held_until(now) is None]
    if len(usable) < max(wanted.minimum, 1):
        return _none_usable(fitting, affordable, usable, wanted, now)
    trying = sum(one.address in busy and not one.is_proven for one in usable)
    for name in tier_order((one.tier for one in usable), wanted, tiers):
        group = [one for one in usable if one.tier == name and one.address not in tried]
        # One that has not proved itself gets one request at a time, if there are others. Few are
        # tried together, since a slow one delivers its request when others are due.
        proven = [one for one in group if one.is_proven]
        idle = [one for one in group if not one.is_proven and one.address not in busy]
        free = proven if proven and trying >= _MOST_UNPROVEN else proven + idle
        if group:
            return Choice(_draw(policy, free or group, now, random, busy).address)
    return Choice(reason="all usable proxies were tried", is_tried=True)


def _fits(candidate: Candidate, wanted: Wanted) -> bool:
    if wanted.tiers and candidate.tier not in wanted.tiers:
        return False
    return not wanted.countries or candidate.country in wanted.countries


def tier_order(names: Iterable[str], wanted: Wanted, tiers: Sequence[Tier]) -> list[str]:
    """Return the tiers of these names, the first to use first."""
    order = wanted.tiers or tuple(tier.name for tier in tiers)
    places = {name: place for place, name in enumerate(order)}
    return sorted(set(names), key=lambda name: (places.get(name, len(places)), name))


def _none_usable(
    fitting: Sequence[Candidate],
    affordable: Sequence[Candidate],
    usable: Sequence[Candidate],
    wanted: Wanted,
    now: float,
) -> Choice:
    if not fitting:
        problem = "no living proxy of the pool has the tier and country that the job wants"
        if not (wanted.tiers or wanted.countries):
            problem = "the pool has no living proxy"
        return Choice(until=now + _EMPTY_WAIT, reason=problem)
    held = [one for one in affordable if one.held_until(now) is not None]
    missing = max(wanted.minimum, 1) - len(usable)
    ends = sorted(one.held_until(now) or now for one in held)
    paid = {one.tier for one in affordable}
    spent = [one for one in fitting if one.tier not in paid]
    if missing > len(ends):
        if spent:
            return Choice(until=_next_day(now), reason="the budget of a tier of proxies is spent")
        problem = (
            f"the job needs {wanted.minimum} proxies, and the pool has {len(fitting)} that fit"
        )
        return Choice(until=now + _EMPTY_WAIT, reason=problem)
    # Others that have worked here, or cost too much today, come back: the site has not banned all.
    hopes = [one for one in held if one.score.latency is not None] + spent
    is_banned = not usable and any(one.is_banned for one in held)
    is_banned = is_banned and all(one.is_banned for one in hopes)
    reasons = [one.whole.reason or one.score.reason for one in held]
    problem = f"{len(held)} of {len(fitting)} proxies are in quarantine, such as: {reasons[0]}"
    until = ends[missing - 1]
    if spent:
        problem = f"the budget of a tier of proxies is spent, and {problem}"
        until = min(until, _next_day(now))
    return Choice(until=until, reason=problem, is_banned=is_banned)


def _next_day(now: float) -> float:
    return (now // 86_400.0 + 1) * 86_400.0


def _draw(
    policy: ProxyPolicy,
    candidates: Sequence[Candidate],
    now: float,
    random: float,
    in_flight: Mapping[str, int],
) -> Candidate:
    if len(candidates) > _MOST_WEIGHED:
        place = random * len(candidates)
        start, random = int(place), place % 1
        candidates = [*candidates[start:], *candidates[:start]][:_MOST_WEIGHED]
    weights = weigh(policy, candidates, now, in_flight)
    place = random * sum(weights.values())
    for candidate in candidates:
        place -= weights[candidate.address]
        if place < 0:
            return candidate
    return candidates[-1]


_FAST = 0.05  # seconds; differences below it do not matter


def weigh(
    policy: ProxyPolicy,
    candidates: Sequence[Candidate],
    now: float,
    in_flight: Mapping[str, int],
) -> Mapping[str, float]:
    """Return the weight of each candidate: how surely and quickly it works, and how busy it is."""
    latencies = {one.address: _latency_of(one) for one in candidates}
    known = [one for one in latencies.values() if one is not None]
    fastest = min(known, default=0.0)
    weights = {}
    for one in candidates:
        latency = latencies[one.address]
        speed = 1.0
        if latency is not None and latency > fastest:
            speed = ((2 * fastest + _FAST) / max(latency, 2 * fastest + _FAST)) ** 2
        weight = max(policy.trickle, _reliability(policy, one, now) ** 3 * speed)
        weights[one.address] = weight / (1 + in_flight.get(one.address, 0))
    return weights


def _latency_of(candidate: Candidate) -> float | None:
    for latency in (candidate.score.latency, candidate.whole.latency, candidate.latency):
        if latency is not None:
            return latency
    return None


def _reliability(policy: ProxyPolicy, candidate: Candidate, now: float) -> float:
    """Return the expected share of successes: what is known here, and else what is everywhere."""
    score, whole = candidate.score, candidate.whole
    far, near = policy.decay(whole, now), policy.decay(score, now)
    expected = (far * whole.successes + 1) / (far * (whole.successes + whole.failures) + 2)
    total = near * (score.successes + score.failures) + 2
    return (near * score.successes + 2 * expected) / total


@dataclass(slots=True)
class InFlight:
    """The requests that this process sends through each proxy now."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, address: str, change: int) -> None:
        """Count one more (1) or one less (-1)."""
        count = self.counts.get(address, 0) + change
        if count:
            self.counts[address] = count
        else:
            self.counts.pop(address, None)
