"""Durations, times and zones as they are written."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from longline.config.times import DateOrTime, Seconds, ZoneName

DURATION: TypeAdapter[float] = TypeAdapter(Seconds)
TIME: TypeAdapter[date] = TypeAdapter(DateOrTime)
ZONE: TypeAdapter[str] = TypeAdapter(ZoneName)


def problem(adapter: TypeAdapter[Any], value: Any) -> str:
    with pytest.raises(ValidationError) as error:
        adapter.validate_python(value)
    return str(error.value.errors()[0]["msg"])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (90, 90),
        (1.5, 1.5),
        ("250ms", 0.25),
        ("30s", 30),
        ("15 m", 900),
        ("12h", 43_200),
        ("2w", 1_209_600),
    ],
)
def test_a_duration_has_a_unit_or_is_seconds(text: Any, seconds: float) -> None:
    assert DURATION.validate_python(text) == seconds


@pytest.mark.parametrize("text", ["soon", "-1h", "1 fortnight", "", "400d", True, None, "1h30m"])
def test_what_is_not_a_duration_is_refused(text: Any) -> None:
    assert problem(DURATION, text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-12-01", date(2026, 12, 1)),
        (" 2026-12-01 ", date(2026, 12, 1)),
        ("2026-12-01T06:00", datetime(2026, 12, 1, 6)),  # noqa: DTZ001  # a wall time
        ("2026-12-01 06:00", datetime(2026, 12, 1, 6)),  # noqa: DTZ001  # a wall time
        ("2026-12-01T06:00Z", datetime(2026, 12, 1, 6, tzinfo=UTC)),
        ("2026-12-01T06:00+02:00", datetime(2026, 12, 1, 6, tzinfo=timezone(timedelta(hours=2)))),
        (date(2026, 12, 1), date(2026, 12, 1)),
    ],
)
def test_a_date_stays_a_date_and_a_time_a_time(text: Any, value: date) -> None:
    parsed = TIME.validate_python(text)

    assert (parsed, type(parsed)) == (value, type(value))
    assert TIME.validate_json(TIME.dump_json(parsed)) == value


@pytest.mark.parametrize(
    "text", ["2026-02-30", "tomorrow", "", "0001-01-01", "9999-12-31T23:59", 20261201.5, 0, None]
)
def test_what_is_not_a_date_is_refused(text: Any) -> None:
    assert problem(TIME, text)


@pytest.mark.parametrize("name", ["UTC", "Europe/Sofia", "Australia/Lord_Howe"])
def test_a_zone_is_known_by_its_iana_name(name: str) -> None:
    assert ZONE.validate_python(name) == name


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Europe/Sofa", "Europe/Sofia"),
        ("europe/sofia", "Europe/Sofia"),
        ("Sofia", "Europe/Sofia"),
        ("New York", "America/New_York"),
    ],
)
def test_the_nearest_zone_is_proposed(name: str, meant: str) -> None:
    assert meant in problem(ZONE, name)


@pytest.mark.parametrize("name", ["", "Europe", "/etc/passwd", "../UTC", "a\0b", "x" * 300])
def test_what_is_not_a_zone_is_refused(name: str) -> None:
    assert problem(ZONE, name)
