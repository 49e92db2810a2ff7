"""A proposed manifest, its YAML, and a trial of it on a few items."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import orjson
import yaml

from longline.core.clock import Clock
from longline.core.errors import BadOption, LonglineError
from longline.core.model import Item, Usage
from longline.core.output import sanitize
from longline.devtools.propose.fields import ProposedField
from longline.devtools.propose.records import RecordList
from longline.devtools.propose.structure import Group
from longline.engine.collector import Collector
from longline.http.messages import Middleware, Page, Request
from longline.pipeline.quality import is_filled
from longline.sources.loader import load_source

_WIDTH = 60
_EDIT = re.compile(r"-(?P<drop>\d+)|(?P<rename>\d+)=(?P<name>[^\W\d][\w-]*)")


class ItemKind(StrEnum):
    """What the items of a proposal are."""

    PAGES = "pages"
    """Each element of the list links to a page of its own."""
    ELEMENTS = "elements"
    """Each element of the list is an item itself."""
    RECORDS = "records"
    """Objects in the JSON response of an API."""
    SCRIPT = "script"
    """Objects in the JSON of a script of the page."""
    PAGE = "page"
    """The page itself is the only item."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What may be the items of a page, and the reasons for it."""

    kind: ItemKind
    count: int
    score: float
    reasons: Sequence[str]
    samples: Sequence[str]
    group: Group | None = None
    records: RecordList | None = None
    url: str | None = None
    """Address of the API, where it is not the page's own."""

    @property
    def selector(self) -> str | None:
        """Where the items are: a CSS selector, or a path in JSON."""
        if self.group is not None:
            return self.group.selector
        return self.records.path if self.records is not None else None

    @property
    def link(self) -> str | None:
        """Selector of the link to the item's page, inside of the element."""
        if self.kind is ItemKind.PAGES and self.group is not None and self.group.link is not None:
            return self.group.link.css
        return None

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "kind": self.kind.value,
            "selector": self.selector,
            "link": self.link,
            "url": self.url,
            "count": self.count,
            "score": round(self.score, 1),
            "reasons": list(self.reasons),
            "samples": [shortened(one) for one in self.samples[:3]],
        }


@dataclass(frozen=True, slots=True)
class ProposalWarning:
    """Something about a proposal that did not hold when it was tried."""

    code: str
    text: str
    is_severe: bool = False
    """Whether the items themselves are in doubt, and not only a part of them."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A manifest in the making."""

    name: str
    url: str
    candidate: Candidate
    pages: Mapping[str, Any] | None = None
    """What the manifest says under `pages`, or `pagination` of an API."""
    fields: Sequence[ProposedField] = ()
    list_fields: Sequence[ProposedField] = ()
    """Of items with pages: what only the element of the list holds."""
    key: str | None = None
    locale: str | None = None
    transport: str = "http"
    tried: Sequence[str] = ()
    """Addresses of the pages that were read."""
    records: Sequence[Mapping[str, Any]] = ()
    """Records that the manifest gave when it was tried."""
    warnings: Sequence[ProposalWarning] = ()
    notes: Sequence[str] = field(default_factory=list)

    @property
    def all_fields(self) -> list[ProposedField]:
        """The fields of the page and those of the list."""
        return [*self.fields, *self.list_fields]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "name": self.name,
            "url": self.url,
            "items": self.candidate.as_dict(),
            "pages": dict(self.pages) if self.pages else None,
            "transport": self.transport,
            "fields": [
                {
                    "name": one.name,
                    "where": one.where,
                    "type": one.kind,
                    "filled": round(one.filled, 2),
                    "samples": [shortened(text) for text in one.samples[:3]],
                }
                for one in self.all_fields
            ],
            "tried": list(self.tried),
            "warnings": [asdict(one) for one in self.warnings],
            "notes": list(self.notes),
            "manifest": manifest_text(self),
        }


def manifest_text(proposal: Proposal) -> str:
    """Return the manifest as YAML, with comments on what was seen."""
    is_api = proposal.candidate.kind is ItemKind.RECORDS
    lines = [f"# Proposed from {proposal.url}; change what does not fit."]
    lines += [f"# Warning: {shortened(warning.text, 200)}" for warning in proposal.warnings]
    lines += [
        f"manifest: {'api' if is_api else 'html'}",
        f"name: {_scalar(proposal.name)}",
        f"about: {_scalar(f'Items of {proposal.url}.')}",
        *(_api_lines(proposal) if is_api else _html_lines(proposal)),
    ]
    return "\n".join(lines) + "\n"


