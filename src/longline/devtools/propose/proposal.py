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
from longline.devtools.propose.places import value_at
from longline.devtools.propose.records import RecordList
from longline.devtools.propose.structure import Group
from longline.engine.extractor import Collector
from longline.http.messages import Middleware, Page, Request
from longline.sources.loader import load_source

_WIDTH = 60
_FIELD_NAME = re.compile(r"[^\W\d][\w-]*")


class ItemKind(StrEnum):
    """What the items of a proposal are."""

    PAGES = "pages"
    """Each element of the list links to a page of its own."""
    ELEMENTS = "elements"
    """Each element of the list is an item itself."""
    RECORDS = "records"
    """Objects in the JSON answer of an API."""
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

    def having(self, **changes: Any) -> Proposal:
        """Return it with some parts changed."""
        return replace(self, **changes)

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
    lines = _api_lines(proposal) if is_api else _html_lines(proposal)
    return "\n".join(lines) + "\n"


def _html_lines(proposal: Proposal) -> Iterator[str]:
    yield from _head_lines(proposal, "html")
    if proposal.locale:
        yield f"locale: {_scalar(proposal.locale)}  # how numbers and dates are written there"
    if proposal.transport != "http":
        yield f"transport: {proposal.transport}  # scripts draw the page"
    yield ""
    yield f"start: {_scalar(proposal.url)}"
    yield from _item_lines(proposal)
    yield from _page_lines(proposal)
    yield ""
    yield "fields:"
    for one in proposal.fields:
        yield f"  {_field_line(one)}"


def _api_lines(proposal: Proposal) -> Iterator[str]:
    yield from _head_lines(proposal, "api")
    candidate = proposal.candidate
    parts = urlsplit(candidate.url or proposal.url)
    yield f"base_url: {_scalar(f'{parts.scheme}://{parts.netloc}')}"
    yield "endpoints:"
    yield "  items:"
    yield f"    path: {_scalar(parts.path or '/')}"
    pages = proposal.pages
    if query := _fixed_query(parts.query, pages):
        yield f"    query: {_flow(query)}"
    records = candidate.records
    yield f"    records: {_scalar(records.path if records else '@')}  # {candidate.count} here"
    if proposal.key:
        yield f"    key: {_scalar(proposal.key)}"
    if pages:
        yield f"    pagination: {_flow(dict(pages))}"
    else:
        yield "    # No way to further pages was found. If there are any: pagination: {kind: page}"
    yield "    fields:"
    for one in proposal.fields:
        yield f"      {_field_line(one)}"


def _fixed_query(text: str, pages: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the query of an address without the parameters that pagination sets."""
    set_by_pages = {(pages or {}).get("parameter"), (pages or {}).get("size_parameter")}
    return {name: value for name, value in parse_qsl(text) if name not in set_by_pages}


def _head_lines(proposal: Proposal, kind: str) -> Iterator[str]:
    yield f"# Proposed from {proposal.url}; change what does not fit."
    for warning in proposal.warnings:
        yield f"# Warning: {shortened(warning.text, 200)}"
    yield f"manifest: {kind}"
    yield f"name: {_scalar(proposal.name)}"
    yield f"about: {_scalar(f'Items of {proposal.url}.')}"


def _item_lines(proposal: Proposal) -> Iterator[str]:
    candidate = proposal.candidate
    if candidate.kind is ItemKind.PAGE:
        return
    yield ""
    sample = shortened(candidate.samples[0]) if candidate.samples else ""
    yield f"# {candidate.count} of them on the first page, such as: {sample}"
    yield "items:"
    if candidate.kind is ItemKind.SCRIPT and candidate.records is not None:
        yield f"  script: {_scalar(candidate.records.script)}  # JSON that the page carries"
        if candidate.records.after:
            yield f"  after: {_scalar(candidate.records.after)}"
        yield f"  records: {_scalar(candidate.records.path)}"
    elif candidate.kind is ItemKind.ELEMENTS:
        yield f"  elements: {_scalar(candidate.selector)}  # each is a whole item"
    elif candidate.link:
        yield f"  elements: {_scalar(candidate.selector)}"
        yield f"  link: {_scalar(f'{candidate.link}@href')}  # to the page of the item"
        if proposal.list_fields:
            yield "  fields:  # what only the list says of an item"
            for one in proposal.list_fields:
                yield f"    {_field_line(one)}"
    else:
        yield f"  links: {_scalar(f'{candidate.selector}@href')}  # to the pages of the items"
    if proposal.key:
        yield f"key: {_key_text(proposal)}"


def _key_text(proposal: Proposal) -> str:
    if proposal.candidate.kind is ItemKind.SCRIPT:
        return _flow({"path": proposal.key})
    return _scalar(proposal.key)


def _page_lines(proposal: Proposal) -> Iterator[str]:
    if proposal.candidate.kind is ItemKind.PAGE:
        return
    yield ""
    if proposal.pages is None:
        yield "# No way to further pages was found. If there are any: pages: a.next"
        return
    yield "pages:  # how the list continues"
    for name, value in proposal.pages.items():
        yield f"  {name}: {_scalar(value)}"


def _field_line(one: ProposedField) -> str:
    sample = f"  # {shortened(one.samples[0])}" if one.samples else ""
    return f"{_scalar(one.name)}: {_flow(_field_value(one))}{sample}"


def _field_value(one: ProposedField) -> Any:
    parts: dict[str, Any] = dict(one.place)
    if one.kind:
        parts["type"] = one.kind
    if one.locale:
        parts["locale"] = one.locale
    if one.is_required:
        parts["required"] = True
    return parts if len(parts) > 1 or "css" not in parts else parts["css"]


def _flow(value: Any) -> str:
    if not isinstance(value, dict):
        return _scalar(value)
    return (
        "{"
        + ", ".join(
            f"{_scalar(name, is_in_flow=True)}: {_scalar(one, is_in_flow=True)}"
            for name, one in value.items()
        )
        + "}"
    )


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
        number, name = _parse_edit(edit, len(fields))
        field = fields[number - 1]
        fields[number - 1] = field.named(name) if field is not None and name else None
    names = [one.name for one in fields if one is not None]
    if len(set(names)) < len(names):
        raise BadOption("fields", "two fields have the same name")
    count = len(proposal.fields)
    own = [one for one in fields[:count] if one is not None]
    if not own:
        raise BadOption("fields", "a manifest needs at least one field")
    listed = [one for one in fields[count:] if one is not None]
    return proposal.having(fields=own, list_fields=listed)


def _parse_edit(text: str, count: int) -> tuple[int, str | None]:
    number, _, name = text.removeprefix("-").partition("=")
    is_drop = text.startswith("-") and not name
    if not number.isdecimal() or not 1 <= int(number) <= count:
        raise BadOption("fields", f"{text!r} does not start with a field number")
    if not is_drop and not _FIELD_NAME.fullmatch(name):
        raise BadOption("fields", f"{text!r} is neither -{number} nor {number}=name")
    return int(number), None if is_drop else name


# ---------------- Try a proposed manifest: run it on the list, on its second page and on items

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
