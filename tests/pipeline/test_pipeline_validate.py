"""Validation: every rule that data breaks is named with its place, three told and all kept."""

from __future__ import annotations

import pickle
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from longline.errors import BadFile, BadOption, Misfit
from longline.pipeline.validate import Validate
from pipeline.drafts import draft

SCHEMA = {
    "type": "object",
    "required": ["title", "price"],
    "properties": {
        "title": {"type": "string", "minLength": 2},
        "price": {"type": "number", "exclusiveMinimum": 0},
        "link": {"type": "string", "format": "uri"},
        "day": {"type": "string", "format": "date"},
        "rooms": {"type": "array", "items": {"$ref": "#/$defs/room"}},
    },
    "$defs": {"room": {"type": "object", "properties": {"m2": {"type": "integer"}}}},
}
GOOD = {"title": "Flat", "price": 5.5, "link": "https://a.test/", "day": "2026-01-31"}


class Flat(BaseModel):
    title: str
    price: float
    rooms: int
    floor: int


def problems_of(rules: Any, data: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(Misfit) as told:
        Validate(rules)(draft(data))
    return told.value.problems


def test_what_fits_a_schema_is_the_same_draft() -> None:
    given = draft(GOOD)

    assert Validate(SCHEMA)(given) is given


def test_a_model_makes_of_data_what_it_understands() -> None:
    given = draft({"title": "Flat", "price": "5", "rooms": 2, "floor": 0})

    assert Validate(Flat)(given).data == {"title": "Flat", "price": 5.0, "rooms": 2, "floor": 0}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"title": None}, "title: must be a text, not null"),
        ({"title": "x"}, "title: must have 2 characters or more"),
        ({"price": 0}, "price: must be more than 0"),
        ({"price": float("nan")}, "price: must be a number, not null"),
        ({"price": True}, "price: must be a number, not true or false"),
        ({"link": "no address"}, "link: must be a uri"),
        ({"day": "31.01.2026"}, "day: must be a date"),
        ({"rooms": [{"m2": 5}, {"m2": "x"}]}, "rooms[1].m2: must be a whole number, not a text"),
        ({"title": "half a pair: \ud800"}, "it cannot be stored: "),
        ({"title": b"Flat"}, "it cannot be stored: field title is of type bytes, "),
    ],
)
def test_a_broken_rule_is_told_with_its_place(change: dict[str, Any], problem: str) -> None:
    (told,) = problems_of(SCHEMA, {**GOOD, **change})

    assert told.startswith(problem)


def test_a_missing_field_is_told_by_its_name() -> None:
    assert problems_of(SCHEMA, {}) == ("title: is missing", "price: is missing")


