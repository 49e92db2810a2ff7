"""The steps of a flow as a picture: a layer for each distance from the first steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from longline.scheduling.flow import FlowSpec

_WIDTH, _HEIGHT = 168, 46
_GAP_X, _GAP_Y = 52, 18
_EDGE = 4  # around everything, so that outlines are not cut
_TEXT = 20  # characters of a name that fit


@dataclass(frozen=True, slots=True)
class Node:
    """A step: the corner of its box, its texts and its state; `state` is empty without a run."""

    name: str
    label: str
    kind: str
    state: str
    x: float
    y: float
    is_pivot: bool
    width: int = _WIDTH
    height: int = _HEIGHT


@dataclass(frozen=True, slots=True)
class Edge:
    """A line from a step to one that waits for it."""

    path: str
    is_optional: bool


@dataclass(frozen=True, slots=True)
class Graph:
    """Boxes and lines in a picture of this size."""

    nodes: Sequence[Node]
    edges: Sequence[Edge]
    width: float
    height: float


def draw(spec: FlowSpec, states: Mapping[str, str]) -> Graph:
    """Place the steps of a flow from left to right; `states` are those of a run."""
    layers = _layers(spec)
    tallest = max(len(names) for names in layers)
    nodes = {
        name: _node(spec, name, states.get(name, ""), (column, row + (tallest - len(names)) / 2))
        for column, names in enumerate(layers)
        for row, name in enumerate(names)
    }
    edges = [
        Edge(_curve(nodes[parent], nodes[name]), _is_loose(spec, name))
        for name in spec.order
        for parent in spec.parents[name]
    ]
    width = len(layers) * (_WIDTH + _GAP_X) - _GAP_X + 2 * _EDGE
    height = tallest * (_HEIGHT + _GAP_Y) - _GAP_Y + 2 * _EDGE
    return Graph([nodes[name] for name in spec.order], edges, width, height)


def _layers(spec: FlowSpec) -> list[list[str]]:
    """Return the steps by their distance, in each layer near those that they wait for."""
    depths: dict[str, int] = {}
    for name in spec.order:
        depths[name] = 1 + max((depths[one] for one in spec.parents[name]), default=-1)
    found: dict[int, list[str]] = defaultdict(list)
    for name in spec.order:
        found[depths[name]].append(name)
    places: dict[str, float] = {}
    for depth in sorted(found):
        found[depth].sort(key=lambda name: _mean([places[one] for one in spec.parents[name]]))
        places |= {name: place for place, name in enumerate(found[depth])}
    return [found[depth] for depth in sorted(found)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _node(spec: FlowSpec, name: str, state: str, place: tuple[float, float]) -> Node:
    step = spec.by_name[name]
    label = name if len(name) <= _TEXT else f"{name[: _TEXT - 1]}…"
    x = _EDGE + place[0] * (_WIDTH + _GAP_X)
    y = _EDGE + place[1] * (_HEIGHT + _GAP_Y)
    return Node(name, label, step.kind, state, x, y, step.pivot)


def _curve(start: Node, end: Node) -> str:
    x1, y1 = start.x + start.width, start.y + start.height / 2
    x2, y2 = end.x - 5, end.y + end.height / 2  # the arrow head is in between
    middle = (x1 + x2) / 2
    return f"M{x1:g} {y1:g}C{middle:g} {y1:g} {middle:g} {y2:g} {x2:g} {y2:g}"


def _is_loose(spec: FlowSpec, name: str) -> bool:
    step = spec.by_name[name]
    return step.optional or step.when is not None
