from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.core.errors import BadOption
from longline.limits.rate_limit import (
    LONGEST_MARGIN,
    BucketState,
    RateLimit,
    Slot,
    available_tokens,
    bar,
    check_slot,
    observe_lateness,
    reserve_slot,
)

NOW = 1_800_000_000.0
CLOCK_ROUNDING = 1e-6
RATES = st.sampled_from([0.1667, 2.0, 3.0, 50.0, 997.0])
MARGINS = st.sampled_from([0.0, 0.01, 0.1, 1.0])


@st.composite
def rate_limits(draw: st.DrawFn, smallest: int = 1) -> RateLimit:
    return RateLimit(draw(RATES), draw(st.integers(smallest, 12)), draw(MARGINS))


# Gaps between arrivals, in intervals: bursts, a steady stream, and pauses that refill the bucket.
GAPS = st.lists(
    st.one_of(st.just(0.0), st.floats(0, 1.5), st.floats(0, 30)), min_size=1, max_size=60
)


def times(limit: RateLimit, gaps: Sequence[float]) -> list[float]:
    arrivals, now = [], NOW
    for gap in gaps:
        now += gap * limit.interval
        arrivals.append(now)
    return arrivals


def reserve_all(
    limit: RateLimit, arrivals: Sequence[float], state: BucketState | None = None
) -> list[Slot]:
    slots = []
    for now in arrivals:
        state, slot = reserve_slot(limit, state, now)
        slots.append(slot)
    return slots


def refused(limit: RateLimit, arrivals: Sequence[float]) -> list[float]:
    """Return what an honest bucket, full at first and counting exactly, would answer with 429."""
    full = left = Fraction(limit.capacity)
    tolerance = Fraction(CLOCK_ROUNDING * limit.rate)
    last, refusals = Fraction(min(arrivals)), []
    for arrival in sorted(arrivals):
        left = min(full, left + (Fraction(arrival) - last) * Fraction(limit.rate))
        last = Fraction(arrival)
        if left < 1 - tolerance:
            refusals.append(arrival)
        left = max(Fraction(0), left - 1)
    return refusals


@given(rate_limits(), GAPS, st.data())
def test_a_server_with_the_same_limit_never_refuses_however_deliveries_differ(
    limit: RateLimit, gaps: list[float], data: st.DataObject
) -> None:
    slots = reserve_all(limit, times(limit, gaps))
    delays = data.draw(
        st.lists(st.floats(0, 1), min_size=len(slots), max_size=len(slots)), label="of the hold"
    )

    delivered = [slot.at + slot.hold * delay for slot, delay in zip(slots, delays, strict=True)]

    assert refused(limit, delivered) == []


@given(rate_limits(), st.integers(13, 200))
def test_a_late_burst_and_punctual_followers_are_not_refused(limit: RateLimit, count: int) -> None:
    slots = reserve_all(limit, [NOW] * count)
    burst, followers = slots[: limit.capacity], slots[limit.capacity :]

    delivered = [slot.at + slot.hold for slot in burst] + [slot.at for slot in followers]

    assert refused(limit, delivered) == []


@given(rate_limits(), st.floats(-0.2, 0.2))
def test_a_late_burst_and_a_punctual_one_are_not_refused(limit: RateLimit, gap: float) -> None:
    first = reserve_all(limit, [NOW] * limit.capacity)
    refilled = NOW + (limit.capacity + gap) * limit.interval
    second = reserve_all(limit, [refilled] * limit.capacity, first[-1].after)

    delivered = [slot.at + slot.hold for slot in first] + [slot.at for slot in second]

    assert refused(limit, delivered) == []


@given(rate_limits(), st.lists(st.tuples(st.floats(0, 3), st.booleans()), min_size=1, max_size=60))
def test_slots_given_back_are_used_again_without_a_refusal(
    limit: RateLimit, steps: list[tuple[float, bool]]
) -> None:
    state: BucketState | None = None
    used = [NOW]
    for now, (_, is_cancelled) in zip(times(limit, [gap for gap, _ in steps]), steps, strict=True):
        state, slot = reserve_slot(limit, state, now)
        if is_cancelled:
            state = slot.before
        else:
            used.append(slot.at)

    assert refused(limit, used[1:] or used) == []


