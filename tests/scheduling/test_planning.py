"""What is decided about due occurrences: tables of misfires and overlaps, and a simulation."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.scheduling.planning import (
    Decision,
    Fate,
    Situation,
    decide,
    next_start,
    plan_next,
    should_pause,
)
from longline.scheduling.schedule import Schedule
from longline.scheduling.triggers import occurrences
from tests.scheduling.schedules import schedule, utc

START = utc("2026-06-01T12:00")


def minute(number: float) -> datetime:
    return START + timedelta(minutes=number)


def minutely(**values: Any) -> Schedule:
    return schedule(cron="* * * * *", **values)


def fates(
    planned: Schedule, now: datetime, situation: Situation | None = None
) -> list[tuple[float, str]]:
    """Return the minutes and fates of decisions, with reason and details if there are any."""
    return [
        ((one.nominal - START) / timedelta(minutes=1), described(one))
        for one in decide(planned, situation or Situation(START), now)
    ]


def described(one: Decision) -> str:
    words = (one.fate, one.reason, one.detail, *(f"cancels {job}" for job in one.cancels))
    return ", ".join(word for word in words if word)


def test_an_occurrence_is_fired_when_it_is_due() -> None:
    planned = minutely()

    assert fates(planned, minute(0.99)) == []
    assert fates(planned, minute(1)) == [(1, "fired")]


def test_a_disabled_schedule_decides_nothing() -> None:
    planned = minutely(enabled=False)

    assert fates(planned, minute(5)) == []
    assert next_start(planned, START) is None


def test_jitter_delays_the_start_and_not_the_nominal_time() -> None:
    planned = minutely(jitter="10m")
    delay = planned.delay
    assert delay > timedelta()

    assert next_start(planned, START) == minute(1) + delay
    assert fates(planned, minute(1) + delay - timedelta(seconds=1)) == []
    assert fates(planned, minute(1) + delay) == [(1, "fired")]


def test_jitter_does_not_make_an_occurrence_late() -> None:
    planned = minutely(jitter="1d", misfire="skip")

    assert fates(planned, minute(1) + planned.delay) == [(1, "fired")]


# ---------------- Misfires: the occurrences of minutes 1 to 5 at 12:05:30

LAST = "2026-06-01T12:05:00+00:00"


@pytest.mark.parametrize(
    ("misfire", "expected"),
    [
        ("skip", [*["missed, late"] * 4, "fired"]),
        ({"policy": "skip", "grace": "10s"}, ["missed, late"] * 5),
        ("latest", [*[f"missed, superseded, {LAST}"] * 4, "fired"]),
        ({"policy": "latest", "grace": "10s"}, [*[f"missed, superseded, {LAST}"] * 4, "fired"]),
        (
            {"policy": "latest", "grace": "10s", "max_age": "150s"},
            [*["missed, too old"] * 2, *[f"missed, superseded, {LAST}"] * 2, "fired"],
        ),
        ({"policy": "latest", "grace": "10s", "max_age": "20s"}, ["missed, too old"] * 5),
        ("all", ["fired", *["queued, running"] * 4]),
        (
            {"policy": "all", "max_count": 2},
            [*["missed, too many"] * 3, "fired", "queued, running"],
        ),
        (
            {"policy": "all", "max_age": "150s"},
            [*["missed, too old"] * 2, "fired", *["queued, running"] * 2],
        ),
        (
            {"policy": "all", "max_age": "210s", "max_count": 2},
            ["missed, too old", *["missed, too many"] * 2, "fired", "queued, running"],
        ),
        ({"policy": "skip", "grace": "1h"}, ["fired", *["queued, running"] * 4]),
    ],
)
def test_late_occurrences_have_the_fate_of_the_policy(misfire: Any, expected: list[str]) -> None:
    planned = minutely(misfire=misfire, overlap="queue_all")

    found = fates(planned, minute(5.5))

    assert found == list(enumerate(expected, start=1))


def test_the_latest_that_is_not_excluded_is_started() -> None:
    window = {"from": "2026-06-01T12:04", "to": "2026-06-01T13:00", "reason": "maintenance"}
    planned = minutely(misfire={"policy": "latest", "grace": 0}, exclude=[window])

    assert fates(planned, minute(5.5)) == [
        (1, "missed, superseded, 2026-06-01T12:03:00+00:00"),
        (2, "missed, superseded, 2026-06-01T12:03:00+00:00"),
        (3, "fired"),
        (4, "skipped, excluded, maintenance"),
        (5, "skipped, excluded, maintenance"),
    ]


def test_a_year_of_downtime_is_decided_in_parts() -> None:
    planned = minutely(misfire="all", overlap="queue_all")
    now = START + timedelta(days=365)

    first = list(islice(decide(planned, Situation(START), now), 1000))
    rest = islice(decide(planned, Situation(first[-1].nominal), now), 1)

    assert [described(one) for one in first] == ["missed, too old"] * 1000
    assert next(rest).nominal == minute(1001)


# ---------------- Overlaps: the occurrences of minutes 1 and 2


@pytest.mark.parametrize(
    ("overlap", "running", "queued", "expected"),
    [
        ("skip", [], [], [(1, "fired"), (2, "skipped, running")]),
        ("skip", ["a"], [], [(1, "skipped, running, a"), (2, "skipped, running, a")]),
        ("queue_one", [], [], [(1, "fired"), (2, "queued, running")]),
        ("queue_one", ["a"], [], [(1, "queued, running, a"), (2, "skipped, queue full")]),
        ("queue_one", ["a"], [0], [(1, "skipped, queue full"), (2, "skipped, queue full")]),
        ("queue_one", [], [0], [(0, "fired"), (1, "queued, running"), (2, "skipped, queue full")]),
        ("queue_all", ["a"], [0], [(1, "queued, running, a"), (2, "queued, running, a")]),
        (
            "queue_all",
            [],
            [-1, 0],
            [(-1, "fired"), (1, "queued, running"), (2, "queued, running")],
        ),
        (
            "cancel_running",
            ["a", "b"],
            [],
            [
                (1, "skipped, superseded, 2026-06-01T12:02:00+00:00"),
                (2, "fired, cancels a, cancels b"),
            ],
        ),
        (
            "cancel_running",
            [],
            [],
            [(1, "skipped, superseded, 2026-06-01T12:02:00+00:00"), (2, "fired")],
        ),
    ],
)
def test_an_overlap_has_the_fate_of_the_policy(
    overlap: str, running: list[str], queued: list[int], expected: list[tuple[float, str]]
) -> None:
    planned = minutely(overlap=overlap, misfire={"grace": "10m"})
    situation = Situation(START, queued=[minute(one) for one in queued], running=running)

    assert fates(planned, minute(2.5), situation) == expected


def test_the_grace_may_be_longer_than_the_maximum_age() -> None:
    planned = schedule(
        every="1h", overlap="cancel_running", misfire={"grace": "10m", "max_age": "1m"}
    )

    assert fates(planned, minute(65)) == [(60, "fired")]


def test_a_queued_occurrence_is_missed_when_it_is_too_old() -> None:
    planned = minutely(overlap="queue_all", misfire={"max_age": "1h"})
    queued = [minute(-90), minute(-61), minute(-60)]

    found = fates(planned, START, Situation(START, queued=queued))

    assert found == [(-90, "missed, too old"), (-61, "missed, too old"), (-60, "fired")]


def test_a_paused_schedule_skips_and_keeps_its_queue() -> None:
    planned = minutely(overlap="queue_all")
    situation = Situation(START, queued=[minute(0)], paused="site is down")

    assert fates(planned, minute(1), situation) == [(1, "skipped, paused, site is down")]


def test_an_excluded_occurrence_is_skipped_even_when_it_is_late() -> None:
    planned = minutely(misfire="skip", exclude=[{"date": "2026-06-01", "reason": "holiday"}])

    assert fates(planned, minute(3))[:1] == [(1, "skipped, excluded, holiday")]


def test_a_decided_occurrence_is_not_decided_again() -> None:
    situation = Situation(START, decided={minute(1), minute(3)})

    found = fates(minutely(overlap="queue_all"), minute(4), situation)

    assert [number for number, _ in found] == [2, 4]


def test_a_clock_that_is_set_back_fires_nothing_again() -> None:
    situation = Situation(since=minute(60))

    assert fates(minutely(), minute(1), situation) == []
    assert fates(minutely(), minute(60), situation) == []
    assert fates(minutely(), minute(61), situation) == [(61, "fired")]


def test_other_triggers_follow_the_same_policies() -> None:
    planned = schedule(
        after="catalogue",
        end="2026-06-01T12:40",
        exclude=[{"from": "2026-06-01T12:10", "to": "2026-06-01T12:15"}],
    )
    triggered = [minute(one) for one in (5, 12, 20, 20.5, 30, 45)]
    situation = Situation(minute(13), decided={minute(5)}, triggered=triggered)

    assert fates(planned, minute(21), situation) == [
        (12, "skipped, excluded"),
        (20, "fired"),
        (20.5, "skipped, running"),
    ]
    assert [number for number, _ in fates(planned, minute(60), situation)] == [12, 20, 20.5, 30]


# ---------------- Simulation: an executor that polls, stops, and whose clock jumps


@dataclass
class Executor:
    """Stores decisions, and runs one job for each occurrence that is fired."""

    planned: Schedule
    now: datetime = START
    rows: dict[datetime, list[Fate]] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)

    def poll(self, limit: int) -> None:
        queued = [one for one, fates in sorted(self.rows.items()) if fates[-1] is Fate.QUEUED]
        since = max(self.rows, default=START)
        situation = Situation(
            since, decided=set(self.rows), queued=queued, running=tuple(self.running)
        )
        for one in islice(decide(self.planned, situation, self.now), limit):
            self.rows.setdefault(one.nominal, []).append(one.fate)
            if one.fate is Fate.FIRED:
                self.running = [job for job in self.running if job not in one.cancels]
                self.running.append(str(one.nominal))
                assert len(self.running) == 1
        assert self.planned.overlap == "queue_all" or self.queue_length() <= 1

    def queue_length(self) -> int:
        return sum(fates[-1] is Fate.QUEUED for fates in self.rows.values())


steps = st.lists(
    st.tuples(
        st.integers(-3600, 7200) | st.integers(0, 90),  # seconds until the next poll, by its clock
        st.booleans(),  # the running job ends
        st.sampled_from([1, 3, 1000]),  # decisions until it is killed
    ),
    max_size=40,
)
plans = st.builds(
    schedule,
    cron=st.sampled_from(["* * * * *", "*/7 * * * *", "30 3 * * *", "0,20 * * * *"]),
    timezone=st.sampled_from(["UTC", "Australia/Lord_Howe"]),
    overlap=st.sampled_from(["skip", "queue_one", "queue_all", "cancel_running"]),
    misfire=st.fixed_dictionaries(
        {
            "policy": st.sampled_from(["skip", "latest", "all"]),
            "grace": st.sampled_from([0, 60, 600]),
            "max_age": st.sampled_from([60, 1800, 86_400]),
            "max_count": st.sampled_from([1, 3, 1000]),
        }
    ),
    jitter=st.sampled_from([0, 300]),
    exclude=st.sampled_from([[], [{"from": "2026-06-01T13:00", "to": "2026-06-01T13:30"}]]),
)


@given(plans, steps)
def test_every_occurrence_has_one_fate_whatever_happens(
    planned: Schedule, moves: list[tuple[int, bool, int]]
) -> None:
    executor = Executor(planned)
    latest = START
    for seconds, has_ended, limit in moves:
        executor.now += timedelta(seconds=seconds)
        latest = max(latest, executor.now)
        executor.running = [] if has_ended else executor.running
        executor.poll(limit)
    executor.now = latest
    executor.poll(10_000)

    due = {one.nominal for one in occurrences(planned, START, latest - planned.delay)}
    assert set(executor.rows) == due
    assert all(fates[:-1] in ([], [Fate.QUEUED]) for fates in executor.rows.values())


# ---------------- Pausing, and what comes next


@pytest.mark.parametrize(
    ("limit", "has_failed", "is_paused"),
    [
        (None, [True] * 9, False),
        (3, [True, True], False),
        (3, [True, True, True], True),
        (3, [True, True, False, True], False),
        (3, [True, True, True, False], True),
        (1, [], False),
    ],
)
def test_a_schedule_is_paused_after_failures_in_a_row(
    limit: int | None, has_failed: list[bool], *, is_paused: bool
) -> None:
    assert should_pause(minutely(pause_after_failures=limit), has_failed) is is_paused


def test_what_comes_next_has_clock_changes_and_exclusions() -> None:
    planned = schedule(
        cron="30 3 * * *",
        timezone="Europe/Sofia",
        jitter="10m",
        exclude=[{"date": "2026-03-30", "reason": "holiday"}],
    )

    found = list(plan_next(planned, utc("2026-03-27T12:00"), days=4))

    assert [
        (f"{one.occurrence.local:%d %H:%M}", one.occurrence.change, one.exclusion is not None)
        for one in found
    ] == [
        ("28 03:30", None, False),
        ("29 04:00", "shifted", False),
        ("30 03:30", None, True),
        ("31 03:30", None, False),
    ]
    assert all(one.starts_at - one.occurrence.nominal == planned.delay for one in found)
