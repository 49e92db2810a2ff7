"""Durations, times and time zones as users write them."""

from __future__ import annotations

import contextlib
import os
import re
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError

from longline.config.validation import invalid, nearest
from longline.core.errors import BadOption

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_MAX_SECONDS = 366 * 86_400.0
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?")
_YEARS = range(1970, 2200)  # far from the ends of datetime, where a time zone would overflow


def _parse_duration(value: Any) -> float:
    found = None if isinstance(value, bool) else _DURATION.fullmatch(str(value).strip())
    seconds = float(found[1]) * _UNITS[found[2] or "s"] if found else -1.0
    if not 0 <= seconds <= _MAX_SECONDS:
        raise invalid("a duration is a number of seconds, or written as 30s, 15m, 12h, 1d or 2w")
    return seconds


def _parse_date(value: Any) -> date:
    try:
        parsed = _read_date(value) if isinstance(value, str) else value
    except ValueError:
        parsed = None
    if not isinstance(parsed, date) or parsed.year not in _YEARS:
        known = "a date such as 2026-12-01, or a time such as 2026-12-01T06:00"
        raise invalid(f"write {known}, in the years {_YEARS[0]} to {_YEARS[-1]}")
    return parsed


def _read_date(text: str) -> date | None:
    found = _DATE.fullmatch(text.strip())
    if found is None:
        return None
    kind = datetime if found[1] else date
    return kind.fromisoformat(found[0])


def _check_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown; not a name; a folder such as Europe
        meant = _nearest_zone(name)
        advice = f"did you mean {meant}?" if meant else "write a name such as Europe/Sofia or UTC"
        raise invalid(f"unknown time zone; {advice}") from None
    return name


def parse_zone(name: str) -> ZoneInfo:
    """Return a time zone by its name.

    Raises:
        BadOption: there is none of this name.
    """
    try:
        return ZoneInfo(_check_zone(name))
    except PydanticCustomError as error:
        raise BadOption("timezone", error.message()) from None


def local_zone() -> ZoneInfo:
    """Return the time zone of this machine; UTC if it cannot be found out."""
    names = [os.environ.get("TZ", "").removeprefix(":")]
    with contextlib.suppress(OSError):
        # A link into the database of time zones; the end of its path is the name.
        names.append(str(Path("/etc/localtime").resolve(strict=True)).partition("zoneinfo/")[2])
    for name in filter(None, names):
        with contextlib.suppress(KeyError, ValueError, OSError):
            return ZoneInfo(name)
    return ZoneInfo("UTC")


def _nearest_zone(name: str) -> str | None:
    """Return the zone with the most similar name, or whose city has it."""
    zones = {zone.lower(): zone for zone in sorted(available_timezones())}
    cities = {zone.rpartition("/")[2]: zone for zone in zones}
    wanted = name.strip().lower().replace(" ", "_")
    found = nearest(wanted, zones) or cities.get(nearest(wanted, cities) or "")
    return zones[found] if found else None


Seconds = Annotated[float, BeforeValidator(_parse_duration, json_schema_input_type=float | str)]
"""A duration in seconds, or as 30s, 15m, 12h, 1d, 2w."""

DateOrTime = Annotated[datetime | date, BeforeValidator(_parse_date, json_schema_input_type=str)]
"""A date, or a date with a time; without an offset the time zone is that of its context."""

ZoneName = Annotated[str, AfterValidator(_check_zone)]
"""The name of an IANA time zone, such as Europe/Sofia."""
