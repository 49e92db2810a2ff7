from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.core.model import Note
from longline.pipeline.quality import CrossCheck, Expect, QualityRules, grade_of, is_filled
from longline.sources.base import Source, Visit, layer
from longline.sources.n8n.source import RULES
from tests.pipeline.drafts import score_of

FIELDS = ("title", "author", "body", "count")
FINE = {"head": "ok", "tail": "ok"}


class Plain(Source):
    """Two layers and no rules."""

    name = "plain"

    @layer()
    async def head(self, _visit: Visit) -> dict[str, Any]:
        return {}

    @layer(optional=True)
    async def tail(self, _visit: Visit) -> dict[str, Any]:
        return {}


def has_a_body(data: Mapping[str, Any]) -> bool:
    return bool(data.get("body"))


def is_length(body: str, count: int) -> bool:
    return len(body) == count


class Ruled(Plain):
    """The same with rules: 60 for the head, 20 for the tail, 20 for what must agree."""

    name = "ruled"
    quality_rules: ClassVar[QualityRules] = QualityRules(
        layers={"head": 3, "tail": 1},
        expects=(
            Expect("head", "title", 2),
            Expect("head", "author"),
            Expect("tail", "count", when=has_a_body),
        ),
        checks=(
            CrossCheck("length", ("body", "count"), is_length),
            CrossCheck("title", ("title", "body"), lambda title, body: title in body or None),
        ),
        consistency=1,
    )


FULL = {"title": "x", "author": "y", "body": "xxx", "count": 3}


def test_a_full_record_earns_everything() -> None:
    found = score_of(Ruled(), FULL, FINE)

    assert (found.score, found.grade) == (100.0, "Excellent")
    assert [(part.name, part.weight, part.earned) for part in found.parts] == [
        ("head", 60.0, 60.0),
        ("tail", 20.0, 20.0),
        ("consistency", 20.0, 20.0),
    ]


def test_what_is_missing_though_expected_costs_its_share_and_says_why() -> None:
    found = score_of(Ruled(), {**FULL, "author": None}, FINE, [Note("author", "not on the page")])

    assert found.score == pytest.approx(80.0)
    (reason,) = found.parts[0].reasons
    assert reason.startswith("author")
    assert "not on the page" in reason  # the text of the note


def test_what_a_record_lacks_by_nature_costs_nothing() -> None:
    found = score_of(Ruled(), {"title": "x", "author": "y"}, FINE)

    assert found.score == 100.0


def test_a_layer_that_failed_earns_nothing() -> None:
    found = score_of(Ruled(), FULL, {"head": "ok", "tail": "the host answered 500"})

    assert found.score == pytest.approx(80.0)
    (reason,) = found.parts[1].reasons
    assert "tail" in reason
    assert "the host answered 500" in reason  # the end of the layer, as it was given


def test_fields_that_contradict_each_other_are_reported() -> None:
    found = score_of(Ruled(), {**FULL, "count": 9}, FINE)

    assert found.score == pytest.approx(90.0)
    (conflict,) = found.conflicts
    assert conflict.startswith("length: ")
    assert "body 'xxx'" in conflict
    assert "count 9" in conflict
    assert found.parts[2].reasons == found.conflicts


def test_a_check_that_returns_none_reports_no_conflict() -> None:
    assert score_of(Ruled(), {**FULL, "title": "zzz"}, FINE).conflicts == ()


def test_a_field_may_be_filled_in_part() -> None:
    class Half(Plain):
        quality_rules: ClassVar[QualityRules] = QualityRules(
            layers={"head": 1}, expects=(Expect("head", "title", share=lambda _title: 0.5),)
        )

    found = score_of(Half(), {"title": "x"}, FINE)

    assert found.score == 50.0
    (reason,) = found.parts[0].reasons
    assert "title" in reason
    assert "50%" in reason


@pytest.mark.parametrize("weights", [{}, {"head": 0.0}, {"head": -1.0, "tail": 3.0}])
def test_rules_without_weight_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        QualityRules(layers=weights)


@pytest.mark.parametrize(
    ("points", "grade"),
    [
        (100.0, "Excellent"),
        (90.0, "Excellent"),
        (89.99, "Good"),
        (75.0, "Good"),
        (74.99, "Fair"),
        (60.0, "Fair"),
        (59.99, "Poor"),
        (0.0, "Poor"),
    ],
)
def test_the_classes_begin_where_they_should(points: float, grade: str) -> None:
    assert grade_of(points) == grade


@pytest.mark.parametrize("value", [None, "", " \n", [], {}, ()])
def test_nothing_is_not_filled(value: Any) -> None:
    assert not is_filled(value)


@pytest.mark.parametrize("value", [0, False, 0.0, "x", [None], {"a": None}])
def test_zero_and_false_are_values(value: Any) -> None:
    assert is_filled(value)


# ---------------------------------------------------------------- without rules


def test_without_rules_the_gaps_are_counted() -> None:
    found = score_of(Plain(), {"a": 1, "b": None}, {"head": "ok", "tail": "timed out"})

    assert found.score == 50.0
    assert ["tail" in reason for reason in found.parts[0].reasons] == [True]
    assert [reason.partition(":")[0] for reason in found.parts[1].reasons] == ["b"]


