from __future__ import annotations

from typing import Any

import pytest

from longline.errors import UnexpectedShape
from longline.sources.catalogue.n8n import N8n
from longline.sources.visit import Visit
from sources.scripted import ScriptedWeb, collect, notes_on, unexplained
from sources.templates import FIRST, ITEM, first_answer, node, sticky, to, workflow
from virtual import VirtualClock


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
    ("change", "sentence"),
    [
        ({"connections": {"A": {"main": [to("Z")]}}}, "that are not there: 'Z'"),
        ({"connections": {"Q": {"main": [to("A")]}}}, "that are not there: 'Q'"),
        ({"nodes": [node("A"), node("A")]}, "share a name: 'A'"),
        ({"connections": {"A": {"main": [None, to("B")]}}}, "1 empty branches"),
        ({"connections": {"A": [to("B")]}}, "a source is list"),
        ({"connections": {"A": {"main": {"0": []}}}}, "an? output is dict"),
        ({"connections": {"A": {"main": ["B"]}}}, "a branch is str"),
        ({"connections": {"A": {"main": [["B", 3]]}}}, "a target is str"),
        ({"connections": {"A": {"main": [None]}, "B": None}}, "a source is NoneType"),
        ({"active": "false"}, "its active is str"),
        ({"settings": "{}"}, "its settings is str"),
        ({"id": 17}, "its id is int"),
        ({"nodes": [node("A", typeVersion="1.0"), node("B")]}, "1 of 2 nodes with a typeVersion"),
        ({"nodes": [node("A", notes={"a": 1}), node("B")]}, "notes that are no text"),
        ({"nodes": [node("A", credentials="mine"), node("B")]}, "credentials as one text"),
        ({"nodes": [node("A", credentials={"x": "y"}), node("B")]}, "a credential as text"),
        ({"nodes": [{"type": "x", "parameters": {}}, node("B")]}, "1 of 2 nodes without an id"),
        ({"nodes": [{"name": "A"}, node("B")]}, "without a type"),
        ({"nodes": [node("A"), "B", None]}, "2 nodes are no objects"),
        ({"nodes": [node("A", parameters=None), node("B")]}, "without parameters"),
    ],
)
async def test_an_odd_workflow_is_survived_and_noted(
    change: dict[str, Any], sentence: str, clock: VirtualClock
) -> None:
    data, visit = await read({**workflow(node("A"), node("B")), **change}, clock)

    assert data["workflow"] is not None
    assert any(sentence.replace("an? ", "a ") in note for note in notes_on(visit, "workflow"))
    assert unexplained(data, visit) == []


async def test_a_usual_workflow_gets_no_note(clock: VirtualClock) -> None:
    _data, visit = await read(workflow(), clock)

    assert notes_on(visit, "workflow") == []


async def test_long_lists_of_names_are_cut_short(clock: VirtualClock) -> None:
    inner = workflow(node("A"), connections={"A": {"main": [to("V", "W", "X", "Y", "Z")]}})

    _data, visit = await read(inner, clock)

    assert "'V', 'W', 'X' and 2 more" in notes_on(visit, "workflow")[0]


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

    assert notes_on(visit, "workflow_name") == ["the workflow has none of its own"]
    assert unexplained(data, visit) == []
