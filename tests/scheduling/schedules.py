"""Schedules and times for the tests of scheduling."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from longline.scheduling.schedule import Schedule, make_schedule

ZONES = (
    *("UTC", "Europe/Sofia", "America/New_York", "Australia/Lord_Howe", "Pacific/Chatham"),
    "Antarctica/Troll",  # changes by two hours
    "America/Santiago",  # changes at midnight, so that some days begin at 01:00
    "Africa/Casablanca",  # changes for Ramadan
    "Asia/Kathmandu",  # does not change, and is 05:45 ahead
)


def schedule(**values: Any) -> Schedule:
    return make_schedule({"name": "nightly", "source": "shop", **values})


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def clock_changes(zone: str, year: int) -> list[datetime]:
    """Return the first minutes of a year after the clock was changed."""
    first, minute = datetime(year, 1, 1, tzinfo=UTC), timedelta(minutes=1)
    hours = [first + number * timedelta(hours=1) for number in range(366 * 24)]
    offsets = [hour.astimezone(ZoneInfo(zone)).utcoffset() for hour in hours]
    changed = [
        hour for hour, old, new in zip(hours[1:], offsets, offsets[1:], strict=False) if old != new
    ]
    found = []
    for hour in changed:
        minutes = [hour - number * minute for number in range(60)]
        offset = hour.astimezone(ZoneInfo(zone)).utcoffset()
        found.append(
            min(one for one in minutes if one.astimezone(ZoneInfo(zone)).utcoffset() == offset)
        )
    return found
