"""The odd shapes that real templates have, each put into a small share of the generated ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from random import Random
from typing import Any

from longline.sandbox.seeded import draw

Workflow = dict[str, Any]


class Oddity(StrEnum):
    """An odd shape that a source must handle."""

    NO_NODE_IDS = "nodes without id"
    CREDENTIALS_TEXT = "credentials as text"
    LOST_CONNECTION = "connection to a node that is not there"
    TWIN_NAMES = "two nodes of one name"
    NULL_BRANCH = "null branch"
    NO_WORKFLOW_INFO = "workflowInfo null"
    NO_EDITOR = "lastUpdatedBy null"
    FLAT_CONNECTION = "connection value not an object"
    TEXT_VERSION = "typeVersion as text"
    OBJECT_NOTES = "notes as object"
    NO_CONNECTIONS = "no connections"
    TEXT_ACTIVE = "active as text"
    NO_TYPE_VERSION = "nodes without typeVersion or position"


# The rarest are commoner here than in life, so that a few hundred templates show them all.
_EVERY: Mapping[Oddity, int] = {
    Oddity.NO_NODE_IDS: 20,
    Oddity.CREDENTIALS_TEXT: 25,
    Oddity.NO_EDITOR: 25,
}
_USUALLY_EVERY = 60


def oddities_of(seed: int, template: int) -> frozenset[Oddity]:
    """Return the odd shapes of a template; most have none."""
    return frozenset(odd for odd in Oddity if _is_chosen(seed, odd, template))


def _is_chosen(seed: int, odd: Oddity, template: int) -> bool:
    # One id of each block of neighbours is drawn: a random draw would leave some shapes out.
    block, place = divmod(template, _EVERY.get(odd, _USUALLY_EVERY))
    return place == draw(seed, odd, block) % _EVERY.get(odd, _USUALLY_EVERY)


def distort(workflow: Workflow, oddities: frozenset[Oddity], rng: Random) -> None:
    """Give a workflow those odd shapes that lie within it, where it has room for them."""
    for odd, change in _CHANGES.items():
        if odd in oddities:
            change(workflow, rng)


def _drop_ids(workflow: Workflow, _rng: Random) -> None:
    for node in workflow["nodes"]:
        node.pop("id", None)


def _drop_versions(workflow: Workflow, rng: Random) -> None:
    node = rng.choice(workflow["nodes"])
    node.pop("typeVersion", None)
    node.pop("position", None)


def _name_credentials(workflow: Workflow, rng: Random) -> None:
    nodes = [node for node in workflow["nodes"] if node.get("credentials")]
    for node in nodes:
        node["credentials"] = {kind: f"my {kind}" for kind in node["credentials"]}
    if not nodes:
        rng.choice(workflow["nodes"])["credentials"] = "my account"


def _lose_target(workflow: Workflow, rng: Random) -> None:
    source = rng.choice(workflow["nodes"])["name"]
    target = {"node": "Node that was deleted", "type": "main", "index": 0}
    workflow["connections"].setdefault(source, {}).setdefault("main", []).append([target])


def _twin_names(workflow: Workflow, rng: Random) -> None:
    twin = dict(rng.choice(workflow["nodes"]))
    twin["position"] = [40, 640]
    workflow["nodes"].append(twin)


def _null_branch(workflow: Workflow, rng: Random) -> None:
    source = rng.choice(workflow["nodes"])["name"]
    workflow["connections"].setdefault(source, {}).setdefault("main", []).insert(0, None)


def _flat_connection(workflow: Workflow, _rng: Random) -> None:
    first = workflow["nodes"][0]["name"]
    workflow["connections"][first] = [[{"node": first, "type": "main", "index": 0}]]


def _text_version(workflow: Workflow, rng: Random) -> None:
    rng.choice(workflow["nodes"])["typeVersion"] = "1.0"


def _object_notes(workflow: Workflow, rng: Random) -> None:
    rng.choice(workflow["nodes"])["notes"] = {"text": "Look here first", "color": "yellow"}


def _no_connections(workflow: Workflow, _rng: Random) -> None:
    workflow["connections"] = {}


def _text_active(workflow: Workflow, _rng: Random) -> None:
    workflow["active"] = "false"


# In the order they are made: none may undo an earlier one.
_CHANGES: Mapping[Oddity, Callable[[Workflow, Random], None]] = {
    Oddity.NO_CONNECTIONS: _no_connections,
    Oddity.NO_NODE_IDS: _drop_ids,
    Oddity.NO_TYPE_VERSION: _drop_versions,
    Oddity.CREDENTIALS_TEXT: _name_credentials,
    Oddity.LOST_CONNECTION: _lose_target,
    Oddity.TWIN_NAMES: _twin_names,
    Oddity.NULL_BRANCH: _null_branch,
    Oddity.FLAT_CONNECTION: _flat_connection,
    Oddity.TEXT_VERSION: _text_version,
    Oddity.OBJECT_NOTES: _object_notes,
    Oddity.TEXT_ACTIVE: _text_active,
}
