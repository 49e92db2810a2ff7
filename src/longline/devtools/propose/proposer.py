"""Propose a manifest for a URL: candidates for the items, their fields, and a trial of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from selectolax.lexbor import LexborHTMLParser

from longline.core.clock import Clock
from longline.core.errors import FetchError, UnexpectedShape
from longline.core.model import Usage
from longline.devtools.propose.fields import (
    MAX_FIELDS,
    ProposedField,
    fields_of_elements,
    fields_of_pages,
    without_clashes,
)
from longline.devtools.propose.groups import GroupFinder, find_doubts
from longline.devtools.propose.pagination import find_api_pagination, find_pages
from longline.devtools.propose.places import source_name, value_at
from longline.devtools.propose.proposal import (
    Candidate,
    ItemKind,
    PageMemory,
    Proposal,
    ProposalWarning,
    judge_trial,
    run_trial,
)
from longline.devtools.propose.records import (
    RecordList,
    endpoints_in,
    find_embedded,
    find_records,
    key_path,
    record_fields,
    request_url,
)
from longline.devtools.propose.structure import Group
from longline.http.messages import Middleware, Page, Request
from longline.sources.parsing.numbers import is_known

_TRIED = 4  # candidates that are tried before the best of them is chosen
_HTML = ("text/html", "application/xhtml")
_SHELL = 250  # characters of text; a page with scripts and less than that is rendered by them
_LIKELY = 6.0  # minimum score of a list
_RIVAL = 0.75  # share of the best score with which another list makes the choice uncertain
_MOST_ENDPOINTS = 4
_MOST_SCRIPTS = 3

_NOTHING = "nothing was found to propose"
_RENDERED_BY_SCRIPTS = (
    "scripts render this page, and neither data nor the address of an API was found in it; "
    "add --transport browser to open it in a browser"
)

Transport = Literal["http", "browser"]


@dataclass(slots=True)
class PageSurvey:
    """A page, and the candidates for its items, most likely first."""

    page: Page
    candidates: list[Candidate]


class Proposer:
    """Examines a page and proposes a manifest; requests only through the chain."""

    def __init__(
        self,
        chain: Middleware,
        url: str,
        name: str | None = None,
        *,
        clock: Clock,
        transport: Transport = "http",
    ) -> None:
        self._chain = PageMemory(chain)
        self._url = url
        self._name = source_name(url, name)
        self._clock = clock
        self._transport = transport

    async def survey(self) -> PageSurvey:
        """Fetch the page; return what may be its items.

        Raises:
            FetchError: it cannot be fetched.
            UnexpectedShape: it is neither HTML nor JSON, or scripts render it and hide its data.
        """
        page = await self._request_page(self._url)
        if _is_json(page):
            lists = find_records(page.json)[:5]
            if not lists:
                raise UnexpectedShape(page.url, "this is JSON, but it has no list of objects")
            found = [_records_candidate(one, ItemKind.RECORDS, page.url) for one in lists]
            return PageSurvey(page, found)
        kind = page.headers.get("content-type", "").lower()
        if kind and not kind.startswith(_HTML):
            raise UnexpectedShape(page.url, f"a manifest is proposed for HTML and JSON, not {kind}")
        finder = GroupFinder(page)
        groups = [one for one in finder.find() if one.score >= _LIKELY]
        is_shell = _is_shell(page, finder.text_size)
        embedded = [_records_candidate(one, ItemKind.SCRIPT) for one in find_embedded(page)[:3]]
        found = [one for group in groups for one in _group_candidates(group)]
        # What scripts render is not in the HTML: the few elements there are menus and footers.
        candidates = [*embedded, *found] if is_shell else [*found, *embedded]
        if is_shell and not embedded:
            candidates = [*await self._candidates_of_apis(page), *candidates]
        if is_shell and not candidates:
            in_browser = self._transport == "browser"
            raise UnexpectedShape(page.url, _NOTHING if in_browser else _RENDERED_BY_SCRIPTS)
        title = page.first_text("h1") or page.first_text("title") or page.url
        itself = Candidate(ItemKind.PAGE, 1, 0.0, ["the page itself, without a list"], [title])
        candidates.append(itself)
        return PageSurvey(page, candidates)

    async def propose(self, survey: PageSurvey, candidate: Candidate) -> Proposal:
        """Return a manifest for these items, tried on further pages, with its warnings.

        Raises:
            UnexpectedShape: there is nothing to make fields of.
        """
        if candidate.kind in {ItemKind.RECORDS, ItemKind.SCRIPT}:
            proposal = await self._propose_json(survey, candidate)
        else:
            proposal = await self._propose_html(survey, candidate)
        trial = await run_trial(proposal, self._chain, self._clock)
        judged = judge_trial(proposal, trial, survey.page)
        group = candidate.group
        others = [one.group for one in survey.candidates if one.group is not None]
        doubts = find_doubts(survey.page, group, others) if group is not None else ()
        # Where the pages behind the links were read, and name the items, the links are enough.
        known = {"only_links"} if candidate.kind is ItemKind.PAGES else set()
        return replace(
            judged,
            warnings=[
                *judged.warnings,
                *(ProposalWarning(code, text) for code, text in doubts if code not in known),
            ],
            tried=list(dict.fromkeys(self._chain.addresses)),
        )

    async def best(self, survey: PageSurvey) -> Proposal:
        """Return the proposal for the first candidate that holds; else the one that is best.

        Raises:
            UnexpectedShape: there is nothing to make fields of.
        """
        proposals: list[Proposal] = []
        problem: UnexpectedShape | None = None
        unread: Group | None = None
        for candidate in survey.candidates[:_TRIED]:
            try:
                proposal = await self.propose(survey, candidate)
            except UnexpectedShape as error:
                problem = problem or error
                unread = unread or candidate.group
                continue
            if unread is not None and proposal.candidate.group is unread:
                text = f"{problem}. The fields are those of the list."
                warned = ProposalWarning("pages_unreadable", text)
                proposal = replace(proposal, warnings=[*proposal.warnings, warned])
            proposals.append(proposal)
            if not any(one.is_severe for one in proposal.warnings):
                rivals = _rival_warnings(candidate, survey.candidates)
                return replace(proposal, warnings=[*proposal.warnings, *rivals])
        if not proposals:
            raise problem or UnexpectedShape(survey.page.url, _NOTHING)
        return min(proposals, key=lambda one: sum(w.is_severe for w in one.warnings))

    async def _propose_html(self, survey: PageSurvey, candidate: Candidate) -> Proposal:
        page = survey.page
        locale = _locale(page)
        group = candidate.group
        notes: list[str] = []
        listed: list[ProposedField] = []
        if group is None:
            fields = fields_of_pages([page.tree], locale)
        elif candidate.kind is ItemKind.ELEMENTS:
            fields = fields_of_elements(group, locale)
        else:
            trees, notes = await self._item_pages(page, group)
            fields = fields_of_pages(trees, locale)
            if group.link is not None and group.link.css:
                listed = _only_listed(fields_of_elements(group, locale), fields)
        if not fields:
            raise UnexpectedShape(page.url, "no field was found that could be proposed")
        pages = find_pages(page, len(group.texts)) if group is not None else None
        return Proposal(
            self._name,
            self._url,
            candidate,
            pages,
            fields,
            listed,
            key=_unique_link(candidate, fields),
            locale=locale,
            transport=self._transport,
            notes=notes,
        )

    async def _propose_json(self, survey: PageSurvey, candidate: Candidate) -> Proposal:
        records = candidate.records
        if records is None:
            raise UnexpectedShape(self._url, "there are no records")
        pages: Mapping[str, Any] | None = None
        if candidate.kind is ItemKind.RECORDS:
            first = await self._request_page(candidate.url or self._url)
            pages = find_api_pagination(first, len(records.records))
        elif survey.page.css("body"):
            pages = find_pages(survey.page, len(records.records))
        return Proposal(
            self._name,
            self._url,
            candidate,
            pages,
            record_fields(records),
            key=key_path(records),
            locale=_locale(survey.page) if candidate.kind is ItemKind.SCRIPT else None,
            transport=self._transport if candidate.kind is ItemKind.SCRIPT else "http",
        )

    async def _item_pages(
        self, page: Page, group: Group
    ) -> tuple[list[LexborHTMLParser], list[str]]:
        """Return pages of items, to find fields on them.

        Raises:
            UnexpectedShape: none could be read.
        """
        addresses = group.link.addresses if group.link is not None else []
        trees, notes = [], []
        chosen = [addresses[0], addresses[len(addresses) // 2], addresses[-1]] if addresses else []
        for address in dict.fromkeys(chosen):
            try:
                trees.append((await self._request_page(address)).tree)
            except FetchError as error:
                notes.append(str(error))
        if not trees:
            reason = notes[0] if notes else "there are none"
            raise UnexpectedShape(page.url, f"no page of an item could be read: {reason}")
        return trees, notes

    async def _candidates_of_apis(self, page: Page) -> list[Candidate]:
        """Return the records of APIs that the scripts of a page seem to request."""
        scripts = []
        for node in page.css("script[src]")[:_MOST_SCRIPTS]:
            address = request_url(page, node.attributes.get("src") or "")
            if address is not None:
                scripts += [one.text for one in await self._fetch_or_none(address)]
        found: list[Candidate] = []
        for address in endpoints_in(page, scripts)[:_MOST_ENDPOINTS]:
            for response in await self._fetch_or_none(address):
                lists = find_records(response.json)[:1] if _is_json(response) else []
                found += [_records_candidate(one, ItemKind.RECORDS, response.url) for one in lists]
        return sorted(found, key=lambda one: one.score, reverse=True)

    async def _fetch_or_none(self, url: str) -> list[Page]:
        try:
            return [await self._chain(Request(url), Usage())]
        except FetchError:
            return []

    async def _request_page(self, url: str) -> Page:
        is_rendered = self._transport == "browser"
        return await self._chain(Request(url, is_rendered=is_rendered), Usage())


def _is_json(page: Page) -> bool:
    kind = page.headers.get("content-type", "").lower()
    is_other = kind.startswith(_HTML) or page.body.lstrip()[:1] not in (b"{", b"[")
    if "json" not in kind and is_other:
        return False
    try:
        return isinstance(page.json, dict | list)
    except UnexpectedShape:
        return False


def _is_shell(page: Page, text_size: int) -> bool:
    """Return True if the page has next to no text of its own, and scripts to render it."""
    if not page.css("script"):
        return False
    mounts = page.css("#root, #app, #__next, #__nuxt, [ng-app], app-root")
    is_empty = any(not node.text(strip=True) for node in mounts)
    return text_size < (4 * _SHELL if is_empty else _SHELL)


def _group_candidates(group: Group) -> list[Candidate]:
    """Return candidates for a group of elements: items with pages, and items themselves."""
    count = len(group.nodes)
    reasons = [
        f"{count} elements that share {group.homogeneity:.0%} of their structure",
        f"{group.coverage:.0%} of the page's text",
        f"{group.slots} {'text varies' if group.slots == 1 else 'texts vary'}",
    ]
    if group.has_headings:
        reasons.append("each has a heading")
    if group.is_aside:
        reasons.append("in a menu, header or side column")

    def candidate(kind: ItemKind, score: float, reason: str) -> Candidate:
        return Candidate(kind, count, score, [*reasons, reason], group.texts, group)

    if group.link is None:
        return [candidate(ItemKind.ELEMENTS, group.score * 0.9, "no pages of their own")]
    where = f"each links to a page of its own ({group.link.css or 'the element'})"
    return [
        candidate(ItemKind.PAGES, group.score, where),
        candidate(ItemKind.ELEMENTS, group.score * 0.9, "without opening their pages"),
    ]


def _records_candidate(found: RecordList, kind: ItemKind, url: str | None = None) -> Candidate:
    names = [str(name) for name in found.records[0]][:6]
    reasons = [f"{len(found.records)} objects at {found.path}", f"with {', '.join(names)}"]
    samples = [
        ", ".join(str(v) for v in one.values() if isinstance(v, str | int))
        for one in found.records[:3]
    ]
    return Candidate(kind, len(found.records), found.score, reasons, samples, None, found, url)


def _rival_warnings(chosen: Candidate, candidates: Sequence[Candidate]) -> list[ProposalWarning]:
    """Return a warning when another list is nearly as likely."""
    for number, other in enumerate(candidates, start=1):
        if chosen.group is None or other.group is None or other.group is chosen.group:
            continue
        if other.group.score >= _RIVAL * chosen.group.score:
            text = (
                f"Another list is nearly as likely: {other.count} elements {other.selector} "
                f"(--candidate {number})."
            )
            return [ProposalWarning("rival_list", text)]
    return []


def _only_listed(
    listed: Sequence[ProposedField], fields: Sequence[ProposedField]
) -> list[ProposedField]:
    """Return the fields of list elements that have values which no field of the page has."""
    known = {text for one in fields for text in one.samples}

    def is_known(text: str) -> bool:
        # The list may have the beginning of a long text.
        start = text.rstrip("….")[:60]
        return text in known or (len(text) > 20 and any(start in one for one in known))  # noqa: PLR2004

    own = [one for one in listed if one.kind != "url" and not is_known(one.samples[0])]
    names = len(fields)
    return without_clashes([*fields, *own])[names : max(names, MAX_FIELDS)]


def _unique_link(candidate: Candidate, fields: Sequence[ProposedField]) -> str | None:
    """Return the place of an address that every element has and no two share."""
    group = candidate.group
    if candidate.kind is not ItemKind.ELEMENTS or group is None:
        return None
    for one in fields:
        css = str(one.place.get("css", ""))
        if not css.endswith("@href"):
            continue
        values = [value_at(node, one.place) for node in group.nodes]
        if None not in values and len(set(values)) == len(values):
            return css
    return None


def _locale(page: Page) -> str | None:
    """Return the language of a page, where it is one whose numbers and dates can be read."""
    declared = page.first_attribute("html", "lang") or page.headers.get("content-language", "")
    language, _, region = declared.partition(",")[0].strip().replace("_", "-").partition("-")
    for locale in (f"{language.lower()}-{region.upper()}", language.lower()):
        if is_known(locale):
            return locale
    return None
