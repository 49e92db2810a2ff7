"""When a schedule is due: cron, calendar, interval and one-off, over clock changes.

Every trigger yields occurrences. The nominal time of an occurrence, in UTC, identifies it. Wall
time is what clocks in a time zone show: it skips some times when daylight saving time begins, and
shows some times twice when it ends. Two rules, those of Debian's cron, map wall times to nominal
times:

- A trigger for times of the day is due when the clock first reaches or passes such a time. A time
  that is skipped is due when the clock jumps over it; one that comes twice is due the first time.
- A cron expression whose minute or hour begins with `*` is due whenever the clock shows a matching
  time. It is not due at times that are skipped, and due again at times that come twice.

An interval is elapsed time, which clock changes do not affect.

cronsim parses cron expressions and finds matching wall times. It is not given the time zone, since
it misses occurrences when a clock changes by half an hour (docs/decisions/0050-cronsim.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import takewhile
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


class ClockChange(StrEnum):
    """What a clock change means for an occurrence."""

    SHIFTED = "shifted"
    """Its wall time is skipped on this day; it is due when the clock jumps."""
    FIRST = "first"
    """Its wall time comes twice on this day; this is the first."""
    SECOND = "second"
    """Its wall time comes twice on this day; this is the second."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One time at which a schedule is due.

    `nominal` is in UTC and identifies the occurrence; `local` is the same time in the time zone of
    the schedule.
    """

    nominal: datetime
    local: datetime
    change: ClockChange | None = None


class Trigger(Protocol):
    """A rule that says when something is due."""

    def upcoming(self, after: datetime) -> Iterator[Occurrence]:
        """Yield the occurrences later than `after`, an aware time, in order; often without end."""


def occurrences(trigger: Trigger, after: datetime, until: datetime) -> Iterator[Occurrence]:
    """Yield the occurrences later than `after` and not later than `until`, in order."""
    return takewhile(lambda one: one.nominal <= until, trigger.upcoming(after))


def next_occurrence(trigger: Trigger, after: datetime) -> Occurrence | None:
    """Return the first occurrence later than `after`; None: there is none in the next 50 years."""
    return next(trigger.upcoming(after), None)


# ---------------- Wall time


@lru_cache(maxsize=4096)
def _changes_in(zone: ZoneInfo, year: int) -> tuple[datetime, ...]:
    """Return the times in a year, in UTC, at which the offset of the zone changes."""
    changes = []
    day = datetime(year, 1, 1, tzinfo=UTC)
    while day.year == year:
        if _offset(day, zone) != _offset(day + _DAY, zone):
            before, at = day, day + _DAY
            while at - before > _SECOND:
                middle = (before + (at - before) / 2).replace(microsecond=0)
                is_before = _offset(middle, zone) == _offset(day, zone)
                before, at = (middle, at) if is_before else (before, middle)
            changes.append(at)
        day += _DAY
    return tuple(changes)


def _changes(zone: ZoneInfo, after: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the clock changes later than `after` and not later than `until`."""
    for year in range(after.year, until.year + 1):
        for at in _changes_in(zone, year):
            if after < at <= until:
                yield at


def _offset(at: datetime, zone: ZoneInfo) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()


def _occurrence(nominal: datetime, zone: ZoneInfo) -> Occurrence:
    """Return the occurrence at a time, with a mark if its wall time comes twice."""
    local = nominal.astimezone(zone)
    if local.utcoffset() == local.replace(fold=1 - local.fold).utcoffset():
        return Occurrence(nominal, local)
    return Occurrence(nominal, local, ClockChange.SECOND if local.fold else ClockChange.FIRST)


def resolve(wall: datetime, zone: ZoneInfo) -> Occurrence:
    """Return when the clock first reaches or passes a wall time, which has no offset."""
    nominal = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    found = _occurrence(nominal, zone)
    if found.local.replace(tzinfo=None, fold=0) == wall:
        return found
    # The offset before the change, which datetime uses, leads past the change.
    *_, change = _changes(zone, nominal - _DAY, nominal)
    return Occurrence(change, change.astimezone(zone), ClockChange.SHIFTED)


# ---------------- Triggers


@dataclass(frozen=True, slots=True)
class OneOff(Trigger):
    """A trigger that is due once, at a wall time of the zone or, with an offset, at that time."""

    at: datetime
    zone: ZoneInfo

    def upcoming(self, after: datetime) -> Iterator[Occurrence]:
        if self.at.tzinfo is None:
            found = resolve(self.at, self.zone)
        else:
            found = _occurrence(self.at.astimezone(UTC), self.zone)
        if found.nominal > after:
            yield found


