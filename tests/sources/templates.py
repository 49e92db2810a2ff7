"""A made-up template, in each of the shapes in which the n8n API tells it."""

from __future__ import annotations

from typing import Any

from longline.core.model import Item

SITE = "https://n8n.io"
API = "https://api.n8n.io/api"
KEY = 42
FIRST = f"{API}/templates/workflows/{KEY}"
FLAT = f"{API}/workflows/templates/{KEY}"
STRAPI = f"{API}/workflows/{KEY}"
PAGE = f"{SITE}/workflows/{KEY}-send-a-letter/"

ITEM = Item(str(KEY), PAGE, data={"slug": "send-a-letter"})


def sticky(content: Any, **extra: Any) -> dict[str, Any]:
    return {
        "id": "s",
        "name": "Sticky Note",
        "type": "n8n-nodes-base.stickyNote",
        "typeVersion": 1,
        "position": [10, 20],
        "parameters": {"content": content, "width": 300, "height": 200},
        **extra,
    }


def node(name: str, kind: str = "n8n-nodes-base.set", **extra: Any) -> dict[str, Any]:
    return {
        "id": name,
        "name": name,
        "type": kind,
        "typeVersion": 1,
        "position": [0, 0],
        "parameters": {},
        **extra,
    }


def to(*names: str) -> list[dict[str, Any]]:
    return [{"node": name, "type": "main", "index": 0} for name in names]


def workflow(*nodes: dict[str, Any], **extra: Any) -> dict[str, Any]:
    found = list(nodes) or [
        node("Hook", "n8n-nodes-base.webhook"),
        node(
            "Mail", "n8n-nodes-base.gmail", credentials={"gmailOAuth2": {"id": "1", "name": "me"}}
        ),
    ]
    connections = {"Hook": {"main": [to("Mail")]}} if not nodes else {}
    return {"name": "Send letters", "nodes": found, "connections": connections, **extra}


def detail(**changes: Any) -> dict[str, Any]:
    """Return the inside of the first endpoint's answer."""
    inner = changes.pop("workflow", None) or workflow()
    types: dict[str, dict[str, int]] = {}
    for entry in inner["nodes"] if isinstance(inner, dict) else ():
        types.setdefault(entry["type"], {"count": 0})["count"] += 1
    return {
        "id": KEY,
        "name": "Send a letter when a hook is called",
        "views": 10,
        "recentViews": 1,
        "totalViews": 12,
        "createdAt": "2024-05-01T00:00:00.000Z",
        "description": "## What it does\nIt sends a letter to whoever is on the list. " * 3,
        "workflow": inner,
        "status": "published",
        "user": {"name": "Ann", "username": "ann", "verified": True, "bio": None, "links": []},
        "nodes": [{"id": 1, "name": "n8n-nodes-base.gmail", "displayName": "Gmail"}],
        "categories": [{"id": 5, "name": "Engineering"}],
        "image": [],
        "lastUpdatedBy": 3,
        "workflowInfo": {"nodeCount": len(inner.get("nodes", [])), "nodeTypes": types},
        **changes,
    }


def first_answer(**changes: Any) -> dict[str, Any]:
    return {"workflow": detail(**changes)}


def strapi_answer(**changes: Any) -> dict[str, Any]:
    attributes = {
        "name": "Send a letter when a hook is called",
        "status": "published",
        "description": "It sends a letter.",
        "workflow": workflow(),
        "workflowInfo": None,
        "createdAt": "2024-05-01T00:00:00.000Z",
        "updatedAt": "2025-05-01T00:00:00.000Z",
        "views": 10,
        "recentViews": 1,
        "hidden": False,
        "username": "ann",
        "price": 0,
        "difficulty": "easy",
        "readyToDemo": True,
        **changes,
    }
    return {"data": {"id": KEY, "attributes": attributes}, "meta": {}}
