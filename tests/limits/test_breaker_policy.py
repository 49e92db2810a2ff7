from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.core.errors import (
    BadOption,
    Blocked,
    BudgetSpent,
    CircuitOpen,
    ConnectFailed,
    Deferred,
    FailureKind,
    Gone,
    Refused,
    ServerFailed,
    Throttled,
)
from longline.http.errors import BadAnswer, TimedOut
from longline.limits.breaker import (
    BreakerPolicy,
    BreakerState,
    Health,
    Phase,
    admit_request,
    health_of,
    record_result,
    reset_breaker,
)

NOW = 1_800_000_000.0
POLICY = BreakerPolicy()
URL = "http://site.test/"


def fail(state: BreakerState, times: int, now: float = NOW) -> BreakerState:
    for _ in range(times):
        state = record_result(POLICY, state, Health.DOWN, now)
    return state


OPEN = fail(BreakerState(), 10)


def test_the_tenth_failure_in_a_row_opens() -> None:
    assert fail(BreakerState(), 9).phase(NOW) is Phase.CLOSED
    assert OPEN.phase(NOW) is Phase.OPEN
    assert OPEN.open_until == NOW + 60


def test_a_success_resets_the_count() -> None:
    recovered = record_result(POLICY, fail(BreakerState(), 9), Health.UP, NOW)

    assert fail(recovered, 9).phase(NOW) is Phase.CLOSED


def test_while_open_nothing_goes_and_the_end_is_known() -> None:
    state, admission = admit_request(POLICY, OPEN, NOW + 59)

    assert not admission.is_allowed
    assert admission.until == NOW + 60
    assert state == OPEN


def test_the_policy_for_apis_opens_after_five_failures() -> None:
    policy = BreakerPolicy.for_apis()

    assert (policy.threshold, policy.recovery) == (5, 60)


def test_half_open_lets_one_through() -> None:
    probing, first = admit_request(POLICY, OPEN, NOW + 60)
    _, second = admit_request(POLICY, probing, NOW + 60)

    assert OPEN.phase(NOW + 60) is Phase.HALF_OPEN
    assert (first.is_allowed, first.is_probe) == (True, True)
    assert not second.is_allowed
    assert second.until == NOW + 66


def test_a_probe_that_succeeds_closes_and_keeps_the_trips() -> None:
    probing, _ = admit_request(POLICY, OPEN, NOW + 60)

    closed = record_result(POLICY, probing, Health.UP, NOW + 61)

    assert closed.phase(NOW + 61) is Phase.RAMPING
    assert (closed.trips, closed.failures, closed.opened_at) == (1, 0, None)


def test_a_probe_that_fails_opens_for_twice_as_long() -> None:
    probing, _ = admit_request(POLICY, OPEN, NOW + 60)

    reopened = record_result(POLICY, probing, Health.DOWN, NOW + 61)

    assert reopened.phase(NOW + 61) is Phase.OPEN
    assert reopened.open_until == NOW + 61 + 120
    assert (reopened.trips, reopened.opened_at) == (2, NOW)


def test_a_probe_that_says_nothing_passes_its_right_on() -> None:
    probing, _ = admit_request(POLICY, OPEN, NOW + 60)

    _, next_one = admit_request(
        POLICY, record_result(POLICY, probing, Health.UNKNOWN, NOW + 61), NOW + 61
    )

    assert next_one.is_probe


def test_a_probe_that_never_reports_is_replaced() -> None:
    probing, _ = admit_request(POLICY, OPEN, NOW + 60)

    _, too_early = admit_request(POLICY, probing, NOW + 119)
    _, in_time = admit_request(POLICY, probing, NOW + 120)

    assert not too_early.is_allowed
    assert in_time.is_probe


@given(st.sampled_from([Health.UP, Health.DOWN, Health.UNKNOWN]), st.floats(0, 59))
def test_stragglers_change_nothing_while_it_is_open(health: Health, later: float) -> None:
    assert record_result(POLICY, OPEN, health, NOW + later) == OPEN


@given(st.integers(1, 10_000))
def test_recovery_times_grow_up_to_ten_minutes(trips: int) -> None:
    assert 60 <= POLICY.recovery_after(trips) <= POLICY.recovery_after(trips + 1) <= 600


@given(st.lists(st.tuples(st.floats(0, 100), st.sampled_from([*Health, None])), max_size=80))
def test_at_most_one_probe_is_out_at_a_time(steps: list[tuple[float, Health | None]]) -> None:
    state, now, probes_until, overlaps = BreakerState(), NOW, 0.0, 0
    for gap, health in steps * 3:
        now += gap
        if health is None:
            state, admission = admit_request(POLICY, state, now)
            overlaps += admission.is_probe and now < probes_until
            probes_until = now + 60 if admission.is_probe else probes_until
        elif state.phase(now) is not Phase.OPEN:
            state, probes_until = record_result(POLICY, state, health, now), 0.0

    assert overlaps == 0


def test_a_reset_closes_the_breaker_and_is_in_its_history() -> None:
    closed = reset_breaker(OPEN, NOW + 1)

    last = closed.history[-1]
    assert closed.is_healthy
    assert (closed.trips, last.old, last.new, last.at) == (1, "open", "closed", NOW + 1)
    assert last.reason


@pytest.mark.parametrize(
    ("error", "health"),
    [
        (None, Health.UP),
        (Gone(URL, 404), Health.UP),
        (Refused(URL, 403), Health.UP),
        (BadAnswer(URL, "too large"), Health.UP),
        (ZeroDivisionError(), Health.UNKNOWN),
        (CircuitOpen(URL, NOW), Health.UNKNOWN),
        (Deferred(URL, NOW, "busy", FailureKind.OVERLOAD), Health.UNKNOWN),
        (asyncio.CancelledError(), Health.UNKNOWN),
        (ConnectFailed(URL, "refused"), Health.DOWN),
        (TimedOut(URL, 30), Health.DOWN),
        (Throttled(URL, 429), Health.DOWN),
        (Throttled(URL, 429, 1.0), Health.UNKNOWN),
        (Throttled(URL, 503, 0.0), Health.UNKNOWN),
        (Blocked(URL, "a challenge form"), Health.BANNED),
        (BudgetSpent(URL, "100 requests"), Health.UNKNOWN),
        (ServerFailed(URL, 500), Health.DOWN),
    ],
)
def test_what_an_error_says_about_the_host(error: BaseException | None, health: Health) -> None:
    assert health_of(error) is health


def test_only_a_state_without_failures_is_untroubled() -> None:
    assert BreakerState(trips=3).is_healthy
    assert not BreakerState(failures=1).is_healthy
    assert not replace(OPEN, failures=0).is_healthy


@pytest.mark.parametrize(
    ("threshold", "recovery", "option"),
    [(0, 60, "threshold"), (10, 0, "recovery"), (10, float("nan"), "recovery")],
)
def test_an_invalid_breaker_is_refused(threshold: int, recovery: float, option: str) -> None:
    with pytest.raises(BadOption) as refused:
        BreakerPolicy(threshold, recovery)

    assert refused.value.option == option
