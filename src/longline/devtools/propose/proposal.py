"""A proposed manifest: the items it takes, its fields, what speaks for it, and its warnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson
import yaml

from longline.core.output import sanitize
from longline.devtools.propose.fields import ProposedField
from longline.devtools.propose.records import RecordList
from longline.devtools.propose.structure import Group

_WIDTH = 60


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
