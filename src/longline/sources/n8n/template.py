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
WORKFLOW_FIELDS = (
    "workflow",
    "workflow_name",
    "node_count",
    "node_types",
    "sticky_note_count",
    "connection_count",
    "connection_types",
    "trigger_types",
    "credential_types",
    "declared_node_count",
    "declared_node_types",
)
_URL = re.compile(r"/workflows/(?P<id>[1-9]\d*)(?:-(?P<slug>[^/?#]+))?/?(?:[?#].*)?$")
_NESTED, _FLAT, _STRAPI = (
    "/templates/workflows/{id}",
    "/workflows/templates/{id}",
    "/workflows/{id}",
)
_PLAIN_FIELDS = {
    "title": "name",
    "views": "views",
    "recent_views": "recentViews",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
    "status": "status",
    "review_status": "reviewStatus",
    "difficulty": "difficulty",
    "ready_to_demo": "readyToDemo",
    "last_updated_by": "lastUpdatedBy",
}
ONLY_IN_API = (
    *(name for name in _PLAIN_FIELDS if name != "title"),
    *("total_views", "categories", "price", "purchase_url", "is_paid"),
)
"""Fields of layer 1 that the public page of a template does not have."""
_AUTHOR_FIELDS = ("name", "username", "verified", "bio", "links", "avatar")
_OLD_TRIGGERS = frozenset({"webhook", "cron", "interval", "start", "emailReadImap"})
"""Nodes that start a workflow although their name does not end in Trigger."""


@dataclass(frozen=True, slots=True)
class Detail:
    """A template as one endpoint returns it; `values` has the names of the first endpoint."""

    endpoint: str
    url: str
    values: Mapping[str, Any]

    @property
    def reason(self) -> str:
        """The reason to note for an empty field."""
        return f"not in the response from {self.endpoint}"


def note_empty(
    fields: dict[str, Any], reason: str, note: AddNote, **reasons: str
) -> dict[str, Any]:
    """Note each empty field with its own reason, or the common one, and return the fields."""
    for name, value in fields.items():
        if value is None:
            note(name, reasons.get(name, reason))
    return fields


def template_id(item: Item) -> int:
    """Return the id in an item's key; raise UnexpectedShape if it is not a positive number."""
    if not item.key.isascii() or not item.key.isdigit() or int(item.key) == 0:
        raise UnexpectedShape(f"item {item.key!r}", "the key of a template is a positive number")
    return int(item.key)


def parse_template_url(url: str) -> tuple[int, str | None] | None:
    """Return the id and the slug, if any, of a template's page; None for other pages."""
    match = _URL.search(url)
    return (int(match["id"]), match["slug"]) if match else None


def slug_of(item: Item) -> str | None:
    """Return the slug that discovery found, or the one in the item's URL."""
    parsed = parse_template_url(item.url)
    return item.data.get("slug") or (parsed and parsed[1])


async def fetch_detail(visit: Visit, api_url: str) -> Detail:
    """Request the endpoints in turn until one has the template of this visit.

    Raises:
        Gone: none of them has it.
        SkipItem: it is not published.
        UnexpectedShape: a response has an unknown shape, or is about another template.
    """
    for path in (_NESTED, _FLAT):
        with suppress(Gone):  # another endpoint may have the template
            return await _request_template(visit, api_url, path)
    return await _request_template(visit, api_url, _STRAPI)


async def _request_template(visit: Visit, api_url: str, path: str) -> Detail:
    key = template_id(visit.item)
    page = await visit.fetch(api_url + path.format(id=key))
    values = _expect_object(page, page.json)
    if path == _NESTED:
        values = _expect_object(page, values.get("workflow"))
    elif path == _STRAPI:
        data = _expect_object(page, values.get("data"))
        values = {"id": data.get("id"), **_expect_object(page, data.get("attributes"))}
        if (status := values.get("status")) != "published":
            raise SkipItem(f"template {values['id']} is not published (its status is {status!r})")
        if username := values.pop("username", None):
            values["user"] = {"username": username}
    found = values.get("id")
    if found != key or isinstance(found, bool):
        raise UnexpectedShape(page.url, f"requested template {key}, got {found!r}")
    return Detail(path, page.url, values)


