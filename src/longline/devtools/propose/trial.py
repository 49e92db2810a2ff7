"""Try a proposed manifest: run it on the list, on its second page and on items, and judge it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast

import orjson
import yaml

from longline.core.clock import Clock
from longline.core.errors import LonglineError
from longline.core.model import Item, Usage
from longline.devtools.propose.places import value_at
from longline.devtools.propose.proposal import ItemKind, Proposal, ProposalWarning, manifest_text
from longline.devtools.propose.structure import Group
from longline.engine.extractor import Collector
from longline.http.messages import Page, Request
from longline.http.middleware.base import Middleware
from longline.sources.loader import load_source

_MOST_ELEMENTS = 60  # items that are read where an item costs no request
_MOST_PAGES = 4  # items that are read where each costs one
_BEYOND = 3  # items of the second page that are looked for
_MOST_FOUND = 2000
_ALIKE = 0.6
_FEWEST = 3  # records that say something of a field
_LONGEST_NAME = 60  # characters of class and id; more are those of the page as a whole
_ENOUGH = 8  # equal values; fewer may be chance
_WORD = re.compile(r"\w{2,}")
_HINTS = re.compile(
    r"(?:^|[-_ ])(?:pagination|pager|page-numbers|paging|load-more|next)(?:$|[-_ ])"
)


class PageMemory(Middleware):
    """Passes requests on and keeps the answers: no page is requested twice for one proposal."""

    def __init__(self, inner: Middleware) -> None:
        self._inner = inner
        self._pages: dict[tuple[str, str, bool], Page] = {}
        self.addresses: list[str] = []

    async def __call__(self, request: Request, usage: Usage) -> Page:
        name = request.method, request.url, request.is_rendered
        if name not in self._pages:
            self._pages[name] = await self._inner(request, usage)
            self.addresses.append(request.url)
        return self._pages[name]


@dataclass(slots=True)
class Trial:
    """What a manifest gave: items of the first page, new ones of the second, some records."""

    first: list[Item] = field(default_factory=list)
    second: list[Item] = field(default_factory=list)
    records: list[Mapping[str, Any]] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    """The items of the records, in their order."""
    failures: list[str] = field(default_factory=list)
    problem: str | None = None
    """Why the items could not be listed."""


async def run_trial(proposal: Proposal, link: Middleware, clock: Clock) -> Trial:
    """Run the manifest as a job would, for a few items, and store nothing."""
    trial = Trial()
    values = yaml.safe_load(manifest_text(proposal))
    try:
        source = load_source(proposal.name, values)()
        collector = Collector(source, link, clock)
        await _list_items(trial, proposal, collector)
    except LonglineError as error:
        trial.problem = str(error)
        if not trial.first:
            return trial
    for item in _items_to_read(trial, proposal):
        extraction = await collector.collect(item)
        await extraction.usage.settle()
        if extraction.record is None:
            trial.failures.append(extraction.outcome.reason or "no record")
        else:
            trial.records.append(extraction.record.data)
            trial.items.append(item)
    return trial


async def _list_items(trial: Trial, proposal: Proposal, collector: Collector) -> None:
    visit = collector.visit()
    await collector.source.prepare(visit)
    expected = proposal.candidate.count
    keys: set[str] = set()
    stream = cast("AsyncGenerator[Any, None]", collector.source.discover(visit))
    async with aclosing(stream) as found:
        async for one in found:
            if not isinstance(one, Item):
                continue
            is_first = len(trial.first) < expected and not trial.second
            if one.key in keys:
                expected -= is_first
                continue
            keys.add(one.key)
            (trial.first if is_first else trial.second).append(one)
            if len(trial.second) >= _BEYOND or len(keys) >= _MOST_FOUND:
                return


def _items_to_read(trial: Trial, proposal: Proposal) -> list[Item]:
    """Return the items to read: first, middle and last of the first page, some of the second."""
    first, second = trial.first, trial.second
    if proposal.candidate.kind not in {ItemKind.PAGES, ItemKind.PAGE}:
        return [*first[:_MOST_ELEMENTS], *second]
    places = dict.fromkeys([0, len(first) // 2, len(first) - 1]) if first else {}
    return [*(first[place] for place in places), *second[:1]][:_MOST_PAGES]


def judge_trial(proposal: Proposal, trial: Trial, list_page: Page) -> Proposal:
    """Return the proposal without the fields that did not hold, with a warning for what did not."""
    warnings = [*_about_items(proposal, trial), *_about_pages(proposal, trial, list_page)]
    kept, dropped = _fields_that_differ(proposal, trial)
    if kept:
        names = {one.name for one in kept}
        proposal = proposal.having(
            fields=[one for one in proposal.fields if one.name in names] or list(kept),
            list_fields=[one for one in proposal.list_fields if one.name in names],
        )
    if dropped:
        proposal = proposal.having(
            notes=[
                *proposal.notes,
                f"left out, since the values do not differ: {', '.join(dropped)}",
            ]
        )
    warnings += _about_records(proposal, trial)
    return proposal.having(warnings=[*proposal.warnings, *warnings], records=list(trial.records))


def _about_items(proposal: Proposal, trial: Trial) -> list[ProposalWarning]:
    candidate = proposal.candidate
    if candidate.kind is ItemKind.PAGE:
        return [ProposalWarning("no_list", "No list was found: the page itself is the only item.")]
    if trial.problem is not None and not trial.first:
        return [
            ProposalWarning(
                "no_items", f"The items could not be listed: {trial.problem}", is_severe=True
            )
        ]
    if len(trial.first) < 0.9 * candidate.count:
        text = (
            f"Only {len(trial.first)} of the {candidate.count} items of the first page are "
            "different from each other."
        )
        return [ProposalWarning("repeated_items", text, is_severe=True)]
    return []


def _about_pages(proposal: Proposal, trial: Trial, page: Page) -> list[ProposalWarning]:
    if proposal.candidate.kind is ItemKind.PAGE or not trial.first:
        return []
    if trial.problem is not None:
        return [
            ProposalWarning("second_page", f"The second page could not be read: {trial.problem}")
        ]
    if proposal.pages is not None and not trial.second and not _is_last(proposal):
        return [ProposalWarning("second_page", "The second page of the list brought no new item.")]
    if proposal.pages is None and _has_pages(page):
        text = "The page seems to have further pages, but no way to them was found."
        return [ProposalWarning("pages_unknown", text)]
    return []


def _is_last(proposal: Proposal) -> bool:
    """Return True if an API says that its first page is all there is."""
    return proposal.candidate.kind is ItemKind.RECORDS and "total_pages" in (proposal.pages or {})


def _has_pages(page: Page) -> bool:
    if page.body[:1] in b"{[":
        return False
    if any(link.text(strip=True) == "2" for link in page.css("a[href]")):
        return True
    for node in page.css("[class], [id]"):
        words = f"{node.attributes.get('class') or ''} {node.attributes.get('id') or ''}".lower()
        if (
            len(words) < _LONGEST_NAME
            and _HINTS.search(words)
            and node.css_first("a[href], button")
        ):
            return True
    return False


def _fields_that_differ(proposal: Proposal, trial: Trial) -> tuple[list[Any], list[str]]:
    """Return the fields that gave different values, and the names of the others."""
    records = trial.records
    kept, dropped = [], []
    for one in proposal.all_fields:
        values = [orjson.dumps(record.get(one.name), default=str) for record in records]
        filled = [value for value in values if value not in (b"null", b"[]", b'""')]
        is_needed = len(records) < _FEWEST or one.is_required
        is_api = proposal.candidate.kind in {ItemKind.RECORDS, ItemKind.SCRIPT}
        is_constant = len(set(filled)) <= 1 and len(filled) >= _ENOUGH and not is_api
        if is_needed or (filled and not is_constant) or (is_api and filled):
            kept.append(one)
        else:
            dropped.append(one.name)
    return kept, dropped


def _about_records(proposal: Proposal, trial: Trial) -> list[ProposalWarning]:
    warnings: list[ProposalWarning] = []
    if proposal.candidate.kind is ItemKind.PAGE:
        return warnings
    if trial.failures:
        share = f"{len(trial.failures)} of {len(trial.failures) + len(trial.records)}"
        text = f"{share} items that were tried gave no record: {trial.failures[0]}"
        warnings.append(ProposalWarning("failed_items", text, is_severe=len(trial.records) <= 1))
    if empty := sum(not any(_is_filled(v) for v in one.values()) for one in trial.records):
        text = f"{empty} of {len(trial.records)} items that were tried have no field at all."
        warnings.append(ProposalWarning("empty_items", text, is_severe=True))
    if len(trial.records) > 1:
        if not _differ(proposal, trial.records):
            text = "The records are alike: no field distinguishes the items."
            warnings.append(ProposalWarning("records_alike", text, is_severe=True))
        if (unlike := _unlike_list(proposal, trial)) is not None:
            warnings.append(unlike)
    if (repeated := _repeated_links(proposal, trial)) is not None:
        warnings.append(repeated)
    if len(proposal.all_fields) <= 1:
        warnings.append(ProposalWarning("few_fields", "Fewer than two fields were found."))
    return warnings


def _repeated_links(proposal: Proposal, trial: Trial) -> ProposalWarning | None:
    """Return a warning when items of one page link to the same page: they may be two lists."""
    group = proposal.candidate.group
    if proposal.candidate.kind is not ItemKind.ELEMENTS or group is None:
        return None
    name = _title_link(proposal, group)
    if name is None:
        return None
    links = [record.get(name) for record in trial.records[: len(trial.first)]]
    filled = [link for link in links if link is not None]
    repeated = len(filled) - len(set(map(str, filled)))
    # Where hardly any is repeated, or nearly all are, it is a link to an author or a category.
    if len(filled) < _ENOUGH or not 0.1 * len(filled) <= repeated <= 0.4 * len(filled):
        return None
    text = f"{repeated} items link to the page of another: the page may have two lists of them."
    return ProposalWarning("repeated_links", text)


def _is_filled(value: Any) -> bool:
    return value not in (None, "", [], {})


def _title_link(proposal: Proposal, group: Group) -> str | None:
    """Return the name of the field with the address that the title links to."""
    title = next((one for one in proposal.fields if one.name == "title"), None)
    if title is None:
        return None
    for one in proposal.fields:
        css = one.where.removesuffix("@href")
        if css in {one.where, ""} or css.startswith("+"):
            continue
        pairs = [(value_at(n, {"css": css}), value_at(n, title.place)) for n in group.nodes[:10]]
        if all(text is not None and text == own for text, own in pairs):
            return one.name
    return None


def _differ(proposal: Proposal, records: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if some field has a different value in nearly every record."""
    for one in proposal.all_fields:
        values = [orjson.dumps(record.get(one.name), default=str) for record in records]
        filled = [value for value in values if value != b"null"]
        if len(filled) >= _ALIKE * len(records) and len(set(filled)) >= 0.8 * len(filled):
            return True
    return False


def _unlike_list(proposal: Proposal, trial: Trial) -> ProposalWarning | None:
    """Return a warning when the linked pages do not repeat what the list says of their items."""
    group = proposal.candidate.group
    if proposal.candidate.kind is not ItemKind.PAGES or group is None or group.link is None:
        return None
    texts = dict(zip(group.link.addresses, group.texts, strict=False))
    names = [one.name for one in proposal.fields]
    compared = matched = 0
    for item, record in zip(trial.items, trial.records, strict=True):
        words = set(_WORD.findall(texts.get(item.url, "").lower()))
        if not words:
            continue
        compared += 1
        matched += any(_repeats(record.get(name), words) for name in names)
    if compared > 1 and matched < compared / 2:
        text = (
            "The linked pages do not name the items of the list: they may be categories or "
            "other pages."
        )
        return ProposalWarning("pages_unlike_list", text, is_severe=True)
    return None


def _repeats(value: Any, words: set[str]) -> bool:
    own = set(_WORD.findall(value.lower())) if isinstance(value, str) else set()
    return bool(own) and len(own & words) >= 0.5 * min(len(own), len(words), 12)
