"""Layer 2 of a template: the workflow itself, counted, with what is odd about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from longline.errors import UnexpectedShape
from longline.sources.catalogue.n8n_answers import Detail
from longline.sources.catalogue.n8n_metadata import TakeNote
from longline.sources.catalogue.n8n_oddities import oddities

STICKY_NOTE = "n8n-nodes-base.stickyNote"
_OLD_TRIGGERS = frozenset({"webhook", "cron", "interval", "start", "emailReadImap"})
"""Nodes that start a workflow though their name does not end in Trigger."""

_DERIVED = (
    "workflow_name",
    "node_count",
    "node_types",
    "sticky_note_count",
    "connection_count",
    "connection_types",
    "trigger_types",
    "credential_types",
)


def read_workflow(detail: Detail, note: TakeNote) -> dict[str, Any]:
    """Return the fields of layer 2; every empty one is noted with its reason.

    Raises:
        UnexpectedShape: there is a workflow, but without a list of nodes or its connections.
    """
    workflow = detail.values.get("workflow")
    declared = _declared(detail, note)
    if workflow is None:
        return {**no_workflow(detail.why_empty("workflow"), note), **declared}
    _check(workflow, detail.address)
    for oddity in oddities(workflow):
        note("workflow", oddity)
    if workflow.get("name") is None:
        note("workflow_name", "the workflow has none of its own")
    return {"workflow": workflow, **_derived(workflow), **declared}


def no_workflow(reason: str, note: TakeNote) -> dict[str, None]:
    """Return the empty fields of a template whose workflow cannot be had."""
    for field in ("workflow", *_DERIVED):
        note(field, reason)
    return dict.fromkeys(("workflow", *_DERIVED))


def nodes_of(workflow: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the nodes of a workflow that are objects, whatever else is among them."""
    nodes = workflow.get("nodes") if isinstance(workflow, Mapping) else None
    if isinstance(nodes, list):
        yield from (node for node in nodes if isinstance(node, Mapping))


def connections_of(workflow: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield (source node's name, output type, target) of every sound connection."""
    for source, outputs in workflow["connections"].items():
        for kind, branches in outputs.items() if isinstance(outputs, Mapping) else ():
            for branch in branches if isinstance(branches, list) else ():
                for target in branch if isinstance(branch, list) else ():
                    if isinstance(target, Mapping):
                        yield source, kind, target


def _check(workflow: Any, address: str) -> None:
    if not isinstance(workflow, Mapping):
        raise UnexpectedShape(address, f"the workflow is no object but {type(workflow).__name__}")
    for part, kind in (("nodes", list), ("connections", dict)):
        if not isinstance(workflow.get(part), kind):
            raise UnexpectedShape(address, f"the workflow's {part} are no {kind.__name__}")


def _derived(workflow: Mapping[str, Any]) -> dict[str, Any]:
    types = Counter(str(kind) for node in nodes_of(workflow) if (kind := node.get("type")))
    links = Counter(kind for _source, kind, _target in connections_of(workflow))
    return {
        "workflow_name": workflow.get("name"),
        "node_count": len(workflow["nodes"]),
        "node_types": dict(sorted(types.items())),
        "sticky_note_count": types[STICKY_NOTE],
        "connection_count": links.total(),
        "connection_types": dict(sorted(links.items())),
        "trigger_types": sorted(filter(_is_trigger, types)),
        "credential_types": sorted(_credential_types(workflow)),
    }


def _is_trigger(node_type: str) -> bool:
    name = node_type.rpartition(".")[2]
    return name.endswith("Trigger") or name in _OLD_TRIGGERS


def _credential_types(workflow: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    for node in nodes_of(workflow):
        credentials = node.get("credentials")
        found.update(credentials if isinstance(credentials, Mapping) else ())
    return found


def _declared(detail: Detail, note: TakeNote) -> dict[str, Any]:
    """Return what the site itself counted, to compare with."""
    info = detail.values.get("workflowInfo")
    info = info if isinstance(info, Mapping) else {}
    count, types = info.get("nodeCount"), info.get("nodeTypes")
    if count is None:
        note("declared_node_count", detail.why_empty("workflowInfo"))
    if not isinstance(types, Mapping):
        note("declared_node_types", detail.why_empty("workflowInfo"))
        return {"declared_node_count": count, "declared_node_types": None}
    counts = {name: _count_of(entry) for name, entry in types.items()}
    return {"declared_node_count": count, "declared_node_types": counts}


def _count_of(entry: Any) -> Any:
    return entry.get("count") if isinstance(entry, Mapping) else entry