@given(rate_limits(smallest=2), st.integers(13, 300))
def test_the_margin_is_paid_once(limit: RateLimit, count: int) -> None:
    slots = reserve_all(limit, [NOW] * count)

    expected = (count - limit.capacity) / limit.rate + min(limit.margin, limit.slack)

    assert slots[-1].at - NOW == pytest.approx(expected, abs=CLOCK_ROUNDING)


@given(RATES, MARGINS, st.integers(2, 300))
def test_without_a_burst_at_most_a_tenth_of_the_rate_is_given_up(
    rate: float, margin: float, count: int
) -> None:
    slots = reserve_all(RateLimit(rate, 1, margin), [NOW] * count)

    expected = (count - 1) * (1 / rate + min(margin, 0.1 / rate))

    assert slots[-1].at - NOW == pytest.approx(expected, abs=CLOCK_ROUNDING)


def test_two_a_second_with_a_burst_of_five() -> None:
    slots = reserve_all(RateLimit(), [NOW] * 7)

    waits = [slot.wait for slot in slots]

    assert waits == pytest.approx([0, 0, 0, 0, 0, 0.6, 1.1], abs=CLOCK_ROUNDING)


@pytest.mark.parametrize("rate", [3.0])
def test_a_hundred_thousand_requests_do_not_drift(rate: float) -> None:
    slots = reserve_all(RateLimit(rate, 5, 0.001), [NOW] * 100_000)

    assert slots[-1].at - NOW == pytest.approx(99_995 / rate + 0.001, abs=CLOCK_ROUNDING)


@given(rate_limits(), GAPS)
def test_slots_never_go_back(limit: RateLimit, gaps: list[float]) -> None:
    slots = reserve_all(limit, times(limit, gaps))

    assert all(earlier.at <= later.at for earlier, later in pairwise(slots))


@given(rate_limits(), GAPS)
def test_no_slot_lies_in_the_past(limit: RateLimit, gaps: list[float]) -> None:
    arrivals = times(limit, gaps)

    slots = reserve_all(limit, arrivals)

    assert all(slot.at >= now for slot, now in zip(slots, arrivals, strict=True))


@given(rate_limits(), GAPS, st.floats(0, 100))
def test_after_a_penalty_nothing_goes_before_its_end_and_nothing_bursts(
    limit: RateLimit, gaps: list[float], seconds: float
) -> None:
    now = times(limit, gaps)[-1]
    held = reserve_all(limit, times(limit, gaps))[-1].after

    barred = bar(limit, held, now + seconds, now)
    slots = reserve_all(limit, [now] * 20, barred)

    assert slots[0].at >= now + seconds
    assert all(
        later.at - earlier.at >= limit.interval - CLOCK_ROUNDING
        for earlier, later in pairwise(slots)
    )


@given(rate_limits(), GAPS, st.floats(0, 100))
def test_a_penalty_voids_exactly_the_slots_before_its_end(
    limit: RateLimit, gaps: list[float], seconds: float
) -> None:
    now = times(limit, gaps)[-1]
    slot = reserve_all(limit, times(limit, gaps))[-1]

    barred = bar(limit, slot.after, now + seconds, now)

    assert (check_slot(limit, barred, slot, slot.at) is None) == (slot.at < now + seconds)


def test_a_penalty_may_come_before_the_first_request() -> None:
    limit = RateLimit()

    slots = reserve_all(limit, [NOW] * 2, bar(limit, None, NOW + 30, NOW))

    assert [slot.wait for slot in slots] == pytest.approx([30.1, 30.6], abs=CLOCK_ROUNDING)


def test_a_shorter_penalty_does_not_end_a_longer_one() -> None:
    limit = RateLimit()
    barred = bar(limit, bar(limit, None, NOW + 30, NOW), NOW + 1, NOW)

    _, slot = reserve_slot(limit, barred, NOW + 2)

    assert slot.at >= NOW + 30


@given(rate_limits(), GAPS)
def test_a_slot_given_back_is_the_next_one_handed_out(limit: RateLimit, gaps: list[float]) -> None:
    now = times(limit, gaps)[-1]
    slot = reserve_all(limit, times(limit, gaps))[-1]

    _, again = reserve_slot(limit, slot.before, now)

    assert again.at == slot.at


