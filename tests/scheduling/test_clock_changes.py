"""Occurrences on the days when clocks change, compared with a table written by hand.

A row has a trigger, a day, and the occurrences of that day from midnight until 06:00. `shifted`,
`first` and `second` are marks of the occurrence before them. An interval starts at midnight.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta

import pytest

from longline.scheduling.schedule import Schedule
from longline.scheduling.triggers import Occurrence, occurrences
from tests.scheduling.schedules import schedule

TABLE = """
Europe/Sofia: 03:00 becomes 04:00 in March, and 04:00 becomes 03:00 in October.
cron: 30 3 * * *     | 2026-03-28 | 03:30+02:00
cron: 30 3 * * *     | 2026-03-29 | 04:00+03:00 shifted
cron: 30 3 * * *     | 2026-03-30 | 03:30+03:00
cron: 30 3 * * *     | 2026-10-25 | 03:30+03:00 first
cron: 30 3 * * *     | 2026-10-26 | 03:30+02:00
cron: 30 3 * * *     | 2027-03-28 | 04:00+03:00 shifted
cron: 30 3 * * *     | 2027-10-31 | 03:30+03:00 first
cron: 0 3 * * *      | 2026-03-29 | 04:00+03:00 shifted
cron: 59 3 * * *     | 2026-03-29 | 04:00+03:00 shifted
cron: 0 4 * * *      | 2026-03-29 | 04:00+03:00
cron: 0 4 * * *      | 2026-10-25 | 04:00+02:00
cron: 0,30 3,4 * * * | 2026-03-29 | 04:00+03:00 shifted 04:30+03:00
cron: 15 2-4 * * *   | 2026-10-25 | 02:15+03:00 03:15+03:00 first 04:15+02:00
cron: */30 3 * * *   | 2026-03-29 |
cron: */30 3 * * *   | 2026-10-25 | 03:00+03:00 first 03:30+03:00 first 03:00+02:00 second
                                    03:30+02:00 second
cron: 30 * * * *     | 2026-03-29 | 00:30+02:00 01:30+02:00 02:30+02:00 04:30+03:00 05:30+03:00
cron: 30 * * * *     | 2026-10-25 | 00:30+03:00 01:30+03:00 02:30+03:00 03:30+03:00 first
                                    03:30+02:00 second 04:30+02:00 05:30+02:00
cron: 30 * * * *     | 2027-10-31 | 00:30+03:00 01:30+03:00 02:30+03:00 03:30+03:00 first
                                    03:30+02:00 second 04:30+02:00 05:30+02:00
every: 1h            | 2026-03-29 | 00:00+02:00 01:00+02:00 02:00+02:00 04:00+03:00 05:00+03:00
every: 1h            | 2026-10-25 | 00:00+03:00 01:00+03:00 02:00+03:00 03:00+03:00 first
                                    03:00+02:00 second 04:00+02:00 05:00+02:00
calendar: daily 03:30 | 2026-03-29 | 04:00+03:00 shifted
calendar: last Sunday of March 03:30 | 2027-03-28 | 04:00+03:00 shifted
calendar: last Sunday of Oct 03:30 | 2026-10-25 | 03:30+03:00 first
at: 2026-03-29T03:30 | 2026-03-29 | 04:00+03:00 shifted
at: 2026-10-25T03:30 | 2026-10-25 | 03:30+03:00 first
at: 2026-10-25T03:30+02:00 | 2026-10-25 | 03:30+02:00 second

America/New_York: 02:00 becomes 03:00 in March, and 02:00 becomes 01:00 in November.
cron: 30 2 * * *     | 2026-03-08 | 03:00-04:00 shifted
cron: 30 1 * * *     | 2026-11-01 | 01:30-04:00 first
cron: 30 2 * * *     | 2027-03-14 | 03:00-04:00 shifted
cron: 30 1 * * *     | 2027-11-07 | 01:30-04:00 first
cron: 30 2 * * *     | 2026-11-01 | 02:30-05:00
cron: */30 2 * * *   | 2026-03-08 |
cron: */30 1 * * *   | 2026-11-01 | 01:00-04:00 first 01:30-04:00 first 01:00-05:00 second
                                    01:30-05:00 second
cron: 30 * * * *     | 2027-03-14 | 00:30-05:00 01:30-05:00 03:30-04:00 04:30-04:00 05:30-04:00
every: 1h            | 2027-03-14 | 00:00-05:00 01:00-05:00 03:00-04:00 04:00-04:00 05:00-04:00
calendar: second Sunday 02:30 | 2026-03-08 | 03:00-04:00 shifted
at: 2027-03-14T02:00 | 2027-03-14 | 03:00-04:00 shifted
at: 2027-11-07T01:59 | 2027-11-07 | 01:59-04:00 first

