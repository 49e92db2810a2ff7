"""The responses of the template API, with the fields of n8n's own host."""

from __future__ import annotations

from typing import Any

import orjson

from longline.sandbox.templates.template import Template
from longline.sandbox.templates.words import CATEGORIES, PARENTS

_STRAPI_DETAIL = ("status", "description", "workflowInfo", "createdAt", "views", "recentViews")
_STRAPI_EXTRAS = ("updatedAt", "hidden", "price", "difficulty", "readyToDemo")


def encode(answer: Any) -> bytes:
    """Return an answer as the bytes of its body."""
    return orjson.dumps(answer)


def detail_answer(template: Template) -> dict[str, Any]:
    """`/templates/workflows/{id}`: everything but the price and the date of the last change."""
    return {
        "workflow": {
            "id": template.id,
            "name": template.name,
            **template.detail,
            "workflow": template.workflow,
        }
    }


def flat_answer(template: Template) -> dict[str, Any]:
    """`/workflows/templates/{id}`: the workflow and little else."""
    return {"id": template.id, "name": template.name, "workflow": template.workflow}


def strapi_answer(template: Template) -> dict[str, Any]:
    """`/workflows/{id}`: the form of the content system, the only one with `updatedAt`."""
    detail, extras = template.detail, template.extras
    attributes = {
        "name": template.name,
        "workflow": template.workflow,
        "username": (detail.get("user") or {}).get("username"),
        **{name: detail[name] for name in _STRAPI_DETAIL if name in detail},
        **{name: extras[name] for name in _STRAPI_EXTRAS if name in extras},
    }
    return {"data": {"id": template.id, "attributes": attributes}, "meta": {}}


def search_item(template: Template) -> dict[str, Any]:
    """Return one row of `/templates/search`; it has a price but no categories."""
    detail, extras = template.detail, template.extras
    item = {
        "id": template.id,
        "name": template.name,
        "totalViews": detail.get("totalViews"),
        "purchaseUrl": extras.get("purchaseUrl"),
        "user": detail.get("user"),
        "description": detail.get("description"),
        "createdAt": detail.get("createdAt"),
        "nodes": detail.get("nodes"),
    }
    if "price" in extras and (extras["price"] or template.id % 5):  # absent on some free ones
        item["price"] = extras["price"]
    return item


def categories_answer() -> dict[str, Any]:
    """`/templates/categories`: the top level first."""
    top = [_category(number, name, None) for number, name in PARENTS]
    return {
        "categories": top
        + [_category(number, name, top[number % len(top)]) for number, name in CATEGORIES]
    }


def _category(number: int, name: str, parent: dict[str, Any] | None) -> dict[str, Any]:
    return {"id": number, "name": name, "displayName": None, "icon": "📁", "parent": parent}
