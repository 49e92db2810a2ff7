from __future__ import annotations

import re
from typing import Any

import pytest

from longline.core.errors import UnexpectedShape
from longline.sources.base import Visit
from longline.sources.n8n.source import N8n
from tests.sources.scripted import ScriptedWeb, collect, notes_on, unexplained
from tests.sources.templates import FIRST, ITEM, first_answer, node, sticky, to, workflow
from tests.virtual import VirtualClock


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
    ("change", "pattern"),
    [
        ({"connections": {"A": {"main": [to("Z")]}}}, "'Z'"),
        ({"connections": {"Q": {"main": [to("A")]}}}, "'Q'"),
        ({"nodes": [node("A"), node("A")]}, "'A'"),
        ({"nodes": [{"type": "x", "parameters": {}}, node("B")]}, "1.*2.* id"),
        ({"nodes": [{"name": "A"}, node("B")]}, "1.*2.* type"),
        ({"nodes": [node("A"), "B", None]}, "2 nodes"),
        ({"nodes": [node("A", parameters=None), node("B")]}, "1.*2.*parameters"),
    ],
)
async def test_problems_of_a_workflow_are_noted(
    change: dict[str, Any], pattern: str, clock: VirtualClock
) -> None:
    data, visit = await read({**workflow(node("A"), node("B")), **change}, clock)

    assert data["workflow"] is not None
    assert any(re.search(pattern, note) for note in notes_on(visit, "workflow"))
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


async def test_a_usual_workflow_gets_no_note(clock: VirtualClock) -> None:
    _data, visit = await read(workflow(), clock)

    assert notes_on(visit, "workflow") == []


async def test_long_lists_of_names_are_cut_short(clock: VirtualClock) -> None:
    inner = workflow(node("A"), connections={"A": {"main": [to("V", "W", "X", "Y", "Z")]}})

    _data, visit = await read(inner, clock)

    assert re.search(r"'V', 'W', 'X'.*\b2\b", notes_on(visit, "workflow")[0])
    assert "'Y'" not in notes_on(visit, "workflow")[0]


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
