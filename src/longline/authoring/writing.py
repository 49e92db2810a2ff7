"""A proposal as a manifest: YAML with comments that say what was seen and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import yaml

from longline.authoring.proposals import Proposal, ProposedField

_WIDTH = 60


def manifest_text(proposal: Proposal) -> str:
    """Return the text of the manifest file."""
    return "\n".join(_lines(proposal)) + "\n"


def _lines(proposal: Proposal) -> Iterator[str]:
    yield f"# Proposed from {proposal.url}; change what does not fit."
    yield "manifest: html"
    yield f"name: {_scalar(proposal.name)}"
    yield f"about: {_scalar(f'What {proposal.url} lists.')}"
    if proposal.locale:
        yield f"locale: {_scalar(proposal.locale)}  # how numbers and dates are written there"
    yield ""
    yield f"start: {_scalar(proposal.url)}"
    yield from _items(proposal)
    yield from _pages(proposal)
    yield ""
    yield "fields:"
    for one in proposal.fields:
        yield f"  {_scalar(one.name)}: {_flow(_field(one))}  # {_shortened(one.samples[0])}"


def _items(proposal: Proposal) -> Iterator[str]:
    items = proposal.items
    if items is None:
        return
    yield ""
    yield f"# {len(items.texts)} of them on the first page, such as: {_shortened(items.texts[0])}"
    yield "items:"
    if items.link is None:
        yield f"  elements: {_scalar(items.elements)}  # all there is of an item stands here"
    else:
        yield f"  links: {_scalar(f'{items.link}@href')}  # each leads to the page of an item"


def _pages(proposal: Proposal) -> Iterator[str]:
    if proposal.items is None:
        return
    yield ""
    if proposal.pages is None:
        yield "# No way to further pages was found. If there are any: pages: a.next"
        return
    yield "pages:  # how the list goes on"
    for name, value in proposal.pages.items():
        yield f"  {name}: {_scalar(value)}"


def _field(field: ProposedField) -> Any:
    told: dict[str, Any] = dict(field.place)
    if field.kind:
        told["type"] = field.kind
    if field.locale:
        told["locale"] = field.locale
    if field.is_required:
        told["required"] = True
    return told if len(told) > 1 or "css" not in told else told["css"]


def _flow(value: Any) -> str:
    if not isinstance(value, dict):
        return _scalar(value)
    return (
        "{"
        + ", ".join(f"{name}: {_scalar(one, is_in_flow=True)}" for name, one in value.items())
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


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