def _expect_object(page: Page, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise UnexpectedShape(
            page.url, f"not a template: the response is a {kind} instead of an object"
        )
    return value


def read_metadata(item: Item, detail: Detail, note: AddNote) -> dict[str, Any]:
    """Return the fields of layer 1; every empty one is noted with its reason."""
    values, user = detail.values, detail.values.get("user")
    price = values.get("price", item.data.get("price"))
    purchase_url = item.data.get("purchase_url")
    was_searched = "purchase_url" in item.data
    fields: dict[str, Any] = {
        "id": values["id"],
        "url": item.url,
        "slug": slug_of(item),
        "endpoint": detail.endpoint,
        **{ours: values.get(theirs) for ours, theirs in _PLAIN_FIELDS.items()},
        "total_views": values.get("totalViews", item.data.get("total_views")),
        "author": {name: user[name] for name in _AUTHOR_FIELDS if name in user}
        if isinstance(user, Mapping)
        else None,
        "categories": _entry_names(values.get("categories"), "name"),
        "integrations": _entry_names(values.get("nodes"), "displayName"),
        "price": price,
        "purchase_url": purchase_url,
        "is_paid": bool(price or purchase_url) if price is not None or was_searched else None,
    }
    searched = "not in its search result" if was_searched else "only with inventory=search"
    return note_empty(
        fields,
        detail.reason,
        note,
        slug="only in the sitemap",
        price=searched,
        purchase_url=searched,
        is_paid=searched,
    )


def _entry_names(entries: Any, key: str) -> list[str] | None:
    if not isinstance(entries, list):
        return None
    return [entry[key] for entry in entries if isinstance(entry, Mapping) and entry.get(key)]


def read_workflow(detail: Detail, note: AddNote) -> dict[str, Any]:
    """Return the fields of layer 2; every empty one is noted with its reason."""
    fields: dict[str, Any] = dict.fromkeys(WORKFLOW_FIELDS)
    # The counts that the site publishes, to compare with.
    info = detail.values.get("workflowInfo")
    if isinstance(info, Mapping):
        fields["declared_node_count"] = info.get("nodeCount")
        if isinstance(types := info.get("nodeTypes"), Mapping):
            fields["declared_node_types"] = {
                name: entry.get("count") if isinstance(entry, Mapping) else entry
                for name, entry in types.items()
            }
    workflow = detail.values.get("workflow")
    if workflow is not None:
        if (
            not isinstance(workflow, Mapping)
            or not isinstance(workflow.get("nodes"), list)
            or not isinstance(workflow.get("connections"), dict)
        ):
            problem = (
                "the workflow is not an object with a list of nodes and an object of connections"
            )
            raise UnexpectedShape(detail.url, problem)
        fields |= {"workflow": workflow, **_count_workflow(workflow)}
    return note_empty(fields, detail.reason, note)


def nodes_of(workflow: Any) -> list[Mapping[str, Any]]:
    """Return the nodes of a workflow that are objects."""
    nodes = workflow.get("nodes") if isinstance(workflow, Mapping) else None
    nodes = nodes if isinstance(nodes, list) else []
    return [node for node in nodes if isinstance(node, Mapping)]


def _connection_types(workflow: Mapping[str, Any]) -> Iterator[str]:
    """Yield the output type of every valid connection."""
    for outputs in workflow["connections"].values():
        for kind, branches in outputs.items() if isinstance(outputs, Mapping) else ():
            for branch in branches if isinstance(branches, list) else ():
                targets = branch if isinstance(branch, list) else ()
                yield from (kind for target in targets if isinstance(target, Mapping))


def _count_workflow(workflow: Mapping[str, Any]) -> dict[str, Any]:
    nodes = nodes_of(workflow)
    types = Counter(str(kind) for node in nodes if (kind := node.get("type")))
    links = Counter(_connection_types(workflow))
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
