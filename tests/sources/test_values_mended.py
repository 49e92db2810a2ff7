from __future__ import annotations

import re
from typing import Any

import pytest

from longline.sources.parsing.values import read_value


@pytest.mark.parametrize(
    ("kind", "value", "form", "read"),
    [
        ("date", 20240531, None, "2024-05-31"),
        ("date", 20240531.0, None, "2024-05-31"),
        ("date", 310524, "%d%m%y", "2024-05-31"),
        ("date", 20240531, "%Y%m%d", "2024-05-31"),
        ("date", 1714557600, None, "2024-05-01"),
        ("date", 2024152, "%Y%j", "2024-05-31"),
        ("datetime", 20240531103000, "%Y%m%d%H%M%S", "2024-05-31T10:30:00"),
        ("datetime", 1714557600000, None, "2024-05-01T10:00:00+00:00"),
    ],
)
def test_a_number_is_a_day_or_a_moment_where_it_looks_like_one(
    kind: str, value: Any, form: str | None, read: str
) -> None:
    assert read_value(kind, value, form=form) == read


@pytest.mark.parametrize(
    ("kind", "value", "form", "reason"),
    [
        ("date", 2024, None, "2024"),
        ("date", 0, None, "1970"),
        ("date", 20241399, None, "20241399"),
        ("date", 10**15, None, "1970"),
        ("date", float("nan"), None, "1970"),
        ("date", float("inf"), None, "1970"),
        ("datetime", 20240531, None, "time"),
        ("datetime", 20240531103000, None, "form"),
        ("date", 1714557600, "%d.%m.%Y", "%d.%m.%Y"),
        ("date", "1712010151234", None, "date"),
        ("date", "2024-W05", None, "date"),
    ],
)
def test_a_number_that_is_not_a_timestamp_is_refused(
    kind: str, value: Any, form: str | None, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        read_value(kind, value, form=form)


@pytest.mark.parametrize(
    ("kind", "text", "form"),
    [
        ("date", "31.05.", "%d.%m."),
        ("date", "2024", "%Y"),
        ("date", "05/2024", "%m/%Y"),
        ("date", "10:30", "%H:%M"),
        ("datetime", "31.05.2024", "%d.%m.%Y"),
        ("datetime", "31.05.2024 10", "%d.%m.%Y %I"),
        ("datetime", "31.05.2024 10 GMT", "%d.%m.%Y %H %Z"),
        ("date", "2024 5 %d", "%Y %m %%d"),
    ],
)
def test_an_incomplete_format_is_refused(kind: str, text: str, form: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(form))):
        read_value(kind, text, form=form)


@pytest.mark.parametrize("kind", ["number", "integer", "money"])
@pytest.mark.parametrize(
    "text", ["(5)", "($5)", "(5 €)", "$(5)", "(EUR 5)", "(5k)", "5-", "5 €-", "0x1F", "12abc"]
)
def test_what_may_be_negative_or_no_number_is_never_read_as_one(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"negative|number"):
        read_value(kind, text)


@pytest.mark.parametrize(
    ("text", "number"),
    [("Reviews (5)", 5), ("(5 reviews)", 5), ("-$5", -5), ("(-5)", -5), ("12kg", 12), ("12個", 12)],
)
def test_brackets_and_units_around_a_number_do_not_hide_it(text: str, number: float) -> None:
    assert read_value("number", text) == number


@pytest.mark.parametrize(
    ("value", "form", "reason"),
    [
        ("50¢", None, "cents"),
        ("50 cents", None, "cents"),
        ("€5M", None, "'M'"),
        (float("nan"), None, "finite"),
        ({"price": float("inf")}, None, "finite"),
        ({"price": True}, None, "finite"),
        (10**400, None, "large"),
        ("5", "%d", "currency"),
        ("5", "euros", "currency"),
    ],
)
def test_what_is_no_amount_of_a_currency_is_refused(
    value: Any, form: str | None, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        read_value("money", value, form=form)


@pytest.mark.parametrize(
    ("text", "form", "amount", "currency"),
    [
        ("1.5k €", None, 1500.0, "EUR"),
        ("2.3 Mio €", None, 2_300_000.0, "EUR"),
        ("-US$5", None, -5.0, "USD"),
        ("5", "€", 5.0, "EUR"),
        ("5", "eur", 5.0, "EUR"),
        ("5", "kr", 5.0, "kr"),
    ],
)
def test_money_is_counted_out(text: str, form: str | None, amount: float, currency: str) -> None:
    assert read_value("money", text, form=form) == {"amount": amount, "currency": currency}


@pytest.mark.parametrize("kind", ["number", "integer"])
@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 12345678901234567890])
def test_a_long_whole_number_keeps_its_digits(kind: str, value: int) -> None:
    assert read_value(kind, value) == value
    assert read_value(kind, str(value)) == value


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("31 May 2024 10:00 +05", "2024-05-31T10:00:00+05:00"),
        ("31 May 2024 10:00 GMT-3", "2024-05-31T10:00:00-03:00"),
        ("31 May 2024 10:00 (CET)", "2024-05-31T10:00:00+01:00"),
        ("10:00 May 31, 2024", "2024-05-31T10:00:00"),
        ("31 May 2024 10:00 by Joe", "2024-05-31T10:00:00"),
        ("Fri, 31 May 2024 10:00:00 +0530", "2024-05-31T10:00:00+05:30"),
        ("Fri, 31 May 2024 10:00:00 +05", "2024-05-31T10:00:00+05:00"),
        (
            "Fri May 31 2024 10:00:00 GMT+0200 (Central European Summer Time)",
            "2024-05-31T10:00:00+02:00",
        ),
    ],
)
def test_a_zone_is_kept(text: str, moment: str) -> None:
    assert read_value("datetime", text) == moment


@pytest.mark.parametrize(
    "day", ["31 May 2024 10:00", "Fri, 31 May 2024 10:00:00", "2024-05-31T10:00"]
)
@pytest.mark.parametrize(
    ("zone", "reason"),
    [
        ("AEST", "AEST"),
        ("PT", "PT"),
        ("pt", "pt"),
        ("(PT)", "PT"),
        ("Pacific Time", "Pacific Time"),
        ("Europe/Berlin", "Europe/Berlin"),
        ("-3", "-3"),
        ("+25:00", r"\+25:00"),
    ],
)
def test_a_zone_that_is_not_known_is_not_lost(day: str, zone: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_value("datetime", f"{day} {zone}")


@pytest.mark.parametrize("text", ["5 min 5 min", "1 h and 2 hours"])
def test_two_durations_are_not_added_up(text: str) -> None:
    with pytest.raises(ValueError, match=r"min|hours"):
        read_value("duration", text)


@pytest.mark.parametrize("kind", ["number", "integer"])
def test_a_number_too_long_to_keep_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        read_value(kind, "123456789012345678901234567890", locale="en")
