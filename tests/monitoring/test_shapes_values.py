"""The shapes of values that the store writes in another form, and of those that it refuses."""

from __future__ import annotations

from longline.monitoring.shapes import shape_of, shape_of_failure


def test_a_set_has_the_shape_of_the_list_that_is_stored() -> None:
    cells = shape_of("a", {"tags": {"b", "a"}}).cells

    assert cells == shape_of("a", {"tags": ["a", "b"]}).cells


def test_a_field_that_is_no_data_is_refused_and_not_missing() -> None:
    reason = "it cannot be stored: field b is of type bytes, which is no data; return text"

    shape = shape_of_failure("a", reason)

    assert (set(shape.cells), shape.refused) == ({"b"}, frozenset({"b"}))
