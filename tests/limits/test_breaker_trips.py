"""The policy beyond failures in a row: rates, bans, the way back, and what is remembered."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.core.errors import BadOption
from longline.limits.breaker import (
    HISTORY,
    SLOTS,
    BreakerPolicy,
    BreakerState,
    Health,
    Phase,
    Ramp,
    Window,
    admit_request,
    count_requests,
    recent_counts,
    record_result,
    reset_breaker,
)

NOW = 1_800_000_000.0
POLICY = BreakerPolicy()
BANNED = record_result(POLICY, BreakerState(), Health.BANNED, NOW, reason="a challenge form")


def after(healths: str, policy: BreakerPolicy = POLICY, step: float = 1.0) -> BreakerState:
    """Return the state after successes (u) and failures (d), a step apart, up to NOW."""
    state = BreakerState()
    for number, letter in enumerate(healths):
        now = NOW + (number + 1 - len(healths)) * step
        state = record_result(policy, state, Health.UP if letter == "u" else Health.DOWN, now)
    return state


def returned(state: BreakerState, now: float) -> BreakerState:
    """Return the state after its probe went and succeeded."""
    probing, _ = admit_request(POLICY, state, now)
    return record_result(POLICY, probing, Health.UP, now)


def test_half_of_twenty_requests_within_a_minute_open() -> None:
    assert after("ud" * 9 + "u").phase(NOW) is Phase.CLOSED
    assert after("ud" * 10).phase(NOW) is Phase.OPEN
    assert "50%" in after("ud" * 10).reason
    assert "60 s" in after("ud" * 10).reason


def test_less_than_half_do_not() -> None:
    assert after("uud" * 20).phase(NOW) is Phase.CLOSED


def test_failures_spread_over_more_than_the_window_do_not() -> None:
    assert after("ud" * 40, step=4.0).phase(NOW) is Phase.CLOSED


def test_successes_that_were_not_recorded_before_count() -> None:
    state = after("ud" * 9 + "u")

    alone = record_result(POLICY, state, Health.DOWN, NOW)
    among_others = record_result(
        POLICY, state, Health.DOWN, NOW, successes=((30.0, 100), (5.0, 50))
    )

    assert alone.phase(NOW) is Phase.OPEN
    assert among_others.phase(NOW) is Phase.CLOSED
    assert among_others.rate(POLICY, NOW) == pytest.approx(10 / 170)


def test_a_rate_of_too_few_requests_is_not_known() -> None:
    assert after("ud" * 3).rate(POLICY, NOW) is None


def test_a_trip_says_why() -> None:
    state = BreakerState(failures=9)

    opened = record_result(POLICY, state, Health.DOWN, NOW, reason="http://a.test/ answered 500")

    assert "10" in opened.reason
    assert "http://a.test/ answered 500" in opened.reason
    assert not opened.is_ban


def test_a_ban_opens_immediately_and_for_long() -> None:
    _, admission = admit_request(POLICY, BANNED, NOW + 899)

    assert BANNED.phase(NOW) is Phase.OPEN
    assert BANNED.open_until == NOW + 900
    assert (admission.is_allowed, admission.is_ban) == (False, True)
    assert admission.reason == "a challenge form"


def test_a_ban_that_goes_on_doubles_the_rest_up_to_six_hours() -> None:
    probing, _ = admit_request(POLICY, BANNED, NOW + 900)

    again = record_result(POLICY, probing, Health.BANNED, NOW + 901, reason="a challenge form")

    assert again.open_until == NOW + 901 + 1_800
    assert POLICY.recovery_after(100, is_ban=True) == 21_600


def test_a_ban_that_comes_late_makes_a_short_rest_long() -> None:
    opened = after("d" * 10)

    banned = record_result(POLICY, opened, Health.BANNED, NOW + 5, reason="a challenge form")

    assert banned.is_ban
    assert banned.open_until == NOW + 905


def test_more_bans_at_the_same_time_change_nothing() -> None:
    assert record_result(POLICY, BANNED, Health.BANNED, NOW + 5, reason="another") == BANNED


def test_a_failure_after_a_ban_is_not_a_ban() -> None:
    probing, _ = admit_request(POLICY, BANNED, NOW + 900)

    failed = record_result(POLICY, probing, Health.DOWN, NOW + 901, reason="reset")

    assert not failed.is_ban
    assert "reset" in failed.reason
    assert BANNED.reason not in failed.reason
    assert failed.open_until == NOW + 901 + 60


def test_after_the_probe_requests_come_back_faster_and_faster() -> None:
    state, now, gone = returned(after("d" * 10), NOW + 60), NOW + 60, []
    while state.phase(now) is Phase.RAMPING:
        state, admission = admit_request(POLICY, state, now)
        gone += [int(now - NOW - 60)] if admission.is_allowed else []
        now += 0.001

    assert [gone.count(second) for second in range(5)] == [1, 3, 5, 12, 22]
    assert now - NOW - 60 == pytest.approx(5, abs=0.01)


def test_the_ramp_starts_with_the_first_request() -> None:
    state = returned(after("d" * 10), NOW + 60)

    later, first = admit_request(POLICY, state, NOW + 600)
    _, second = admit_request(POLICY, later, NOW + 600)

    assert first.is_allowed
    assert not second.is_allowed
    assert second.until == NOW + 601


def test_each_early_request_while_ramping_has_its_own_time() -> None:
    state, dues = returned(after("d" * 10), NOW + 60), []
    for _ in range(50):
        state, admission = admit_request(POLICY, state, NOW + 60)
        dues.append(admission.until - NOW - 60)

    assert dues == sorted(set(dues))
    assert dues[1] == 1
    assert 4 < dues[-1] < 8


def test_a_failure_while_ramping_opens_immediately_for_twice_as_long() -> None:
    state, _ = admit_request(POLICY, returned(after("d" * 10), NOW + 60), NOW + 60)

    failed = record_result(POLICY, state, Health.DOWN, NOW + 61, reason="reset")

    assert failed.open_until == NOW + 61 + 120
    assert "reset" in failed.reason


def test_once_back_at_full_speed_all_is_as_before() -> None:
    state, _ = admit_request(POLICY, returned(BANNED, NOW + 900), NOW + 900)

    back = record_result(POLICY, state, Health.UP, NOW + 906)
    failed = record_result(POLICY, back, Health.DOWN, NOW + 907)

    assert back.is_healthy
    assert (back.trips, back.trips_in_a_row, back.bans_in_a_row) == (1, 0, 0)
    assert failed.phase(NOW + 907) is Phase.CLOSED


def test_without_a_ramp_it_closes_immediately() -> None:
    policy = BreakerPolicy(ramp=0)
    probing, _ = admit_request(policy, after("d" * 10), NOW + 60)

    assert record_result(policy, probing, Health.UP, NOW + 61).is_healthy


def test_the_history_has_every_transition() -> None:
    state, _ = admit_request(POLICY, returned(BANNED, NOW + 900), NOW + 900)
    state = reset_breaker(
        record_result(POLICY, state, Health.BANNED, NOW + 901, reason="again"), NOW + 902
    )

    assert [(one.old, one.new, one.at - NOW) for one in state.history] == [
        ("closed", "open", 0),
        ("half-open", "ramping", 900),
        ("ramping", "open", 901),
        ("open", "closed", 902),
    ]
    ban, recovery, second_ban, closing = (one.reason for one in state.history)
    assert (ban, second_ban) == ("a challenge form", "again")
    assert len({recovery, closing, ""}) == 3


def test_a_reset_of_what_is_closed_is_no_change() -> None:
    assert reset_breaker(BreakerState(trips=3), NOW) == BreakerState(trips=3)


steps = st.lists(
    st.tuples(st.floats(0, 400), st.sampled_from([*Health, None])), min_size=1, max_size=60
)


@given(steps)
def test_a_state_survives_json_and_forgets_old_history(
    steps: list[tuple[float, Health | None]],
) -> None:
    state, now = BreakerState(), NOW
    for gap, health in steps:
        now += gap
        if health is None:
            state, _ = admit_request(POLICY, state, now)
        else:
            state = record_result(POLICY, state, health, now, reason="why", successes=((gap, 2),))

    assert BreakerState(**json.loads(json.dumps(asdict(state)))) == state
    assert len(state.history) <= HISTORY
    assert len(state.window) <= SLOTS + 1


@given(steps)
def test_a_refused_request_gets_a_later_time(
    steps: list[tuple[float, Health | None]],
) -> None:
    state, now, early = BreakerState(), NOW, 0
    for gap, health in steps:
        now += gap
        state, admission = admit_request(POLICY, state, now)
        early += not admission.is_allowed and admission.until <= now
        state = record_result(POLICY, state, health, now) if health else state

    assert early == 0


def test_a_state_of_an_older_longline_is_understood() -> None:
    old: dict[str, Any] = {"failures": 3, "trips": 2, "trips_in_a_row": 1, "open_until": None}

    assert BreakerState(**old) == BreakerState(3, 2, 1)


@given(st.lists(st.tuples(st.floats(0, 300), st.booleans()), max_size=60))
def test_a_window_holds_what_is_young_and_nothing_old(ends: list[tuple[float, bool]]) -> None:
    window: Window = ()
    for age, is_up in sorted(ends, reverse=True):
        window = count_requests(
            window, NOW - age, 60.0, succeeded=int(is_up), failed=int(not is_up)
        )

    kept = recent_counts(window, NOW, 60.0)
    failed = sum(one.failed for one in kept)
    requests = failed + sum(one.succeeded for one in kept)

    assert sum(age <= 50 for age, _ in ends) <= requests <= sum(age < 60 for age, _ in ends)
    assert failed <= sum(age < 60 and not is_up for age, is_up in ends)


@given(st.lists(st.floats(0, 2), max_size=200))
def test_a_ramp_never_goes_faster_than_it_says(gaps: list[float]) -> None:
    ramp, now, gone = Ramp(5.0), NOW, []
    for gap in gaps:
        now += gap
        ramp, due = ramp.request(now)
        gone += [now] if due <= now else []

    began = gone[0] if gone else NOW
    rate_limits = [later - earlier - 2 ** (began - earlier) for earlier, later in pairwise(gone)]
    assert all(limit >= -1e-6 for limit in rate_limits)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("failure_rate", 0),
        ("failure_rate", 1.1),
        ("least_requests", 0),
        ("window", 0),
        ("ban_recovery", float("inf")),
        ("ramp", -1),
        ("ramp", 61),
    ],
)
def test_an_invalid_policy_is_refused(option: str, value: float) -> None:
    with pytest.raises(BadOption) as refused:
        BreakerPolicy(**{option: value})  # type: ignore[arg-type]  # a test's shorthand

    assert refused.value.option == option
    assert repr(value) in refused.value.problem