@dataclass(frozen=True, slots=True)
class Interval(Trigger):
    """A trigger at equal distances of elapsed time; the anchor, in UTC, is one occurrence."""

    every: timedelta
    anchor: datetime
    zone: ZoneInfo

    def upcoming(self, after: datetime) -> Iterator[Occurrence]:
        number = (after - self.anchor) // self.every
        while True:
            number += 1
            yield _occurrence(self.anchor + number * self.every, self.zone)


@dataclass(frozen=True, slots=True)
class Cron(Trigger):
    """A cron expression that `parse_cron` has checked."""

    expression: str
    zone: ZoneInfo

    def upcoming(self, after: datetime) -> Iterator[Occurrence]:
        after = after.astimezone(UTC)  # two times that differ in `fold` only would be equal
        for _ in range(_CACHED):
            if (found := _first_match(self, after)) is None:
                return
            yield found
            after = found.nominal
        yield from self.search(after)

    def search(self, after: datetime) -> Iterator[Occurrence]:
        """Yield what `upcoming` does, without the cache."""
        minute, hour, *_ = self.expression.split()
        is_frequent = minute.startswith("*") or hour.startswith("*")
        return self._shown(after) if is_frequent else self._passed(after)

    def _matches(self, after: datetime) -> Iterator[datetime]:
        """Yield the matching wall times later than `after`, as a clock without changes has them."""
        return CronSim(self.expression, after)

    def _passed(self, after: datetime) -> Iterator[Occurrence]:
        """Yield when the clock first reaches or passes a matching time."""
        reached = after.astimezone(self.zone).replace(tzinfo=None)
        for wall in self._matches(reached):
            found = resolve(wall, self.zone)
            # Not later if the clock jumps over several times, or shows this one again.
            if found.nominal > after:
                yield found
                after = found.nominal

    def _shown(self, after: datetime) -> Iterator[Occurrence]:
        """Yield when the clock shows a matching time."""
        after, offset = after.astimezone(UTC), _offset(after, self.zone)
        reached = after.astimezone(self.zone).replace(tzinfo=None)
        matches = self._matches(reached)
        wall = next(matches, None)
        while wall is not None:
            nominal = (wall - offset).replace(tzinfo=UTC)
            change = next(_changes(self.zone, after, nominal), None)
            if change is None:
                yield _occurrence(nominal, self.zone)
                after, reached = nominal, wall
                wall = next(matches, None)
                continue
            after, offset = change, _offset(change, self.zone)
            start = after.astimezone(self.zone).replace(tzinfo=None)
            # Search again if the clock was set back to times that match, or past the match.
            if start <= reached or wall < start:
                reached = start - _SECOND
                matches = self._matches(reached)
                wall = next(matches, None)


# A scheduler asks several times for the occurrence that is due and the one after it.
_CACHED = 2


@lru_cache(maxsize=4096)
def _first_match(cron: Cron, after: datetime) -> Occurrence | None:
    return next(cron.search(after), None)


# ---------------- Cron expressions

_MACROS = {
    **dict.fromkeys(("@yearly", "@annually"), "0 0 1 1 *"),
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    **dict.fromkeys(("@daily", "@midnight"), "0 0 * * *"),
    "@hourly": "0 * * * *",
}
_FIELDS = {
    "minute": "a number from 0 to 59",
    "hour": "a number from 0 to 23",
    "day-of-month": "a number from 1 to 31, or L for the last day",
    "month": "a number from 1 to 12, or JAN to DEC",
    "day-of-week": "a number from 0 to 7, or SUN to SAT",
}
_LONGEST = 1000
_SOME_DATE = datetime(2000, 1, 1)  # noqa: DTZ001  # a wall time


def parse_cron(text: str) -> str:
    """Return a cron expression of five fields; `@daily` and the like are replaced.

    Raises:
        ValueError: it is not a cron expression, or never matches; says why.
    """
    fields = _MACROS.get(text.strip().lower(), text).split()
    if len(fields) != len(_FIELDS) or len(text) > _LONGEST:
        names = ", ".join(_FIELDS)
        raise ValueError(f"a cron expression has five fields, such as '30 3 * * *': {names}")
    problem = _cron_problem(fields)
    if problem == "day-of-month" and not _cron_problem([*fields[:3], "*", fields[4]]):
        problem = "never"  # no month of the expression has this day
    if problem == "never":
        raise ValueError("it never fires, because no date matches its days and months")
    if problem:
        others = "*, a list 1,2, a range 1-5 or a step */10"
        raise ValueError(f"its {problem} field is invalid; write {_FIELDS[problem]}, {others}")
    return " ".join(fields)


