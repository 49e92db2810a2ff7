"""One template by its id: three endpoints, three shapes, one `Detail`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from longline.core.errors import Gone, SkipItem, UnexpectedShape
from longline.core.model import Item
from longline.http.messages import Page
from longline.sources.visit import Visit


@dataclass(frozen=True, slots=True)
class Detail:
    """A template as one endpoint tells it; `values` has the names of the first endpoint."""

    endpoint: str
    address: str
    values: Mapping[str, Any]

    def why_empty(self, name: str) -> str:
        """Return the reason to note when a value is missing."""
        if name in self.values:
            return f"empty in the response of {self.endpoint}"
        return f"not in the response of {self.endpoint}"


def template_id(item: Item) -> int:
    """Return the id an item's key stands for.

    Raises:
        UnexpectedShape: the key is not a positive number.
    """
    if not item.key.isascii() or not item.key.isdigit() or int(item.key) == 0:
        raise UnexpectedShape(f"item {item.key!r}", "the key of a template is a positive number")
    return int(item.key)


async def fetch_detail(visit: Visit, api_url: str) -> Detail:
    """Ask the endpoints in turn until one knows the template of this visit.

    Raises:
        Gone: none of them knows it.
        SkipItem: it is there but not published.
        UnexpectedShape: an answer is none of the known shapes, or is about another template.
    """
    *others, last = _ENDPOINTS
    for path in others:
        # A template the first endpoint denies may be known to the next: only all of them decide.
        with suppress(Gone):
            return await _request_template(visit, api_url, path)
    return await _request_template(visit, api_url, last)


async def _request_template(visit: Visit, api_url: str, path: str) -> Detail:
    key = template_id(visit.item)
    page = await visit.fetch(api_url + path.format(id=key))
    values = _ENDPOINTS[path](page)
    found = values.get("id")
    if found != key or isinstance(found, bool):
        raise UnexpectedShape(page.url, f"asked for template {key}, got {found!r}")
    return Detail(path, page.url, values)


def _from_templates(page: Page) -> Mapping[str, Any]:
    return _expect_object(page, _expect_object(page, page.json).get("workflow"))


def _from_flat(page: Page) -> Mapping[str, Any]:
    return _expect_object(page, page.json)


def _from_strapi(page: Page) -> Mapping[str, Any]:
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
    "/templates/workflows/{id}": _from_templates,
    "/workflows/templates/{id}": _from_flat,
    "/workflows/{id}": _from_strapi,
}
FIRST_ENDPOINT = next(iter(_ENDPOINTS))
