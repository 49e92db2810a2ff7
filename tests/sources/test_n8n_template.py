"""Metadata and workflow of n8n templates as the API returns them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from longline.core.errors import Gone, Refused, SkipItem, UnexpectedShape
from longline.core.model import Item
from longline.sources.base import Visit
from longline.sources.n8n.source import N8n
from tests.sources.scripted import ScriptedWeb, collect, notes_on, unexplained
from tests.sources.templates import (
    API,
    FIRST,
    FLAT,
    ITEM,
    SITE,
    STRAPI,
    first_answer,
    node,
    sticky,
    strapi_answer,
    to,
    workflow,
)
from tests.virtual import VirtualClock

FLAT_ANSWER = {"id": 42, "name": "Send a letter", "workflow": workflow()}


async def test_one_answer_serves_all_layers(clock: VirtualClock) -> None:
    web = ScriptedWeb({FIRST: first_answer()})

    data, visit = await collect(N8n(), web, ITEM, clock)

    assert web.addresses == [FIRST]
    assert data["title"] == "Send a letter when a hook is called"
    assert data["slug"] == "send-a-letter"
    assert data["author"] == {
        "name": "Ann",
        "username": "ann",
        "verified": True,
        "bio": None,
        "links": [],
    }
    assert data["categories"] == ["Engineering"]
    assert data["integrations"] == ["Gmail"]
    assert (data["views"], data["recent_views"], data["total_views"]) == (10, 1, 12)
    assert unexplained(data, visit) == []


async def test_what_the_answer_lacks_is_null_with_a_reason(clock: VirtualClock) -> None:
    data, visit = await collect(N8n(), ScriptedWeb({FIRST: first_answer()}), ITEM, clock)

    assert data["updated_at"] is None
    (note,) = notes_on(visit, "updated_at")
    assert "/templates/workflows/{id}" in note
    assert data["is_paid"] is None
    assert "search" in notes_on(visit, "is_paid")[0]


async def test_a_404_of_the_first_endpoint_is_not_final(clock: VirtualClock) -> None:
    web = ScriptedWeb({FLAT: FLAT_ANSWER})

    data, visit = await collect(N8n(), web, ITEM, clock)

    assert web.addresses == [FIRST, FLAT]
    assert data["endpoint"] == "/workflows/templates/{id}"
    assert data["title"] == "Send a letter"
    assert data["node_count"] == 2
    assert data["description"] is None
    assert unexplained(data, visit) == []


async def test_the_third_endpoint_knows_price_and_last_change(clock: VirtualClock) -> None:
    web = ScriptedWeb({STRAPI: strapi_answer()})

    data, visit = await collect(N8n(), web, ITEM, clock)

    assert web.addresses == [FIRST, FLAT, STRAPI]
    assert data["updated_at"] == "2025-05-01T00:00:00.000Z"
    assert (data["price"], data["is_paid"], data["difficulty"]) == (0, False, "easy")
    assert data["author"] == {"username": "ann"}
    assert unexplained(data, visit) == []


async def test_a_template_that_is_not_published_is_skipped(clock: VirtualClock) -> None:
    web = ScriptedWeb({STRAPI: strapi_answer(status="draft")})

    with pytest.raises(SkipItem, match="'draft'"):
        await collect(N8n(), web, ITEM, clock)


async def test_a_template_that_no_endpoint_has_is_gone(clock: VirtualClock) -> None:
    web = ScriptedWeb({})

    with pytest.raises(Gone) as caught:
        await collect(N8n(), web, ITEM, clock)
    assert caught.value.url == STRAPI
    assert web.addresses == [FIRST, FLAT, STRAPI]


async def test_only_a_404_leads_to_the_next_endpoint(clock: VirtualClock) -> None:
    web = ScriptedWeb({FIRST: Refused(FIRST, 403), FLAT: FLAT_ANSWER})

    with pytest.raises(Refused):
        await collect(N8n(), web, ITEM, clock)


@pytest.mark.parametrize(
    "answer",
    [b"[]", b"null", b"{}", b'{"workflow": null}', b'{"workflow": []}', b"<html>", b""],
)
async def test_an_answer_of_another_shape_is_refused(answer: bytes, clock: VirtualClock) -> None:
    with pytest.raises(UnexpectedShape):
        await collect(N8n(), ScriptedWeb({FIRST: answer}), ITEM, clock)


@pytest.mark.parametrize("key", [7, "42", None, True])
async def test_an_answer_about_another_template_is_refused(key: Any, clock: VirtualClock) -> None:
    with pytest.raises(UnexpectedShape, match=rf"\b42\b.*{re.escape(repr(key))}"):
        await collect(N8n(), ScriptedWeb({FIRST: first_answer(id=key)}), ITEM, clock)


@pytest.mark.parametrize("key", ["0", "-3", "abc", "", "\N{SUPERSCRIPT TWO}"])
async def test_a_key_that_is_no_id_is_refused(key: str, clock: VirtualClock) -> None:
    with pytest.raises(UnexpectedShape) as raised:
        await collect(N8n(), ScriptedWeb({}), replace(ITEM, key=key), clock)

    assert repr(key) in raised.value.where


async def test_a_custom_host_is_requested(clock: VirtualClock) -> None:
    host = "http://127.0.0.1:9/templates-api"
    source = N8n.with_options({"api_url": f"{host}/"})
    web = ScriptedWeb({f"{host}/templates/workflows/42": first_answer()})

    data, _visit = await collect(source, web, ITEM, clock)

    assert data["id"] == 42


# ---------------------------------------------------------------- what the search alone knows


async def test_price_and_shop_come_from_the_search(clock: VirtualClock) -> None:
    found = {"price": 9.5, "purchase_url": "https://shop.example/1", "total_views": 1}
    item = Item("42", f"{SITE}/workflows/42", data=found)

    data, visit = await collect(N8n(), ScriptedWeb({FIRST: first_answer()}), item, clock)

    assert (data["price"], data["is_paid"]) == (9.5, True)
    assert data["purchase_url"] == "https://shop.example/1"
    assert data["total_views"] == 12
    assert data["slug"] is None
    assert unexplained(data, visit) == []


async def test_a_search_without_a_price_means_free(clock: VirtualClock) -> None:
    item = Item("42", f"{SITE}/workflows/42", data={"purchase_url": None})

    data, visit = await collect(N8n(), ScriptedWeb({FIRST: first_answer()}), item, clock)

    assert data["is_paid"] is False
    assert len(notes_on(visit, "price")) == 1
    assert unexplained(data, visit) == []


async def test_the_search_counts_views_that_the_flat_endpoint_leaves_out(
    clock: VirtualClock,
) -> None:
    item = replace(ITEM, data={"total_views": 77})

    data, _visit = await collect(N8n(), ScriptedWeb({FLAT: FLAT_ANSWER}), item, clock)

    assert data["total_views"] == 77
    assert data["slug"] == "send-a-letter"


# ---------------------------------------------------------------- odd values and the record's model


async def test_odd_values_are_kept(clock: VirtualClock) -> None:
    odd = first_answer(views="12", user="ann", categories=[{"id": 1}, {"name": "AI"}], nodes=None)

    data, visit = await collect(N8n(), ScriptedWeb({FIRST: odd}), ITEM, clock)

    assert data["views"] == "12"
    assert data["categories"] == ["AI"]
    assert data["author"] is None
    assert data["integrations"] is None
    assert unexplained(data, visit) == []


async def test_a_sound_template_satisfies_the_model(clock: VirtualClock) -> None:
    data, _visit = await collect(N8n(), ScriptedWeb({FIRST: first_answer()}), ITEM, clock)

    dumped = N8n.Record.model_validate(data).model_dump()

    assert dumped == data


@pytest.mark.parametrize(
    "change",
    [
        {"id": 0},
        {"id": "42"},
        {"id": True},
        {"title": " "},
        {"title": None},
        {"workflow": []},
    ],
)
async def test_the_essentials_are_not_negotiable(
    change: dict[str, Any], clock: VirtualClock
) -> None:
    data, _visit = await collect(N8n(), ScriptedWeb({FIRST: first_answer()}), ITEM, clock)

    with pytest.raises(ValidationError):
        N8n.Record.model_validate({**data, **change})


def test_views_do_not_make_a_new_version() -> None:
    assert {"views", "recent_views", "total_views"} == N8n.volatile


def test_the_default_rate_is_two_requests_per_second() -> None:
    assert (N8n.rate, N8n.burst) == (2.0, 5)
    assert N8n().options.api_url == API


async def read(
    inner: dict[str, Any], clock: VirtualClock, **changes: Any
) -> tuple[dict[str, Any], Visit]:
    answer = first_answer(**changes)
    answer["workflow"]["workflow"] = inner
    return await collect(N8n(), ScriptedWeb({FIRST: answer}), ITEM, clock)


async def test_the_workflow_is_kept_whole_and_counted(clock: VirtualClock) -> None:
    inner = workflow(
        node("Chat", "@n8n/n8n-nodes-langchain.chatTrigger"),
        node("Old", "n8n-nodes-base.cron"),
        node("Reply", "n8n-nodes-base.respondToWebhook"),
        node("Model", credentials={"openAiApi": {"id": "1"}}),
        node("Model 2", credentials={"openAiApi": "mine", "slackApi": "ours"}),
        sticky("Hello"),
        connections={
            "Chat": {"main": [to("Model", "Reply"), to("Old")]},
            "Model": {"ai_languageModel": [to("Chat")]},
        },
    )

    data, visit = await read(inner, clock)

    assert data["workflow"] == inner
    assert data["workflow_name"] == "Send letters"
    assert data["node_count"] == 6
    assert data["node_types"]["n8n-nodes-base.set"] == 2
    assert data["sticky_note_count"] == 1
    assert data["connection_count"] == 4
    assert data["connection_types"] == {"ai_languageModel": 1, "main": 3}
    assert data["trigger_types"] == ["@n8n/n8n-nodes-langchain.chatTrigger", "n8n-nodes-base.cron"]
    assert data["credential_types"] == ["openAiApi", "slackApi"]
    assert unexplained(data, visit) == []


@pytest.mark.parametrize(
    "change",
    [
        {"connections": {"A": {"main": [None, to("B")]}}},
        {"connections": {"A": [to("B")]}},
        {"connections": {"A": {"main": {"0": []}}}},
        {"connections": {"A": {"main": ["B"]}}},
        {"connections": {"A": {"main": [["B", 3]]}}},
        {"connections": {"A": {"main": [None]}, "B": None}},
        {"active": "false", "settings": "{}", "id": 17},
        {"nodes": [node("A", typeVersion="1.0", notes={"a": 1}), node("B", credentials="mine")]},
    ],
)
async def test_a_workflow_with_unusual_values_is_stored_unchanged(
    change: dict[str, Any], clock: VirtualClock
) -> None:
    inner = {**workflow(node("A"), node("B")), **change}

    data, visit = await read(inner, clock)

    assert data["workflow"] == inner
    assert unexplained(data, visit) == []


async def test_a_template_without_a_workflow_is_null_with_reasons(clock: VirtualClock) -> None:
    answer = first_answer()
    del answer["workflow"]["workflow"]

    data, visit = await collect(N8n(), ScriptedWeb({FIRST: answer}), ITEM, clock)

    assert data["workflow"] is None
    assert data["node_count"] is None
    assert data["sticky_notes"] == []
    assert unexplained(data, visit) == []


@pytest.mark.parametrize("inner", [[], "x", {"nodes": []}, {"nodes": {}, "connections": {}}])
async def test_what_is_no_workflow_is_refused(inner: Any, clock: VirtualClock) -> None:
    with pytest.raises(UnexpectedShape, match="workflow"):
        await read(inner, clock)


async def test_a_site_that_did_not_count_is_noted(clock: VirtualClock) -> None:
    data, visit = await read(workflow(), clock, workflowInfo=None)

    assert data["declared_node_count"] is None
    assert unexplained(data, visit) == []


async def test_a_workflow_without_a_name_is_noted(clock: VirtualClock) -> None:
    data, visit = await read(workflow(name=None), clock)

    assert data["workflow_name"] is None
    assert len(notes_on(visit, "workflow_name")) == 1
    assert unexplained(data, visit) == []
