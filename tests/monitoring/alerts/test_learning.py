"""What is learned from earlier runs: properties of the usual range, and normal variation."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.monitoring.alerts.learning import (
    ADAPTED_AFTER,
    MIN_RUNS,
    Sample,
    Tolerance,
    find_unusual,
    usual_range,
)
from longline.monitoring.alerts.rules import RULE_KINDS, default_rules
from longline.monitoring.alerts.run_checks import RunSeries, check_run, is_about_runs
from tests.monitoring.alerts.simulated_runs import SimulatedSource, measured
from tests.virtual import EPOCH

DAY = 86_400.0
BOTH = Tolerance(share=0.25, is_low=True, is_high=True)
RECORDS = RULE_KINDS["few-records"].tolerance or BOTH
COVERAGE = RULE_KINDS["field-coverage"].tolerance or BOTH
VALUES = st.lists(st.floats(1, 1e6), min_size=MIN_RUNS + 1, max_size=40)


def daily(values: Sequence[float], size: int | None = None) -> list[Sample]:
    return [Sample(EPOCH + day * DAY, value, size) for day, value in enumerate(values)]


@given(VALUES, st.floats(0, 1))
def test_a_value_among_most_of_the_earlier_ones_is_usual(values: list[float], part: float) -> None:
    ordered = sorted(values)
    tenth = len(values) // 10
    most = ordered[tenth : len(ordered) - tenth]
    value = most[0] + part * (most[-1] - most[0])

    usual = usual_range(daily(values), BOTH, Sample(EPOCH, value))

    assert usual.low <= value <= usual.high
    assert usual.low < usual.usual < usual.high


@given(st.lists(st.floats(0, 1e6), max_size=MIN_RUNS))
def test_too_few_runs_say_nothing(values: list[float]) -> None:
    assert find_unusual(daily(values), BOTH) is None


@given(st.floats(1, 1e6), st.integers(MIN_RUNS, 40), st.floats(0.1, 0.99))
def test_what_is_lower_than_an_unusual_value_is_unusual(
    level: float, count: int, share: float
) -> None:
    history = [level] * count
    is_unusual = [
        find_unusual(daily([*history, level * one]), BOTH) is not None for one in (share, share / 2)
    ]

    assert is_unusual[1] or not is_unusual[0]


@given(VALUES, st.floats(0.01, 1000))
def test_the_unit_of_values_does_not_matter(values: list[float], factor: float) -> None:
    plain = find_unusual(daily(values), BOTH)
    scaled = find_unusual(daily([value * factor for value in values]), BOTH)

    assert (plain is None) == (scaled is None)


def test_one_odd_run_does_not_hide_the_next() -> None:
    history = [1000.0] * 10 + [100.0] + [1000.0] * 10

    found = find_unusual(daily([*history, 100.0]), RECORDS)

    assert found is not None
    assert found.observed == 100.0


def test_a_new_level_becomes_normal_after_many_runs() -> None:
    history = [1000.0] * 20
    found = [
        find_unusual(daily([*history, *[400.0] * count]), BOTH) is not None
        for count in range(1, ADAPTED_AFTER + 3)
    ]

    assert found == [True] * ADAPTED_AFTER + [False] * 2


def test_no_record_at_all_is_unusual_where_there_were_always_some() -> None:
    found = find_unusual(daily([9.0, 12, 10, 11, 9, 10, 0]), RECORDS)

    assert found is not None


def test_halved_counts_are_found_on_weekdays_despite_quiet_weekends() -> None:
    rng = random.Random(1)
    weeks = [1000 if day % 7 < 5 else 600 for day in range(28)]
    history = [one * rng.uniform(0.95, 1.05) for one in weeks]

    assert find_unusual(daily([*history, 500.0]), RECORDS) is not None
    assert find_unusual(daily(history), RECORDS) is None


@pytest.mark.parametrize("seed", range(20))
def test_coverage_that_falls_slowly_is_found(seed: int) -> None:
    rng = random.Random(seed)
    steady = [0.95 + rng.uniform(-0.02, 0.02) for _ in range(20)]
    falling = [0.95 - 0.02 * run + rng.uniform(-0.02, 0.02) for run in range(1, 13)]

    first = next(
        run
        for run in range(1, 13)
        if find_unusual(daily([*steady, *falling[:run]][-31:], 200), COVERAGE) is not None
    )

    assert first > 2
    assert find_unusual(daily(steady, 200), COVERAGE) is None


@pytest.mark.parametrize("interval", [DAY, DAY / 4])
@pytest.mark.parametrize("seed", range(20))
def test_thirty_runs_with_normal_variation_find_nothing(seed: int, interval: float) -> None:
    rules = [rule for rule in default_rules() if is_about_runs(rule)]
    source = SimulatedSource("shop", seed, interval=interval)
    times = [EPOCH + run * interval for run in range(30)]
    runs = [measured("shop", at, source.normal(at)) for at in times]

    found = [
        condition
        for count in range(1, len(runs) + 1)
        for rule in rules
        if (condition := check_run(rule, RunSeries(runs[:count]))) is not None
    ]

    assert found == []
