"""Pagination of a list page: a next link, page numbers, an offset, or a button for more."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

from selectolax.lexbor import LexborNode

from longline.devtools.propose.selectors import classes_of, group_selector, unique_selector
from longline.http.messages import Page, without_userinfo
from longline.sources.html.content import text_of

_NEXT_WORDS = """
    next older weiter nächste naechste suivant suivante siguiente próximo proximo próxima seguinte
    successiva avanti volgende następna dalej nästa næste neste seuraava další следваща следующая
    sonraki 次へ 下一页 下一頁 다음 напред вперед вперёд далее след наступна επόμενη următoarea
    ďalšia naslednja sljedeća tovább következő lanjut selanjutnya próxima avançar
"""
_NEXT = re.compile(
    rf"^\W*(?:{'|'.join(_NEXT_WORDS.split())})(?!\w)|^(?:page|seite)\s+(?:suivante|vor)\b",
    re.IGNORECASE,
)
_LATER = re.compile(rf"\b(?:{'|'.join(_NEXT_WORDS.split())})\b", re.IGNORECASE)
_SIGNS = frozenset({"›", "»", "→", ">", ">>", "❯", "⟩"})  # noqa: RUF001  # what pagers really show
_MORE = re.compile(
    r"\b(?:load|show|view|see) more\b|mehr (?:laden|anzeigen)|voir plus|cargar más|ver más|"
    r"carica altri|meer laden|зареди още|pokaż więcej",
    re.IGNORECASE,
)
_MORE_ATTRIBUTES = ("data-url", "data-href", "data-next", "data-next-url", "data-more", "href")
_LONGEST = 40
_SECOND = re.compile(r"(?<!\d)2(?!\d)")
_SECOND_PAGE = re.compile(
    r"/?(?:\?(?:[^#]*&)?(?:p|pg|page|paged|seite|pagina|strana|str)=2|(?:p|pg|page|seite)[-/_.]?2)"
    r"(?:\.html?|\.php|/)?",
    re.IGNORECASE,
)

Pages = Mapping[str, Any]
"""The `pages` section of a manifest."""


def find_pages(page: Page, size: int) -> Pages | None:
    """Return how a list with `size` entries per page continues; None for a single page."""
    return (
        _by_relation(page)
        or _by_word(page)
        or _by_numbers(page, size)
        or _by_address(page, size)
        or _by_more(page)
    )


def _by_relation(page: Page) -> Pages | None:
    for tag in ("a", "link"):
        if page.first(f"{tag}[rel~=next][href]"):
            return {"kind": "next", "css": f"{tag}[rel~=next]@href"}
    return None


def _by_word(page: Page) -> Pages | None:
    for link in page.css("a[href]"):
        if not _says_next(link) or not _leads_on(page, link):
            continue
        if selector := _selector_by_name(page, link):
            return {"kind": "next", "css": f"{selector}@href"}
        if words := text_of(link).replace('"', ""):
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
    text = text_of(link)
    if len(text) > _LONGEST:
        return False
    label = link.attributes.get("aria-label") or link.attributes.get("title") or ""
    names = (link.attributes.get("class") or "").replace("-", " ").replace("_", " ")
    is_said = bool(_NEXT.search(text) or _NEXT.search(label) or _LATER.search(text))
    return is_said or text.strip() in _SIGNS or "next" in names.lower().split()


def _leads_on(page: Page, link: LexborNode) -> bool:
    href = link.attributes.get("href") or ""
    address = _resolve(page, href)
    is_same_host = urlsplit(address).netloc == urlsplit(page.url).netloc
    return bool(href) and not href.startswith(("#", "javascript:")) and is_same_host


def _by_numbers(page: Page, size: int) -> Pages | None:
    for number, address in _page_number_links(page):
        found = _by_parameter(page, number, address, size) or _by_path(page, number, address)
        if found is None:
            continue
        shown = [link for link in page.css("a[href]") if text_of(link).isdecimal()]
        last = group_selector(page.tree, shown) if found["kind"] == "numbered" else None
        return {**found, "last": last} if last else found
    return None


def _by_address(page: Page, size: int) -> Pages | None:
    """Return pages by a link to the second, whatever its text: the list's own address and a 2."""
    start = page.url.partition("?")[0].partition("#")[0]
    for link in page.css("a[href]"):
        address = _resolve(page, link.attributes.get("href") or "")
        rest = address.removeprefix(start)
        if rest == address or not _SECOND_PAGE.fullmatch(rest) or not _leads_on(page, link):
            continue
        found = _by_parameter(page, 2, address, size) or _by_path(page, 2, address)
        if found is not None:
            return found
    return None


def _page_number_links(page: Page) -> Iterator[tuple[int, str]]:
    """Yield the links of page numbers from 2 on."""
    for link in page.css("a[href]"):
        text = text_of(link)
        if text.isdecimal() and int(text) > 1 and _leads_on(page, link):
            yield int(text), _resolve(page, link.attributes.get("href") or "")


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
    if not found or "{" in address or not _is_whole_number(before, after):
        return None
    start = page.url.partition("?")[0]
    if not before.startswith(start.rpartition("/")[0] + "/"):
        return None  # another part of the site
    if before.startswith(start):
        before = "{start}" + before[len(start) :]
    return {"kind": "numbered", "url": f"{before}{{page}}{after}"}


def _is_whole_number(before: str, after: str) -> bool:
    return not before[-1:].isdigit() and not after[:1].isdigit()


def _by_more(page: Page) -> Pages | None:
    for node in page.css("a, button, [data-url], [data-next], [data-next-url]"):
        if not _MORE.search(text_of(node)):
            continue
        for name in _MORE_ATTRIBUTES:
            address = node.attributes.get(name) or ""
            if _SECOND.search(address) and "{" not in address:
                whole = _resolve(page, address)
                return {"kind": "more", "url": _replaced_last(whole)}
    return None


def _replaced_last(address: str) -> str:
    """Return the address with {page} in place of its last 2."""
    *_, last = _SECOND.finditer(address)
    return f"{address[: last.start()]}{{page}}{address[last.end() :]}"


def _resolve(page: Page, href: str) -> str:
    try:
        return urljoin(page.url, without_userinfo(href))
    except ValueError:
        return ""
