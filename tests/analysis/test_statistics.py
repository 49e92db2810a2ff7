"""Figures of many records: exact while they are few, honest samples when they are not."""

from __future__ import annotations

import operator
import re
import tracemalloc
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, ClassVar

import pytest

from longline.analysis.statistics import (
    DatasetStatistics,
    FieldStatistics,
    LostPoints,
    dataset_statistics,
    quality_statistics,
)
from longline.pipeline.quality import CrossCheck, QualityRules
from longline.sources.base import Source
from tests.pipeline.drafts import score_of


def of(figures: DatasetStatistics, field: str) -> FieldStatistics:
    (found,) = [one for one in figures.fields if one.field == field]
    return found


def rows(*data: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"data": one} for one in data]


def test_a_field_has_its_share_types_and_different_values() -> None:
    figures = dataset_statistics(rows({"a": 1}, {"a": 1}, {"a": "x"}, {"a": None}, {"a": ""}, {}))

    found = of(figures, "a")
    assert figures.records == 6
    assert (found.filled, found.share, found.distinct) == (3, 0.5, 2)
    assert found.types == {"number": 2, "text": 1}
    assert not found.is_distinct_capped


def test_numbers_have_a_spread_and_texts_have_lengths() -> None:
    figures = dataset_statistics(rows(*({"price": n, "title": "x" * n} for n in (1, 2, 3, 4, 13))))

    price, title = of(figures, "price").numbers, of(figures, "title").lengths
    assert price is not None
    assert title is not None
    assert (price.smallest, price.median, price.largest) == (1, 3, 13)
    assert price.histogram == (1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1)
    assert title == price
    assert not price.is_sampled
    assert of(figures, "price").lengths is None


def test_a_field_of_one_value_has_one_bar() -> None:
    spread = of(dataset_statistics(rows({"a": 5}, {"a": 5})), "a").numbers

    assert spread is not None
    assert spread.histogram == (2,)


def test_booleans_are_not_numbers_and_nested_values_are_fields() -> None:
    figures = dataset_statistics(
        rows({"sold": True, "address": {"city": "Bern"}}, {"address": None})
    )

    assert of(figures, "sold").types == {"boolean": 1}
    assert of(figures, "sold").numbers is None
    assert of(figures, "address.city").filled == 1
    assert of(figures, "address").filled == 0


def test_many_records_are_marked_as_sampled() -> None:
    figures = dataset_statistics({"data": {"n": n}} for n in range(30_000))

    found = of(figures, "n")
    assert found.numbers is not None
    assert found.numbers.is_sampled
    assert (found.numbers.smallest, found.numbers.largest) == (0, 29_999)
    assert found.numbers.median == pytest.approx(15_000, rel=0.1)
    assert (found.distinct, found.is_distinct_capped) == (5_000, True)


def test_the_same_records_have_the_same_figures() -> None:
    def many() -> Iterator[dict[str, Any]]:
        return ({"data": {"n": n}} for n in range(9_000))

    assert dataset_statistics(many()) == dataset_statistics(many())


def test_a_site_that_makes_up_fields_is_cut_short() -> None:
    figures = dataset_statistics(rows(*({f"field {n}": 1} for n in range(300))))

    assert (len(figures.fields), figures.is_cut) == (200, True)


def test_records_are_not_held() -> None:
    tracemalloc.start()
    figures = dataset_statistics({"data": {"text": f"{n} " * 500}} for n in range(20_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert figures.records == 20_000
    assert peak < 5_000_000


def judged(score: float | None, *reasons: str, earned: float = 40) -> dict[str, Any]:
    part = {"name": "fields", "weight": 50, "earned": earned, "reasons": list(reasons)}
    grade = None if score is None else ("Good" if score >= 75 else "Poor")
    return {"score": score, "grade": grade, "about": {"quality": {"parts": [part]}}}


class Counted(Source):
    """A source with one rule: two of its fields are equal."""

    name = "counted"
    quality_rules: ClassVar[QualityRules] = QualityRules(
        layers={"page": 1},
        checks=(CrossCheck("nodes", ("count", "listed"), operator.eq),),
        consistency=1,
    )


def conflicting(number: int) -> dict[str, Any]:
    """Return a record whose fields do not agree."""
    quality = score_of(Counted(), {"count": number, "listed": number + 1}, {"page": "ok"})
    about = {"quality": asdict(quality)}
    return {"score": quality.score, "grade": quality.grade, "about": about}


def test_quality_has_a_histogram_classes_and_reasons() -> None:
    figures = quality_statistics(
        [
            judged(80.0, "price: missing"),
            judged(75.0, "price: missing", "city: missing"),
            judged(100.0, earned=50),
            judged(0.0, "nothing", earned=0),
            judged(None),
        ]
    )

    assert (figures.records, figures.scored, figures.mean) == (5, 4, 63.75)
    assert figures.histogram == (1, 0, 0, 0, 0, 0, 0, 1, 1, 1)
    assert figures.grades == {"Good": 3, "Poor": 1, "unscored": 1}
    assert figures.lost == {"fields": 17.5}
    assert figures.reasons[0] == LostPoints("fields", "price: missing", 2)
    assert len(figures.reasons) == 3


def test_conflicts_are_counted_without_the_values_of_one_record() -> None:
    figures = quality_statistics(map(conflicting, range(1, 10)))

    (found,) = figures.reasons
    assert (found.part, found.records) == ("consistency", 9)
    assert found.reason.startswith("nodes: ")
    assert re.findall(r"\d", found.reason) == []


def test_reasons_beyond_the_limit_are_counted_together() -> None:
    figures = quality_statistics((judged(60.0, f"reason {n}") for n in range(2_500)), most=10)

    assert (len(figures.reasons), figures.other_reasons) == (10, 500)


def test_without_records_there_are_no_figures() -> None:
    assert dataset_statistics([]) == DatasetStatistics(0, ())
    assert (quality_statistics([]).mean, sum(quality_statistics([]).histogram)) == (None, 0)
