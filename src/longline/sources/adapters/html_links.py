"""Links of a page: addresses made whole, and the elements they stand in."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urljoin, urlsplit

from selectolax.lexbor import LexborNode

from longline.config.manifests.fields import split_selector
from longline.errors import BadAnswer, BadCertificate, PrivateAddress, UnknownHost
from longline.fetching.messages import without_userinfo
from longline.sources.adapters.html_places import nodes_in, taking
from longline.sources.adapters.html_scope import PageScope

# What is wrong with one page a site leads to: the others can still be read.
UNUSABLE = (BadAnswer, BadCertificate, PrivateAddress, UnknownHost)
_LONGEST_LINK = 65_536  # characters; servers accept about 8,000, and each copy of one costs memory


def joined(base: str, link: str) -> str | None:
    """Return the whole address of a link, without its fragment; None when it leads to no page."""
    if len(link) > _LONGEST_LINK:
        return None
    try:
        url = urljoin(base, without_userinfo(link.strip()))
    except ValueError:
        return None
    url = url.partition("#")[0]
    return url if url.startswith(("http://", "https://")) else None


def with_href(selector: str) -> str:
    """Return the selector with the attribute that it means when it names none."""
    return selector if split_selector(selector)[1] else f"{selector}@href"


def key_of(address: str, home: str) -> str:
    """Return what names an item by default: the path of its address; its host too, if another."""
    parts = urlsplit(address)
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    return path if parts.netloc == home else f"{parts.netloc}{path}"


class Links:
    """Selectors of links; the first that finds any wins."""

    def __init__(self, selectors: tuple[str, ...]) -> None:
        split = [split_selector(one) for one in selectors]
        self._selectors = [(css, name, taking(name or "href")) for css, name in split]
        self.selectors = tuple(css for css, _ in split)
        """The CSS selectors of the links, in their order."""

    def on(
        self, scope: PageScope, node: LexborNode | None = None
    ) -> Iterator[tuple[LexborNode, str]]:
        """Yield the elements and the addresses that they lead to, each address once."""
        seen: set[str] = set()
        for css, name, take in self._selectors:
            for found in nodes_in(scope, scope.tree if node is None else node, css):
                link = take(found) or (None if name else _inner(found))
                url = joined(scope.base, link) if link else None
                if url is not None and url not in seen:
                    seen.add(url)
                    yield found, url
            if seen:
                return


def _inner(node: LexborNode) -> str | None:
    """Return where a heading or a card leads that is no link itself but holds one."""
    link = node.css_first("a[href]")
    return link.attributes.get("href") if link is not None else None
