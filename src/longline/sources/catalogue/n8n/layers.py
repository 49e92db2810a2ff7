"""Layer 2 of a template: the workflow itself, counted, with what is odd about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from longline.core.errors import UnexpectedShape
from longline.core.model import Item
from longline.sources.catalogue.n8n.inventory import parse_template_address
from longline.sources.catalogue.n8n.responses import FIRST_ENDPOINT, Detail

# ---------------- What is odd, though real, about a workflow: kept as it is, and said in a

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
        yield f"several nodes share a name: {_shorten_list(doubles)}"
    if missing := sorted(_named_in(connections) - names.keys()):
        yield f"connections name nodes that are not there: {_shorten_list(missing)}"


def _named_in(connections: Mapping[str, Any]) -> set[str]:
    named = set(connections)
    for _place, value in _walk_connections(connections):
        if isinstance(value, Mapping) and isinstance(value.get("node"), str):
            named.add(value["node"])
    return named


def _odd_connections(connections: Mapping[str, Any]) -> Iterator[str]:
    odd: Counter[str] = Counter()
    for place, value in _walk_connections(connections):
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


def _walk_connections(connections: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every value with its place, down to where the shape breaks off."""
    for source in connections.values():
        yield "source", source
        for output in source.values() if isinstance(source, Mapping) else ():
            yield "output", output
            for branch in output if isinstance(output, list) else ():
                yield "branch", branch
                for target in branch if isinstance(branch, list) else ():
                    yield "target", target


def _shorten_list(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    more = len(names) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


# ---------------- Layer 1 of a template: who published what, when, and how often it was looked at

TakeNote = Callable[[str, str], None]

_PLAIN: Mapping[str, tuple[str, type]] = {
    "title": ("name", str),
    "views": ("views", int),
    "recent_views": ("recentViews", int),
    "created_at": ("createdAt", str),
    "updated_at": ("updatedAt", str),
    "status": ("status", str),
    "review_status": ("reviewStatus", object),
    "difficulty": ("difficulty", object),
    "ready_to_demo": ("readyToDemo", bool),
    "last_updated_by": ("lastUpdatedBy", int),
}
_AUTHOR = ("name", "username", "verified", "bio", "links", "avatar")
NOT_SEARCHED = "only the search tells it, and the item was not found by search"


def read_metadata(item: Item, detail: Detail, note: TakeNote) -> dict[str, Any]:
    """Return the fields of layer 1; every empty one is noted with its reason."""
    fields: dict[str, Any] = {
        "id": detail.values["id"],
        "url": item.url,
        "slug": slug_of(item, note),
        "endpoint": detail.endpoint,
        **{field: _plain_field(field, detail, note) for field in _PLAIN},
        "total_views": _total_views(item, detail, note),
        "author": _author_fields(detail, note),
        "categories": _entry_names("categories", "name", detail, note),
        "integrations": _entry_names("nodes", "displayName", detail, note, field="integrations"),
        **_price_fields(item, detail, note),
    }
    if detail.endpoint != FIRST_ENDPOINT:
        unknown = sorted(name for name, value in fields.items() if value is None)
        note("endpoint", f"{FIRST_ENDPOINT} knows no such template; unknown: {', '.join(unknown)}")
    return fields


def slug_of(item: Item, note: TakeNote) -> str | None:
    """Return the slug that discovery found, or that stands in the item's address."""
    parsed = parse_template_address(item.url)
    slug = item.data.get("slug") or (parsed and parsed[1])
    if not slug:
        note("slug", "only the sitemap tells it")
        return None
    return str(slug)


def _plain_field(field: str, detail: Detail, note: TakeNote) -> Any:
    name, kind = _PLAIN[field]
    value = detail.values.get(name)
    if value is None:
        note(field, detail.why_empty(name))
    elif not isinstance(value, kind):
        note(field, f"odd: {type(value).__name__} where {kind.__name__} is usual")
    return value


def _total_views(item: Item, detail: Detail, note: TakeNote) -> Any:
    value = detail.values.get("totalViews", item.data.get("total_views"))
    if value is None:
        note("total_views", detail.why_empty("totalViews"))
    return value


def _author_fields(detail: Detail, note: TakeNote) -> dict[str, Any] | None:
    user = detail.values.get("user")
    if not isinstance(user, Mapping):
        note("author", detail.why_empty("user"))
        return None
    if missing := [name for name in ("name", "username", "verified") if user.get(name) is None]:
        note("author", f"{detail.endpoint} does not tell: {', '.join(missing)}")
    return {name: user[name] for name in _AUTHOR if name in user}


def _entry_names(
    name: str, key: str, detail: Detail, note: TakeNote, *, field: str = ""
) -> list[str] | None:
    field = field or name
    entries = detail.values.get(name)
    if not isinstance(entries, list):
        note(field, detail.why_empty(name))
        return None
    names = [entry[key] for entry in entries if isinstance(entry, Mapping) and entry.get(key)]
    if len(names) < len(entries):
        note(field, f"{len(entries) - len(names)} of {len(entries)} entries have no {key}")
    return names


def _price_fields(item: Item, detail: Detail, note: TakeNote) -> dict[str, Any]:
    price = detail.values.get("price", item.data.get("price"))
    purchase_url = item.data.get("purchase_url")
    was_searched = "purchase_url" in item.data
    if price is None:
        note("price", "the search names none" if was_searched else NOT_SEARCHED)
    if purchase_url is None:
        note("purchase_url", "the search names none" if was_searched else NOT_SEARCHED)
    is_paid: bool | None = bool(price or purchase_url)
    if not is_paid and price is None and not was_searched:
        is_paid = None
        note("is_paid", NOT_SEARCHED)
    return {"price": price, "purchase_url": purchase_url, "is_paid": is_paid}


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
    declared = _declared_counts(detail, note)
    if workflow is None:
        return {**no_workflow(detail.why_empty("workflow"), note), **declared}
    _check_shape(workflow, detail.address)
    for oddity in oddities(workflow):
        note("workflow", oddity)
    if workflow.get("name") is None:
        note("workflow_name", "the workflow has none of its own")
    return {"workflow": workflow, **_count_workflow(workflow), **declared}


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


def _check_shape(workflow: Any, address: str) -> None:
    if not isinstance(workflow, Mapping):
        raise UnexpectedShape(address, f"the workflow is no object but {type(workflow).__name__}")
    for part, kind in (("nodes", list), ("connections", dict)):
        if not isinstance(workflow.get(part), kind):
            raise UnexpectedShape(address, f"the workflow's {part} are no {kind.__name__}")


def _count_workflow(workflow: Mapping[str, Any]) -> dict[str, Any]:
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


def _declared_counts(detail: Detail, note: TakeNote) -> dict[str, Any]:
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
