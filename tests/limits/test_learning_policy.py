from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from longline.core.errors import BadOption
from longline.limits import learning
from longline.limits.learning import FASTEST, SLOWEST, START, Caution, Learned
from longline.limits.rate_limit import BucketState, RateLimit, reserve_slot

NOW = 1_800_000_000.0
WEEK = 7 * 86_400.0
RATES = st.floats(SLOWEST, FASTEST)

# What may happen to a domain: some requests are accepted, one is refused, a run begins, time
# passes, a limit is published.
HAPPENINGS = st.lists(
    st.one_of(
        st.tuples(st.just("accepted"), st.integers(1, 2000)),
        st.tuples(st.just("refused"), st.floats(-3, 0)),
        st.tuples(st.just("begin"), st.just(0)),
        st.tuples(st.just("pass"), st.floats(0.01, 2 * WEEK)),
        st.tuples(st.just("published"), st.floats(1e-6, 1e9)),
    ),
    max_size=40,
)


def happen(state: Learned, kind: str, value: float, now: float) -> Learned:
    if kind == "accepted":
        count = int(value)
        return learning.count_accepted(state, [now - index / count for index in range(count)], now)
    if kind == "refused":
        return learning.count_refused(state, now + value, now)
    if kind == "published":
        return learning.set_published(state, value, now)
    return learning.start_run(state, now) if kind == "begin" else state


def lives(events: list[tuple[str, float]]) -> list[Learned]:
    """Return the state after each happening, a third of a second apart."""
    now, states = NOW, [learning.start_run(None, NOW)]
    for kind, value in events:
        now += value if kind == "pass" else 0.3
        states.append(happen(states[-1], kind, value, now))
    return states


def bursty(rate: float) -> Learned:
    """Return a domain at this rate that has taken two requests together."""
    return replace(learning.start_run(None, NOW), rate=rate, is_burst_proven=True)


def busy(state: Learned, rate: float, seconds: float, start: float) -> Learned:
    """Accept all requests at this rate for a while, counted twice per second."""
    now = start
    while now < start + seconds:
        now += 0.5
        count = round(rate * 0.5)
        state = learning.count_accepted(state, [now - 0.5 * i / count for i in range(count)], now)
    return state


@given(HAPPENINGS)
def test_a_rate_never_leaves_its_bounds(events: list[tuple[str, float]]) -> None:
    for state in lives(events):
        assert SLOWEST <= state.rate <= FASTEST
        assert 0 < learning.effective_rate(state) <= state.rate
        assert 0 <= state.proven <= FASTEST


@given(HAPPENINGS)
def test_whatever_happens_the_state_survives_json(events: list[tuple[str, float]]) -> None:
    last = lives(events)[-1]

    assert Learned(**json.loads(json.dumps(asdict(last), allow_nan=False))) == last


@given(HAPPENINGS)
def test_the_rate_never_grows_up_to_what_was_refused(events: list[tuple[str, float]]) -> None:
    for state in lives([one for one in events if one[0] != "published"]):
        assert state.ceiling is None or state.rate <= max(0.97 * state.ceiling, SLOWEST)


@given(HAPPENINGS)
def test_a_refusal_slows_down(events: list[tuple[str, float]]) -> None:
    before = replace(lives(events)[-1], is_burst_proven=True)
    at = max(before.heard_at, before.since, before.changed_at) + 1

    after = learning.count_refused(before, at, at)

    assert after.rate <= max(0.95 * before.rate, SLOWEST)
    assert after.ceiling == before.rate
    assert after.refusals == before.refusals + 1


@given(HAPPENINGS)
@example([("accepted", 20), ("published", 1.0)])
def test_a_new_run_is_never_faster_than_what_was_proven_after_a_refusal(
    events: list[tuple[str, float]],
) -> None:
    last = lives([*events, ("refused", 0.0), ("accepted", 50)])[-1]

    begun = learning.start_run(last, NOW + 60 * WEEK)

    assert begun.rate <= max(last.rate, SLOWEST)
    assert not last.proven or begun.rate <= max(last.proven, SLOWEST)


