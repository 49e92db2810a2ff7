"""The shapes of values that the store writes in another form, and of those that it refuses."""

from __future__ import annotations

import tracemalloc
from typing import Any

import orjson
import pytest

from longline.drift.profiles import Shape, ShapeCache, shape_of, shape_of_failure
from longline.pipeline.stages import ValidationFailed
from longline.pipeline.validate import Validate
from tests.pipeline.drafts import draft


def test_a_set_has_the_shape_of_the_list_that_is_stored() -> None:
    cells = shape_of("a", {"tags": {"b", "a"}}).cells

    assert cells == shape_of("a", {"tags": ["a", "b"]}).cells


def test_a_field_that_is_no_data_is_refused_and_not_missing() -> None:
    with pytest.raises(ValidationFailed) as misfit:
        Validate({"properties": {}})(draft({"b": b"bytes"}))

    shape = shape_of_failure("a", str(misfit.value))

    assert (set(shape.cells), shape.refused) == ({"b"}, frozenset({"b"}))


def record(number: int) -> Any:
    parts = {f"part {one}": one % 3 for one in range(20)}
    data = {"title": f"Thing {number}", "price": 9.5, "tags": [1, 2], "parts": parts}
    return orjson.loads(orjson.dumps(data))  # as records come from the database


def shapes_of_many(shared: ShapeCache | None) -> list[Shape]:
    return [shape_of(str(one), record(one), one % 5, shared=shared) for one in range(300)]


def memory_of_many(shared: ShapeCache | None) -> int:
    tracemalloc.start()
    kept = shapes_of_many(shared)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == 300
    return used


def test_shapes_that_share_their_parts_are_the_same_shapes() -> None:
    assert shapes_of_many(ShapeCache()) == shapes_of_many(None)


def test_shapes_that_share_their_parts_take_half_the_memory_or_less() -> None:
    assert memory_of_many(ShapeCache()) <= memory_of_many(None) / 2


def test_a_flag_is_not_shared_with_an_equal_number() -> None:
    shared = ShapeCache()
    cells = shape_of("a", {"one": 1, "yes": True}, shared=shared).cells

    assert [cell and cell.kind for cell in cells.values()] == ["number", "flag"]
