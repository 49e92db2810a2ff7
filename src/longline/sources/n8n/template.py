"""A template as the API describes it: its metadata and its workflow."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from longline.core.errors import Gone, SkipItem, UnexpectedShape
from longline.core.model import Item
from longline.http.messages import Page
from longline.sources.base import Visit

AddNote = Callable[[str, str], None]
"""Receives a field and the reason why it is empty or unusual."""
STICKY_NOTE = "n8n-nodes-base.stickyNote"
_URL = re.compile(r"/workflows/(?P<id>[1-9]\d*)(?:-(?P<slug>[^/?#]+))?/?(?:[?#].*)?$")
_PLAIN_FIELDS: Mapping[str, tuple[str, type]] = {
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
_AUTHOR_FIELDS = ("name", "username", "verified", "bio", "links", "avatar")
_NOT_SEARCHED = "only in search results, and the item was not found by search"
_WORKFLOW_FIELDS = (
    "workflow",
    "workflow_name",
    "node_count",
    "node_types",
    "sticky_note_count",
    "connection_count",
    "connection_types",
    "trigger_types",
    "credential_types",
)
_OLD_TRIGGERS = frozenset({"webhook", "cron", "interval", "start", "emailReadImap"})
"""Nodes that start a workflow although their name does not end in Trigger."""
_NODE_PROBLEMS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "without a type": lambda node: not isinstance(node.get("type"), str),
    "without a name": lambda node: not isinstance(node.get("name"), str),
    "without an id": lambda node: node.get("id") is None,
    "without parameters": lambda node: not isinstance(node.get("parameters"), Mapping),
    "without a position": lambda node: not isinstance(node.get("position"), list),
}
_SHOWN_NAMES = 3


@dataclass(frozen=True, slots=True)
class Detail:
    """A template as one endpoint returns it; `values` has the names of the first endpoint."""

    endpoint: str
    url: str
    values: Mapping[str, Any]

    def why_empty(self, name: str) -> str:
        """Return the reason to note when a value is missing."""
        where = "empty" if name in self.values else "not"
        return f"{where} in the response of {self.endpoint}"


def template_id(item: Item) -> int:
    """Return the id in an item's key; raise UnexpectedShape if it is not a positive number."""
    if not item.key.isascii() or not item.key.isdigit() or int(item.key) == 0:
        raise UnexpectedShape(f"item {item.key!r}", "the key of a template is a positive number")
    return int(item.key)


def parse_template_url(url: str) -> tuple[int, str | None] | None:
    """Return the id and the slug, if any, of a template's page; None for other pages."""
    match = _URL.search(url)
    return (int(match["id"]), match["slug"]) if match else None


async def fetch_detail(visit: Visit, api_url: str) -> Detail:
    """Request the endpoints in turn until one has the template of this visit.

    Raises:
        Gone: none of them has it.
        SkipItem: it is not published.
        UnexpectedShape: a response has an unknown shape, or is about another template.
    """
    *others, last = _ENDPOINTS
    for path in others:
        with suppress(Gone):  # another endpoint may have the template
            return await _request_template(visit, api_url, path)
    return await _request_template(visit, api_url, last)


async def _request_template(visit: Visit, api_url: str, path: str) -> Detail:
    key = template_id(visit.item)
    page = await visit.fetch(api_url + path.format(id=key))
    values = _ENDPOINTS[path](page)
    found = values.get("id")
    if found != key or isinstance(found, bool):
        raise UnexpectedShape(page.url, f"requested template {key}, got {found!r}")
    return Detail(path, page.url, values)


def _parse_nested(page: Page) -> Mapping[str, Any]:
    return _expect_object(page, _expect_object(page, page.json).get("workflow"))


def _parse_flat(page: Page) -> Mapping[str, Any]:
    return _expect_object(page, page.json)


def _parse_strapi(page: Page) -> Mapping[str, Any]:
    data = _expect_object(page, _expect_object(page, page.json).get("data"))
    values = {"id": data.get("id"), **_expect_object(page, data.get("attributes"))}
    if (status := values.get("status")) != "published":
        raise SkipItem(f"template {values['id']} is not published (its status is {status!r})")
    if username := values.pop("username", None):
        values["user"] = {"username": username}
    return values


