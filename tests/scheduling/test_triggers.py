"""Triggers: in order, each occurrence once, and as a clock that is read minute by minute."""

from __future__ import annotations

import calendar
import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from longline.scheduling.triggers import (
    Cron,
    Interval,
    OneOff,
    Trigger,
    next_occurrence,
    occurrences,
    parse_calendar,
    parse_cron,
)
from tests.scheduling.schedules import ZONES, clock_changes, utc

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
CHANGES = {zone: clock_changes(zone, 2026) or [utc("2026-06-01")] for zone in ZONES}

zones = st.sampled_from(ZONES)
crons = st.tuples(
    st.sampled_from(["*", "*/15", "*/7", "0", "30", "45", "5,50", "10-40/10"]),
    st.sampled_from(["*", "*/2", "*/5", "0", "1", "2", "3", "0-4", "2,3"]),
    st.sampled_from(["*", "*", "*/2", "1-7", "L"]),
    st.sampled_from(["*", "*", "3,4", "9-11"]),
    st.sampled_from(["*", "*", "SUN", "0#1", "0L"]),
).map(" ".join)


@st.composite
def times(draw: st.DrawFn, zone: str) -> datetime:
    """Draw a time, mostly near a clock change of the zone."""
    seconds = st.integers(-2 * 86_400, 2 * 86_400) | st.integers(-200 * 86_400, 200 * 86_400)
    return draw(st.sampled_from(CHANGES[zone])) + timedelta(seconds=draw(seconds))


@st.composite
def ranges(draw: st.DrawFn) -> tuple[ZoneInfo, datetime, datetime]:
    """Draw a zone and a range of up to four days."""
    zone = draw(zones)
    after = draw(times(zone))
    return ZoneInfo(zone), after, after + timedelta(seconds=draw(st.integers(0, 4 * 86_400)))


def triggers(zone: ZoneInfo) -> st.SearchStrategy[Trigger]:
    whole = st.integers(60, 200_000).map(lambda seconds: timedelta(seconds=seconds))
    walls = st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31))  # noqa: DTZ001  # wall times
    return st.one_of(
        crons.map(lambda cron: Cron(cron, zone)),
        whole.map(lambda every: Interval(every, utc("2001-01-01"), zone)),
        walls.map(lambda wall: OneOff(wall, zone)),
    )


def nominal(trigger: Trigger, after: datetime, until: datetime) -> list[datetime]:
    return [one.nominal for one in occurrences(trigger, after, until)]


def clock_reading(trigger: Cron, after: datetime, until: datetime) -> Iterator[datetime]:
    """Yield when a person who reads the clock every minute says that a cron expression is due."""
    minute, hour, *_ = trigger.expression.split()
    is_frequent = "*" in (minute[0], hour[0])
    now = after.replace(second=0) - 2 * DAY
    wall = now.astimezone(trigger.zone).replace(tzinfo=None)
    matches = CronSim(trigger.expression, wall)
    coming, seen = next(matches), set[datetime]()
    while (now := now + MINUTE) <= until:
        wall = now.astimezone(trigger.zone).replace(tzinfo=None, fold=0)
        is_due = wall in seen and is_frequent
        while coming <= wall:  # reached for the first time, or passed
            is_due |= not is_frequent or coming == wall
            seen.add(coming)
            coming = next(matches)
        if is_due and now > after:
            yield now


@given(ranges(), crons)
def test_cron_agrees_with_a_reader_of_the_clock(
    span: tuple[ZoneInfo, datetime, datetime], cron: str
) -> None:
    zone, after, until = span
    trigger = Cron(cron, zone)

    assert nominal(trigger, after, until) == list(clock_reading(trigger, after, until))


@given(ranges().flatmap(lambda span: st.tuples(st.just(span), triggers(span[0]))))
def test_occurrences_are_in_order_and_each_once(
    drawn: tuple[tuple[ZoneInfo, datetime, datetime], Trigger],
) -> None:
    (_, after, until), trigger = drawn

    found = nominal(trigger, after, until)

    assert found == sorted(set(found))
    assert all(after < one <= until for one in found)


