"""Layer 1 of a template: who published what, when, and how often it was looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from longline.model import Item
from longline.sources.catalogue.n8n_answers import FIRST_ENDPOINT, Detail
from longline.sources.catalogue.n8n_inventory import parse_template_address

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
        **{field: _plain(field, detail, note) for field in _PLAIN},
        "total_views": _total_views(item, detail, note),
        "author": _author(detail, note),
        "categories": _names("categories", "name", detail, note),
        "integrations": _names("nodes", "displayName", detail, note, field="integrations"),
        **_price(item, detail, note),
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


def _plain(field: str, detail: Detail, note: TakeNote) -> Any:
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


def _author(detail: Detail, note: TakeNote) -> dict[str, Any] | None:
    user = detail.values.get("user")
    if not isinstance(user, Mapping):
        note("author", detail.why_empty("user"))
        return None
    if missing := [name for name in ("name", "username", "verified") if user.get(name) is None]:
        note("author", f"{detail.endpoint} does not tell: {', '.join(missing)}")
    return {name: user[name] for name in _AUTHOR if name in user}


def _names(
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


def _price(item: Item, detail: Detail, note: TakeNote) -> dict[str, Any]:
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
