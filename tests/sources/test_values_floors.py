"""Floors as ads of several countries write them."""

from __future__ import annotations

from typing import Any

import pytest

from longline.sources.parsing.values import read_value


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
def test_the_floors_of_a_house_may_stand_alone(text: Any) -> None:
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
def test_floors_that_are_not_told_are_not_guessed(text: str) -> None:
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
