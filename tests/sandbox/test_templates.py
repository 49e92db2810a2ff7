"""Generated templates: the same for a seed, with the sizes and oddities of real ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from statistics import median
from typing import Any

import orjson
import pytest

from longline.sandbox.templates.generated import GeneratedShelf
from longline.sandbox.templates.oddities import Oddity, oddities_of
from longline.sandbox.templates.responses import detail_answer, encode
from longline.sandbox.web import PracticeWeb, WebOptions


def make_shelf(items: int = 500, seed: int = 7, *, odd_shapes: bool = True) -> GeneratedShelf:
    return GeneratedShelf(items, seed, odd_shapes=odd_shapes, site=lambda: "http://site.example")


@cache
def bodies(*, odd_shapes: bool = True) -> list[bytes]:
    shelf = make_shelf(odd_shapes=odd_shapes)
    return [encode(detail_answer(shelf.template(number))) for number in shelf.ids]


@cache
def details(*, odd_shapes: bool = True) -> list[dict[str, Any]]:
    return [orjson.loads(body)["workflow"] for body in bodies(odd_shapes=odd_shapes)]


def nodes_of(detail: dict[str, Any]) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = detail["workflow"]["nodes"]
    return nodes


def targets_of(detail: dict[str, Any]) -> set[str]:
    return {
        target["node"]
        for outputs in detail["workflow"]["connections"].values()
        if isinstance(outputs, dict)
        for branches in outputs.values()
        for branch in branches
        for target in branch or []
    }


def types_of(detail: dict[str, Any]) -> set[str]:
    outputs = detail["workflow"]["connections"].values()
    return {kind for kinds in outputs for kind in kinds}


def has_lost_connection(detail: dict[str, Any]) -> bool:
    return not targets_of(detail) <= {node["name"] for node in nodes_of(detail)}


def has_twins(detail: dict[str, Any]) -> bool:
    names = [node["name"] for node in nodes_of(detail)]
    return len(set(names)) < len(names)


def has_null_branch(detail: dict[str, Any]) -> bool:
    outputs = detail["workflow"]["connections"].values()
    return any(None in kinds.get("main", []) for kinds in outputs if isinstance(kinds, dict))


def has_text_credentials(detail: dict[str, Any]) -> bool:
    values = [node.get("credentials") for node in nodes_of(detail)]
    inner = [entry for value in values if isinstance(value, dict) for entry in value.values()]
    return any(isinstance(value, str) for value in (*values, *inner))


SIGNS: dict[Oddity, Callable[[dict[str, Any]], bool]] = {
    Oddity.NO_NODE_IDS: lambda detail: all("id" not in node for node in nodes_of(detail)),
    Oddity.CREDENTIALS_TEXT: has_text_credentials,
    Oddity.LOST_CONNECTION: has_lost_connection,
    Oddity.TWIN_NAMES: has_twins,
    Oddity.NULL_BRANCH: has_null_branch,
    Oddity.NO_WORKFLOW_INFO: lambda detail: detail["workflowInfo"] is None,
    Oddity.NO_EDITOR: lambda detail: detail["lastUpdatedBy"] is None,
    Oddity.FLAT_CONNECTION: lambda detail: any(
        isinstance(value, list) for value in detail["workflow"]["connections"].values()
    ),
    Oddity.TEXT_VERSION: lambda detail: any(
        isinstance(node.get("typeVersion"), str) for node in nodes_of(detail)
    ),
    Oddity.OBJECT_NOTES: lambda detail: any(
        isinstance(node.get("notes"), dict) for node in nodes_of(detail)
    ),
    Oddity.NO_CONNECTIONS: lambda detail: not detail["workflow"]["connections"],
    Oddity.TEXT_ACTIVE: lambda detail: detail["workflow"]["active"] == "false",
    Oddity.NO_TYPE_VERSION: lambda detail: any(
        "typeVersion" not in node for node in nodes_of(detail)
    ),
}


def test_workflows_are_as_large_as_real_ones() -> None:
    sizes = sorted(len(nodes_of(detail)) for detail in details())

    assert 12 <= median(sizes) <= 17
    assert 36 <= sizes[len(sizes) * 95 // 100] <= 54
    assert 80 <= sizes[-1] <= 320


def test_responses_are_as_long_as_real_ones() -> None:
    inner = [len(orjson.dumps(detail["workflow"])) for detail in details()]

    assert 40_000 <= median(map(len, bodies())) <= 65_000
    assert 8_500 <= median(inner) <= 13_000


def test_about_a_third_of_the_ids_is_unused() -> None:
    ids = make_shelf(2000).ids

    assert 2800 <= ids[-1] <= 3200
    assert all(first < second for first, second in pairwise(ids))


def test_templates_spread_over_the_years_in_the_order_of_their_ids() -> None:
    dates = [detail["createdAt"] for detail in details()]

    assert dates == sorted(dates)
    assert dates[0] < "2021"
    assert "2026-06" < dates[-1] < "2026-11"


def test_there_are_fewer_authors_than_templates() -> None:
    authors = {detail["user"]["username"] for detail in details()}

    assert 100 <= len(authors) <= 167


def test_videos_and_images_are_as_frequent_as_in_real_templates() -> None:
    texts = [detail["description"] for detail in details()]
    notes = [orjson.dumps(detail["workflow"]).decode() for detail in details()]

    assert 0.06 <= sum("youtu" in text for text in texts) / 500 <= 0.15
    assert 0.14 <= sum("![workflow-screenshot]" in text for text in texts) / 500 <= 0.25
    assert 0.04 <= sum("@[youtube](" in text for text in notes) / 500 <= 0.14


def test_every_file_reference_can_be_resolved() -> None:
    with_files = [detail for detail in details() if "(fileId:" in detail["description"]]

    assert len(with_files) > 30
    assert all(
        f"(fileId:{detail['image'][0]['id']})" in detail["description"] for detail in with_files
    )


def test_ai_nodes_have_every_connection_type() -> None:
    types = {kind for detail in details(odd_shapes=False) for kind in types_of(detail)}

    assert types >= {"main", "ai_languageModel", "ai_memory", "ai_tool", "ai_outputParser"}
    assert types >= {"ai_embedding", "ai_document", "ai_textSplitter"}


def test_type_versions_are_integers_and_floats() -> None:
    versions = [
        node["typeVersion"] for detail in details(odd_shapes=False) for node in nodes_of(detail)
    ]

    assert 0.25 <= sum(isinstance(version, float) for version in versions) / len(versions) <= 0.75


def test_the_node_count_is_right() -> None:
    assert all(
        detail["workflowInfo"]["nodeCount"] == len(nodes_of(detail))
        for detail in details(odd_shapes=False)
    )


@pytest.mark.parametrize("odd", Oddity)
def test_every_odd_shape_occurs_rarely(odd: Oddity) -> None:
    count = sum(SIGNS[odd](detail) for detail in details())

    assert 1 <= count <= 50


@pytest.mark.parametrize("odd", [odd for odd in Oddity if odd is not Oddity.NO_CONNECTIONS])
def test_without_odd_shapes_there_are_none(odd: Oddity) -> None:
    assert not any(SIGNS[odd](detail) for detail in details(odd_shapes=False))


def test_some_titles_are_not_ascii() -> None:
    assert 5 <= sum(not detail["name"].isascii() for detail in details()) <= 50
    assert all(detail["name"].isascii() for detail in details(odd_shapes=False))


def test_most_templates_have_no_odd_shape() -> None:
    plain = sum(not oddities_of(7, number) for number in range(1000))

    assert plain > 650


def test_a_template_depends_on_the_seed_and_its_id_alone() -> None:
    one, other = make_shelf(), make_shelf()
    number = one.ids[40]
    other.template(other.ids[3])

    assert encode(detail_answer(one.template(number))) == encode(
        detail_answer(other.template(number))
    )


def test_another_seed_gives_other_templates() -> None:
    one, other = make_shelf(seed=1), make_shelf(seed=2)

    assert list(one.ids) != list(other.ids)
    assert one.title(1) != other.title(1)


@pytest.mark.parametrize("items", [0, 1, 2])
def test_a_web_may_have_few_templates(items: int) -> None:
    web = PracticeWeb(WebOptions(items=items))

    assert len(web.catalogue) == items


def test_a_hundred_thousand_templates_are_listed_without_generating_them() -> None:
    catalogue = PracticeWeb(WebOptions(items=100_000)).catalogue

    assert len(catalogue) == 100_000
    assert catalogue.template(catalogue.ids[-1]).workflow["nodes"]
