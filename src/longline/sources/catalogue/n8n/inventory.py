"""Which templates there are: from the website's sitemap, or from the search API page by page."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from longline.core.errors import DiscoveryFailed, Gone, UnexpectedShape
from longline.core.model import Cursor, Item
from longline.sources.catalogue.n8n.options import N8nOptions
from longline.sources.sitemap import Sitemap, read_sitemap
from longline.sources.visit import Visit

_TEMPLATE = re.compile(r"/workflows/(?P<id>[1-9]\d*)(?:-(?P<slug>[^/?#]+))?/?(?:[?#].*)?$")
_WORKFLOW_SITEMAP = re.compile(r"/sitemap[-_]workflows[^/]*\.xml$")
_STALE_PAGES = 3
"""So many pages in a row without a new template: the host ignores `page`."""

_ONLY_IN_SEARCH = {"price": "price", "purchaseUrl": "purchase_url", "totalViews": "total_views"}


def parse_template_address(address: str) -> tuple[int, str | None] | None:
    """Return the id and, if it is there, the slug of a template's page; None for other pages."""
    if not (match := _TEMPLATE.search(address)):
        return None
    return int(match["id"]), match["slug"]


async def from_sitemap(visit: Visit, options: N8nOptions) -> AsyncIterator[Item]:
    """Yield every template in the sitemap, once.

    Raises:
        DiscoveryFailed: there is no sitemap, or no template in it.
    """
    seen: set[int] = set()
    for address in await _template_urls(visit, options.site_url):
        found = parse_template_address(address)
        if found is None or found[0] in seen:
            continue
        seen.add(found[0])
        data = {} if found[1] is None else {"slug": found[1]}
        yield Item(str(found[0]), _at_site(address, options.site_url), data=data)
    if not seen:
        raise DiscoveryFailed("n8n", f"the sitemaps of {options.site_url} list no template")


async def _template_urls(visit: Visit, site: str) -> list[str]:
    direct = f"{site}/sitemap-workflows.xml"
    index = Sitemap(is_index=True, urls=(direct,))
    with suppress(Gone):
        index = await _fetch_sitemap(visit, f"{site}/sitemap_index.xml")
    if not index.is_index:
        return list(index.urls)
    parts = [a for a in index.urls if _WORKFLOW_SITEMAP.search(urlsplit(a).path)]
    urls: list[str] = []
    for part in dict.fromkeys(_at_site(a, site) for a in parts or [direct]):
        urls += await _sitemap_urls(visit, part)
    return urls


async def _sitemap_urls(visit: Visit, address: str) -> tuple[str, ...]:
    try:
        return (await _fetch_sitemap(visit, address)).urls
    except Gone as error:
        problem = f"{error}; a host without a sitemap can be listed with --set inventory=search"
        raise DiscoveryFailed("n8n", problem) from error


async def _fetch_sitemap(visit: Visit, address: str) -> Sitemap:
    sitemap = read_sitemap(await visit.fetch(address))
    if sitemap.problem:
        visit.cut(f"the sitemap {address} is incomplete: {sitemap.problem}")
    return sitemap


def _at_site(address: str, site: str) -> str:
    """Return the address on the site the user chose: a mirror may list the original's."""
    if urlsplit(address).netloc == urlsplit(site).netloc:
        return address
    return site + urlsplit(address).path


async def from_search(visit: Visit, options: N8nOptions) -> AsyncIterator[Item | Cursor]:
    """Yield every template the search lists, with a cursor after each page.

    Raises:
        UnexpectedShape: an answer is not a list of templates.
        DiscoveryFailed: the host gives the same page again and again.
    """
    # The list may have shrunk since the crash, so the last page read is read again.
    kept = visit.cursor or {}
    page, before = kept.get("page", 1), kept.get("before")
    counted = 0 if page == 1 else before  # on the pages before; None is unknown
    seen: set[int] = set()
    stale = 0
    while stale < _STALE_PAGES:
        total, rows = await _search_page(visit, options, page)
        # It shifts while it is read, too: a template may come again on the next page.
        new = {key: item for key, item in _search_items(rows, options) if key not in seen}
        for item in new.values():
            yield item
        before = None if counted is None else counted + len(seen)
        seen |= new.keys()
        listed = None if counted is None else counted + len(seen)
        if odd := len(rows) - sum(1 for _ in _search_items(rows, options)):
            visit.cut(f"the search lists {odd} templates without an id on page {page}")
        if not rows and total is not None and listed is not None and listed < total:
            visit.cut(f"the search counts {total} templates, its pages {listed}")
        yield Cursor({"page": page, "before": before})
        if not rows or (total is not None and len(seen) >= total):
            return
        stale = 0 if new else stale + 1
        page += 1
    problem = f"the search of {options.api_url} repeats itself after {len(seen)} templates"
    raise DiscoveryFailed("n8n", problem)


async def _search_page(
    visit: Visit, options: N8nOptions, page: int
) -> tuple[int | None, list[Any]]:
    # Newest first: what is published meanwhile pushes others back, and nothing is jumped over.
    params: dict[str, str | int] = {
        "page": page,
        "rows": options.rows,
        "sort": "createdAt:desc",
        **{name: value for name in ("search", "category") if (value := getattr(options, name))},
    }
    answer = await visit.fetch(f"{options.api_url}/templates/search", params=params)
    found = answer.json
    if not isinstance(found, dict) or not isinstance(found.get("workflows"), list):
        raise UnexpectedShape(answer.url, "no list of workflows in the response of the search")
    total = found.get("totalWorkflows")
    return (total if isinstance(total, int) else None), found["workflows"]


def _search_items(rows: Iterable[Any], options: N8nOptions) -> Iterable[tuple[int, Item]]:
    for row in rows:
        if not isinstance(row, Mapping):
            continue
        key = row.get("id")
        if isinstance(key, int) and key > 0:
            data = {ours: row[theirs] for theirs, ours in _ONLY_IN_SEARCH.items() if theirs in row}
            yield key, Item(str(key), f"{options.site_url}/workflows/{key}", data=data)
