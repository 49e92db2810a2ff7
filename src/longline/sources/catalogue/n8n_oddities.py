"""What is odd, though real, about a workflow: kept as it is, and said in a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_SHOWN = 3


def oddities(workflow: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each kind of oddity; the nodes and connections must be there."""
    nodes = [node for node in workflow["nodes"] if isinstance(node, Mapping)]
    if odd := len(workflow["nodes"]) - len(nodes):
        yield f"{odd} nodes are no objects"
    yield from _odd_head(workflow)
    yield from _odd_nodes(nodes)
    yield from _odd_names(nodes, workflow["connections"])
    yield from _odd_connections(workflow["connections"])


def _odd_head(workflow: Mapping[str, Any]) -> Iterator[str]:
    for name, kind in (("active", bool), ("settings", dict), ("id", str), ("name", str)):
        value = workflow.get(name)
        if value is not None and not isinstance(value, kind):
            yield f"its {name} is {type(value).__name__} where {kind.__name__} is usual"


_NODE_ODDITIES: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "without a type": lambda node: not isinstance(node.get("type"), str),
    "without a name": lambda node: not isinstance(node.get("name"), str),
    "without an id": lambda node: node.get("id") is None,
    "without parameters": lambda node: not isinstance(node.get("parameters"), Mapping),
    "without a position": lambda node: not isinstance(node.get("position"), list),
    "with a typeVersion as text": lambda node: isinstance(node.get("typeVersion"), str),
    "with notes that are no text": lambda node: not isinstance(node.get("notes", ""), str),
    "with credentials as one text": lambda node: isinstance(node.get("credentials"), str),
    "with a credential as text": lambda node: (
        isinstance(node.get("credentials"), Mapping)
        and any(isinstance(value, str) for value in node["credentials"].values())
    ),
}


def _odd_nodes(nodes: list[Mapping[str, Any]]) -> Iterator[str]:
    for sentence, is_odd in _NODE_ODDITIES.items():
        if count := sum(map(is_odd, nodes)):
            yield f"{count} of {len(nodes)} nodes {sentence}"


def _odd_names(nodes: list[Mapping[str, Any]], connections: Mapping[str, Any]) -> Iterator[str]:
    names = Counter(str(node.get("name")) for node in nodes)
    if doubles := [name for name, count in names.items() if count > 1 and name != "None"]:
        yield f"several nodes share a name: {_some(doubles)}"
    if missing := sorted(_named_in(connections) - names.keys()):
        yield f"connections name nodes that are not there: {_some(missing)}"


def _named_in(connections: Mapping[str, Any]) -> set[str]:
    named = set(connections)
    for _place, value in _walk(connections):
        if isinstance(value, Mapping) and isinstance(value.get("node"), str):
            named.add(value["node"])
    return named


def _odd_connections(connections: Mapping[str, Any]) -> Iterator[str]:
    odd: Counter[str] = Counter()
    for place, value in _walk(connections):
        if place == "branch" and value is None:
            odd["empty branches (null)"] += 1
        elif not isinstance(value, _EXPECTED[place]):
            odd[f"connections where a {place} is {type(value).__name__}"] += 1
    yield from (f"{count} {sentence}" for sentence, count in odd.items())


_EXPECTED: Mapping[str, type] = {
    "source": Mapping,
    "output": list,
    "branch": list,
    "target": Mapping,
}


def _walk(connections: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every value with its place, down to where the shape breaks off."""
    for source in connections.values():
        yield "source", source
        for output in source.values() if isinstance(source, Mapping) else ():
            yield "output", output
            for branch in output if isinstance(output, list) else ():
                yield "branch", branch
                for target in branch if isinstance(branch, list) else ():
                    yield "target", target


def _some(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    more = len(names) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