def test_a_slot_is_ready_at_its_time_and_not_before() -> None:
    limit = RateLimit()
    slot = reserve_all(limit, [NOW] * 6)[-1]

    assert check_slot(limit, slot.after, slot, NOW + 0.2) == pytest.approx(0.4, abs=CLOCK_ROUNDING)
    assert check_slot(limit, slot.after, slot, NOW + 0.6) == 0


def test_a_slot_used_much_too_late_is_void() -> None:
    limit = RateLimit()
    slot = reserve_all(limit, [NOW] * 6)[-1]

    assert check_slot(limit, slot.after, slot, NOW + 0.69) == 0
    assert check_slot(limit, slot.after, slot, NOW + 0.71) is None


def test_without_a_margin_no_slot_is_too_late() -> None:
    limit = RateLimit(margin=0)
    slot = reserve_all(limit, [NOW] * 6)[-1]

    assert check_slot(limit, slot.after, slot, NOW + 5) == 0


def test_a_reserved_slot_waits_longer_when_the_margin_grows() -> None:
    limit = RateLimit()
    slot = reserve_all(limit, [NOW] * 6)[-1]

    grown = observe_lateness(limit, slot.after, 0.2)

    assert grown.margin == pytest.approx(0.3)
    assert check_slot(limit, grown, slot, slot.at) == pytest.approx(0.2, abs=CLOCK_ROUNDING)


@given(rate_limits(), st.floats(0, 1e6))
def test_the_margin_grows_within_bounds_and_never_shrinks_by_lateness(
    limit: RateLimit, seconds: float
) -> None:
    state = BucketState(NOW, margin=0.2)

    grown = observe_lateness(limit, state, seconds)

    assert state.margin <= grown.margin <= LONGEST_MARGIN


def test_a_lateness_well_within_the_margin_changes_nothing() -> None:
    state = BucketState(NOW)

    assert observe_lateness(RateLimit(), state, 0.05) is state


def test_old_lateness_fades_while_the_domain_is_quiet() -> None:
    limit = RateLimit()
    state = BucketState(NOW, ahead=1.0, margin=2.0)

    _, slot = reserve_slot(limit, state, NOW + 60)

    assert slot.after.margin == 1.0


def test_a_clock_set_back_does_not_stop_the_domain() -> None:
    limit = RateLimit()
    state = reserve_all(limit, [NOW] * 6)[-1].after

    _, slot = reserve_slot(limit, state, NOW - 3600)

    assert slot.wait == pytest.approx(1.1, abs=CLOCK_ROUNDING)


@given(rate_limits(), GAPS)
def test_tokens_stay_between_nothing_and_capacity(limit: RateLimit, gaps: list[float]) -> None:
    now = times(limit, gaps)[-1]
    state = reserve_all(limit, times(limit, gaps))[-1].after

    assert 0 <= available_tokens(limit, state, now) <= limit.capacity
    assert available_tokens(limit, state, now + 1e6) == limit.capacity


def test_tokens_are_spent_and_come_back() -> None:
    limit = RateLimit()
    state = reserve_all(limit, [NOW] * 3)[-1].after

    assert available_tokens(limit, None, NOW) == 5
    assert available_tokens(limit, state, NOW) == pytest.approx(2)
    assert available_tokens(limit, state, NOW + 0.5) == pytest.approx(3)
    assert available_tokens(limit, replace(state, barred_until=NOW + 9), NOW) == 0


@pytest.mark.parametrize(
    ("rate", "capacity", "margin", "option"),
    [
        (0, 5, 0.1, "rate"),
        (-1, 5, 0.1, "rate"),
        (float("inf"), 5, 0.1, "rate"),
        (float("nan"), 5, 0.1, "rate"),
        (2, 0, 0.1, "capacity"),
        (2, 2.5, 0.1, "capacity"),
        (2, 5, -0.1, "margin"),
        (2, 5, float("nan"), "margin"),
    ],
)
def test_an_invalid_rate_limit_is_refused(
    rate: float, capacity: int, margin: float, option: str
) -> None:
    with pytest.raises(BadOption) as refused:
        RateLimit(rate, capacity, margin)

    assert refused.value.option == option
