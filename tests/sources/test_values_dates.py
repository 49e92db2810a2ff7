from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.sources.parsing.values import read_value


@pytest.mark.parametrize(
    "text",
    [
        "2024-05-01",
        "2024-05-01T10:00:00Z",
        "2024/5/1",
        "1 May 2024",
        "May 1, 2024",
        "1-May-2024",
        "1. Mai 2024",
        "1er mai 2024",
        "1 de mayo de 2024",
        "1 maggio 2024",
        "1 maja 2024",
        "01.05.2024",
        "2024年5月1日",
        "Published on 1 May 2024 by Mars",
        "Wed, 01 May 2024 10:00:00 GMT",
        1714557600,
        1714557600000,
    ],
)
def test_a_date_is_read_as_people_and_programs_write_it(text: Any) -> None:
    assert read_value("date", text) == "2024-05-01"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("01/05/2024", "locale"),
        ("31.02.2024", "day"),
        ("yesterday", "date"),
        ("May 2024", "date"),
        ("1 May 24", "date"),
        ("1 May 2024 – 3 May 2024", "2 dates"),
    ],
)
def test_no_part_of_a_date_is_made_up(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_value("date", text)


@pytest.mark.parametrize(
    ("locale", "day"), [("en-US", "2024-01-05"), ("en-GB", "2024-05-01"), ("fr", "2024-05-01")]
)
def test_a_locale_says_whether_the_day_comes_first(locale: str, day: str) -> None:
    assert read_value("date", "01/05/2024", locale=locale) == day


def test_a_form_explains_a_date_that_nothing_else_does() -> None:
    assert read_value("date", "1.5.24", form="%d.%m.%y") == "2024-05-01"


def test_a_date_that_does_not_keep_to_the_form_is_refused() -> None:
    with pytest.raises(ValueError, match=r"%d.%m.%y"):
        read_value("date", "2024-05-01", form="%d.%m.%y")


@given(st.dates(date(1900, 1, 1), date(2100, 1, 1)))
def test_any_day_survives_the_german_way(day: date) -> None:
    assert read_value("date", f"{day:%d.%m.%Y}") == day.isoformat()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-05-01T10:00:00Z", "2024-05-01T10:00:00+00:00"),
        ("2024-05-01 10:00", "2024-05-01T10:00:00"),
        ("1 May 2024 at 10:30 PM", "2024-05-01T22:30:00"),
        ("01.05.2024 10:30 Uhr", "2024-05-01T10:30:00"),
        ("1 May 2024 10:30 CET", "2024-05-01T10:30:00+01:00"),
        ("1 May 2024 10:30 +0200", "2024-05-01T10:30:00+02:00"),
        (1714557600, "2024-05-01T10:00:00+00:00"),
    ],
)
def test_a_moment_keeps_its_offset_and_is_given_none(text: Any, moment: str) -> None:
    assert read_value("datetime", text) == moment


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2024-05-01", "time"),
        ("1 May 2024 10:30 CST", "CST"),
        ("1 May 2024 13:30 PM", "time"),
        ("1 May 2024 25:30", "time"),
    ],
)
def test_no_part_of_a_moment_is_made_up(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_value("datetime", text)