def _html_lines(proposal: Proposal) -> Iterator[str]:
    if proposal.locale:
        yield f"locale: {_scalar(proposal.locale)}  # how numbers and dates are written there"
    if proposal.transport != "http":
        yield f"transport: {proposal.transport}  # scripts render the page"
    yield ""
    yield f"start: {_scalar(proposal.url)}"
    if proposal.candidate.kind is not ItemKind.PAGE:
        yield from _item_lines(proposal)
        yield ""
        if proposal.pages is None:
            yield "# No pagination was found. If there are more pages: pages: a.next"
        else:
            yield "pages:  # how the list continues"
            yield from (f"  {name}: {_scalar(value)}" for name, value in proposal.pages.items())
    yield ""
    yield "fields:"
    for one in proposal.fields:
        yield f"  {_field_line(one)}"


def _item_lines(proposal: Proposal) -> Iterator[str]:
    candidate = proposal.candidate
    yield ""
    sample = shortened(candidate.samples[0]) if candidate.samples else ""
    yield f"# {candidate.count} of them on the first page, such as: {sample}"
    yield "items:"
    if candidate.kind is ItemKind.SCRIPT and candidate.records is not None:
        yield f"  script: {_scalar(candidate.records.script)}  # JSON in the page"
        if candidate.records.after:
            yield f"  after: {_scalar(candidate.records.after)}"
        yield f"  records: {_scalar(candidate.records.path)}"
    elif candidate.kind is ItemKind.ELEMENTS:
        yield f"  elements: {_scalar(candidate.selector)}  # each is a whole item"
    elif candidate.link:
        yield f"  elements: {_scalar(candidate.selector)}"
        yield f"  link: {_scalar(f'{candidate.link}@href')}  # to the page of the item"
        if proposal.list_fields:
            yield "  fields:  # values that only the list has"
            for one in proposal.list_fields:
                yield f"    {_field_line(one)}"
    else:
        yield f"  links: {_scalar(f'{candidate.selector}@href')}  # to the pages of the items"
    if proposal.key:
        is_path = candidate.kind is ItemKind.SCRIPT
        yield f"key: {_flow({'path': proposal.key} if is_path else proposal.key)}"


def _api_lines(proposal: Proposal) -> Iterator[str]:
    candidate, pages = proposal.candidate, proposal.pages or {}
    parts = urlsplit(candidate.url or proposal.url)
    yield f"base_url: {_scalar(f'{parts.scheme}://{parts.netloc}')}"
    yield "endpoints:"
    yield "  items:"
    yield f"    path: {_scalar(parts.path or '/')}"
    set_by_pages = {pages.get("parameter"), pages.get("size_parameter")}
    if query := {n: v for n, v in parse_qsl(parts.query) if n not in set_by_pages}:
        yield f"    query: {_flow(query)}"
    yield f"    records: {_scalar(candidate.selector or '@')}  # {candidate.count} here"
    if proposal.key:
        yield f"    key: {_scalar(proposal.key)}"
    if pages:
        yield f"    pagination: {_flow(dict(pages))}"
    else:
        yield "    # No pagination was found. If there are more pages: pagination: {kind: page}"
    yield "    fields:"
    for one in proposal.fields:
        yield f"      {_field_line(one)}"


def _field_line(one: ProposedField) -> str:
    sample = f"  # {shortened(one.samples[0])}" if one.samples else ""
    options = {"type": one.kind, "locale": one.locale, "required": one.is_required}
    parts = {**one.place, **{name: value for name, value in options.items() if value}}
    value = parts if len(parts) > 1 or "css" not in parts else parts["css"]
    return f"{_scalar(one.name)}: {_flow(value)}{sample}"


def _flow(value: Any) -> str:
    if not isinstance(value, dict):
        return _scalar(value)
    parts = (
        f"{_scalar(n, is_in_flow=True)}: {_scalar(v, is_in_flow=True)}" for n, v in value.items()
    )
    return "{" + ", ".join(parts) + "}"


def _scalar(value: Any, *, is_in_flow: bool = False) -> str:
    """Return a value as YAML reads it again, in quotes only where it needs them."""
    quoted = orjson.dumps(value).decode()
    if not isinstance(value, str):
        return quoted
    text = f"[{value}]" if is_in_flow else value
    try:
        is_plain = yaml.safe_load(text) == ([value] if is_in_flow else value)
    except yaml.YAMLError:
        is_plain = False
    return value if is_plain and "{" not in value and "@" not in value[:1] else quoted


