"""Pagination of a list page or an API: next links, page numbers, offsets, cursors, load-more."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

from selectolax.lexbor import LexborNode

from longline.config.expressions import find
from longline.devtools.propose.selectors import classes_of, group_selector, unique_selector
from longline.http.messages import Page, without_userinfo
from longline.sources.html.content import node_text

_NEXT_WORDS = """
    next older weiter nächste suivant suivante siguiente próximo próxima seguinte successiva avanti
    volgende następna dalej nästa næste neste seuraava další следваща следующая напред далее
    sonraki 次へ 下一页 下一頁 다음
"""
_NEXT = re.compile(rf"\b(?:{'|'.join(_NEXT_WORDS.split())})\b", re.IGNORECASE)
_ARROWS = frozenset({"›", "»", "→", ">", ">>", "❯", "⟩"})  # noqa: RUF001  # what pagers really show
_MORE = re.compile(
    r"\b(?:load|show|view|see) more\b|mehr (?:laden|anzeigen)|voir plus|cargar más|ver más|"
    r"carica altri|meer laden|зареди още|pokaż więcej",
    re.IGNORECASE,
)
_MORE_ATTRIBUTES = ("data-url", "data-href", "data-next", "data-next-url", "data-more", "href")
_LONGEST = 40
_SECOND = re.compile(r"(?<!\d)2(?!\d)")
Pages = Mapping[str, Any]
"""The `pages` section of a manifest."""


def find_pages(page: Page, size: int) -> Pages | None:
    """Return how a list with `size` entries per page continues; None for a single page."""
    for tag in ("a", "link"):
        if page.first(f"{tag}[rel~=next][href]"):
            return {"kind": "next", "css": f"{tag}[rel~=next]@href"}
    return _by_word(page) or _by_numbers(page, size) or _by_more(page)


def _by_word(page: Page) -> Pages | None:
    for link in page.css("a[href]"):
        if not _says_next(link) or not _leads_on(page, link):
            continue
        if selector := _selector_by_name(page, link):
            return {"kind": "next", "css": f"{selector}@href"}
        if words := node_text(link).replace('"', ""):
            return {"kind": "next", "css": f'a:lexbor-contains("{words}")@href'}
    return None


def _selector_by_name(page: Page, link: LexborNode) -> str | None:
    """Return a selector by what the link is called, or the element around it."""
    around = [] if link.parent is None else [(link.parent, f" {link.tag}")]
    for node, inner in [(link, ""), *around]:
        for name in classes_of(node):
            selector = f"{node.tag}.{name}{inner}"
            if "next" in name.lower() and page.css(selector) == [link]:
                return selector
    selector = unique_selector(page.tree, link) or ""
    # On other pages, another link may be at the same position.
    is_named = any(mark in selector.rpartition(" ")[2] for mark in ".#[")
    return selector if is_named else None


def _says_next(link: LexborNode) -> bool:
    text = node_text(link)
    if len(text) > _LONGEST:
        return False
    label = link.attributes.get("aria-label") or link.attributes.get("title") or ""
    names = re.split(r"[-_ ]", (link.attributes.get("class") or "").lower())
    is_said = _NEXT.search(f"{text} {label}") is not None
    return is_said or text.strip() in _ARROWS or "next" in names


def _leads_on(page: Page, link: LexborNode) -> bool:
    href = link.attributes.get("href") or ""
    address = _resolve_href(page, href)
    is_same_host = urlsplit(address).netloc == urlsplit(page.url).netloc
    return bool(href) and not href.startswith(("#", "javascript:")) and is_same_host


def _by_numbers(page: Page, size: int) -> Pages | None:
    numbered = [link for link in page.css("a[href]") if node_text(link).isdecimal()]
    for link in numbered:
        number = int(node_text(link))
        if number <= 1 or not _leads_on(page, link):
            continue
        address = _resolve_href(page, link.attributes.get("href") or "")
        found = _by_parameter(page, number, address, size) or _by_path(page, number, address)
        if found is None:
            continue
        last = group_selector(page.tree, numbered) if found["kind"] == "numbered" else None
        return {**found, "last": last} if last else found
    return None


def _by_parameter(page: Page, number: int, address: str, size: int) -> dict[str, Any] | None:
    if urlsplit(address).path != urlsplit(page.url).path:
        return None
    known = dict(parse_qsl(urlsplit(page.url).query))
    for name, value in parse_qsl(urlsplit(address).query):
        if not value.isdecimal() or known.get(name) == value:
            continue
        if int(value) == number:
            return {"kind": "numbered", "param": name}
        if int(value) == number - 1:
            return {"kind": "numbered", "param": name, "first": 0}
        if int(value) % (number - 1) == 0 and int(value) // (number - 1) >= size:
            return {"kind": "offset", "param": name, "size": int(value) // (number - 1)}
    return None


def _by_path(page: Page, number: int, address: str) -> dict[str, Any] | None:
    before, found, after = address.rpartition(str(number))
    if not found or "{" in address or before[-1:].isdigit() or after[:1].isdigit():
        return None
    start = page.url.partition("?")[0]
    if not before.startswith(start.rpartition("/")[0] + "/"):
        return None  # another part of the site
    if before.startswith(start):
        before = "{start}" + before[len(start) :]
    return {"kind": "numbered", "url": f"{before}{{page}}{after}"}


def _by_more(page: Page) -> Pages | None:
    for node in page.css("a, button, [data-url], [data-next], [data-next-url]"):
        if not _MORE.search(node_text(node)):
            continue
        for name in _MORE_ATTRIBUTES:
            address = node.attributes.get(name) or ""
            if _SECOND.search(address) and "{" not in address:
                whole = _resolve_href(page, address)
                *_, last = _SECOND.finditer(whole)
                return {
                    "kind": "more",
                    "url": f"{whole[: last.start()]}{{page}}{whole[last.end() :]}",
                }
    return None


def _resolve_href(page: Page, href: str) -> str:
    try:
        return urljoin(page.url, without_userinfo(href))
    except ValueError:
        return ""


# ---------------- Pagination of an API

_NEXT_PATHS = """
    next next_page_url nextPageUrl next_url nextUrl nextPage next_page nextLink "@odata.nextLink"
    links.next _links.next.href links.next.href paging.next pagination.next pagination.next_url
    meta.next info.next meta.pagination.links.next page.next
