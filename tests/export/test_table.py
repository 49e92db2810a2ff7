"""What the columns of a table are, by what the records hold."""

from __future__ import annotations

from typing import Any

import pytest

from longline.export.columns import ColumnType, distinct_names
from longline.export.table import FieldSurvey


def kind_of(*values: Any) -> ColumnType:
    survey = FieldSurvey()
    for value in values:
        survey.add({"data": {"x": value}})
    return survey.columns()[-1].type


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ((True, None), ColumnType.BOOLEAN),
        ((1, -(2**63) + 1, None), ColumnType.INTEGER),
        ((2**63,), ColumnType.JSON),
        ((1, 0.5), ColumnType.NUMBER),
        ((2**53 + 1, 0.5), ColumnType.JSON),
        ((True, 1), ColumnType.JSON),
        (("a", ""), ColumnType.TEXT),
        (("a", 1), ColumnType.JSON),
        (([1], {"a": 1}), ColumnType.JSON),
        ((None,), ColumnType.TEXT),
        ((float("nan"), 1), ColumnType.INTEGER),
    ],
)
def test_a_column_is_what_all_its_values_are(values: tuple[Any, ...], kind: ColumnType) -> None:
    assert kind_of(*values) is kind


@pytest.mark.parametrize("text", ["2026-11-15T17:00:00Z", "0001-01-01T00:00:00.5+00:00"])
def test_a_certain_timestamp_is_a_timestamp(text: str) -> None:
    assert kind_of(text, None, text) is ColumnType.TIMESTAMP


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-15",  # a day
        "2026-11-15T17:00:00",  # of which zone?
        "2026-11-15T17:00:00+02:00",  # the zone would be lost
        "2026-11-15T17:00:00.1234567Z",  # a digit would be
        "2026-02-31T17:00:00Z",  # there is none
        "2026-11-15 17:00:00Z",
        "",
    ],
)
def test_an_uncertain_timestamp_is_text(text: str) -> None:
    assert kind_of("2026-11-15T17:00:00Z", text) is ColumnType.TEXT


def test_names_stay_distinct_by_case_and_length() -> None:
    names = ["a", "A", "a_2", "", "x" * 70, "x" * 71]

    assert distinct_names(names, max_bytes=63) == [
        "a",
        "A_2",
        "a_2_2",
        "_",
        "x" * 63,
        "x" * 61 + "_2",
    ]
