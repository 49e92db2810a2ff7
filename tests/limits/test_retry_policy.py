from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.core.errors import (
    BadOption,
    CircuitOpen,
    ConnectFailed,
    Deferred,
    FailureKind,
    UnexpectedShape,
    bad_status,
)
from longline.http.errors import BadAnswer, BodyCut, TimedOut
from longline.limits.retry import (
    LONGEST_RETRY_AFTER,
    RetryAction,
    RetryDecision,
    RetryPolicy,
    is_retryable,
)

URL = "http://site.test/"
PASSING = [FailureKind.NETWORK, FailureKind.TIMEOUT, FailureKind.OVERLOAD, FailureKind.SERVER]
LASTING = [FailureKind.REFUSED, FailureKind.GONE, FailureKind.INVALID, FailureKind.BUG]


def test_waits_double_up_to_a_minute() -> None:
    policy = RetryPolicy(max_attempts=10)

    waits = [policy.backoff(attempt) for attempt in range(1, 9)]

    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.parametrize("kind", PASSING)
def test_what_may_pass_is_tried_again(kind: FailureKind) -> None:
    assert RetryPolicy().decide(1, kind, None) == RetryDecision(RetryAction.WAIT, 1.0)
    assert RetryPolicy().decide(2, kind, None) == RetryDecision(RetryAction.WAIT, 2.0)
    assert RetryPolicy().decide(3, kind, None) == RetryDecision(RetryAction.GIVE_UP)


@pytest.mark.parametrize("kind", LASTING)
def test_what_stays_wrong_is_given_up_immediately(kind: FailureKind) -> None:
    assert RetryPolicy().decide(1, kind, 5.0) == RetryDecision(RetryAction.GIVE_UP)


def test_a_ban_defers_the_item() -> None:
    assert RetryPolicy().decide(1, FailureKind.BLOCKED, None) == RetryDecision(
        RetryAction.DEFER, 900.0
    )
    assert RetryPolicy().decide(3, FailureKind.BLOCKED, None) == RetryDecision(
        RetryAction.DEFER, 900.0
    )


@pytest.mark.parametrize(
    ("retry_after", "seconds"), [(None, 1), (0.5, 1), (-30, 1), (0, 1), (5, 5), (30, 30)]
)
def test_the_site_is_obeyed_where_it_asks_for_more(
    retry_after: float | None, seconds: float
) -> None:
    decision = RetryPolicy().decide(1, FailureKind.OVERLOAD, retry_after)

    assert decision == RetryDecision(RetryAction.WAIT, seconds)


def test_a_long_wait_is_spent_in_the_queue() -> None:
    decision = RetryPolicy().decide(1, FailureKind.OVERLOAD, 31.0)

    assert decision == RetryDecision(RetryAction.DEFER, 31.0)


@pytest.mark.parametrize("retry_after", [1e12, math.inf])
def test_no_wait_is_longer_than_a_day(retry_after: float) -> None:
    decision = RetryPolicy().decide(1, FailureKind.OVERLOAD, retry_after)

    assert decision.seconds == LONGEST_RETRY_AFTER


@given(
    st.integers(1, 100_000),
    st.sampled_from(FailureKind),
    st.none() | st.floats(-1e9, 1e9),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_every_wait_lies_within_its_bounds(
    attempt: int, kind: FailureKind, retry_after: float | None, random: float, jitter: float
) -> None:
    policy = RetryPolicy(max_attempts=200_000, jitter=jitter)

    decision = policy.decide(attempt, kind, retry_after, random)

    assert 0 <= decision.seconds <= LONGEST_RETRY_AFTER
    assert decision.seconds <= 30 or decision.action is RetryAction.DEFER
    assert 0 <= policy.backoff(attempt, random) <= policy.max_delay


@given(st.floats(0, 1))
def test_jitter_spreads_a_wait_around_its_length(random: float) -> None:
    assert 1.5 <= RetryPolicy(jitter=0.25).backoff(2, random) <= 2.5


@pytest.mark.parametrize("status", [429, 500, 501, 502, 503, 504])
def test_these_statuses_may_pass(status: int) -> None:
    assert is_retryable(bad_status(URL, status))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 410, 418, 451, 505, 511, 599])
def test_these_statuses_stay(status: int) -> None:
    assert not is_retryable(bad_status(URL, status))


@pytest.mark.parametrize(
    "error",
    [ConnectFailed(URL, "reset"), TimedOut(URL, 30), BodyCut(URL, 3), TimeoutError(), OSError()],
)
def test_trouble_on_the_way_may_pass(error: Exception) -> None:
    assert is_retryable(error)


@pytest.mark.parametrize(
    "error",
    [
        BadAnswer(URL, "too large"),
        UnexpectedShape("title", "missing"),
        KeyError("bug"),
        CircuitOpen(URL, 0),
        Deferred(URL, 0, "busy", FailureKind.OVERLOAD),
    ],
)
def test_these_errors_stay(error: Exception) -> None:
    assert not is_retryable(error)


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"base_delay": -1}, "base_delay"),
        ({"base_delay": math.nan}, "base_delay"),
        ({"base_delay": 61}, "max_delay"),
        ({"max_delay": math.inf}, "max_delay"),
        ({"multiplier": 0.5}, "multiplier"),
        ({"jitter": 1.1}, "jitter"),
    ],
)
def test_an_invalid_policy_is_refused(options: dict[str, Any], option: str) -> None:
    with pytest.raises(BadOption) as refused:
        RetryPolicy(**options)

    assert refused.value.option == option