"""
_CURSORS = {  # query parameter: paths of its next value
    "cursor": """
        next_cursor nextCursor cursor meta.next_cursor meta.cursor meta.next
        pagination.next_cursor pagination.cursor next
    """,
    "after": "meta.after paging.cursors.after after data.after",
    "page_token": "next_page_token",
    "pageToken": "nextPageToken",
}
_PAGE_NAMES = ("page", "p", "pg", "pageNumber", "page_number", "currentPage")
_OFFSET_NAMES = ("offset", "skip", "start", "from", "startIndex")
_SIZE_NAMES = ("limit", "per_page", "perPage", "page_size", "pageSize", "size", "count", "take")
_PAGE_COUNT_NAMES = ("total_pages", "totalPages", "pages", "last_page", "lastPage", "pageCount")
_TOTAL_NAMES = ("total", "total_count", "totalCount", "count", "totalResults", "total_results")
_ENVELOPES = ("", "meta.", "pagination.", "paging.", "info.", "page.", "meta.pagination.", "data.")


def find_api_pagination(page: Page, size: int) -> dict[str, Any] | None:
    """Return how an API paginates a list of which this response has the first `size` records."""
    if re.search(r"""rel=["']?next""", page.headers.get("link", "")):
        return {"kind": "link"}
    query = dict(parse_qsl(urlsplit(page.url).query))
    body = page.json if isinstance(page.json, dict) else {}
    for path in _NEXT_PATHS.split():
        value = _at(path, body)
        if isinstance(value, str) and value.startswith(("http", "/", "?")):
            return {"kind": "next", "path": path}
    for prefix in _ENVELOPES:
        if found := _by_counts(prefix, query, body, size):
            return found
    return _by_cursor(body) or _by_query(query, size)


def _by_cursor(body: Any) -> dict[str, Any] | None:
    for parameter, paths in _CURSORS.items():
        for path in paths.split():
            value = _at(path, body)
            if isinstance(value, str | int) and not isinstance(value, bool) and str(value):
                return {"kind": "cursor", "path": path, "parameter": parameter}
    return None


def _by_query(query: Mapping[str, str], size: int) -> dict[str, Any] | None:
    for name in (*_PAGE_NAMES, *_OFFSET_NAMES):
        if query.get(name, "").isdecimal():
            found = {"parameter": name, "start": int(query[name])}
            is_page = name in _PAGE_NAMES
            return {"kind": "page"} | found if is_page else {"kind": "offset", "size": size} | found
    return None


def _by_counts(
    prefix: str, query: Mapping[str, str], body: Any, size: int
) -> dict[str, Any] | None:
    """Return pages by numbers that the response states below `prefix`: of pages, of records."""

    def stated(names: Sequence[str]) -> list[str]:
        return [name for name in names if _count_at(prefix + name, body) is not None]

    numbers = (_count_at(prefix + name, body) for name in _PAGE_NAMES)
    first = next((one for one in numbers if one in (0, 1)), 1)
    if page_counts := [
        name for name in stated(_PAGE_COUNT_NAMES) if _count_at(prefix + name, body)
    ]:
        parameter = next((name for name in _PAGE_NAMES if name in query), "page")
        given = query.get(parameter, "")
        start = int(given) if given.isdecimal() else first
        path = prefix + page_counts[0]
        return {"kind": "page", "parameter": parameter, "start": start, "total_pages": path}
    totals = stated(_TOTAL_NAMES)
    if not totals or (_count_at(prefix + totals[0], body) or 0) <= size:
        return None
    total = prefix + totals[0]
    offsets = stated(_OFFSET_NAMES) or [name for name in _OFFSET_NAMES if name in query]
    if offsets and "page" not in query:
        found = {"kind": "offset", "parameter": offsets[0], "size": size, "total": total}
        limits = stated(_SIZE_NAMES) or [name for name in _SIZE_NAMES if name in query]
        return {**found, "size_parameter": limits[0]} if limits else found
    if stated(_PAGE_NAMES) or "page" in query:
        return {"kind": "page", "parameter": "page", "start": first, "total": total}
    return None


def _count_at(path: str, body: Any) -> int | None:
    value = _at(path, body)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _at(path: str, body: Any) -> Any:
    try:
        return find(path, body)
    except ValueError:
        return None
