"""Numbers, money, dates, durations, areas and floors as people write them."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.sources.parsing.values import read_value


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.234,56 €", 1234.56),
        ("1 234,56", 1234.56),
        ("1\u202f234,56", 1234.56),
        ("1,234.56", 1234.56),
        ("1'234.50", 1234.5),
        ("1,23,456.78", 123456.78),
        ("1.234.567", 1234567.0),
        ("1,5", 1.5),
        ("0.500", 0.5),
        (".5", 0.5),
        ("\u22125,5", -5.5),
        ("12 in stock", 12.0),
        ("SKU-123", 123.0),
        ("1.2k", 1200.0),
        ("3 Mio", 3_000_000.0),
        ("1.5e3", 1500.0),
        ("٣٤٥", 345.0),
        (7, 7.0),
    ],
)
def test_a_number_is_read_as_people_write_it(text: Any, number: float) -> None:
    assert read_value("number", text) == number


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1.234", "locale"),
        ("10-20", "2"),
        ("H2O", "number"),
        ("", "number"),
        ("5M", "'M'"),
        ("12.345,6.7", "commas"),
        ("1e400", "large"),
        ([1], "text"),
        (True, "text"),
        (float("nan"), "finite"),
    ],
)
def test_what_is_no_single_number_is_not_guessed(text: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_value("number", text)


@pytest.mark.parametrize(("locale", "number"), [("de", 1234.0), ("en", 1.234), ("de-CH", 1.234)])
def test_a_locale_decides_what_can_be_read_in_two_ways(locale: str, number: float) -> None:
    assert read_value("number", "1.234", locale=locale) == number


def test_a_number_that_is_not_written_as_the_locale_does_is_refused() -> None:
    with pytest.raises(ValueError, match="locale"):
        read_value("number", "12.50", locale="de")


@given(st.integers(-(10**15), 10**15))
def test_any_whole_number_survives_english_and_german_grouping(number: int) -> None:
    english = f"{number:,}"

    assert read_value("integer", english, locale="en") == number
    assert read_value("integer", english.replace(",", "."), locale="de") == number


@pytest.mark.parametrize(("text", "number"), [("1.234", 1234), ("12.0", 12), (3.0, 3)])
def test_a_whole_number_has_no_decimals_to_mistake(text: Any, number: int) -> None:
    value = read_value("integer", text)

    assert value == number
    assert isinstance(value, int)


@pytest.mark.parametrize("text", ["12.5", 3.5])
def test_decimals_are_not_cut_off_a_whole_number(text: Any) -> None:
    with pytest.raises(ValueError, match="whole"):
        read_value("integer", text)


@pytest.mark.parametrize(
    ("text", "amount", "currency"),
    [
        ("1.234,56 €", 1234.56, "EUR"),
        ("€1,234.56", 1234.56, "EUR"),
        ("1.234 €", 1234.0, "EUR"),
        ("19,- €", 19.0, "EUR"),
        ("-€5", -5.0, "EUR"),
        ("US$ 12", 12.0, "USD"),
        ("USD12.50", 12.5, "USD"),
        ("$12 USD", 12.0, "USD"),
        ("R$ 1.234,50", 1234.5, "BRL"),
        ("12 zł", 12.0, "PLN"),
        ("$12", 12.0, "$"),
        ("12", 12.0, None),
        (12.5, 12.5, None),
        ({"price": "12.50", "priceCurrency": "EUR"}, 12.5, "EUR"),
    ],
)
def test_money_is_an_amount_and_a_currency(text: Any, amount: float, currency: str | None) -> None:
    assert read_value("money", text) == {"amount": amount, "currency": currency}


@pytest.mark.parametrize(
    ("text", "reason"),
    [("€10 – €20", "2"), ("Free", "number"), ("€5 $", "2"), ({}, "amount")],
)
def test_what_is_not_one_amount_is_not_guessed(text: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_value("money", text)


def test_the_locale_decides_a_sign_of_several_countries() -> None:
    assert read_value("money", "$12", locale="en-US")["currency"] == "USD"
    assert read_value("money", "$12", locale="en-CA")["currency"] == "CAD"
    assert read_value("money", "12 kr", locale="sv")["currency"] == "SEK"


def test_the_form_is_the_currency_of_a_text_without_one() -> None:
    assert read_value("money", "12", form="CHF") == {"amount": 12.0, "currency": "CHF"}


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
def test_a_time_keeps_its_offset_and_gets_none(text: Any, moment: str) -> None:
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
def test_no_part_of_a_time_is_made_up(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_value("datetime", text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT1H30M", 5400),
        ("P1DT2H", 93600),
        ("1:30:00", 5400),
        ("1 h 30 min", 5400),
        ("1h 30m", 5400),
        ("90 Minuten", 5400),
        ("1,5 Stunden", 5400),
        ("2 days and 3 hours", 183600),
    ],
)
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    assert read_value("duration", text) == seconds


@pytest.mark.parametrize(
    ("text", "form", "seconds"),
    [("12:34", "m:s", 754), ("12:34", "h:m", 45240), (5, "minutes", 300), ("5", "min", 300)],
)
def test_a_form_says_what_the_numbers_of_a_duration_count(
    text: Any, form: str, seconds: float
) -> None:
    assert read_value("duration", text, form=form) == seconds


@pytest.mark.parametrize("text", ["12:34", "5", 5, "soon", "P", "1h30"])
def test_a_duration_without_units_is_not_guessed(text: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_value("duration", text)


@pytest.mark.parametrize(
    ("text", "metres"),
    [
        ("85 m²", 85.0),
        ("85,5 m2", 85.5),
        ("1.5 ha", 15000.0),
        ("100 sq ft", 9.290304),
        ("2 acres", 8093.712845),
    ],
)
def test_an_area_is_square_metres(text: str, metres: float) -> None:
    assert read_value("area", text) == metres


@pytest.mark.parametrize(
    ("text", "reason"),
    [("85", "unit"), ("10 m² 5 ft²", "2 units"), ("85 m² (3 rooms)", "2 numbers")],
)
def test_what_is_not_one_area_is_not_guessed(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_value("area", text)


def test_the_form_is_the_unit_of_a_text_without_one() -> None:
    assert read_value("area", "85", form="m²") == 85.0


@pytest.mark.parametrize(
    ("text", "value"), [("yes", True), ("Nein", False), (True, True), ("1", True), (0, False)]
)
def test_yes_and_no_are_known_in_several_languages(text: Any, value: bool) -> None:  # noqa: FBT001  # a parameter of the test
    assert read_value("boolean", text) is value


def test_what_is_neither_yes_nor_no_is_not_guessed() -> None:
    with pytest.raises(ValueError, match="yes"):
        read_value("boolean", "in stock")


@pytest.mark.parametrize("text", ["javascript:void(0)", "", "a b", "http://[", 5])
def test_a_value_that_is_not_a_url_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=r"URL|text"):
        read_value("url", text)


@pytest.mark.parametrize("text", ["/img/my photo.jpg", "my photo.jpg", " http://a.test/my photo "])
def test_the_url_of_a_file_may_have_spaces(text: str) -> None:
    assert read_value("image", text) == text.strip().replace(" ", "%20")


@pytest.mark.parametrize(
    "text", ["a view of the house", "No photo / ask us", "/img/a.jpg 1x, /img/b.jpg 2x"]
)
def test_a_text_is_not_the_url_of_a_file(text: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        read_value("image", text)


def test_json_in_a_text_is_read() -> None:
    assert read_value("json", '{"a": [1]}') == {"a": [1]}


def test_json_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        read_value("json", "{")


def test_text_has_single_spaces() -> None:
    assert read_value("text", " a \n\u00a0b ") == "a b"


@pytest.mark.parametrize(
    ("text", "floor", "floors"),
    [
        ("3/6", 3, 6),
        ("Етаж: 12 / 14", 12, 14),
        ("3-ти ет. от 6", 3, 6),
        ("Етаж 4 от общо 9 етажа", 4, 9),
        ("партер от 8", 0, 8),
        ("0/5", 0, 5),
        ("3 of 6", 3, 6),
        ("Ground floor of 6", 0, 6),
        ("3. OG von 6", 3, 6),
        ("EG von 4", 0, 4),
        ("-1/5", -1, 5),
        ("6/6", 6, 6),
    ],
)
def test_floor_and_floors_are_read_from_one_text(text: str, floor: int, floors: int) -> None:
    assert read_value("floor", text) == floor
    assert read_value("floors", text) == floors


@pytest.mark.parametrize(
    ("text", "floor"),
    [
        ("партер", 0),
        ("Ground floor", 0),
        ("EG", 0),
        ("Rez-de-chaussée", 0),
        ("сутерен", -1),
        ("Lower ground floor", -1),
        ("1-ви етаж", 1),
        ("3rd floor", 3),
        ("2ème étage", 2),
        ("11. Etage", 11),
        (4, 4),
        (4.0, 4),
    ],
)
def test_a_floor_is_a_number_and_the_ground_floor_is_zero(text: Any, floor: int) -> None:
    assert read_value("floor", text) == floor


@pytest.mark.parametrize("text", ["6 floors", "6 етажа", "6 Etagen", "6 storeys", 6])
def test_the_floors_of_a_house_are_read_without_a_floor(text: Any) -> None:
    assert read_value("floors", text) == 6


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "floor"),
        ("последен", "floor"),
        ("6 floors", "floor"),
        ("3-етажна къща", "floor"),
        ("2-3", "floor"),
        ("3.5", "floor"),
        ("1 или 2", "2 floors"),
        ("2. UG", "2 floors"),
        ("7/6", "7.*6"),
    ],
)
def test_what_is_not_one_floor_is_not_guessed(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_value("floor", text)


@pytest.mark.parametrize("text", ["3", "партер", "3. OG", "", "3 of 6, 8 floors"])
def test_missing_numbers_of_floors_are_not_guessed(text: str) -> None:
    with pytest.raises(ValueError, match="floors"):
        read_value("floors", text)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("area", "64 кв.м", 64),
        ("area", "64,5 кв. м.", 64.5),
        ("date", "Публикувана на 14 март 2026 г.", "2026-03-14"),
        ("date", "3 май 2026", "2026-05-03"),
        ("money", "1 200 лв.", {"amount": 1200, "currency": "BGN"}),
    ],
)
def test_bulgarian_units_months_and_money_are_known(kind: str, text: str, value: Any) -> None:
    assert read_value(kind, text, locale="bg") == value