@given(ranges().flatmap(lambda span: st.tuples(st.just(span), triggers(span[0]))), st.floats(0, 1))
def test_a_split_range_has_the_same_occurrences(
    drawn: tuple[tuple[ZoneInfo, datetime, datetime], Trigger], share: float
) -> None:
    (_, after, until), trigger = drawn
    middle = after + share * (until - after)

    halves = [*occurrences(trigger, after, middle), *occurrences(trigger, middle, until)]

    assert halves == list(occurrences(trigger, after, until))


@given(ranges().flatmap(lambda span: st.tuples(st.just(span), triggers(span[0]))))
def test_one_after_another_is_the_whole_range(
    drawn: tuple[tuple[ZoneInfo, datetime, datetime], Trigger],
) -> None:
    (_, after, until), trigger = drawn
    whole = list(islice(occurrences(trigger, after, until), 20))

    one_by_one, last = [], after
    for _ in whole:
        found = next_occurrence(trigger, last)
        assert found is not None
        one_by_one.append(found)
        last = found.nominal

    assert one_by_one == whole


@given(ranges().flatmap(lambda span: st.tuples(st.just(span), triggers(span[0]))))
def test_an_occurrence_is_one_time_in_utc_and_in_the_zone(
    drawn: tuple[tuple[ZoneInfo, datetime, datetime], Trigger],
) -> None:
    (zone, after, until), trigger = drawn

    found = list(occurrences(trigger, after, until))

    assert all(one.nominal.tzinfo is UTC and one.local.tzinfo is zone for one in found)
    assert all(one.local.astimezone(UTC) == one.nominal for one in found)


def test_an_interval_counts_from_its_anchor_in_both_directions() -> None:
    trigger = Interval(timedelta(hours=7), utc("2026-06-01T01:00"), ZoneInfo("UTC"))

    found = nominal(trigger, utc("2026-05-31T17:59"), utc("2026-06-01T08:00"))

    assert found == [utc("2026-05-31T18:00"), utc("2026-06-01T01:00"), utc("2026-06-01T08:00")]


def test_a_one_off_is_over_after_its_time() -> None:
    trigger = OneOff(datetime(2026, 12, 1, 6), ZoneInfo("UTC"))  # noqa: DTZ001  # a wall time

    assert next_occurrence(trigger, utc("2026-12-01T05:59:59")) is not None
    assert next_occurrence(trigger, utc("2026-12-01T06:00")) is None


def test_a_day_that_does_not_exist_is_jumped_over() -> None:
    trigger = Cron("0 12 * * *", ZoneInfo("Pacific/Apia"))  # without 2011-12-30

    found = occurrences(trigger, utc("2011-12-29"), utc("2011-12-31"))

    assert [(one.local.isoformat(), one.change) for one in found] == [
        ("2011-12-29T12:00:00-10:00", None),
        ("2011-12-31T00:00:00+14:00", "shifted"),
        ("2011-12-31T12:00:00+14:00", None),
    ]


def test_a_rare_cron_is_found_years_ahead() -> None:
    trigger = Cron("*/30 3 29 2 *", ZoneInfo("Europe/Sofia"))

    found = nominal(trigger, utc("2026-01-01"), utc("2033-01-01"))

    assert found == [
        *(utc("2028-02-29T01:00"), utc("2028-02-29T01:30")),
        *(utc("2032-02-29T01:00"), utc("2032-02-29T01:30")),
    ]