def shortened(text: str, width: int = _WIDTH) -> str:
    """Return a text on one line of bounded length."""
    text = sanitize(" ".join(text.split()), is_line=True)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def edit_fields(proposal: Proposal, edits: Sequence[str]) -> Proposal:
    """Return a proposal with fields dropped (`-3`) and renamed (`2=author`).

    Raises:
        BadOption: an edit is malformed, or no field remains.
    """
    fields: list[ProposedField | None] = list(proposal.all_fields)
    for edit in edits:
        found = _EDIT.fullmatch(edit)
        number = int(found["drop"] or found["rename"]) if found else 0
        if found is None or not 1 <= number <= len(fields):
            problem = f"{edit!r} is neither -N nor N=name, with the number N of a field"
            raise BadOption("fields", problem)
        field = fields[number - 1]
        name = found["name"]
        fields[number - 1] = replace(field, name=name) if field is not None and name else None
    names = [one.name for one in fields if one is not None]
    if len(set(names)) < len(names):
        raise BadOption("fields", "two fields have the same name")
    count = len(proposal.fields)
    own = [one for one in fields[:count] if one is not None]
    if not own:
        raise BadOption("fields", "a manifest needs at least one field")
    listed = [one for one in fields[count:] if one is not None]
    return replace(proposal, fields=own, list_fields=listed)


# ---------------- Try a proposed manifest: run it on the list, on its second page and on items

_MOST_ELEMENTS = 60  # items of the first page that are read where an item costs no request
_BEYOND = 3  # items of the second page that are listed
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
    """Passes requests on and caches responses: no page is requested twice for one proposal."""

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