Australia/Lord_Howe: 02:00 becomes 02:30 in October, and 02:00 becomes 01:30 in April.
cron: 15 2 * * *     | 2026-10-04 | 02:30+11:00 shifted
cron: 15 2 * * *     | 2027-10-03 | 02:30+11:00 shifted
cron: 30 2 * * *     | 2026-10-04 | 02:30+11:00
cron: 45 1 * * *     | 2026-04-05 | 01:45+11:00 first
cron: 45 1 * * *     | 2027-04-04 | 01:45+11:00 first
cron: 15 1 * * *     | 2026-04-05 | 01:15+11:00
cron: */15 2 * * *   | 2026-10-04 | 02:30+11:00 02:45+11:00
cron: */15 1 * * *   | 2026-04-05 | 01:00+11:00 01:15+11:00 01:30+11:00 first 01:45+11:00 first
                                    01:30+10:30 second 01:45+10:30 second
cron: 45 * * * *     | 2026-10-04 | 00:45+10:30 01:45+10:30 02:45+11:00 03:45+11:00 04:45+11:00
                                    05:45+11:00
cron: 15 * * * *     | 2026-10-04 | 00:15+10:30 01:15+10:30 03:15+11:00 04:15+11:00 05:15+11:00
cron: 45 * * * *     | 2026-04-05 | 00:45+11:00 01:45+11:00 first 01:45+10:30 second 02:45+10:30
                                    03:45+10:30 04:45+10:30 05:45+10:30
cron: 0 */3 * * *    | 2026-10-04 | 00:00+10:30 03:00+11:00
cron: 0 */3 * * *    | 2027-04-04 | 00:00+11:00 03:00+10:30
every: 1h            | 2026-10-04 | 00:00+10:30 01:00+10:30 02:30+11:00 03:30+11:00 04:30+11:00
                                    05:30+11:00
every: 1h            | 2026-04-05 | 00:00+11:00 01:00+11:00 01:30+10:30 second 02:30+10:30
                                    03:30+10:30 04:30+10:30 05:30+10:30
calendar: first Sunday of October 02:15 | 2026-10-04 | 02:30+11:00 shifted
at: 2027-10-03T02:29 | 2027-10-03 | 02:30+11:00 shifted
at: 2027-04-04T01:30 | 2027-04-04 | 01:30+11:00 first

Pacific/Chatham: 02:45 becomes 03:45 in September, and 03:45 becomes 02:45 in April.
cron: 15 3 * * *     | 2026-09-27 | 03:45+13:45 shifted
cron: 15 3 * * *     | 2027-09-26 | 03:45+13:45 shifted
cron: 50 2 * * *     | 2026-09-27 | 03:45+13:45 shifted
cron: 30 2 * * *     | 2026-09-27 | 02:30+12:45
cron: 50 2 * * *     | 2026-04-05 | 02:50+13:45 first
cron: 30 3 * * *     | 2026-04-05 | 03:30+13:45 first
cron: 30 3 * * *     | 2027-04-04 | 03:30+13:45 first
cron: 45 3 * * *     | 2026-04-05 | 03:45+12:45
cron: */15 3 * * *   | 2026-09-27 | 03:45+13:45
cron: */15 3 * * *   | 2026-04-05 | 03:00+13:45 first 03:15+13:45 first 03:30+13:45 first
                                    03:00+12:45 second 03:15+12:45 second 03:30+12:45 second
                                    03:45+12:45
cron: 0 * * * *      | 2026-09-27 | 00:00+12:45 01:00+12:45 02:00+12:45 04:00+13:45 05:00+13:45
cron: 0 * * * *      | 2027-04-04 | 00:00+13:45 01:00+13:45 02:00+13:45 03:00+13:45 first
                                    03:00+12:45 second 04:00+12:45 05:00+12:45
every: 1h            | 2026-09-27 | 00:00+12:45 01:00+12:45 02:00+12:45 04:00+13:45 05:00+13:45
calendar: 5 of April 03:30 | 2026-04-05 | 03:30+13:45 first
calendar: weekdays 03:30 | 2026-04-05 |
at: 2027-09-26T02:45 | 2027-09-26 | 03:45+13:45 shifted
at: 2027-04-04T02:45 | 2027-04-04 | 02:45+13:45 first
"""


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Yield zone, trigger, day and expected occurrences; an indented line continues a row."""
    for block in TABLE.strip().split("\n\n"):
        heading, *lines = re.sub(r"\n +", " ", block).splitlines()
        for line in lines:
            trigger, day, expected = (part.strip() for part in line.split("|"))
            yield heading.partition(":")[0], trigger, day, expected


def morning(planned: Schedule, day: str) -> str:
    """Return the occurrences of a day from midnight until 06:00."""
    midnight = datetime.combine(date.fromisoformat(day), time(), planned.zone)
    before = timedelta(seconds=1)
    found = occurrences(planned, midnight - before, midnight.replace(hour=6) - before)
    return " ".join(map(written, found))


def written(one: Occurrence) -> str:
    wall = one.local.isoformat(timespec="minutes")[len("2026-03-29T") :]
    return f"{wall} {one.change}" if one.change else wall


@pytest.mark.parametrize(("zone", "trigger", "day", "expected"), list(rows()))
def test_occurrences_when_clocks_change(zone: str, trigger: str, day: str, expected: str) -> None:
    kind, _, text = trigger.partition(": ")
    start = {"start": day} if kind == "every" else {}

    planned = schedule(**{kind: text}, timezone=zone, **start)

    assert morning(planned, day) == expected
