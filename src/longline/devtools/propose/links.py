"""The links of elements to pages of their own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from urllib.parse import urljoin, urlsplit

from selectolax.lexbor import LexborNode

from longline.devtools.propose.selectors import (
    children_of,
    classes_of,
    own_selectors,
)
from longline.devtools.propose.structure import FEWEST, MOSTLY, SAMPLED, ItemLink, spread_sample
from longline.http.messages import Page, without_userinfo
from longline.sources.html.content import text_of

_MOST_LINKS = 30
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})


def find_link(links: PageLinks, nodes: Sequence[LexborNode]) -> ItemLink | None:
    """Return the link of each element to a page of its own; None when they have no such link.

    Nearly every element must have exactly one address there, and each a different one: several
    addresses in one element, or one address in several, are tags, authors and categories.
    """
    sample = spread_sample(nodes, SAMPLED)
    if sample[0].tag == "a":
        addresses = [links.address_of(node) for node in nodes]
        return _item_link(links, "", [[one] if one else [] for one in addresses], nodes)
    best: ItemLink | None = None
    for css in _link_selectors(links, sample):
        per_element = [
            list(dict.fromkeys(one for a in node.css(css) if (one := links.address_of(a))))
            for node in sample
        ]
        link = _item_link(links, css, per_element, sample)
        if link is not None and (best is None or link.worth > best.worth):
            best = link
    if best is None:
        return None
    firsts = (node.css_first(best.css) for node in nodes)
    addresses = [links.address_of(one) for one in firsts if one is not None]
    return replace(best, addresses=list(dict.fromkeys(one for one in addresses if one)))


def _link_selectors(links: PageLinks, nodes: Sequence[LexborNode]) -> list[str]:
    ways: Counter[str] = Counter()
    for node in nodes:
        ways.update(set(_ways(links, node)))
    return [way for way, _ in ways.most_common(_MOST_LINKS)]


def _ways(links: PageLinks, node: LexborNode) -> Iterator[str]:
    """Yield selectors of the links in an element."""
    for link in node.css("a[href]"):
        if links.address_of(link) is None:
            continue
        yield from (one for one in own_selectors(link) if not one.startswith("#"))
        outer = link.parent
        if outer is not None and outer.mem_id != node.mem_id:
            places = (one for one in own_selectors(outer) if not one.startswith("#"))
            yield from (f"{place} {link.tag}" for place in places)
            siblings = children_of(outer.parent) if outer.parent is not None else []
            if outer.tag == "td":
                place = next(n for n, one in enumerate(siblings) if one.mem_id == outer.mem_id)
                yield f"td:nth-child({place + 1}) a"


def _item_link(
    links: PageLinks, css: str, per_element: Sequence[Sequence[str]], nodes: Sequence[LexborNode]
) -> ItemLink | None:
    """Return the link when it leads from nearly every element to a page of its own."""
    count = len(per_element)
    having = [found for found in per_element if found]
    firsts = [one[0] for one in having]
    own = set(firsts) - {links.url}
    if len(having) < MOSTLY * count or len(own) < max(FEWEST, 0.95 * len(having)):
        return None
    if sum(len(one) > 1 for one in having) > 0.1 * count:
        return None
    found = [one for node in nodes if (one := node.css_first(css) if css else node) is not None]
    words = sum(min(len(text_of(link)), 60) for link in found) / len(found)
    headed = sum(_is_in_heading(link) for link in found) / len(found)
    titled = sum(bool(re.search("title|name|head", " ".join(classes_of(link)))) for link in found)
    worth = words / 10 + 5 * headed + 2 * titled / len(found) + 10 * len(having) / count
    # A short selector is easier to keep, and one without a name is likelier to find others.
    worth -= len(css) / 100 + 0.5 * (css == "a")
    return ItemLink(css, firsts, worth)


def _is_in_heading(link: LexborNode) -> bool:
    near: Iterable[LexborNode | None] = [
        link.parent,
        link.parent.parent if link.parent else None,
        *link.css("*"),
    ]
    return any(node is not None and node.tag in _HEADINGS for node in near)


class PageLinks:
    """Resolves the links of one page."""

    def __init__(self, page: Page) -> None:
        self.url = page.url.partition("#")[0]
        self._home = urlsplit(page.url).netloc
        href = page.first_attribute("base[href]", "href")
        self._base = urljoin(page.url, href) if href else page.url
        self._known: dict[str, str | None] = {}

    def address_of(self, link: LexborNode) -> str | None:
        """Return where a link leads on the same site; None when it leads elsewhere or nowhere."""
        href = (link.attributes.get("href") or "").strip()
        if href not in self._known:
            self._known[href] = self._resolved(href)
        return self._known[href]

    def only_lead_up(self, node: LexborNode) -> bool:
        """Return True if an element leads to a folder above the page and nowhere else."""
        found = [self.address_of(link) for link in node.css("a[href]")]
        folder = self.url.partition("?")[0].rpartition("/")[0]
        return bool(found) and all(
            one is not None and one.endswith("/") and folder.startswith(one) for one in found
        )

    def _resolved(self, href: str) -> str | None:
        if not href or href.startswith(("#", "javascript:", "mailto:", "tel:")):
            return None
        try:
            address = urljoin(self._base, without_userinfo(href)).partition("#")[0]
            is_same = urlsplit(address).netloc == self._home
        except ValueError:
            return None
        return address if is_same and address.startswith("http") else None