async def run_trial(proposal: Proposal, chain: Middleware, clock: Clock) -> Trial:
    """Run the manifest as a job would, for a few items, and store nothing."""
    trial = Trial()
    values = yaml.safe_load(manifest_text(proposal))
    try:
        collector = Collector(load_source(proposal.name, values)(), chain, clock)
        await _list_items(trial, proposal.candidate.count, collector)
    except LonglineError as error:
        trial.problem = str(error)
        if not trial.first:
            return trial
    first, second = trial.first, trial.second
    items = [*first[:_MOST_ELEMENTS], *second]
    if proposal.candidate.kind in {ItemKind.PAGES, ItemKind.PAGE}:  # each costs a request
        places = dict.fromkeys([0, len(first) // 2, len(first) - 1]) if first else {}
        items = [*(first[place] for place in places), *second[:1]]
    for item in items:
        outcome = await collector.collect(item)
        await outcome.usage.settle()
        if outcome.record is None:
            trial.failures.append(outcome.reason or "no record")
        else:
            trial.records.append(outcome.record.data)
            trial.items.append(item)
    return trial


async def _list_items(trial: Trial, expected: int, collector: Collector) -> None:
    """List `expected` items of the first page, and the first new ones of the second."""
    visit = collector.visit()
    await collector.source.prepare(visit)
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


def judge_trial(proposal: Proposal, trial: Trial, list_page: Page) -> Proposal:
    """Return the proposal without the fields that do not differ, and with warnings."""
    kept = [one for one in proposal.all_fields if _is_useful(one, proposal, trial)]
    dropped = [one.name for one in proposal.all_fields if one not in kept]
    if kept:
        proposal = replace(
            proposal,
            fields=[one for one in proposal.fields if one in kept] or kept,
            list_fields=[one for one in proposal.list_fields if one in kept],
        )
    notes = [f"left out because all values are the same: {', '.join(dropped)}"] if dropped else []
    return replace(
        proposal,
        notes=[*proposal.notes, *notes],
        warnings=[*proposal.warnings, *_trial_warnings(proposal, trial, list_page)],
        records=list(trial.records),
    )


def _is_useful(one: ProposedField, proposal: Proposal, trial: Trial) -> bool:
    """Return True if a field has values, and, outside of JSON, different ones."""
    if len(trial.records) < _FEWEST or one.is_required:
        return True
    filled = _filled_values(one.name, trial)
    is_json = proposal.candidate.kind in {ItemKind.RECORDS, ItemKind.SCRIPT}
    is_constant = len(set(filled)) <= 1 and len(filled) >= _ENOUGH
    return bool(filled) and (is_json or not is_constant)


def _filled_values(name: str, trial: Trial) -> list[bytes]:
    values = [orjson.dumps(record.get(name), default=str) for record in trial.records]
    return [value for value in values if value not in (b"null", b"[]", b'""')]


def _trial_warnings(proposal: Proposal, trial: Trial, page: Page) -> Iterator[ProposalWarning]:
    candidate, found = proposal.candidate, len(trial.first)
    if candidate.kind is ItemKind.PAGE:
        yield ProposalWarning("no_list", "No list was found: the page itself is the only item.")
        return
    if trial.problem is not None and not found:
        text = f"The items could not be listed: {trial.problem}"
        yield ProposalWarning("no_items", text, is_severe=True)
    elif found < 0.9 * candidate.count:
        text = f"Only {found} of the {candidate.count} items of the first page are distinct."
        yield ProposalWarning("repeated_items", text, is_severe=True)
    if found:
        yield from _page_warnings(proposal, trial, page)
    yield from _record_warnings(proposal, trial)
    if len(proposal.all_fields) <= 1:
        yield ProposalWarning("few_fields", "Fewer than two fields were found.")


def _page_warnings(proposal: Proposal, trial: Trial, page: Page) -> Iterator[ProposalWarning]:
    # An API that states its number of pages may have only one.
    states_pages = proposal.candidate.kind is ItemKind.RECORDS and "total_pages" in (
        proposal.pages or {}
    )
    if trial.problem is not None:
        text = f"The second page could not be read: {trial.problem}"
        yield ProposalWarning("second_page", text)
    elif proposal.pages is not None and not trial.second and not states_pages:
        yield ProposalWarning("second_page", "The second page of the list has no new items.")
    elif proposal.pages is None and _has_pages(page):
        text = "The list seems to have more pages, but no pagination was found."
        yield ProposalWarning("pages_unknown", text)


def _has_pages(page: Page) -> bool:
    if page.body[:1] in b"{[":
        return False
    if any(link.text(strip=True) == "2" for link in page.css("a[href]")):
        return True
    for node in page.css("[class], [id]"):
        words = f"{node.attributes.get('class') or ''} {node.attributes.get('id') or ''}".lower()
        is_pager = len(words) < _LONGEST_NAME and _HINTS.search(words) is not None
        if is_pager and node.css_first("a[href], button"):
            return True
    return False


def _record_warnings(proposal: Proposal, trial: Trial) -> Iterator[ProposalWarning]:
    count = len(trial.records)
    if trial.failures:
        share = f"{len(trial.failures)} of {len(trial.failures) + count}"
        text = f"{share} items that were tried yielded no record: {trial.failures[0]}"
        yield ProposalWarning("failed_items", text, is_severe=count <= 1)
    if empty := sum(not any(map(is_filled, one.values())) for one in trial.records):
        text = f"{empty} of {count} items that were tried have no fields at all."
        yield ProposalWarning("empty_items", text, is_severe=True)
    if count > 1 and not any(_distinguishes(one.name, trial) for one in proposal.all_fields):
        text = "The records are alike: no field distinguishes the items."
        yield ProposalWarning("records_alike", text, is_severe=True)
    if count > 1 and _are_other_pages(proposal, trial):
        text = "The linked pages do not name the items of the list: they may be categories."
        yield ProposalWarning("pages_unlike_list", text, is_severe=True)
    titles = [(one.get("title"), str(one.get("url"))) for one in trial.records]
    titles = [one for one in titles if None not in one]
    repeated = len(titles) - len(set(titles))
    if repeated > 0.1 * len(titles):
        text = f"{repeated} items have the title and link of another: the page may have two lists."
        yield ProposalWarning("repeated_links", text)


def _distinguishes(name: str, trial: Trial) -> bool:
    """Return True if a field has a different value in nearly every record."""
    filled = _filled_values(name, trial)
    return len(filled) >= _ALIKE * len(trial.records) and len(set(filled)) >= 0.8 * len(filled)


def _are_other_pages(proposal: Proposal, trial: Trial) -> bool:
    """Return True if the linked pages do not repeat what the list says of their items."""
    group = proposal.candidate.group
    if proposal.candidate.kind is not ItemKind.PAGES or group is None or group.link is None:
        return False
    texts = dict(zip(group.link.addresses, group.texts, strict=False))
    names = [one.name for one in proposal.fields]
    compared = matched = 0
    for item, record in zip(trial.items, trial.records, strict=True):
        words = set(_WORD.findall(texts.get(item.url, "").lower()))
        if words:
            compared += 1
            matched += any(_repeats(record.get(name), words) for name in names)
    return compared > 1 and matched < compared / 2


def _repeats(value: Any, words: set[str]) -> bool:
    own = set(_WORD.findall(value.lower())) if isinstance(value, str) else set()
    return bool(own) and len(own & words) >= 0.5 * min(len(own), len(words), 12)