def _cron_problem(fields: Sequence[str]) -> str:
    """Return the name of the first invalid field, `never` if no date matches, or nothing."""
    try:
        first = next(CronSim(" ".join(fields), _SOME_DATE), None)
    except CronSimError as error:
        return str(error).removeprefix("Bad ")
    return "never" if first is None else ""


# ---------------- Calendar expressions

_MONTHS = "january february march april may june july august september october november december"
_WEEKDAYS = "sunday monday tuesday wednesday thursday friday saturday"
_ORDINALS = {"first": "#1", "second": "#2", "third": "#3", "fourth": "#4", "last": "L"}
_DAYS = {  # day-of-month and day-of-week of cron
    **dict.fromkeys(("day", "daily"), ("*", "*")),
    **dict.fromkeys(("weekday", "weekdays"), ("*", "1-5")),
    **dict.fromkeys(("weekend", "weekends"), ("*", "0,6")),
    "first day": ("1", "*"),
    "last day": ("L", "*"),
    "last weekday": ("LW", "*"),
}
_CALENDAR = re.compile(
    r"(?:every |the )?(?P<days>.+?)(?: of (?:every |the )?(?P<months>.+?))?"
    r" (?:at )?(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)"
)
_AND = re.compile(r", and |, ?| and ")
_NUMBER = re.compile(r"([1-9]|[12]\d|3[01])(?:st|nd|rd|th)?")


def parse_calendar(text: str) -> str:
    """Return the cron expression of a calendar expression: days, perhaps months, and a time.

    Days are `daily`, `weekdays`, `weekends`, `Mon, Wed-Fri`, `first Monday`,
    `first and last Friday`, `first day`, `last day`, `last weekday` (Monday to Friday) or `1, 15`;
    months are `of month`, which is the default, or `of Jan, Jul`.

    Raises:
        ValueError: it is not a calendar expression, or never matches; says why.
    """
    found = _CALENDAR.fullmatch(" ".join(text.lower().split())) if len(text) < _LONGEST else None
    days = _parse_days(found["days"]) if found else None
    months = _parse_months(found["months"] or "month") if found else None
    if found is None or days is None or months is None:
        raise ValueError(
            "write days and a time, such as 'weekdays 07:15', 'Mon, Thu 06:00', "
            "'first Monday 06:00', 'last day of month 18:30' or '15 of Jan, Jul 03:00'"
        )
    return parse_cron(f"{int(found['minute'])} {int(found['hour'])} {days[0]} {months} {days[1]}")


def _parse_days(text: str) -> tuple[str, str] | None:
    """Return day-of-month and day-of-week as cron writes them; None if the text is not days."""
    if text in _DAYS:
        return _DAYS[text]
    numbers = [_NUMBER.fullmatch(word) for word in _AND.split(text)]
    if all(numbers):
        return ",".join(found[1] for found in numbers if found), "*"
    ordinals, _, name = text.rpartition(" ")
    weekday = _number_of(name, _WEEKDAYS)
    chosen = [_ORDINALS.get(word) for word in _AND.split(ordinals)]
    if weekday is not None and all(chosen):
        return "*", ",".join(f"{weekday}{one}" for one in chosen)
    weekdays = _parse_names(text, _WEEKDAYS)
    return None if weekdays is None else ("*", weekdays)


def _parse_months(text: str) -> str | None:
    return "*" if text == "month" else _parse_names(text, _MONTHS, first=1)


def _parse_names(text: str, names: str, *, first: int = 0) -> str | None:
    """Return the numbers of names and ranges of names, as cron writes them."""
    count = len(names.split())
    numbers: list[int] = []
    for word in _AND.split(text):
        start, _, end = word.partition("-")
        low, high = _number_of(start, names), _number_of(end or start, names)
        if low is None or high is None:
            return None
        numbers += [(low + step) % count for step in range((high - low) % count + 1)]
    return ",".join(str(number + first) for number in numbers)


def _number_of(word: str, names: str) -> int | None:
    """Return the index of a name that is written in full or with three letters."""
    for number, name in enumerate(names.split()):
        if word in {name, name[:3]}:
            return number
    return None
