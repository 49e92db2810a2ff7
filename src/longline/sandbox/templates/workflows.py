"""Generated workflows: nodes, their settings, and the connections between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from longline.sandbox.templates import words
from longline.sandbox.templates.node_types import (
    PLAYERS,
    STEPS,
    STICKY_NOTE,
    TRIGGERS,
    Kind,
    weights,
)
from longline.sandbox.templates.parameters import make_parameters, sentences

_MEDIAN_LOG, _SPREAD, _LARGEST = 2.62, 0.66, 300  # median 14 nodes, one in twenty above 44
_NOTE_SHARE = 0.23
_NOTE_VIDEO_SHARE = 0.1
_ROLE_SHARE = 0.55
_CREDENTIAL_SHARE = 0.8
_STEP_X, _PART_Y = 220, 200
_TRIGGER_WEIGHTS, _STEP_WEIGHTS = weights(TRIGGERS), weights(STEPS)
_PLAYER_WEIGHTS = {role: weights(kinds) for role, kinds in PLAYERS.items()}


def draw_size(rng: Random) -> int:
    """Return how many nodes a workflow has."""
    return max(1, min(_LARGEST, round(rng.lognormvariate(_MEDIAN_LOG, _SPREAD))))


def make_workflow(rng: Random, title: str, *, video: str) -> tuple[dict[str, Any], dict[Kind, int]]:
    """Return a workflow and the count of each kind of node in it; a few notes embed `video`."""
    sketch = _Sketch(rng)
    size = draw_size(rng)
    notes = round(size * _NOTE_SHARE)
    _add_steps(sketch, size - notes)
    _add_notes(sketch, notes, title, video)
    workflow = {
        "id": f"{rng.getrandbits(64):016x}",
        "meta": {"instanceId": f"{rng.getrandbits(256):064x}", "templateCredsSetupCompleted": True},
        "name": title,
        "tags": [],
        "nodes": sketch.nodes,
        "active": False,
        "pinData": {},
        "settings": {"executionOrder": "v1"},
        "versionId": make_uuid(rng),
        "connections": sketch.connections,
    }
    return workflow, sketch.kinds


def make_uuid(rng: Random) -> str:
    """Return a random identifier in the usual five groups."""
    text = f"{rng.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


@dataclass(slots=True)
class _Sketch:
    """A workflow in the making."""

    rng: Random
    nodes: list[dict[str, Any]] = field(default_factory=list)
    connections: dict[str, dict[str, Any]] = field(default_factory=dict)
    kinds: dict[Kind, int] = field(default_factory=dict)

    def add(self, kind: Kind, x: int, y: int, parameters: dict[str, Any]) -> str:
        """Add a node and return its name, which no other node has."""
        count = self.kinds.get(kind, 0)
        self.kinds[kind] = count + 1
        name = f"{kind.display}{count or ''}"
        node = {
            "id": make_uuid(self.rng),
            "name": name,
            "type": kind.type,
            "position": [x, y],
            "parameters": parameters,
            "typeVersion": self._version(kind),
        }
        if kind.credential and self.rng.random() < _CREDENTIAL_SHARE:
            credential = {
                "id": f"{self.rng.getrandbits(64):016x}",
                "name": f"{kind.display} account",
            }
            node["credentials"] = {kind.credential: credential}
        self.nodes.append(node)
        return name

    def connect(self, source: str, target: str, feeds: str = "main", exit_: int = 0) -> None:
        """Lead one output of a node to the first input of another."""
        branches = self.connections.setdefault(source, {}).setdefault(feeds, [])
        branches.extend([] for _ in range(exit_ + 1 - len(branches)))
        branches[exit_].append({"node": target, "type": feeds, "index": 0})

    def _version(self, kind: Kind) -> float:
        rare = len(kind.versions) > 1 and self.rng.random() < 0.3  # noqa: PLR2004  # a share
        return self.rng.choice(kind.versions[1:]) if rare else kind.versions[0]


def _add_steps(sketch: _Sketch, budget: int) -> None:
    """Lay a chain of steps behind a trigger; side exits lead to the step after the next."""
    rng = sketch.rng
    trigger = rng.choices(TRIGGERS, cum_weights=_TRIGGER_WEIGHTS)[0]
    last = sketch.add(trigger, 0, 0, make_parameters(trigger, rng))
    side: tuple[str, int] | None = None
    x = 0
    for kind in rng.choices(STEPS, cum_weights=_STEP_WEIGHTS, k=max(0, budget - 1)):
        if len(sketch.nodes) >= budget:
            break
        x += _STEP_X
        name = sketch.add(kind, x, rng.randrange(-6, 7) * 20, make_parameters(kind, rng))
        sketch.connect(last, name)
        if side is not None and side[0] != last:
            sketch.connect(side[0], name, exit_=side[1])
            side = None
        if kind.exits > 1:
            side = (name, rng.randrange(1, kind.exits))
        _add_parts(sketch, kind, name, x)
        last = name


def _add_parts(sketch: _Sketch, kind: Kind, owner: str, x: int) -> None:
    """Hang the model, memory, tools and parser of an AI node below it."""
    for place, role in enumerate(kind.accepts):
        if place and sketch.rng.random() > _ROLE_SHARE:
            continue
        part = sketch.rng.choices(PLAYERS[role], cum_weights=_PLAYER_WEIGHTS[role])[0]
        name = sketch.add(part, x + 120 * place, _PART_Y, make_parameters(part, sketch.rng))
        sketch.connect(name, owner, feeds=role)
        _add_parts(sketch, part, name, x)


def _add_notes(sketch: _Sketch, count: int, title: str, video: str) -> None:
    rng = sketch.rng
    for number in range(count):
        text = f"## {rng.choice(words.HEADINGS)}\n{sentences(rng, rng.randrange(1, 8))}"
        if number == 0:
            text = f"# {title}\n\n{text}\n\n**{sentences(rng, 1)}**"
        if number == 0 and rng.random() < _NOTE_VIDEO_SHARE:
            text += f"\n\n@[youtube]({video})"
        look = {"color": rng.randrange(1, 8), "width": 380, "height": 320, "content": text}
        sketch.add(STICKY_NOTE, number * 400, -420, look)