def test_without_rules_and_data_nothing_is_earned() -> None:
    assert score_of(Plain(), {}, {}).score == 0.0


# ---------------------------------------------------------------- properties

VALUES = st.none() | st.just("") | st.text(max_size=5) | st.integers(0, 9)
DATA = st.dictionaries(st.sampled_from(FIELDS), VALUES)
ENDS = st.dictionaries(st.sampled_from(("head", "tail")), st.sampled_from(("ok", "failed")))
SOURCES = st.sampled_from((Plain, Ruled))


def text_only(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key == "count" or isinstance(value, str)}


@given(data=DATA, ends=ENDS, make=SOURCES)
def test_a_score_is_a_percentage_and_the_sum_of_its_parts(
    data: dict[str, Any], ends: dict[str, str], make: Callable[[], Source]
) -> None:
    found = score_of(make(), text_only(data), ends)

    assert 0.0 <= found.score <= 100.0
    assert found.score == pytest.approx(sum(part.earned for part in found.parts), abs=1e-5)
    assert sum(part.weight for part in found.parts) == pytest.approx(100.0)
    assert all(0.0 <= part.earned <= part.weight for part in found.parts)


@given(data=DATA, ends=ENDS, more=st.sampled_from(("title", "author")), make=SOURCES)
def test_filling_what_was_expected_never_costs(
    data: dict[str, Any], ends: dict[str, str], more: str, make: Callable[[], Source]
) -> None:
    before = {**text_only(data), more: None}

    assert (
        score_of(make(), {**before, more: "x"}, ends).score >= score_of(make(), before, ends).score
    )


@given(data=DATA, make=SOURCES)
def test_a_layer_that_succeeds_never_costs(
    data: dict[str, Any], make: Callable[[], Source]
) -> None:
    data = text_only(data)

    assert score_of(make(), data, FINE).score >= score_of(make(), data, {"head": "ok"}).score


# ---------------------------------------------------------------- the rules of n8n


class N8nLike(Source):
    name = "n8n-like"
    quality_rules: ClassVar[QualityRules] = RULES


ALL_OK = dict.fromkeys(RULES.layers, "ok")
TEMPLATE: dict[str, Any] = {
    "id": 42,
    "url": "https://n8n.io/workflows/42-send/",
    "endpoint": "/templates/workflows/{id}",
    "title": "Send letters",
    "author": {"username": "ann"},
    "categories": ["AI"],
    "created_at": "2024-05-01",
    "total_views": 0,
    "workflow": {"nodes": [1], "connections": {}},
    "workflow_name": "Letters",
    "node_count": 2,
    "node_types": {"a": 2},
    "sticky_note_count": 0,
    "connection_count": 1,
    "declared_node_count": 2,
    "declared_node_types": {"a": 2},
    "description": "x" * 200,
    "description_text": "x" * 200,
    "videos": [],
    "transcripts": [],
}


def of_template(**changes: Any) -> tuple[float, list[str]]:
    found = score_of(N8nLike(), {**TEMPLATE, **changes}, ALL_OK)
    return found.score, [conflict.partition(":")[0] for conflict in found.conflicts]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"workflow_name": "My workflow 7"},
        {"workflow_name": None},
        {"declared_node_count": 3},
        {"declared_node_count": None, "declared_node_types": None},
        {"node_count": 1, "node_types": {"a": 1}, "connection_count": 0}
        | {"declared_node_count": 1, "declared_node_types": {"a": 1}},
        {"transcripts": None, "videos": [{"id": "v"}]},
        {"transcripts": [{"outcome": "ok"}, {"outcome": "disabled"}], "videos": [1, 2]},
        {"page_title": "Letters to send"},
    ],
)
def test_a_template_as_it_should_be_is_excellent(changes: dict[str, Any]) -> None:
    assert of_template(**changes) == (100.0, [])


@pytest.mark.parametrize(
    ("changes", "conflict"),
    [
        ({"url": "https://n8n.io/workflows/43-send/"}, "id"),
        ({"workflow_name": "Quite another thing"}, "workflow name"),
        ({"page_title": "Something else"}, "page title"),
        (
            {"declared_node_count": 5, "declared_node_types": {"a": 4}},
            "node count",
        ),
        ({"declared_node_types": {"b": 2}}, "node types"),
        ({"node_types": {"a": 1}, "declared_node_types": None}, "nodes read"),
    ],
)
def test_a_template_that_contradicts_itself_says_so(changes: dict[str, Any], conflict: str) -> None:
    points, conflicts = of_template(**changes)

    assert conflict in conflicts
    assert points < 100.0


@pytest.mark.parametrize(
    "changes",
    [
        {"author": {}},
        {"categories": []},
        {"workflow": None},
        {"connection_count": 0},
        {"description_text": "x" * 50},
        {"videos": [1], "transcripts": [{"outcome": "blocked"}]},
    ],
)
def test_what_a_template_lacks_costs(changes: dict[str, Any]) -> None:
    points, conflicts = of_template(**changes)

    assert points < 100.0
    assert conflicts == []
