from __future__ import annotations

from typing import Any

import pytest

from longline.sources.parsing.values import read_value


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


def test_a_unit_that_is_said_stands_in_where_the_text_has_none() -> None:
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


def test_json_in_a_text_is_read() -> None:
    assert read_value("json", '{"a": [1]}') == {"a": [1]}


def test_json_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        read_value("json", "{")


def test_text_has_single_spaces() -> None:
    assert read_value("text", " a \n\u00a0b ") == "a b"
