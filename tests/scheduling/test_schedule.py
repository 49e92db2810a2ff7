"""Definitions of schedules: what they mean, and one clear error for each mistake."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.config.documents import parse_document
from longline.core.errors import BadFile, BadOption
from longline.scheduling.schedule import Overlap, Schedule, make_schedule, read_schedule
from longline.scheduling.triggers import next_occurrence, occurrences
from tests.config.messages import absent
from tests.scheduling.schedules import schedule, utc

DEFAULTS = {"name": "nightly", "source": "shop", "timezone": "Europe/Sofia"}


def read(text: str) -> Schedule:
    """Read a schedule from the key `schedule` of a file; its first line is line 2."""
    lines = "\n  ".join(text.splitlines())
    document = parse_document(f"schedule:\n  {lines}\n".encode(), Path("shop.yaml"))
    return read_schedule(document, ("schedule",), DEFAULTS)


def days(planned: Schedule, after: str, until: str) -> list[str]:
    return [f"{one.local:%m-%d %H:%M}" for one in occurrences(planned, utc(after), utc(until))]


def test_a_schedule_in_a_file_takes_what_it_does_not_repeat() -> None:
    planned = read("cron: 30 3 * * *\ntimezone: America/New_York\nmisfire: all\noverlap: queue_one")

    assert (planned.name, planned.source, planned.timezone) == (
        *("nightly", "shop", "America/New_York"),
    )
    assert (planned.misfire.policy, planned.overlap) == ("all", Overlap.QUEUE_ONE)


def test_the_time_zone_is_utc_or_that_of_the_home() -> None:
    values = {"name": "nightly", "source": "shop", "every": "1h"}

    assert make_schedule(values).timezone == "UTC"
    assert make_schedule(values, timezone="Europe/Sofia").timezone == "Europe/Sofia"
    assert (
        make_schedule({**values, "timezone": "Asia/Tokyo"}, timezone="UTC").timezone == "Asia/Tokyo"
    )


@pytest.mark.parametrize(
    "values",
    [
        {"cron": "*/5 * * * *", "jitter": "5m", "misfire": {"policy": "all", "max_age": "2d"}},
        {"every": "90m", "start": "2026-01-01", "end": "2026-12-31T12:00", "set": {"a": 1}},
        {"calendar": "first Monday 06:00", "exclude": ["2026-12-07", {"date": "2027-01-04"}]},
        {"at": "2026-12-01T06:00+02:00", "params": {"page": 3}, "enabled": False},
        {"after": {"flow": "prices", "states": "any", "within": "6h"}, "priority": -5},
        {"after": "catalogue", "pause_after_failures": 3},
        {"on": {"event": "drift.*", "source": "catalogue"}, "overlap": "cancel_running"},
        {"on": "custom.ready"},
        {"fresh": "24h"},
        {
            "every": "1d",
            "exclude": [{"from": "2026-12-24T18:00", "to": "2026-12-26", "reason": "holidays"}],
        },
    ],
)
def test_a_stored_definition_is_read_back(values: dict[str, Any]) -> None:
    planned = schedule(**values)

    assert make_schedule(planned.stated()) == planned


@pytest.mark.parametrize("values", [{"after": "catalogue"}, {"on": "job.failed"}, {"fresh": "1d"}])
def test_other_triggers_have_no_occurrences_by_time(values: dict[str, Any]) -> None:
    planned = schedule(**values)

    assert planned.trigger is None
    assert next_occurrence(planned, utc("2026-01-01")) is None


# ---------------- Start, end and exclusions


def test_start_is_the_first_time_and_a_date_at_the_end_is_included() -> None:
    planned = schedule(cron="0 6 * * *", start="2026-03-02T06:00", end="2026-03-04")

    assert days(planned, "2026-01-01", "2027-01-01") == [
        "03-02 06:00",
        "03-03 06:00",
        "03-04 06:00",
    ]


def test_a_time_at_the_end_is_not_included() -> None:
    planned = schedule(cron="0 6 * * *", start="2026-03-03", end="2026-03-04T06:00")

    assert days(planned, "2026-01-01", "2027-01-01") == ["03-03 06:00"]


def test_start_and_end_are_wall_times() -> None:
    planned = schedule(every="6h", start="2026-06-01", end="2026-06-01", timezone="Europe/Sofia")

    assert days(planned, "2026-01-01", "2027-01-01") == [
        *("06-01 00:00", "06-01 06:00", "06-01 12:00", "06-01 18:00"),
    ]


def test_an_interval_without_a_start_is_at_round_times() -> None:
    weekly = schedule(every="1w", timezone="Europe/Sofia")

    found = next_occurrence(weekly, utc("2026-12-01"))

    assert found is not None
    assert f"{found.local:%a %H:%M}" == "Mon 00:00"


@pytest.mark.parametrize(
    ("nominal", "reason"),
    [
        ("2026-12-24T21:59", None),
        ("2026-12-24T22:00", "Christmas"),  # midnight in Sofia
        ("2026-12-25T21:59", "Christmas"),
        ("2026-12-25T22:00", None),
        ("2026-12-31T15:59", None),
        ("2026-12-31T16:00", "New Year"),
        ("2027-01-02T21:59", "New Year"),
        ("2027-01-02T22:00", None),
    ],
)
def test_exclusions_are_days_and_windows_of_wall_time(nominal: str, reason: str | None) -> None:
    planned = schedule(
        every="1h",
        timezone="Europe/Sofia",
        exclude=[
            {"date": "2026-12-25", "reason": "Christmas"},
            {"from": "2026-12-31T18:00", "to": "2027-01-02", "reason": "New Year"},
        ],
    )

    found = planned.exclusion(utc(nominal))

    assert (found and found.reason) == reason


def test_a_schedule_may_exclude_all_but_its_last_occurrence() -> None:
    planned = schedule(
        cron="0 0 * * *", start="2026-12-25", end="2026-12-26T00:01", exclude=["2026-12-25"]
    )

    found = list(occurrences(planned, utc("2026-01-01"), utc("2027-01-01")))

    assert [planned.exclusion(one.nominal) is None for one in found] == [False, True]


# ---------------- Jitter


@given(st.text("abcdefgh-_.019", min_size=1, max_size=30), st.integers(0, 86_400))
def test_jitter_is_a_stable_delay_within_its_bounds(suffix: str, jitter: int) -> None:
    planned = [schedule(name=f"a{suffix}", every="1h", jitter=jitter) for _ in range(2)]

    assert timedelta() <= planned[0].delay <= timedelta(seconds=jitter)
    assert planned[0].delay == planned[1].delay


def test_jitter_spreads_schedules_of_different_names() -> None:
    delays = [schedule(name=f"shop-{n}", every="1h", jitter=100).delay for n in range(200)]

    tenths = {int(delay.total_seconds() // 10) for delay in delays}
    assert tenths == set(range(10))


def test_jitter_is_the_same_on_every_machine() -> None:
    planned = schedule(name="nightly", every="1h", jitter="1h")

    assert planned.delay == timedelta(seconds=593.887147)  # by the SHA-256 of the name


# ---------------- Errors


@pytest.mark.parametrize(
    ("text", "place", "named"),
    [
        ("cron: 61 3 * * *", (2, 3), "schedule.cron minute"),
        ("cron: nonsense", (2, 3), "schedule.cron"),
        ("cron: 0 0 30 2 *", (2, 3), "schedule.cron never"),
        ("every: soon", (2, 3), "schedule.every 30s"),
        ("every: 0", (2, 3), "schedule.every"),
        ("every: 1500ms", (2, 3), "schedule.every"),
        ("calendar: someday", (2, 3), "schedule.calendar Monday"),
        ("calendar: 30 of February 06:00", (2, 3), "schedule.calendar never"),
        ("at: tomorrow", (2, 3), "schedule.at 2026-12-01T06:00"),
        ("every: 1h\ntimezone: Europe/Sofa", (3, 3), "schedule.timezone Europe/Sofia"),
        ("every: 1h\nstart: 2026-12-01\nend: 2026-11-01", (4, 3), "end start"),
        ("every: 1h\nstart: 2026-12-01\nend: 2026-12-01T00:00", (4, 3), "end start"),
        ("cron: 0 0 29 2 *\nstart: 2026-01-01\nend: 2027-12-31", (3, 3), "never start end"),
        ("at: 2026-12-25T06:00\nexclude: [2026-12-25]", (3, 3), "never exclude"),
        ("at: 2026-12-25T06:00\nstart: 2027-01-01", (3, 3), "never start"),
        ("cron: 0 6 * * *\nevery: 1h", (2, 3), "cron every"),
        ("jitter: 5m", (1, 1), "cron every calendar at after on fresh"),
        ("every: 1h\nflow: prices", (3, 3), "source flow"),
        ("every: 1h\njitter: 2d", (3, 3), "schedule.jitter"),
        ("every: 1h\noverlap: never", (3, 3), "schedule.overlap skip queue_one"),
        ("every: 1h\nmisfire: some", (3, 3), "schedule.misfire latest"),
        ("every: 1h\nmisfire: {max_count: 0}", (3, 13), "schedule.misfire.max_count"),
        ("every: 1h\nexclude: [Christmas]", (3, 13), "exclude[0] 2026-12-01"),
        ("every: 1h\nexclude: [{from: 2026-12-24}]", (3, 13), "exclude[0].to"),
        ("every: 1h\nexclude: [{from: 2026-12-24, to: 2026-12-23}]", (3, 3), "exclude"),
        ("every: 1h\nexclude: [{date: 2026-12-24T06:00}]", (3, 14), "exclude[0] date"),
        ("every: 1h\nexclude: [{date: 2026-12-24, to: 2026-12-26}]", (3, 14), "exclude[0] date"),
        ("every: 1h\nname: a b", (3, 3), "schedule.name"),
        ("crom: 0 6 * * *", (2, 3), "schedule.crom cron"),
        ("after: shop", (2, 3), "after"),
        ("after: {flow: prices, source: list}", (2, 25), "schedule.after source flow"),
        ("after: {source: list, states: good}", (2, 25), "schedule.after.states partial"),
        ("on: job.fail", (2, 3), "schedule.on job.failed"),
        ("source: null\nflow: prices\nfresh: 24h", (4, 3), "fresh source"),
        ("pause_after_failures: 0\nevery: 1h", (2, 3), "schedule.pause_after_failures"),
    ],
)
def test_a_mistake_in_a_file_is_one_error_at_its_place(
    text: str, place: tuple[int, int], named: str
) -> None:
    with pytest.raises(BadFile) as error:
        read(text)

    assert (error.value.line, error.value.column) == place
    assert absent(error.value.problem, named) == []
    assert "\n" not in error.value.problem


@pytest.mark.parametrize(
    ("values", "option"),
    [
        ({}, "schedule"),
        ({"cron": "61 * * * *"}, "cron"),
        ({"every": "1h", "timezone": "Mars/Base"}, "timezone"),
        ({"every": "1h", "exclude": [{"date": "soon"}]}, "exclude.0.date"),
        ({"every": "1h", "colour": "red"}, "colour"),
        ({"every": "1h", "start": "2026-02-01", "end": "2026-01-01"}, "schedule"),
    ],
)
def test_a_mistake_in_values_names_the_option(values: dict[str, Any], option: str) -> None:
    with pytest.raises(BadOption) as error:
        schedule(**values)

    assert error.value.option == option


def test_a_schedule_that_is_not_a_mapping_is_refused() -> None:
    document = parse_document(b"schedule: daily\n", Path("shop.yaml"))

    with pytest.raises(BadFile):
        read_schedule(document, ("schedule",), DEFAULTS)
    with pytest.raises(BadFile):
        read_schedule(document, ("schedules", "nightly"), DEFAULTS)