def _expect_object(page: Page, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise UnexpectedShape(page.url, f"not a response about a template ({kind} for an object)")
    return value


_ENDPOINTS: Mapping[str, Callable[[Page], Mapping[str, Any]]] = {
    "/templates/workflows/{id}": _parse_nested,
    "/workflows/templates/{id}": _parse_flat,
    "/workflows/{id}": _parse_strapi,
}
_FIRST_ENDPOINT = next(iter(_ENDPOINTS))


def read_metadata(item: Item, detail: Detail, note: AddNote) -> dict[str, Any]:
    """Return the fields of layer 1; every empty one is noted with its reason."""
    total_views = detail.values.get("totalViews", item.data.get("total_views"))
    if total_views is None:
        note("total_views", detail.why_empty("totalViews"))
    fields: dict[str, Any] = {
        "id": detail.values["id"],
        "url": item.url,
        "slug": slug_of(item, note),
        "endpoint": detail.endpoint,
        **{field: _plain_field(field, detail, note) for field in _PLAIN_FIELDS},
        "total_views": total_views,
        "author": _author(detail, note),
        "categories": _entry_names("categories", "categories", "name", detail, note),
        "integrations": _entry_names("integrations", "nodes", "displayName", detail, note),
        **_price_fields(item, detail, note),
    }
    if detail.endpoint != _FIRST_ENDPOINT:
        unknown = sorted(name for name, value in fields.items() if value is None)
        note("endpoint", f"not in {_FIRST_ENDPOINT}; unknown: {', '.join(unknown)}")
    return fields


def slug_of(item: Item, note: AddNote) -> str | None:
    """Return the slug that discovery found, or the one in the item's URL."""
    parsed = parse_template_url(item.url)
    slug = item.data.get("slug") or (parsed and parsed[1])
    if not slug:
        note("slug", "only in the sitemap")
        return None
    return str(slug)


def _plain_field(field: str, detail: Detail, note: AddNote) -> Any:
    name, kind = _PLAIN_FIELDS[field]
    value = detail.values.get(name)
    if value is None:
        note(field, detail.why_empty(name))
    elif not isinstance(value, kind):
        note(field, f"unexpected type: {type(value).__name__} instead of {kind.__name__}")
    return value


def _author(detail: Detail, note: AddNote) -> dict[str, Any] | None:
    user = detail.values.get("user")
    if not isinstance(user, Mapping):
        note("author", detail.why_empty("user"))
        return None
    if missing := [name for name in ("name", "username", "verified") if user.get(name) is None]:
        note("author", f"{detail.endpoint} does not have: {', '.join(missing)}")
    return {name: user[name] for name in _AUTHOR_FIELDS if name in user}


def _entry_names(
    field: str, name: str, key: str, detail: Detail, note: AddNote
) -> list[str] | None:
    entries = detail.values.get(name)
    if not isinstance(entries, list):
        note(field, detail.why_empty(name))
        return None
    names = [entry[key] for entry in entries if isinstance(entry, Mapping) and entry.get(key)]
    if len(names) < len(entries):
        note(field, f"{len(entries) - len(names)} of {len(entries)} entries have no {key}")
    return names


def _price_fields(item: Item, detail: Detail, note: AddNote) -> dict[str, Any]:
    price = detail.values.get("price", item.data.get("price"))
    purchase_url = item.data.get("purchase_url")
    was_searched = "purchase_url" in item.data
    for field, value in (("price", price), ("purchase_url", purchase_url)):
        if value is None:
            note(field, "not in its search result" if was_searched else _NOT_SEARCHED)
    is_paid: bool | None = bool(price or purchase_url)
    if not is_paid and price is None and not was_searched:
        is_paid = None
        note("is_paid", _NOT_SEARCHED)
    return {"price": price, "purchase_url": purchase_url, "is_paid": is_paid}


def read_workflow(detail: Detail, note: AddNote) -> dict[str, Any]:
    """Return the fields of layer 2; every empty one is noted with its reason."""
    workflow = detail.values.get("workflow")
    declared = _declared_counts(detail, note)
    if workflow is None:
        return {**empty_workflow(detail.why_empty("workflow"), note), **declared}
    if not isinstance(workflow, Mapping):
        kind = type(workflow).__name__
        raise UnexpectedShape(detail.url, f"the workflow is {kind} instead of an object")
    for part, expected in (("nodes", list), ("connections", dict)):
        if not isinstance(workflow.get(part), expected):
            problem = f"the {part} of the workflow are not a {expected.__name__}"
            raise UnexpectedShape(detail.url, problem)
    for problem in _workflow_problems(workflow):
        note("workflow", problem)
    if workflow.get("name") is None:
        note("workflow_name", "the workflow has no name")
    return {"workflow": workflow, **_count_workflow(workflow), **declared}


def empty_workflow(reason: str, note: AddNote) -> dict[str, None]:
    """Return the empty fields of a template without a workflow."""
    for field in _WORKFLOW_FIELDS:
        note(field, reason)
    return dict.fromkeys(_WORKFLOW_FIELDS)


def nodes_of(workflow: Any) -> list[Mapping[str, Any]]:
    """Return the nodes of a workflow that are objects."""
    nodes = workflow.get("nodes") if isinstance(workflow, Mapping) else None
    nodes = nodes if isinstance(nodes, list) else []
    return [node for node in nodes if isinstance(node, Mapping)]


def _targets(workflow: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the output type and the target of every valid connection."""
    for outputs in workflow["connections"].values():
        for kind, branches in outputs.items() if isinstance(outputs, Mapping) else ():
            for branch in branches if isinstance(branches, list) else ():
                for target in branch if isinstance(branch, list) else ():
                    if isinstance(target, Mapping):
                        yield kind, target


def _count_workflow(workflow: Mapping[str, Any]) -> dict[str, Any]:
    nodes = nodes_of(workflow)
    types = Counter(str(kind) for node in nodes if (kind := node.get("type")))
    links = Counter(kind for kind, _target in _targets(workflow))
    credentials = [node.get("credentials") for node in nodes]
    return {
        "workflow_name": workflow.get("name"),
        "node_count": len(workflow["nodes"]),
        "node_types": dict(sorted(types.items())),
        "sticky_note_count": types[STICKY_NOTE],
        "connection_count": links.total(),
        "connection_types": dict(sorted(links.items())),
        "trigger_types": sorted(filter(_is_trigger, types)),
        "credential_types": sorted(
            {name for one in credentials if isinstance(one, Mapping) for name in one}
        ),
    }


def _is_trigger(node_type: str) -> bool:
    name = node_type.rpartition(".")[2]
    return name.endswith("Trigger") or name in _OLD_TRIGGERS


def _declared_counts(detail: Detail, note: AddNote) -> dict[str, Any]:
    """Return the counts that the site publishes, to compare with."""
    info = detail.values.get("workflowInfo")
    info = info if isinstance(info, Mapping) else {}
    count, types = info.get("nodeCount"), info.get("nodeTypes")
    if count is None:
        note("declared_node_count", detail.why_empty("workflowInfo"))
    if not isinstance(types, Mapping):
        note("declared_node_types", detail.why_empty("workflowInfo"))
        return {"declared_node_count": count, "declared_node_types": None}
    counts = {
        name: entry.get("count") if isinstance(entry, Mapping) else entry
        for name, entry in types.items()
    }
    return {"declared_node_count": count, "declared_node_types": counts}


def _workflow_problems(workflow: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is unusual about a workflow; it is stored unchanged."""
    nodes = nodes_of(workflow)
    if others := len(workflow["nodes"]) - len(nodes):
        yield f"{others} nodes are not objects"
    for problem, has_problem in _NODE_PROBLEMS.items():
        if count := sum(map(has_problem, nodes)):
            yield f"{count} of {len(nodes)} nodes {problem}"
    names = Counter(str(node["name"]) for node in nodes if node.get("name") is not None)
    if repeated := [name for name, count in names.items() if count > 1]:
        yield f"several nodes have the same name: {_list_names(repeated)}"
    targets = {str(target["node"]) for _, target in _targets(workflow) if "node" in target}
    if missing := sorted((targets | set(workflow["connections"])) - names.keys()):
        yield f"connections refer to missing nodes: {_list_names(missing)}"


def _list_names(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN_NAMES])
    more = len(names) - _SHOWN_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
