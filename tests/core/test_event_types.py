"""The catalogue of event types: complete, documented, and able to read older versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from longline.core.errors import BadOption
from longline.core.event_types import EVENT_TYPES, EventType, event_type, match_types

PAGE = Path(__file__).parent.parent.parent / "docs" / "events.md"


@pytest.mark.parametrize("one", EVENT_TYPES.values(), ids=EVENT_TYPES)
def test_a_type_is_documented_and_has_a_schema(one: EventType) -> None:
    row = f"| `{one.name}` | {one.about.partition('=')[0]} | {one.meaning} |"

    assert row in PAGE.read_text("utf-8").splitlines()
    Draft202012Validator.check_schema(one.json_schema())
    assert one.json_schema()["type"] == "object"


def test_the_page_names_no_other_types() -> None:
    types = PAGE.read_text("utf-8").partition("## Types")[2]
    rows = [line for line in types.splitlines() if line.startswith("| `")]

    assert len(rows) == len(EVENT_TYPES)


def test_the_subject_is_the_job_or_what_the_data_names() -> None:
    assert event_type("job.created").subject("shop-1", {}) == "job/shop-1"
    assert event_type("breaker.opened").subject("shop-1", {"domain": "a.test"}) == "domain/a.test"
    assert event_type("robots.rate").subject(None, {"host": "b.test"}) == "domain/b.test"


def test_older_data_is_converted_when_it_is_read() -> None:
    def to_2(data: Any) -> Any:
        return {"rate": data["per_minute"] / 60}

    def to_3(data: Any) -> Any:
        return {**data, "burst": 5}

    one = EventType("limit.set", dict, version=3, upcasters={1: to_2, 2: to_3})

    assert one.upcast({"per_minute": 120}, 1) == {"rate": 2, "burst": 5}
    assert one.upcast({"rate": 2}, 2) == {"rate": 2, "burst": 5}
    assert one.upcast({"rate": 2, "burst": 1}, 3) == {"rate": 2, "burst": 1}


def test_patterns_select_types() -> None:
    assert match_types(["breaker.*", "job.created"]) == [
        "breaker.opened",
        "breaker.closed",
        "job.created",
    ]


@pytest.mark.parametrize("name", ["job.compete", "jobs.*", ""])
def test_an_unknown_type_is_refused(name: str) -> None:
    with pytest.raises(BadOption):
        match_types([name])


def test_types_of_others_have_a_prefix() -> None:
    assert event_type("custom.sold_out").name == "custom.sold_out"
