"""Links of a page: absolute URLs and the elements that hold them."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urljoin, urlsplit

from selectolax.lexbor import LexborNode

from longline.http.errors import BadAnswer, BadCertificate, PrivateAddress, UnknownHost
from longline.http.messages import without_userinfo
from longline.sources.html.places import PageScope, node_reader, select_nodes, split_selector

BROKEN_LINK_ERRORS = (BadAnswer, BadCertificate, PrivateAddress, UnknownHost)
"""Errors that concern one page a site links to; the other pages can still be read."""
_MAX_LINK_LENGTH = 65_536  # servers accept about 8,000 characters, and each copy costs memory


def absolute_url(base: str, link: str) -> str | None:
    """Return the absolute URL of a link without its fragment; None when it is not a web page."""
    if len(link) > _MAX_LINK_LENGTH:
        return None
    try:
        url = urljoin(base, without_userinfo(link.strip()))
    except ValueError:
        return None
    url = url.partition("#")[0]
    return url if url.startswith(("http://", "https://")) else None


def with_href(selector: str) -> str:
    """Return the selector with the attribute @href unless it names another."""
    return selector if split_selector(selector)[1] else f"{selector}@href"


def default_key(url: str, host: str) -> str:
    """Return the default key of an item: the path of its URL, with the host if it is another."""
    parts = urlsplit(url)
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    return path if parts.netloc == host else f"{parts.netloc}{path}"


class Links:
    """Selectors of links, in order of preference."""

    def __init__(self, selectors: tuple[str, ...]) -> None:
        split = [split_selector(one) for one in selectors]
        self._selectors = [(css, name, node_reader(name or "href")) for css, name in split]
        self.selectors = tuple(css for css, _ in split)
        """The CSS selectors, without attributes."""

    def find(
        self, scope: PageScope, node: LexborNode | None = None
    ) -> Iterator[tuple[LexborNode, str]]:
        """Yield the elements and URLs that the first matching selector finds, each URL once."""
        seen: set[str] = set()
        for css, name, read in self._selectors:
            for found in select_nodes(scope, scope.tree if node is None else node, css):
                link = read(found) or (None if name else _inner_link(found))
                url = absolute_url(scope.base, link) if link else None
                if url is not None and url not in seen:
                    seen.add(url)
                    yield found, url
            if seen:
                return


def _inner_link(node: LexborNode) -> str | None:
    """Return the link inside a heading or a card that is not a link itself."""
    link = node.css_first("a[href]")
    return link.attributes.get("href") if link is not None else None
