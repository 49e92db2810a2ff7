"""Validation: every broken rule is reported with its place; a message has three, the error all."""

from __future__ import annotations

import pickle
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from longline.core.errors import BadFile, BadOption
from longline.pipeline.pipeline import Validate
from longline.pipeline.stages import ValidationFailed
from tests.pipeline.drafts import draft

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
    with pytest.raises(ValidationFailed) as failed:
        Validate(rules)(draft(data))
    return failed.value.problems


def places_of(rules: Any, data: dict[str, Any]) -> list[str]:
    """Return the paths of the fields that break a rule."""
    return [problem.partition(": ")[0] for problem in problems_of(rules, data)]


def test_what_fits_a_schema_is_the_same_draft() -> None:
    given = draft(GOOD)

    assert Validate(SCHEMA)(given) is given


def test_a_model_converts_data() -> None:
    given = draft({"title": "Flat", "price": "5", "rooms": 2, "floor": 0})

    assert Validate(Flat)(given).data == {"title": "Flat", "price": 5.0, "rooms": 2, "floor": 0}


@pytest.mark.parametrize(
    ("change", "place", "datum"),
    [
        ({"title": None}, "title", "null"),
        ({"title": "x"}, "title", "2"),
        ({"price": 0}, "price", "0"),
        ({"price": float("nan")}, "price", "null"),
        ({"price": True}, "price", "number"),
        ({"link": "no address"}, "link", "uri"),
        ({"day": "31.01.2026"}, "day", "date"),
        ({"rooms": [{"m2": 5}, {"m2": "x"}]}, "rooms[1].m2", "integer"),
    ],
)
def test_a_broken_rule_is_reported_with_its_place(
    change: dict[str, Any], place: str, datum: str
) -> None:
    (problem,) = problems_of(SCHEMA, {**GOOD, **change})

    assert problem.startswith(f"{place}: ")
    assert datum in problem


def test_text_that_has_no_utf_8_cannot_be_stored() -> None:
    assert len(problems_of(SCHEMA, {**GOOD, "title": "half a pair: \ud800"})) == 1


def test_a_value_that_cannot_be_stored_is_reported_with_its_type() -> None:
    (problem,) = problems_of(SCHEMA, {**GOOD, "title": b"Flat"})

    assert "title" in problem
    assert "bytes" in problem


def test_a_missing_field_is_reported_by_its_name() -> None:
    assert places_of(SCHEMA, {}) == ["title", "price"]


@pytest.mark.parametrize(
    ("rule", "value", "datum"),
    [
        ({"enum": ["a", "b"]}, "c", "a"),
        ({"const": 1}, 2, "1"),
        ({"minimum": 3}, 2, "3"),
        ({"maximum": 3}, 4, "3"),
        ({"exclusiveMaximum": 3}, 3, "3"),
        ({"multipleOf": 2}, 3, "2"),
        ({"maxLength": 1}, "ab", "1"),
        ({"pattern": "^a"}, "b", "^a"),
        ({"minItems": 1}, [], "1"),
        ({"maxItems": 1}, [1, 2], "1"),
        ({"uniqueItems": True}, [1, 1], ""),
        ({"contains": {"const": 1}}, [2], ""),
        ({"additionalProperties": False}, {"x": 1}, "x"),
        ({"anyOf": [{"type": "null"}]}, 1, ""),
        ({"oneOf": [{"type": "null"}]}, 1, ""),
        ({"not": {"type": "integer"}}, 1, ""),
        ({"format": "date-time"}, "2026-01-31T10:00:00", "date-time"),
        ({"format": "time"}, "noon", "time"),
        ({"format": "duration"}, "1 day", "duration"),
        ({"format": "hostname"}, "-a-", "hostname"),
        ({"format": "email"}, "a", "email"),
        ({"format": "uuid"}, "a", "uuid"),
        ({"if": {"type": "integer"}, "then": False}, 1, ""),
    ],
)
def test_each_rule_is_checked_and_named(rule: dict[str, Any], value: Any, datum: str) -> None:
    (problem, *_) = problems_of({"properties": {"a": rule}}, {"a": value})

    place, _, sentence = problem.partition(": ")
    assert place == "a"
    assert sentence
    assert datum in sentence


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
def test_a_format_accepts_valid_texts_and_other_types(form: str, value: Any) -> None:
    Validate({"properties": {"a": {"format": form}}})(draft({"a": value}))


def test_three_problems_are_in_the_message_and_all_are_kept() -> None:
    with pytest.raises(ValidationFailed) as failed:
        Validate(Flat)(draft({}))

    shown = [name for name in Flat.model_fields if f"{name}: " in str(failed.value)]
    assert len(failed.value.problems) == 4
    assert shown == ["title", "price", "rooms"]
    assert "1" in str(failed.value).partition("rooms: ")[2]  # how many were left out


def test_a_validation_error_survives_pickling() -> None:
    error = ValidationFailed("item 7", ("a: is missing", "b: is missing"))

    back = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own, from the line itself

    assert (str(back), back.problems) == (str(error), error.problems)


def test_a_schema_validates_data_as_it_is_stored() -> None:
    rules = {"properties": {"day": {"type": "string", "format": "date"}}}

    Validate(rules)(draft({"day": date(2026, 1, 31)}))


def test_a_schema_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "flat.json"
    path.write_text('{"required": ["title"]}')

    assert places_of(path, {}) == ["title"]
    assert places_of({"file": str(path)}, {}) == ["title"]


@pytest.mark.parametrize(("text", "line"), [("{", 1), ("[]", 0)])
def test_a_file_without_a_schema_is_refused(tmp_path: Path, text: str, line: int) -> None:
    path = tmp_path / "flat.json"
    path.write_text(text)

    with pytest.raises(BadFile) as refused:
        Validate(path)

    assert (refused.value.path, refused.value.line) == (str(path), line)


@pytest.mark.parametrize(
    ("schema", "option", "datum"),
    [
        ({"type": "text"}, "type", "text"),
        (
            {"properties": {"a": {"$ref": "https://far.test/schema"}}},
            "$ref",
            "https://far.test/schema",
        ),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "$ref", "#/$defs/none"),
        ({"properties": {"a": {"format": "colour"}}}, "format", "'colour'"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "$schema", "2020-12"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(
    schema: dict[str, Any], option: str, datum: str
) -> None:
    with pytest.raises(BadOption) as refused:
        Validate(schema)

    assert refused.value.option == option
    assert datum in refused.value.problem


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"properties": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/properties/a"}]}}},
        {"dependentSchemas": {"a": {"$dynamicRef": "#"}}},
    ],
)
def test_an_endless_schema_quarantines_every_record(schema: dict[str, Any]) -> None:
    with pytest.raises(ValidationFailed):
        Validate(schema)(draft({"a": 1}))


def test_a_recursive_schema_of_nested_data_is_accepted() -> None:
    tree = {
        "required": ["name"],
        "properties": {
            "children": {"items": {"anyOf": [{"$ref": "#"}]}},
            "allOf": True,
            "dependentSchemas": {"$ref": "#"},
            "$ref": {"type": "string"},
        },
    }

    places = places_of(tree, {"name": "a", "children": [{"name": "b"}], "dependentSchemas": {}})

    assert places == ["dependentSchemas.name"]
