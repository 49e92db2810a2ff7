"""Profiles: bounded, the same in pieces as in one, and plain JSON."""

from __future__ import annotations

import json

import pytest

from longline.drift.profiles import (
    Profile,
    Sketch,
    chance_of_fewer,
    profile_run,
    shape_of,
)
from tests.drift.drifting_shapes import shapes_of


def test_a_profile_counts_the_fields_of_records() -> None:
    rows = [{"a": "xx", "b": n if n % 2 else None, "c": {"d": [1]}} for n in range(40)]

    profile, _ = profile_run([shape_of(str(n), row) for n, row in enumerate(rows)])

    assert profile.records == 40
    assert {name: profile.share(name) for name in profile.fields} == {
        "a": 1.0,
        "b": 0.5,
        "c": 1.0,
        "c.d": 1.0,
    }
    assert profile.fields["b"].kinds == {"number": 20}
    assert (profile.fields["b"].sizes["number"].low, profile.fields["b"].extremes["filled"]) == (
        1,
        (0.5, 0.5),
    )


def test_a_profile_survives_json() -> None:
    profile, _ = profile_run(shapes_of(1, 300))
    profile.quiet = {"nothing"}

    again = Profile.from_json(json.loads(json.dumps(profile.as_json())))

    assert again == profile


def test_merged_profiles_count_like_one() -> None:
    shapes = shapes_of(1, 200)
    whole, first, second = (profile_run(some)[0] for some in (shapes, shapes[:100], shapes[100:]))

    first.merge(second)

    assert first.records == whole.records
    assert {n: (f.filled, f.kinds, f.extremes) for n, f in first.fields.items()} == {
        n: (f.filled, f.kinds, f.extremes) for n, f in whole.fields.items()
    }


def test_a_field_that_one_run_lacks_was_empty_there() -> None:
    profile, _ = profile_run([shape_of(str(n), {"a": 1}) for n in range(20)])

    profile.merge(profile_run([shape_of(str(n), {"b": 1}) for n in range(20)])[0])

    assert (profile.share("a"), profile.share("b")) == (0.5, 0.5)
    assert profile.fields["a"].extremes["filled"] == (0.0, 1.0)
    assert profile.fields["b"].extremes["filled"] == (0.0, 1.0)


def test_a_sketch_is_an_even_sample() -> None:
    sketch = Sketch()

    sketch.add(float(n) for n in range(100_000))

    assert (sketch.count, sketch.low, sketch.high) == (100_000, 0.0, 99_999.0)
    assert len(sketch.values) < 200
    assert sketch.quantile(0.5) == pytest.approx(50_000, rel=0.05)


@pytest.mark.parametrize(("left", "right"), [(10_000, 100), (100, 10_000), (50, 50)])
def test_merged_sketches_are_bounded_and_even(left: int, right: int) -> None:
    one, other = Sketch(), Sketch()
    one.add([1.0] * left)
    other.add([2.0] * right)

    one.merge(other)

    assert (one.count, one.low, one.high) == (left + right, 1.0, 2.0)
    assert len(one.values) < 200
    assert one.values.count(2.0) / len(one.values) == pytest.approx(
        right / (left + right), abs=0.05
    )


def test_the_fields_of_a_profile_are_bounded() -> None:
    shapes = [shape_of(str(n), {f"field {n}": 1}) for n in range(1000)]

    assert len(profile_run(shapes)[0].fields) == 200


@pytest.mark.parametrize("value", [None, "", [], {}, float("nan"), float("inf")])
def test_an_empty_value_is_not_filled(value: object) -> None:
    assert shape_of("1", {"a": value}).cells == {"a": None}


@pytest.mark.parametrize("value", [0, False, "x", [0], {"b": None}])
def test_a_value_is_filled(value: object) -> None:
    assert shape_of("1", {"a": value}).cells["a"] is not None


def test_the_chance_of_fewer_is_that_of_the_exact_test() -> None:
    # The lady who tastes tea: three of four cups right by chance, 17 ways of 70.
    assert chance_of_fewer(3, 4, 1, 4) == pytest.approx(17 / 70)
    assert chance_of_fewer(10, 10, 0, 10) == pytest.approx(1 / 184_756)
    assert chance_of_fewer(5, 10, 10, 10) == pytest.approx(1.0)


def test_a_set_has_the_shape_of_the_list_that_is_stored() -> None:
    cells = shape_of("a", {"tags": {"b", "a"}}).cells

    assert cells == shape_of("a", {"tags": ["a", "b"]}).cells