# ---------------- Cron expressions


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("30 3 * * *", "30 3 * * *"),
        ("  30  3 * * mon-fri ", "30 3 * * mon-fri"),
        ("@daily", "0 0 * * *"),
        ("@Hourly", "0 * * * *"),
        ("0 0 29 2 *", "0 0 29 2 *"),
        ("0 0 31 2 MON", "0 0 31 2 MON"),  # a day or a weekday, as in every cron
    ],
)
def test_a_cron_expression_has_five_fields(text: str, expression: str) -> None:
    assert parse_cron(text) == expression


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "five"),
        ("daily", "five"),
        ("* * * * * *", "five"),
        ("60 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day-of-month"),
        ("* * * foo *", "month"),
        ("* * * * 8", "day-of-week"),
        ("*/0 * * * *", "minute"),
        ("5-1 * * * *", "minute"),
        ("* * * * 1L/2", "day-of-week"),
        ("9" * 990 + " * * * *", "minute"),
        ("9" * 9000 + " * * * *", "five"),
        ("0 0 30 2 *", "never"),
        ("0 0 31 4,6,9,11 *", "never"),
        ("* * */20 * 1L", "never"),
    ],
)
def test_a_wrong_field_is_named(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse_cron(text)


fields = st.text("0123456789*/,-LW#SUNMONJAFEB²", min_size=1, max_size=5) | st.just("*")


@given(st.lists(fields, min_size=5, max_size=5))
def test_any_text_is_a_cron_expression_or_an_error(texts: list[str]) -> None:
    with contextlib.suppress(ValueError):
        trigger = Cron(parse_cron(" ".join(texts)), ZoneInfo("Pacific/Chatham"))
        assert next_occurrence(trigger, utc("2026-01-01")) is not None


# ---------------- Calendar expressions

Rule = Callable[[date], bool]


def last_of(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def is_last_weekday(day: date) -> bool:
    rest = range(day.day + 1, last_of(day) + 1)
    return day.weekday() < 5 and all(day.replace(day=one).weekday() > 4 for one in rest)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("daily 06:00", lambda _: True),
        ("every day at 6:00", lambda _: True),
        ("weekdays 06:00", lambda day: day.weekday() < 5),
        ("Weekends 06:00", lambda day: day.weekday() > 4),
        ("Monday 06:00", lambda day: day.weekday() == 0),
        ("every Mon, Wed and Fri 06:00", lambda day: day.weekday() in (0, 2, 4)),
        ("Fri-Mon 06:00", lambda day: day.weekday() in (4, 5, 6, 0)),
        ("first Monday 06:00", lambda day: day.weekday() == 0 and day.day <= 7),
        (
            "the third Tue of the month 06:00",
            lambda day: day.weekday() == 1 and 15 <= day.day <= 21,
        ),
        (
            "last Friday of month 06:00",
            lambda day: day.weekday() == 4 and day.day > last_of(day) - 7,
        ),
        (
            "first and last Sun of Jan, Jul 06:00",
            lambda day: (
                day.month in (1, 7)
                and day.weekday() == 6
                and (day.day <= 7 or day.day > last_of(day) - 7)
            ),
        ),
        ("first day 06:00", lambda day: day.day == 1),
        ("last day of month 06:00", lambda day: day.day == last_of(day)),
        ("last day of February 06:00", lambda day: day.month == 2 and day.day == last_of(day)),
        ("last weekday of month 06:00", is_last_weekday),
        ("15 of month 06:00", lambda day: day.day == 15),
        (
            "1st and 15th of Nov-Feb 06:00",
            lambda day: day.day in (1, 15) and day.month in (11, 12, 1, 2),
        ),
        ("31 of month 06:00", lambda day: day.day == 31),
    ],
)
def test_a_calendar_expression_selects_days(text: str, rule: Rule) -> None:
    trigger = Cron(parse_calendar(text), ZoneInfo("UTC"))
    days = [date(2026, 1, 1) + number * DAY for number in range(365 * 3)]

    found = nominal(trigger, utc("2026-01-01"), utc("2026-01-01") + len(days) * DAY)

    assert [one.date() for one in found] == [day for day in days if rule(day)]
    assert {(one.hour, one.minute) for one in found} == {(6, 0)}


@pytest.mark.parametrize(
    "text",
    [
        *("", "06:00", "daily", "daily 24:00", "daily 6", "someday 06:00", "first 06:00"),
        *("32 of month 06:00", "0 of month 06:00", "30 of February 06:00", "daily of Monday 06:00"),
        *("first Mon-Fri 06:00", "Mon,, Tue 06:00", "first day, Monday 06:00", "x" * 5000),
    ],
)
def test_what_is_not_a_calendar_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|never"):
        parse_calendar(text)
