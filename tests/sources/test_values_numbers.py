from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.sources.parsing.values import KINDS, ValueKind, read_value


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


def test_a_sign_of_several_countries_is_told_apart_by_the_locale() -> None:
    assert read_value("money", "$12", locale="en-US")["currency"] == "USD"
    assert read_value("money", "$12", locale="en-CA")["currency"] == "CAD"
    assert read_value("money", "12 kr", locale="sv")["currency"] == "SEK"


def test_a_currency_that_is_said_stands_in_where_the_text_has_none() -> None:
    assert read_value("money", "12", form="CHF") == {"amount": 12.0, "currency": "CHF"}


def test_manifests_and_readers_know_the_same_kinds() -> None:
    assert set(KINDS) == set(ValueKind.__args__)  # type: ignore[attr-defined]  # a Literal has them
