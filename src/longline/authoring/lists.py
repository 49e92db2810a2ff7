"""The repeated elements of a list page, and the links in them that lead to the items."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.authoring.selecting import ancestors, classes_of, group_selector, own_selectors
from longline.fetching.messages import Page, without_userinfo
from longline.sources.adapters.html_text import text_of

_FEWEST = 3  # elements that are alike are a list from here on
_MOST = 5  # lists that are proposed, the best first
_ASIDE = frozenset({"nav", "header", "footer", "aside", "form"})
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_MOSTLY = 0.8  # of the elements of a list; one or two may be advertisements
_RICH = 300  # characters of an element's text that count for it; more say nothing more


@dataclass(frozen=True, slots=True)
class ItemList:
    """Elements that are alike, and how to find them and their pages.

    `link` is the selector of the links; None when the elements have no pages of their own.
    """

    elements: str
    link: str | None
    addresses: Sequence[str]
    texts: Sequence[str]
    fragments: Sequence[str]
    score: float


def find_lists(page: Page) -> list[ItemList]:
    """Return what may be the list of a page, the most likely first."""
    found = [one for group in _groups(page.tree) if (one := _judged(page, group)) is not None]
    found.sort(key=lambda one: one.score, reverse=True)
    return found[:_MOST]


def _groups(tree: LexborHTMLParser) -> Iterator[list[LexborNode]]:
    """Yield the elements that stand side by side and are made alike."""
    for parent in tree.css("body, body *"):
        alike: defaultdict[tuple[str | None, tuple[str, ...]], list[LexborNode]] = defaultdict(list)
        for child in parent.iter():
            alike[child.tag, tuple(classes_of(child))].append(child)
        yield from (group for group in alike.values() if len(group) >= _FEWEST)


def _judged(page: Page, group: list[LexborNode]) -> ItemList | None:
    group = [node for node in group if text_of(node)]
    if len(group) < _FEWEST:
        return None
    elements = group_selector(page.tree, group)
    if elements is None:
        return None
    texts = [text_of(node) for node in group]
    link, addresses = _links(page, group, elements)
    richness = sum(min(len(text), _RICH) for text in texts) / len(texts)
    parts = sum(len(node.css("*")) for node in group) / len(group)
    score = len(group) ** 0.5 * (10 + richness + 10 * parts)
    if link is None:
        score *= 0.3
    if any(node.tag in _ASIDE for node in (group[0], *ancestors(group[0]))):
        score *= 0.1
    if sum(text.strip().isdecimal() for text in texts) > len(texts) / 2:
        score *= 0.01  # page numbers
    fragments = [_html(node) for node in group]
    return ItemList(elements, link, addresses, texts, fragments, score)


def _html(node: LexborNode) -> str:
    # A row outside of a table loses its cells to the rules of HTML.
    html = node.html or ""
    return f"<table>{html}</table>" if node.tag == "tr" else html


def _links(page: Page, group: Sequence[LexborNode], elements: str) -> tuple[str | None, list[str]]:
    """Return the selector of the links to the items' pages, and the addresses."""
    if group[0].tag == "a":
        addresses = [one for node in group if (one := _address(page, node))]
        is_good = _are_items(page, addresses, len(group))
        return (elements, list(dict.fromkeys(addresses))) if is_good else (None, [])
    ways: Counter[str] = Counter()
    for node in group:
        ways.update(dict.fromkeys(_ways(page, node), 1))
    best: tuple[float, str, list[str]] | None = None
    for way, _ in ways.most_common(20):
        firsts = [found for node in group if (found := node.css_first(way)) is not None]
        addresses = [one for link in firsts if (one := _address(page, link))]
        if not _are_items(page, addresses, len(group)):
            continue
        worth = _worth(firsts, addresses) - len(way) / 100
        if best is None or worth > best[0]:
            best = worth, way, addresses
    if best is None:
        return None, []
    return f"{elements} {best[1]}", list(dict.fromkeys(best[2]))


def _ways(page: Page, node: LexborNode) -> Iterator[str]:
    """Yield selectors of the links in an element."""
    for link in node.css("a[href]"):
        if _address(page, link) is None:
            continue
        yield from own_selectors(link)
        outer = link.parent
        if outer is not None and outer.mem_id != node.mem_id:
            yield from (f"{place} {link.tag}" for place in own_selectors(outer))


def _worth(links: Sequence[LexborNode], addresses: Sequence[str]) -> float:
    """Return how much links look as if they led to items: in a heading, with words, all apart."""
    words = sum(min(len(text_of(link)), 60) for link in links) / len(links)
    headed = sum(_is_in_heading(link) for link in links) / len(links)
    apart = len(set(addresses)) / len(addresses)
    return words / 10 + 5 * headed + 10 * apart


def _is_in_heading(link: LexborNode) -> bool:
    near = [link.parent, link.parent.parent if link.parent else None, *link.css("*")]
    return any(node is not None and node.tag in _HEADINGS for node in near)


def _are_items(page: Page, addresses: Sequence[str], count: int) -> bool:
    """Say whether nearly every element leads somewhere of its own."""
    own = set(addresses) - {page.url.partition("#")[0]}
    return len(own) >= max(_FEWEST, _MOSTLY * count)


def _address(page: Page, link: LexborNode) -> str | None:
    """Return where a link leads on the same site; None when it leads elsewhere or nowhere."""
    href = (link.attributes.get("href") or "").strip()
    if not href or href.startswith(("#", "javascript:", "mailto:", "tel:")):
        return None
    try:
        address = urljoin(page.url, without_userinfo(href)).partition("#")[0]
        is_same = urlsplit(address).netloc == urlsplit(page.url).netloc
    except ValueError:
        return None
    return address if is_same and address.startswith("http") else None