def test_a_domain_begins_at_two_a_second_and_gains_three_with_each_second() -> None:
    state = learning.start_run(None, NOW)

    grown = busy(state, 50.0, 4.0, NOW)

    assert state.rate == START == 2.0
    assert grown.rate == pytest.approx(2.0 + 3 * 4.0)


def test_a_rate_that_is_not_used_does_not_grow() -> None:
    state = bursty(20.0)

    assert busy(state, 4.0, 60.0, NOW).rate == 20.0


def test_a_rate_does_not_grow_while_many_answers_are_outstanding() -> None:
    state = learning.start_run(None, NOW)

    assert learning.count_accepted(state, [NOW] * 9, NOW + 1, is_eager=False).rate == START


def test_a_first_refusal_costs_four_tenths_of_the_rate() -> None:
    state = bursty(16.0)

    refused = learning.count_refused(state, NOW + 7, NOW + 7)

    assert refused.rate == pytest.approx(9.6)
    assert (refused.ceiling, refused.caution) == (16.0, Caution.SOME)


def test_between_two_refusals_the_true_rate_is_measured() -> None:
    first = learning.count_refused(bursty(20.0), NOW + 5, NOW + 5)
    sent = [NOW + 6 + index / 12 for index in range(100)]

    second = learning.count_refused(
        learning.count_accepted(first, sent, NOW + 15), NOW + 15, NOW + 15
    )

    assert second.rate == pytest.approx(0.95 * 10.0)  # 100 in 10 s, whatever the bucket holds
    assert second.proven == second.rate
    assert second.caution is Caution.MUCH


def test_a_refusal_before_two_were_taken_together_costs_the_burst_and_not_the_rate() -> None:
    state = learning.start_run(None, NOW)

    first = learning.count_refused(state, NOW + 0.1, NOW + 0.1)
    second = learning.count_refused(first, NOW + 2, NOW + 2)

    assert (state.burst, first.burst, second.burst) == (2, 1, 1)
    assert (first.rate, first.ceiling) == (START, None)
    assert second.rate == pytest.approx(0.6 * START)


@pytest.mark.parametrize(("gap", "is_proven"), [(0.0, True), (0.02, True), (0.5, False)])
def test_a_burst_is_proven_by_two_requests_that_were_taken_together(
    gap: float, *, is_proven: bool
) -> None:
    state = learning.start_run(None, NOW)

    assert learning.count_accepted(state, [NOW + gap, NOW], NOW + 1).is_burst_proven is is_proven


def test_refusals_of_requests_under_way_are_no_news() -> None:
    first = learning.count_refused(bursty(10.0), NOW + 5, NOW + 5.3)

    again = learning.count_refused(first, NOW + 5.2, NOW + 5.5)

    assert again == replace(first, refusals=2)


def test_what_was_sent_before_a_refusal_proves_nothing() -> None:
    state = learning.count_refused(learning.start_run(None, NOW), NOW + 5, NOW + 5)

    result = learning.count_accepted(state, [NOW + 4.9] * 50, NOW + 5.2)

    assert (result.accepted, result.proven) == (0, 0.0)


@given(RATES, st.integers(1, 50), st.floats(0, 20), st.integers(0, 400))
def test_what_is_proven_is_never_above_the_true_rate(
    true: float, burst: int, pause: float, count: int
) -> None:
    # A bucket that is empty at the refusal, and gives each token as soon as it has it.
    state = learning.count_refused(bursty(FASTEST), NOW, NOW)
    start = min(burst, true * pause)
    sent = [NOW + pause + max(0.0, (index + 1 - start) / true) for index in range(count)]

    result = learning.count_accepted(state, sent, NOW + pause + 1000)

    assert result.proven <= true * (1 + 1e-4)  # epoch seconds in a float are rounded


