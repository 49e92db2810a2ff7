"""From the address of a list to a manifest: three polite requests and a good look at them."""

from __future__ import annotations

from collections.abc import Sequence

from selectolax.lexbor import LexborHTMLParser

from longline.authoring.describing import propose_fields
from longline.authoring.lists import ItemList, find_lists
from longline.authoring.naming import source_name
from longline.authoring.paging import find_pages
from longline.authoring.proposals import Proposal
from longline.config.locales import is_known
from longline.errors import FetchError, UnexpectedShape
from longline.fetching.link import Link
from longline.fetching.messages import Page, Request
from longline.model import Account

_DETAILS = 2  # pages of items that are looked at; what both have is no accident
_HTML = ("text/html", "application/xhtml")


class Proposer:
    """Looks at a list page and proposes a manifest; makes requests only through the chain."""

    def __init__(self, link: Link, url: str, name: str | None = None) -> None:
        self._link = link
        self._url = url
        self._name = name or source_name(url)

    async def lists(self) -> tuple[Page, list[ItemList]]:
        """Fetch the list page; return it and what may be its items, the most likely first.

        Raises:
            FetchError: it cannot be fetched.
            UnexpectedShape: it is no page.
        """
        page = await self._fetch(self._url)
        kind = page.headers.get("content-type", "").lower()
        if kind and not kind.startswith(_HTML):
            raise UnexpectedShape(page.url, f"a manifest is proposed for HTML, and this is {kind}")
        return page, find_lists(page)

    async def propose(self, page: Page, items: ItemList | None) -> Proposal:
        """Return a manifest for these items; without any, for the page itself.

        Raises:
            UnexpectedShape: there is nothing to make fields of.
        """
        locale = _locale(page)
        pages = find_pages(page, len(items.texts)) if items else None
        addresses, trees, notes = await self._examples(page, items)
        fields = propose_fields(trees, locale) if trees else []
        if not fields:
            raise UnexpectedShape(page.url, "no field was found that could be proposed")
        return Proposal(self._name, self._url, items, pages, fields, locale, addresses, notes)

    async def _examples(
        self, page: Page, items: ItemList | None
    ) -> tuple[list[str], list[LexborHTMLParser], list[str]]:
        """Return pages of items, or the elements that are items, to look for fields in."""
        if items is None:
            return [page.url], [page.tree], []
        if items.link is None:
            some = _some(items.fragments)
            return [], [LexborHTMLParser(html) for html in some], []
        addresses, trees, notes = [], [], []
        for address in _some(items.addresses):
            try:
                detail = await self._fetch(address)
            except FetchError as error:
                notes.append(str(error))
                continue
            addresses.append(address)
            trees.append(detail.tree)
        if not trees:
            raise UnexpectedShape(page.url, f"no page of an item could be read: {notes[0]}")
        return addresses, trees, notes

    async def _fetch(self, url: str) -> Page:
        return await self._link(Request(url), Account())


def _some(several: Sequence[str]) -> list[str]:
    """Return the first of them and one from the middle."""
    chosen = [several[0], several[len(several) // 2]]
    return list(dict.fromkeys(chosen))[:_DETAILS]


def _locale(page: Page) -> str | None:
    """Return the language of a page, where it is one whose numbers and dates can be read."""
    told = page.first_attribute("html", "lang") or page.headers.get("content-language", "")
    language, _, region = told.partition(",")[0].strip().replace("_", "-").partition("-")
    for locale in (f"{language.lower()}-{region.upper()}", language.lower()):
        if is_known(locale):
            return locale
    return None
