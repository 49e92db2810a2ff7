"""The definition of a schedule: what runs, when, and what happens if it cannot."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field, ValidationError, model_validator

from longline.config.documents import Document
from longline.config.times import DateOrTime, Seconds, ZoneName
from longline.config.validation import (
    StrictModel,
    check_exactly_one,
    describe_error,
    invalid,
    select_problem,
    short_for,
)
from longline.core.errors import BadOption
from longline.core.event_types import match_types
from longline.scheduling.triggers import (
    Cron,
    Interval,
    Occurrence,
    OneOff,
    Trigger,
    next_occurrence,
    parse_calendar,
    parse_cron,
    resolve,
)

_MONDAY = datetime(2001, 1, 1)  # noqa: DTZ001  # midnight in the time zone of the schedule
_TICK = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TARGETS = ("source", "job", "flow")
_TRIGGERS = ("cron", "every", "calendar", "at", "after", "on", "fresh")


class Overlap(StrEnum):
    """What happens to an occurrence while the previous one still runs."""

    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    QUEUE_ALL = "queue_all"
    CANCEL_RUNNING = "cancel_running"


class MisfirePolicy(StrEnum):
    """Which late occurrences are still started."""

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


class Misfire(StrictModel):
    """What happens to occurrences that could not be started in time, as after a downtime.

    An occurrence is late after `grace`. One that is later than `max_age` is never started, and of
    several at most the last `max_count` are.
    """

    policy: MisfirePolicy = MisfirePolicy.LATEST
    grace: Seconds = 60.0
    max_age: Seconds = 86_400.0
    max_count: int = Field(default=10, ge=1, le=1000)


class Exclusion(StrictModel):
    """A date, or a window of time, without runs; a window that ends at a date includes that day."""

    date: DateOrTime | None = None
    start: DateOrTime = Field(alias="from")
    end: DateOrTime = Field(alias="to")
    reason: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _accept_date(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and "date" in values:
            return {"from": values["date"], "to": values["date"], **values}
        return values

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if self.date is not None and not self.date == self.start == self.end:
            raise invalid("write either a date, or from and to")
        if isinstance(self.date, datetime):
            raise invalid("date must be a day such as 2026-12-25; write from and to for times")
        return self

    def window(self, zone: ZoneInfo) -> tuple[datetime, datetime]:
        """Return the first time of the window, and the first time after it, in UTC."""
        return _begin(self.start, zone), _end(self.end, zone)


class Dependency(StrictModel):
    """A trigger by the end of another run.

    `states` is how that run must end; partial includes complete, any includes failed. If it has not
    ended `within` this time after it was due, this schedule misses that occurrence.
    """

    source: str | None = Field(default=None, min_length=1)
    flow: str | None = Field(default=None, min_length=1)
    states: Literal["complete", "partial", "any"] = "complete"
    within: Seconds | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _check_target(self) -> Self:
        check_exactly_one(self, ("source", "flow"))
        return self


def _check_pattern(pattern: str) -> str:
    try:
        match_types([pattern])
    except BadOption as error:
        raise invalid(error.problem) from None
    return pattern


class EventTrigger(StrictModel):
    """A trigger by events: a type or pattern such as `drift.*`, perhaps of one source only."""

    event: Annotated[str, AfterValidator(_check_pattern)]
    source: str | None = Field(default=None, min_length=1)


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise invalid("a name consists of at most 100 letters, digits, '.', '_' and '-'")
    return name


def _check_calendar(text: str) -> str:
    parse_calendar(text)
    return text


def _check_every(seconds: float) -> float:
    if seconds < 1 or not seconds.is_integer():
        raise invalid("an interval is a whole number of seconds, at least 1")
    return seconds


class Schedule(StrictModel):
    """What to run, when, and what happens if it cannot run then.

    It has exactly one target (source, job, flow) and one trigger (cron, every, calendar, at, after,
    on, fresh). Times without an offset are wall times of `timezone`.
    """

    name: Annotated[str, AfterValidator(_check_name)]
    enabled: bool = True

    source: str | None = Field(default=None, min_length=1)
    job: str | None = Field(default=None, min_length=1)
    """The path of a job file."""
    flow: str | None = Field(default=None, min_length=1)
    options: dict[str, Any] = Field(default_factory=dict, alias="set")
    params: dict[str, Any] = Field(default_factory=dict)

    cron: Annotated[str, AfterValidator(parse_cron)] | None = None
    every: Annotated[Seconds, AfterValidator(_check_every)] | None = None
    """Elapsed time between occurrences, counted from `start` or from Monday 2001-01-01 00:00."""
    calendar: Annotated[str, AfterValidator(_check_calendar)] | None = None
    at: DateOrTime | None = None
    after: Annotated[Dependency, short_for("source")] | None = None
    on: Annotated[EventTrigger, short_for("event")] | None = None
    fresh: Seconds | None = Field(default=None, gt=0)
    """Maximum age of the data of the source."""

    timezone: ZoneName = "UTC"
    start: DateOrTime | None = None
    end: DateOrTime | None = None
    """The first time without occurrences; a date is the last day with them."""
    exclude: tuple[Annotated[Exclusion, short_for("date")], ...] = Field(
        default=(), max_length=1000
    )
    jitter: Seconds = Field(default=0.0, le=86_400)
    """Maximum delay of each start; the delay follows from the name and is always the same."""
    overlap: Overlap = Overlap.SKIP
    misfire: Annotated[Misfire, short_for("policy")] = Misfire()
    pause_after_failures: int | None = Field(default=None, ge=1)
    priority: int = 0

    @model_validator(mode="after")
    def _check_definition(self) -> Self:
        check_exactly_one(self, _TARGETS)
        check_exactly_one(self, _TRIGGERS)
        if self.fresh is not None and self.flow is not None:
            raise invalid("`fresh` needs a source or a job, because a flow has no data of its own")
        if self.after and (self.after.source, self.after.flow) == (self.source, self.flow):
            raise invalid(
                "`after` names the source or flow that this schedule itself runs; name another one"
            )
        first, last = self._bounds
        if first and last and last <= first:
            raise invalid("`end` must be later than `start`")
        for window_start, window_end in self._windows:
            if window_end <= window_start:
                raise invalid("`exclude` has a window whose `to` is not later than its `from`")
        if self.trigger is not None and not self._has_occurrence():
            raise invalid(
                "it never fires: no time is between `start` and `end` and outside `exclude`"
            )
        return self

    def stated(self) -> dict[str, Any]:
        """Return the values that were set, as JSON has them."""
        return self.model_dump(by_alias=True, mode="json", exclude_unset=True)

    @cached_property
    def zone(self) -> ZoneInfo:
        """The time zone."""
        return ZoneInfo(self.timezone)

    @cached_property
    def trigger(self) -> Trigger | None:
        """The trigger by time; None: something else triggers it."""
        if self.cron is not None:
            return Cron(self.cron, self.zone)
        if self.calendar is not None:
            return Cron(parse_calendar(self.calendar), self.zone)
        if self.at is not None:
            return OneOff(_time_of(self.at), self.zone)
        if self.every is not None:
            anchor = _begin(self.start or _MONDAY, self.zone)
            return Interval(timedelta(seconds=self.every), anchor, self.zone)
        return None

    @cached_property
    def delay(self) -> timedelta:
        """How much later than its nominal time an occurrence is started: the jitter."""
        digest = hashlib.sha256(self.name.encode()).digest()
        return timedelta(seconds=self.jitter * int.from_bytes(digest[:8]) / 2**64)

    def upcoming(self, after: datetime) -> Iterator[Occurrence]:
        """Yield the occurrences later than `after`, from start to end, excluded ones included."""
        if self.trigger is None:
            return
        start, end = self._bounds
        for one in self.trigger.upcoming(max(after, start - _TICK) if start else after):
            if end and one.nominal >= end:
                return
            yield one

    def is_active(self, at: datetime) -> bool:
        """Return whether a time is between start and end."""
        start, end = self._bounds
        return (start is None or start <= at) and (end is None or at < end)

    def exclusion(self, nominal: datetime) -> Exclusion | None:
        """Return the exclusion that an occurrence falls into."""
        for exclusion, (start, end) in zip(self.exclude, self._windows, strict=True):
            if start <= nominal < end:
                return exclusion
        return None

    @cached_property
    def _bounds(self) -> tuple[datetime | None, datetime | None]:
        start = None if self.start is None else _begin(self.start, self.zone)
        return start, None if self.end is None else _end(self.end, self.zone)

    @cached_property
    def _windows(self) -> list[tuple[datetime, datetime]]:
        return [exclusion.window(self.zone) for exclusion in self.exclude]

    def _has_occurrence(self) -> bool:
        after = _EPOCH
        while (found := next_occurrence(self, after)) is not None:
            exclusion = self.exclusion(found.nominal)
            if exclusion is None:
                return True
            after = exclusion.window(self.zone)[1] - _TICK
        return False


def make_schedule(values: Mapping[str, Any], *, timezone: str = "UTC") -> Schedule:
    """Return the schedule of these values; `timezone` is that of a schedule without its own.

    Raises:
        BadOption: a name is unknown or a value is invalid.
    """
    try:
        return Schedule.model_validate({"timezone": timezone, **values})
    except ValidationError as error:
        first = error.errors()[0]
        loc = [str(part) for part in first["loc"]]
        if first["type"] == "unknown_name":
            loc.append(first["ctx"]["name"])
        raise BadOption(".".join(loc) or "schedule", describe_error(first)) from None


def read_schedule(
    document: Document, loc: Sequence[str | int], defaults: Mapping[str, Any]
) -> Schedule:
    """Return the schedule at a location of a document.

    Args:
        document: a manifest, a job file or the settings file.
        loc: where the values of the schedule are.
        defaults: values that the document does not have to repeat, such as the name and the source.

    Raises:
        BadFile: it is invalid; of several problems, the first in the file is reported.
    """
    node = document.node(loc)
    if node is None:
        raise document.error(loc, "it is missing")
    values = node.plain()
    try:
        return Schedule.model_validate(
            {**defaults, **values} if isinstance(values, dict) else values
        )
    except ValidationError as error:
        found = select_problem(error, node)
        raise document.error((*loc, *found.loc), found.problem, (*loc, *found.near)) from None


def target_text(schedule: Schedule) -> str:
    """Return what a schedule runs."""
    if schedule.source is not None:
        return f"source {schedule.source}"
    return f"flow {schedule.flow}" if schedule.flow is not None else f"job {schedule.job}"


def trigger_text(schedule: Schedule, duration_text: Callable[[float], str]) -> str:
    """Return when a schedule runs; `duration_text` writes a number of seconds."""
    if schedule.every is not None:
        return f"every {duration_text(schedule.every)}"
    if schedule.fresh is not None:
        return f"data older than {duration_text(schedule.fresh)}"
    if schedule.after is not None:
        return f"after {schedule.after.source or f'flow {schedule.after.flow}'}"
    if schedule.on is not None:
        return f"on {schedule.on.event}"
    if schedule.at is not None:
        return f"at {schedule.at.isoformat()}"
    return str(schedule.cron or schedule.calendar)


def _begin(value: date, zone: ZoneInfo) -> datetime:
    """Return the time in UTC; of a date its first second."""
    at = _time_of(value)
    return at.astimezone(UTC) if at.tzinfo else resolve(at, zone).nominal


def _end(value: date, zone: ZoneInfo) -> datetime:
    """Return the time in UTC; of a date the first second of the next one."""
    return _begin(value if isinstance(value, datetime) else value + timedelta(days=1), zone)


def _time_of(value: date) -> datetime:
    return value if isinstance(value, datetime) else datetime.combine(value, time())