def test_after_one_refusal_the_ceiling_is_neared_within_minutes_after_two_within_hours() -> None:
    once = replace(Learned(), rate=6.0, ceiling=10.0, caution=Caution.SOME, window_at=NOW)
    twice = replace(once, caution=Caution.MUCH)

    assert busy(once, 10.0, 120.0, NOW).rate > 9.0
    assert 6.0 < busy(twice, 10.0, 120.0, NOW).rate < 6.2


def test_a_ceiling_is_doubted_after_a_week() -> None:
    state = learning.count_refused(bursty(10.0), NOW, NOW)

    assert learning.start_run(state, NOW + WEEK - 1).ceiling == 10.0
    assert learning.start_run(state, NOW + WEEK + 1).ceiling == 15.0


def test_a_published_limit_is_used_immediately_and_never_exceeded() -> None:
    state = learning.set_published(learning.start_run(None, NOW), 10.0, NOW)

    assert learning.effective_rate(state) == pytest.approx(9.5)
    assert learning.effective_rate(busy(state, 10.0, 60.0, NOW)) == pytest.approx(9.5)


def test_a_published_limit_does_not_undo_what_a_refusal_taught() -> None:
    refused = learning.count_refused(bursty(5.0), NOW, NOW)

    assert learning.set_published(refused, 100.0, NOW).rate == refused.rate


@given(RATES, st.integers(1, 50), HAPPENINGS)
def test_a_pinned_limit_is_never_changed(
    rate: float, burst: int, events: list[tuple[str, float]]
) -> None:
    state = learning.pin(None, rate, burst, NOW)

    for step, (kind, value) in enumerate(events):
        state = happen(state, kind, value, NOW + step)

    assert (state.rate, state.burst, learning.effective_rate(state)) == (rate, burst, rate)


@pytest.mark.parametrize(("rate", "burst"), [(0.0, 1), (-1.0, 1), (float("nan"), 1), (1.0, 0)])
def test_a_pin_that_makes_no_sense_is_refused(rate: float, burst: int) -> None:
    with pytest.raises(BadOption):
        learning.pin(None, rate, burst, NOW)


@given(RATES)
def test_a_spread_limit_reaches_its_full_rate(rate: float) -> None:
    limit, state = learning.spread(rate), None

    for _ in range(201):
        state, slot = reserve_slot(limit, state, NOW)

    # The bunch that may go at once, and the margin after it, are all that it may differ by.
    shortest = (201 - limit.capacity) / rate
    assert shortest * (1 - 1e-6) <= slot.at - NOW <= shortest + limit.hold(BucketState(NOW)) + 1e-6


@given(RATES, RATES, st.integers(1, 50))
def test_a_capped_limit_never_admits_requests_closer_together(
    rate: float, restraint: float, burst: int
) -> None:
    limit = learning.cap(RateLimit(rate, burst), restraint)

    state, first = reserve_slot(limit, None, NOW)
    _state, second = reserve_slot(limit, state, NOW)

    assert second.at - first.at >= (1 / restraint) * (1 - 1e-6) - 1e-6


@pytest.mark.parametrize(
    ("state", "origin"),
    [
        (Learned(rate=2.0, is_learned=True), "learned"),
        (Learned(rate=2.0, is_learned=True, published=1.0), "published"),
        (Learned(rate=2.0, is_learned=True, published=1.0, restraint=0.5), "robots"),
        (Learned(published=1.0), "published"),
        (Learned(restraint=3.0), "robots"),
        (Learned(rate=0.3, is_learned=True, restraint=0.5), "learned"),
        (Learned(rate=5.0, is_pinned=True, is_learned=True, published=1.0), "pinned"),
        (Learned(rate=5.0, is_pinned=True, restraint=0.5), "robots"),
    ],
)
def test_a_limit_says_how_it_is_known(state: Learned, origin: str) -> None:
    assert state.origin == origin
