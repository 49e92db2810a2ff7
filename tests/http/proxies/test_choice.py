"""The policy of choosing a proxy: properties of scores, quarantines, tiers and the choice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.core.errors import BadOption
from longline.http.proxies.choice import (
    Candidate,
    Choice,
    ProxyPolicy,
    Result,
    Score,
    Tier,
    Wanted,
    choose,
    record_failure,
    record_success,
    weigh,
)

POLICY = ProxyPolicy()
NOW = 1_000_000.0
results = st.lists(
    st.tuples(
        st.sampled_from([Result.OK, Result.FAILED, Result.REFUSED, Result.BANNED]),
        st.floats(0.01, 5000),
    ),
    max_size=30,
)
randoms = st.floats(0, 1, exclude_max=True)


def score_after(several: list[tuple[Result, float]], *, is_whole: bool = False) -> Score:
    """Return a score after results, each some seconds after the one before."""
    score, now = Score(), NOW
    for result, seconds in several:
        now += seconds
        if result is Result.OK:
            score = record_success(POLICY, score, now, 0.1)
        else:
            score = record_failure(POLICY, score, now, result, "reason", is_whole=is_whole)
    return score


def working(address: str, tier: str = "default", latency: float = 0.1) -> Candidate:
    score = record_success(POLICY, Score(), NOW, latency)
    return Candidate(address, tier, score=score, whole=score)


MANY = [working(f"p{number}") for number in range(250)]


def failed(address: str, result: Result, tier: str = "default") -> Candidate:
    score = record_failure(POLICY, Score(), NOW, result, "it failed", is_whole=False)
    return Candidate(address, tier, score=score)


def pick(
    candidates: list[Candidate], random: float = 0.5, wanted: Wanted | None = None, **more: object
) -> Choice:
    return choose(POLICY, candidates, wanted or Wanted(), NOW, random, **more)  # type: ignore[arg-type]  # as given


@given(results, st.booleans())
def test_counts_are_finite_and_every_quarantine_ends(
    several: list[tuple[Result, float]],
    is_whole: bool,  # noqa: FBT001  # hypothesis passes it
) -> None:
    score = score_after(several, is_whole=is_whole)

    assert 0 <= score.successes <= len(several)
    assert 0 <= score.failures <= len(several)
    assert score.requests == len(several)
    assert score.until is None or score.until <= score.since + POLICY.longest


@given(results)
def test_a_success_after_the_quarantine_proves_a_proxy_again(
    several: list[tuple[Result, float]],
) -> None:
    score = score_after(several)
    later = max(score.until or 0.0, score.at) + 1

    after = record_success(POLICY, score, later, 0.1)

    assert after.is_proven


@given(st.sampled_from([Result.FAILED, Result.REFUSED, Result.BANNED]), st.integers(1, 12))
def test_each_quarantine_in_a_row_is_twice_as_long_up_to_the_longest(
    result: Result, rounds: int
) -> None:
    score, now, lengths = Score(), NOW, []
    for _ in range(rounds):
        score = record_failure(POLICY, score, now, result, "reason", is_whole=False)
        assert score.until is not None
        lengths.append(score.until - now)
        now = score.until + 0.001

    base = POLICY.ban if result is Result.BANNED else POLICY.quarantine
    wanted = [min(base * 2**number, POLICY.longest) for number in range(rounds)]
    assert lengths == pytest.approx(wanted)


def test_a_quarantine_long_after_the_last_is_the_first_again() -> None:
    first = record_failure(POLICY, Score(), NOW, Result.FAILED, "reason", is_whole=False)
    works = record_success(POLICY, first, NOW + 100, 0.1)
    later = NOW + 5000

    once = record_failure(POLICY, works, later, Result.FAILED, "reason", is_whole=False)
    again = record_failure(POLICY, once, later, Result.FAILED, "reason", is_whole=False)

    assert once.until == works.until, "one failure of a proxy that worked is not enough"
    assert again.until == later + POLICY.quarantine


def test_a_late_success_does_not_end_a_ban() -> None:
    banned = failed("a", Result.BANNED).score

    after = record_success(POLICY, banned, NOW + 1, 0.1)

    assert after.is_quarantined(NOW + 2)


def test_a_proxy_that_fails_everywhere_is_held_as_a_whole() -> None:
    score = record_success(POLICY, Score(), NOW, 0.1)
    for number in range(POLICY.failures_everywhere):
        assert not score.is_quarantined(NOW)
        at = NOW + number * 0.001
        score = record_failure(POLICY, score, at, Result.FAILED, "reason", is_whole=True)

    assert score.is_quarantined(NOW + 1)


@given(
    st.lists(
        st.tuples(results, results, st.sampled_from(["cheap", "dear"]), st.integers(0, 3)),
        max_size=8,
    ),
    randoms,
    st.sets(st.integers(0, 7)),
)
def test_a_choice_is_never_in_quarantine_or_tried(
    given_: list[tuple[list[tuple[Result, float]], list[tuple[Result, float]], str, int]],
    random: float,
    tried: set[int],
) -> None:
    candidates = [
        Candidate(f"p{number}", tier, None, score_after(here), score_after(whole))
        for number, (here, whole, tier, _) in enumerate(given_)
    ]
    busy = {f"p{number}": count for number, (*_, count) in enumerate(given_) if count}
    addresses = frozenset(f"p{number}" for number in tried)

    choice = pick(candidates, random, tried=addresses, in_flight=busy)

    by_address = {one.address: one for one in candidates}
    if choice.address is not None:
        assert choice.address not in addresses
        assert by_address[choice.address].held_until(NOW) is None
    elif not choice.is_tried:
        assert choice.until is not None
        assert choice.until > NOW


@given(randoms)
def test_a_dearer_tier_is_used_only_when_no_cheaper_one_is_usable(random: float) -> None:
    tiers = [Tier("cheap"), Tier("dear", cost=1.0)]
    dear = working("b", "dear")

    assert pick([dear, working("a", "cheap")], random, tiers=tiers).address == "a"
    assert pick([dear, failed("a", Result.BANNED, "cheap")], random, tiers=tiers).address == "b"
    assert pick([dear, working("a", "cheap")], random, tiers=tiers, tried={"a"}).address == "b"


def test_a_tier_whose_budget_is_spent_waits_for_the_next_day() -> None:
    choice = pick([working("a", "dear")], spent=frozenset({"dear"}))

    assert choice.address is None
    assert choice.until == (NOW // 86_400 + 1) * 86_400


def test_bans_are_not_of_all_while_the_budget_of_a_tier_is_spent() -> None:
    banned = failed("a", Result.BANNED, "cheap")
    banned = replace(banned, score=replace(banned.score, until=NOW + 1e6))

    choice = pick([banned, working("b", "dear")], spent=frozenset({"dear"}))

    assert (choice.address, choice.is_banned) == (None, False)
    assert choice.until == (NOW // 86_400 + 1) * 86_400


@given(randoms)
def test_only_proxies_of_the_wanted_country_are_used(random: float) -> None:
    wanted = Wanted(countries=("BG",))
    candidates = [working("a"), replace(working("b"), country="BG"), working("c")]

    assert pick(candidates, random, wanted).address == "b"
    assert pick(candidates[:1], random, wanted).address is None


def test_fewer_than_the_minimum_wait_for_the_first_to_return() -> None:
    held = failed("b", Result.FAILED)

    choice = pick([working("a"), held], wanted=Wanted(minimum=2))

    assert choice.address is None
    assert choice.until == held.score.until


def test_bans_of_all_that_work_are_a_ban() -> None:
    banned, broken = failed("a", Result.BANNED), failed("b", Result.REFUSED)
    worked = replace(broken, score=replace(broken.score, latency=0.1))

    assert pick([banned, broken]).is_banned
    assert not pick([banned, worked]).is_banned
    assert not pick([broken]).is_banned


@given(st.floats(0.001, 30), st.floats(0.001, 30))
def test_weights_prefer_the_faster_and_never_starve(one: float, other: float) -> None:
    candidates = [working("a", latency=one), working("b", latency=other)]

    weights = weigh(POLICY, candidates, NOW, {})

    assert min(weights.values()) >= POLICY.trickle
    assert (one <= other) <= (weights["a"] >= weights["b"])


def test_one_that_is_not_proven_gets_one_request_at_a_time() -> None:
    trying, busy = Candidate("new"), {"new": 1}

    assert pick([working("a"), trying], 0.999, in_flight=busy).address == "a"
    assert pick([trying], 0.999, in_flight=busy).address == "new"


@given(randoms)
def test_few_proxies_are_tried_together(random: float) -> None:
    busy = {f"new{number}": 1 for number in range(3)}
    candidates = [Candidate(f"new{number}") for number in range(6)]

    assert pick([working("a"), *candidates], random, in_flight=busy).address == "a"
    assert pick(candidates, random, in_flight=busy).address in {"new3", "new4", "new5"}


@given(randoms)
def test_of_many_proxies_one_is_chosen(random: float) -> None:
    assert pick(MANY, random).address is not None


def test_a_policy_out_of_range_is_refused() -> None:
    with pytest.raises(BadOption):
        ProxyPolicy(quarantine=0)
