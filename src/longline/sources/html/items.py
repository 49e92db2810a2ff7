"""Items of an index page: links to their pages, or elements and records that are items."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any
from urllib.parse import urljoin, urlsplit

import orjson
from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.config.manifests.fields import split_selector
from longline.config.manifests.html import HtmlManifest
from longline.config.manifests.json_paths import find
from longline.config.patterns import user_pattern
from longline.core.model import Item
from longline.http.errors import BadAnswer, BadCertificate, PrivateAddress, UnknownHost
from longline.http.messages import Page, without_userinfo
from longline.sources.html.fields import (
    ANY_SCRIPT,
    FieldReader,
    PageScope,
    Reading,
    Scope,
    nodes_in,
    read_fields,
    readers_of,
    taking,
)

# ---------------- Links of a page: addresses made whole, and the elements they stand in

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


ELEMENT = "element"
"""The name under which an item carries the identity of its element: a hash of its HTML."""
_NO_TREE = LexborHTMLParser("")
_NO_PAGE = PageScope(Page("", 200, {}, b""))


@dataclass(slots=True)
class Found:
    """What an index page gives; the figures are whole when `items` has come to its end."""

    items: Iterator[Item] = field(default_factory=lambda: iter(()))
    """Each is read when it is asked for: a page may hold more than should be held at once."""
    candidates: list[str] = field(default_factory=list)
    """All that stood there before any was sorted out."""
    keyless: int = 0
    """How many had nothing where their key should be, and are named by default."""
    linkless: int = 0
    """How many elements had no link where the one to their page should be, and are left out."""

    def is_empty(self) -> bool:
        """Say whether there is nothing at all; reads up to the first item."""
        first = list(islice(self.items, 1))
        self.items = chain(first, self.items)
        return not first and not self.candidates

    def read_all(self) -> list[str]:
        """Read all items, and return all candidates."""
        self.items = iter(list(self.items))
        return self.candidates


class ItemFinder:
    """Finds items as a manifest says; made ready once for all runs."""

    def __init__(self, manifest: HtmlManifest) -> None:
        items = manifest.items
        self._match = user_pattern(items.match) if items and items.match is not None else None
        self._links = Links(items.links or ("a@href",)) if items else Links(())
        self._is_any_link = bool(items and not items.links and not items.elements)
        self._elements = items.elements if items else None
        self._records = items.records if items else None
        self._script = (items and items.script) or ANY_SCRIPT
        self._after = user_pattern(items.after) if items and items.after is not None else None
        self._link = Links((items.link,)) if items and items.link is not None else None
        own = manifest.fields if items and items.are_elements else (items and items.fields) or {}
        self._readers = readers_of(own, manifest.locale)
        self._volatile = manifest.volatile
        key = manifest.key
        self._key = None if key is None else FieldReader("key", key, manifest.locale)

    @property
    def watched(self) -> str | None:
        """The selector of what items are made of, for a browser to see that a list has changed."""
        if self._elements is not None:
            return self._elements
        return ", ".join(self._links.selectors) or None

    def wants(self, address: str) -> bool:
        """Say whether an address may be that of an item."""
        return self._match is None or bool(self._match.search(address))

    def on(self, scope: PageScope) -> Found:
        """Return the items of an index page."""
        if self._records is not None:
            return self.in_records(scope, self._in_scripts(scope))
        found = Found()
        found.items = self._on(scope, found)
        return found

    def _on(self, scope: PageScope, found: Found) -> Iterator[Item]:
        if self._elements is None:
            for node, address in self._links.on(scope):
                yield from self._take(found, Scope(scope, node, address))
            return
        for node in scope.selectors.all(scope.tree, self._elements):
            if self._link is None:
                yield self._take_whole(found, Scope(scope, node, scope.address))
                continue
            addresses = [address for _, address in self._link.on(scope, node)]
            found.linkless += not addresses
            for address in addresses[:1]:
                yield from self._take(found, Scope(scope, node, address))

    def _in_scripts(self, scope: PageScope) -> Any:
        """Return the records of the first script that has any."""
        for value in scope.script(self._script, self._after):
            try:
                found = find(self._records or "@", value)
            except ValueError:
                continue
            if found:
                return found
        return []

    def in_records(self, scope: PageScope, records: Any) -> Found:
        """Return the items of a JSON answer that holds the records themselves."""
        found = Found()
        found.items = (
            self._take_whole(found, Scope(scope, _NO_TREE, scope.address, record))
            for record in (records if isinstance(records, list) else ())
        )
        return found

    def at(self, scope: PageScope, addresses: Any) -> Found:
        """Return the items at addresses that a JSON answer holds."""
        found = Found()
        texts = (
            (one for one in addresses if isinstance(one, str))
            if isinstance(addresses, list)
            else ()
        )
        found.items = (
            item
            for link in texts
            if (address := joined(scope.base, link))
            for item in self._take(found, Scope(scope, _NO_TREE, address))
        )
        return found

    def named(self, address: str, home: str) -> Item:
        """Return the item at an address that no page told us."""
        key = self._key_in(address)
        return Item(key or key_of(address, home), address)

    def _key_in(self, address: str) -> str | None:
        if self._key is None:
            return None
        value = self._key.read(Scope(_NO_PAGE, _NO_TREE, address), Reading())
        return None if value is None else str(value)

    def _take(self, found: Found, scope: Scope) -> Iterator[Item]:
        is_wanted = self.wants(scope.address)
        if is_wanted or not self._is_any_link:
            found.candidates.append(scope.address)
        if not is_wanted:
            return
        key = self._read_key(found, scope) or key_of(scope.address, _home(scope.page.address))
        data: dict[str, Any] = {}
        if self._readers:
            data = {**read_fields(self._readers, scope).to_carry(), ELEMENT: _identity(scope)}
        yield Item(key, scope.address, data=data)

    def _take_whole(self, found: Found, scope: Scope) -> Item:
        # Read here and now: a row without its table is no row, and selectors may look at what
        # stands around an element. So an item carries fields, which are smaller than HTML, too.
        reading = read_fields(self._readers, scope)
        mark = _mark(reading.fields, self._volatile)
        key = self._read_key(found, scope) or mark
        found.candidates.append(key)
        data = {**reading.to_carry(), "mark": mark, ELEMENT: _identity(scope)}
        return Item(key, scope.address, data=data)

    def _read_key(self, found: Found, scope: Scope) -> str | None:
        if self._key is None:
            return None
        value = self._key.read(scope, Reading())
        if value is None:
            found.keyless += 1
            return None
        return str(value)


class Marks:
    """Elements with one key and different contents are different items; none is dropped.

    What is known is kept with the cursor: who goes on after a crash must name them as before. Of
    very long lists only the first `MOST` are told apart. Pages that have one key are one item,
    as their key says; how many those are is told.
    """

    MOST = 20_000

    def __init__(self, kept: Mapping[str, str] | None = None) -> None:
        self.known: dict[str, str] = dict(kept or {})
        self.shared = 0
        self.twice = 0
        self._addresses: dict[str, str] = {}

    def apart(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items, with a longer key for those whose key another one has."""
        for item in items:
            mark = item.data.get("mark")
            if mark is None:
                self.twice += not self._is_first(self._addresses, item.key, item.url)
                yield item
                continue
            if mark == item.key or self._is_first(self.known, item.key, mark):
                yield item
                continue
            self.shared += 1
            yield Item(f"{item.key} {mark}", item.url, item.priority, item.data)

    def _is_first(self, known: dict[str, str], key: str, mark: str) -> bool:
        name = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
        if name not in known and len(known) >= self.MOST:
            return True
        return known.setdefault(name, mark) == mark


def _mark(fields: Mapping[str, Any], volatile: frozenset[str]) -> str:
    lasting = {name: value for name, value in fields.items() if name not in volatile}
    text = orjson.dumps(lasting, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def _identity(scope: Scope) -> str:
    """Return a hash of the element, or the JSON record, as the site sent it."""
    if isinstance(scope.node, LexborNode):
        text = (scope.node.html or "").encode("utf-8", "surrogatepass")
    else:
        text = orjson.dumps(scope.record, default=str, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def _home(address: str) -> str:
    return urlsplit(address).netloc
