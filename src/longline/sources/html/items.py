"""Items of an index page: links to their pages, or elements and records that are items."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any
from urllib.parse import urlsplit

import orjson
from selectolax.lexbor import LexborNode

from longline.config.expressions import find, user_pattern
from longline.core.model import Item
from longline.http.messages import Page
from longline.sources.html.fields import FieldReader, Reading, make_readers, read_fields
from longline.sources.html.manifest import HtmlManifest, Items
from longline.sources.html.places import (
    ANY_SCRIPT,
    EMPTY_PAGE,
    Links,
    PageScope,
    Scope,
    absolute_url,
    default_key,
)

ELEMENT = "element"
"""The name under which an item carries the identity of its element: a hash of its HTML."""
_NO_PAGE = PageScope(Page("", 200, {}, b""))


@dataclass(slots=True)
class FoundItems:
    """The items of an index page; the counts are complete when `items` is exhausted."""

    items: Iterator[Item] = field(default_factory=lambda: iter(()))
    """A generator: a page may have more items than should be in memory."""
    candidates: list[str] = field(default_factory=list)
    """URLs or keys of everything that was found, before filtering."""
    without_key: int = 0
    """Items without a value for their key, which get the default key."""
    without_link: int = 0
    """Elements without a link to their page, which are left out."""

    def is_empty(self) -> bool:
        # Reads up to the first item.
        first = list(islice(self.items, 1))
        self.items = chain(first, self.items)
        return not first and not self.candidates

    def read_all(self) -> list[str]:
        """Read all items and return all candidates."""
        self.items = iter(list(self.items))
        return self.candidates


class ItemFinder:
    """Finds items according to a manifest; compiled once for all runs."""

    def __init__(self, manifest: HtmlManifest) -> None:
        items = manifest.items or Items.model_construct()
        self._match = user_pattern(items.match) if items.match is not None else None
        self._links = Links(items.links or ("a@href",) if manifest.items else ())
        self._is_any_link = not items.links and not items.elements
        self._elements = items.elements
        self._records = items.records
        self._script = items.script or ANY_SCRIPT
        self._after = user_pattern(items.after) if items.after is not None else None
        self._link = Links((items.link,)) if items.link is not None else None
        own = manifest.fields if items.are_elements else items.fields or {}
        self._readers = make_readers(own, manifest.locale)
        self._volatile = manifest.volatile
        key = manifest.key
        self._key = None if key is None else FieldReader("key", key, manifest.locale)

    @property
    def selector(self) -> str | None:
        """The selector of items, by which a browser detects that a list has changed."""
        if self._elements is not None:
            return self._elements
        return ", ".join(self._links.selectors) or None

    def matches(self, url: str) -> bool:
        return self._match is None or bool(self._match.search(url))

    def on_page(self, scope: PageScope) -> FoundItems:
        """Return the items of an index page."""
        if self._records is not None:
            records: Any = []
            for value in scope.scripts(self._script, self._after):
                with contextlib.suppress(ValueError):
                    records = records or find(self._records, value)
            return self.from_records(scope, records)
        found = FoundItems()
        found.items = self._linked_items(scope, found)
        return found

    def from_records(self, scope: PageScope, records: Any) -> FoundItems:
        """Return the items of a list of JSON records."""
        found = FoundItems()
        found.items = (
            self._complete_item(found, Scope(scope, EMPTY_PAGE, scope.url, record))
            for record in (records if isinstance(records, list) else ())
        )
        return found

    def from_urls(self, scope: PageScope, urls: Any) -> FoundItems:
        """Return the items of a JSON list of URLs."""
        found = FoundItems()
        links = [one for one in urls if isinstance(one, str)] if isinstance(urls, list) else []
        resolved = (url for link in links if (url := absolute_url(scope.base, link)))
        scopes = (Scope(scope, EMPTY_PAGE, url) for url in resolved)
        found.items = (item for one in scopes for item in self._linked_item(found, one))
        return found

    def at_url(self, url: str, host: str) -> Item:
        """Return the item of a URL that was not found on a page."""
        key = None
        if self._key is not None:
            key = self._key.read(Scope(_NO_PAGE, EMPTY_PAGE, url), Reading())
        return Item(default_key(url, host) if key is None else str(key), url)

    def _linked_items(self, scope: PageScope, found: FoundItems) -> Iterator[Item]:
        if self._elements is None:
            for node, url in self._links.find(scope):
                yield from self._linked_item(found, Scope(scope, node, url))
            return
        for node in scope.selectors.all(scope.tree, self._elements):
            if self._link is None:
                yield self._complete_item(found, Scope(scope, node, scope.url))
                continue
            links = [url for _, url in self._link.find(scope, node)]
            if links:
                yield from self._linked_item(found, Scope(scope, node, links[0]))
            else:
                found.without_link += 1

    def _linked_item(self, found: FoundItems, scope: Scope) -> Iterator[Item]:
        is_match = self.matches(scope.url)
        if is_match or not self._is_any_link:
            found.candidates.append(scope.url)
        if not is_match:
            return
        host = urlsplit(scope.page.url).netloc
        key = self._read_key(found, scope) or default_key(scope.url, host)
        data: dict[str, Any] = {}
        if self._readers:
            data = {**read_fields(self._readers, scope).to_item_data(), ELEMENT: _identity(scope)}
        yield Item(key, scope.url, data=data)

    def _complete_item(self, found: FoundItems, scope: Scope) -> Item:
        # Read here: a row without its table is not a row, and selectors may look at the elements
        # around an element. The item carries the fields, which are smaller than the HTML.
        reading = read_fields(self._readers, scope)
        stable = {n: value for n, value in reading.fields.items() if n not in self._volatile}
        text = orjson.dumps(stable, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
        mark = hashlib.blake2b(text, digest_size=8).hexdigest()
        key = self._read_key(found, scope) or mark
        found.candidates.append(key)
        data = {**reading.to_item_data(), "mark": mark, ELEMENT: _identity(scope)}
        return Item(key, scope.url, data=data)

    def _read_key(self, found: FoundItems, scope: Scope) -> str | None:
        if self._key is None:
            return None
        value = self._key.read(scope, Reading())
        if value is None:
            found.without_key += 1
            return None
        return str(value)


class KeyConflicts:
    """Makes keys unique: elements with the same key and different contents are different items.

    The known hashes are part of the cursor, since a resumed run must make the same keys. In very
    long lists only the first `MAX_KNOWN` keys are tracked. Pages with the same key are one item;
    they are only counted.
    """

    MAX_KNOWN = 20_000

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self.known: dict[str, str] = dict(known or {})
        self.renamed = 0
        self.duplicate_links = 0
        self._urls: dict[str, str] = {}

    def resolve(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items, with a longer key for each whose key is in use."""
        for item in items:
            mark = item.data.get("mark")
            if mark is None:
                self.duplicate_links += not self._is_first(self._urls, item.key, item.url)
                yield item
                continue
            if mark == item.key or self._is_first(self.known, item.key, mark):
                yield item
                continue
            self.renamed += 1
            yield Item(f"{item.key} {mark}", item.url, item.priority, item.data)

    def _is_first(self, known: dict[str, str], key: str, mark: str) -> bool:
        name = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
        if name not in known and len(known) >= self.MAX_KNOWN:
            return True
        return known.setdefault(name, mark) == mark


def _identity(scope: Scope) -> str:
    """Return a hash of the element, or the JSON record, as the site sent it."""
    if isinstance(scope.node, LexborNode):
        text = (scope.node.html or "").encode("utf-8", "surrogatepass")
    else:
        text = orjson.dumps(scope.record, default=str, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=8).hexdigest()