@pytest.mark.parametrize(
    ("rule", "value", "problem"),
    [
        ({"enum": ["a", "b"]}, "c", "must be one of a, b"),
        ({"const": 1}, 2, "must be 1"),
        ({"minimum": 3}, 2, "must be 3 or more"),
        ({"maximum": 3}, 4, "must be 3 or less"),
        ({"exclusiveMaximum": 3}, 3, "must be less than 3"),
        ({"multipleOf": 2}, 3, "must be a multiple of 2"),
        ({"maxLength": 1}, "ab", "must have 1 characters or fewer"),
        ({"pattern": "^a"}, "b", "must match ^a"),
        ({"minItems": 1}, [], "must have 1 entries or more"),
        ({"maxItems": 1}, [1, 2], "must have 1 entries or fewer"),
        ({"uniqueItems": True}, [1, 1], "must not have the same entry twice"),
        ({"contains": {"const": 1}}, [2], "has no entry of the kind it must have"),
        ({"additionalProperties": False}, {"x": 1}, "has fields that are not allowed: x"),
        ({"anyOf": [{"type": "null"}]}, 1, "fits none of the allowed forms"),
        ({"oneOf": [{"type": "null"}]}, 1, "must fit exactly one of the allowed forms"),
        ({"not": {"type": "integer"}}, 1, "is of a form that is not allowed"),
        ({"format": "date-time"}, "2026-01-31T10:00:00", "must be a date-time"),
        ({"format": "time"}, "noon", "must be a time"),
        ({"format": "duration"}, "1 day", "must be a duration"),
        ({"format": "hostname"}, "-a-", "must be a hostname"),
        ({"format": "email"}, "a", "must be a email"),
        ({"format": "uuid"}, "a", "must be a uuid"),
        ({"if": {"type": "integer"}, "then": False}, 1, "does not satisfy"),
    ],
)
def test_each_rule_has_a_sentence(rule: dict[str, Any], value: Any, problem: str) -> None:
    (told, *_) = problems_of({"properties": {"a": rule}}, {"a": value})

    assert told.startswith(f"a: {problem}")


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("date-time", "2026-01-31T10:00:00Z"),
        ("date-time", "2026-01-31T10:00:00+02:00"),
        ("time", "10:00:00Z"),
        ("duration", "P1DT2H"),
        ("hostname", "a.b-c.test"),
        ("uri", "mailto:a@b.test"),
        ("email", 5),
    ],
)
def test_a_format_takes_what_is_of_it_and_leaves_types_to_others(form: str, value: Any) -> None:
    Validate({"properties": {"a": {"format": form}}})(draft({"a": value}))


def test_three_problems_are_told_and_all_are_kept() -> None:
    with pytest.raises(Misfit) as told:
        Validate(Flat)(draft({}))

    assert len(told.value.problems) == 4
    assert str(told.value).endswith("rooms: Field required and 1 more")
    assert "floor" not in str(told.value)


def test_a_misfit_survives_the_way_home() -> None:
    error = Misfit("item 7", ("a: is missing", "b: is missing"))

    back = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own, from the line itself

    assert (str(back), back.problems) == (str(error), error.problems)


def test_a_schema_is_asked_about_data_as_it_is_going_to_be_stored() -> None:
    rules = {"properties": {"day": {"type": "string", "format": "date"}}}

    Validate(rules)(draft({"day": date(2026, 1, 31)}))


def test_a_schema_may_stand_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "flat.json"
    path.write_text('{"required": ["title"]}')

    assert problems_of(path, {}) == ("title: is missing",)
    assert problems_of({"file": str(path)}, {}) == ("title: is missing",)


@pytest.mark.parametrize(("text", "problem"), [("{", "is not JSON"), ("[]", "is an object")])
def test_a_file_that_holds_no_schema_is_told(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "flat.json"
    path.write_text(text)

    with pytest.raises(BadFile, match=problem):
        Validate(path)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "text"}, "no JSON Schema"),
        ({"properties": {"a": {"$ref": "https://far.test/schema"}}}, "points to nothing"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "points to nothing"),
        ({"$ref": "#"}, "circle that never ends"),
        (
            {"properties": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/properties/a"}]}}},
            "circle",
        ),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}}, "circle"),
        ({"dependentSchemas": {"a": {"$dynamicRef": "#"}}}, "circle"),
        ({"properties": {"a": {"format": "colour"}}}, "'colour' cannot be checked here"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "Draft 2020-12"),
    ],
)
def test_a_schema_that_cannot_be_followed_is_told_at_once(
    schema: dict[str, Any], problem: str
) -> None:
    with pytest.raises(BadOption, match=problem):
        Validate(schema)


def test_a_schema_may_speak_of_itself_where_the_data_becomes_smaller() -> None:
    tree = {
        "required": ["name"],
        "properties": {
            "children": {"items": {"anyOf": [{"$ref": "#"}]}},
            "allOf": True,
            "dependentSchemas": {"$ref": "#"},
            "$ref": {"type": "string"},
        },
    }

    problems = problems_of(tree, {"name": "a", "children": [{"name": "b"}], "dependentSchemas": {}})

    assert problems == ("dependentSchemas.name: is missing",)
