"""The stages of a pipeline: what each makes of a draft, and that none changes what it is given."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.core.errors import BadOption, NothingToStore, UnexpectedShape
from longline.core.model import Note
from longline.pipeline.filter import Filter
from longline.pipeline.map import Map
from longline.pipeline.stages import Draft, FrozenDict, FrozenList, frozen
from tests.pipeline.drafts import draft

FLAT = {
    "title": "Flat",
    "price": {"amount": 12.5, "currency": "BGN"},
    "rooms": [{"m2": 20}, {"m2": 12}],
    "agent": None,
}
LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.text()
VALUES = st.recursive(
    LEAVES, lambda below: st.lists(below) | st.dictionaries(st.text(), below), max_leaves=20
)
CHANGES = [
    lambda data: data.update(title="x"),
    lambda data: data.pop("title"),
    lambda data: data.setdefault("new", 1),
    lambda data: data.__setitem__("title", "x"),
    lambda data: data.__delitem__("title"),
    lambda data: data["price"].clear(),
    lambda data: data["price"].popitem(),
    lambda data: data["rooms"].append(1),
    lambda data: data["rooms"].sort(),
    lambda data: data["rooms"][0].__setitem__("m2", 1),
    lambda data: data["rooms"].__iadd__([1]),
    lambda data: data.__ior__({"title": "x"}),
]


@given(VALUES)
def test_frozen_data_equals_the_original(value: Any) -> None:
    again = frozen(value)

    assert again == value
    assert orjson.dumps(again) == orjson.dumps(value)


@pytest.mark.parametrize("change", CHANGES)
def test_a_stage_that_changes_its_draft_fails_loudly(change: Any) -> None:
    data = draft(FLAT).data

    with pytest.raises(TypeError):
        change(data)

    assert data == FLAT


@pytest.mark.parametrize(("kind", "base"), [(FrozenDict, dict), (FrozenList, list)])
def test_every_way_to_change_a_dict_or_a_list_is_closed(kind: type, base: type) -> None:
    ways = {"__setitem__", "__delitem__", "__ior__", "__iadd__", "__imul__", "append", "clear"}
    ways |= {"extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "sort"}
    ways |= {"update"}

    still_open = {way for way in ways & set(dir(base)) if getattr(kind, way) is getattr(base, way)}

    assert still_open == set()


def test_freezing_what_is_frozen_copies_nothing() -> None:
    data = frozen(FLAT)

    assert frozen(data) is data


# ---------------------------------------------------------------- map


def test_a_map_renames_and_picks_by_path_and_drops_the_rest() -> None:
    mapped = Map({"name": "title", "amount": "price.amount", "sizes": "rooms[].m2"})(draft(FLAT))

    assert mapped.data == {"name": "Flat", "amount": 12.5, "sizes": [20, 12]}


def test_a_map_keeps_the_others_when_it_says_so_and_drops_what_is_null() -> None:
    mapped = Map({"*": "*", "amount": "price.amount", "price": None})(draft(FLAT))

    assert mapped.data == {
        "title": "Flat",
        "rooms": FLAT["rooms"],
        "agent": None,
        "amount": 12.5,
    }


def test_a_constant_has_the_map_as_its_provenance() -> None:
    mapped = Map({"country": {"value": "BG"}, "none": {"value": None}})(draft(FLAT))

    assert mapped.data == {"country": "BG", "none": None}
    assert mapped.provenance["country"].startswith("map")


def test_provenance_follows_the_field() -> None:
    given = draft(FLAT, title="page a h1", price="page a .price", rooms="extra b")

    mapped = Map({"name": "title", "sum": "sum(rooms[].m2)", "both": "[title, price.amount]"})(
        given
    )

    assert mapped.provenance == {
        "name": "page a h1",
        "sum": "extra b",
        "both": "page a .price; page a h1",
    }


def test_a_note_follows_its_field_and_goes_with_one_that_is_dropped() -> None:
    notes = (Note("agent", "not shown"), Note("price", "odd"), Note("layer", "timed out"))

    mapped = Map({"seller": "agent"})(draft(FLAT, *notes))

    assert set(mapped.notes) == {Note("seller", "not shown"), Note("layer", "timed out")}


def test_a_path_that_finds_nothing_is_null_with_a_note() -> None:
    mapped = Map({"city": "address.city"})(draft(FLAT))

    assert mapped.data == {"city": None}
    (note,) = mapped.notes
    assert note.field == "city"
    assert "address.city" in note.text


def test_a_path_that_cannot_be_followed_is_quarantined() -> None:
    with pytest.raises(UnexpectedShape) as failed:
        Map({"sum": "sum(title)"})(draft(FLAT))

    assert failed.value.where == "item 7"
    assert failed.value.problem.startswith("sum: ")


@pytest.mark.parametrize(
    ("fields", "datum"),
    [
        ({"a": "b."}, "'b.'"),
        ({"a": 5}, "path"),
        ({}, "1"),
        ({"*": "title"}, "*"),
    ],
)
def test_a_map_that_cannot_be_used_is_refused(fields: dict[str, Any], datum: str) -> None:
    with pytest.raises(BadOption) as refused:
        Map(fields)

    assert refused.value.option.startswith("map")
    assert datum in str(refused.value)


# ---------------------------------------------------------------- filter


def test_what_passes_a_filter_is_the_same_draft() -> None:
    given = draft(FLAT)

    assert Filter("price.amount > `10`")(given) is given


@pytest.mark.parametrize(
    ("condition", "field", "wanted"),
    [
        ("price.amount > `20`", "price.amount > `20`", ""),
        ("area > `20`", "area > `20`", "missing"),
        ([{"field": "price.amount", "at_least": 13}], "price.amount", "13"),
        ([{"field": "price.amount", "at_most": 12}], "price.amount", "12"),
        ([{"field": "price.amount", "above": 12.5}], "price.amount", "12.5"),
        ([{"field": "price.amount", "below": 12.5}], "price.amount", "12.5"),
        ([{"field": "agent", "filled": True}], "agent", "empty"),
        ([{"field": "title", "filled": False}], "title", "filled"),
        ([{"field": "title", "equals": "House"}], "title", "House"),
        ([{"field": "title", "differs": "Flat"}], "title", "Flat"),
        ([{"field": "title", "one_of": ["House"]}], "title", "House"),
        ([{"field": "title", "contains": "house"}], "title", "house"),
        ([{"field": "title", "matches": "^H"}], "title", "^H"),
        ([{"field": "agent", "above": 1}], "agent", "empty"),
        (["title", {"field": "price.currency", "equals": "EUR"}], "price.currency", "EUR"),
    ],
)
def test_a_draft_that_does_not_pass_is_skipped_with_the_reason(
    condition: Any, field: str, wanted: str
) -> None:
    with pytest.raises(NothingToStore) as skipped:
        Filter(condition)(draft(FLAT))

    assert field in skipped.value.reason
    assert wanted in skipped.value.reason


@pytest.mark.parametrize(
    "condition",
    [
        [{"field": "title", "contains": "fLA"}],
        [{"field": "price.currency", "one_of": ["EUR", "BGN"]}, "title"],
        [{"field": "agent", "equals": None}],
        [{"field": "agent", "filled": False}],
        [{"field": "price.amount", "at_least": 12.5}, {"field": "price.amount", "at_most": 12.5}],
        "length(rooms) == `2`",
        "`0`",
    ],
)
def test_a_draft_that_meets_the_conditions_passes(condition: Any) -> None:
    given = draft(FLAT)

    assert Filter(condition)(given) is given


@pytest.mark.parametrize("condition", ["sum(title)", [{"field": "title", "above": 3}]])
def test_what_cannot_be_compared_is_quarantined_and_not_skipped(condition: Any) -> None:
    with pytest.raises(UnexpectedShape) as failed:
        Filter(condition)(draft(FLAT))

    assert failed.value.where == "item 7"
    assert "filter" in failed.value.problem


def test_a_draft_is_a_new_one_after_a_stage() -> None:
    given = draft(FLAT)

    mapped = Map({"title": "title"})(given)

    assert isinstance(mapped, Draft)
    assert given.data == FLAT
