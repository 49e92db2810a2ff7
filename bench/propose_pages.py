"""Measure `sources new` on saved list pages of real sites: right items, right fields, warnings.

    python bench/propose_pages.py FOLDER [--only NAME]

FOLDER holds the pages and a `pages.yaml`, a list of

    - file: shop.html                     # or pages: {address: file} for several
      url: https://shop.example/list
      items: div.product                  # CSS of the right elements, found by reading the page
      fields: {title: h3 a, price: .price, url: "h3 a@href"}

Nothing is requested: an address that is not in the folder answers 404, so most proposals are
judged by what the elements of the list give. Items are right when each proposed element is one of
the right ones, is inside it or contains it, one to one. Records of a script of the page are right
when they are as many and have the values of the right elements, one to one. A field is right when
it has the right value in nine of ten items. A page passes with right items and three right fields
(or all that are named).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import yaml
from selectolax.lexbor import LexborNode

from longline.core.clock import SystemClock
from longline.core.errors import Gone, LonglineError
from longline.core.model import Usage
from longline.devtools.propose.fields import ProposedField
from longline.devtools.propose.places import value_at
from longline.devtools.propose.proposal import Proposal
from longline.devtools.propose.proposer import Proposer
from longline.http.messages import Middleware, Page, Request

# Without the site there is no second page and no page of an item: that says nothing of a choice.
_NOT_COUNTED = {"pages_unreadable", "second_page"}
_FEWEST_FIELDS = 3
_MOSTLY = 0.9
_LONGEST_LABEL = 30


class SavedPages(Middleware):
    """Answers from files; any other address is gone."""

    def __init__(self, pages: Mapping[str, bytes]) -> None:
        self._pages = pages

    async def __call__(self, request: Request, usage: Usage) -> Page:
        del usage
        if request.url not in self._pages:
            raise Gone(request.url, 404)
        body = self._pages[request.url]
        kind = "application/json" if body.lstrip()[:1] in (b"{", b"[") else "text/html"
        return Page(request.url, 200, {"content-type": kind}, body)


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a proposal compares with what is right."""

    name: str
    has_right_items: bool
    right_fields: int
    wanted_fields: int
    warnings: tuple[str, ...]
    detail: str

    @property
    def is_right(self) -> bool:
        """Whether the items are right and enough of the fields."""
        return self.has_right_items and self.right_fields >= min(_FEWEST_FIELDS, self.wanted_fields)

    @property
    def is_warned(self) -> bool:
        """Whether a warning says that something may be wrong."""
        return bool(set(self.warnings) - _NOT_COUNTED)


async def judged(folder: Path, case: Mapping[str, Any]) -> Judgement:
    """Return how the proposal for one page compares with what is right."""
    url = case["url"]
    files = case.get("pages") or {url: case["file"]}
    pages = {address: (folder / file).read_bytes() for address, file in files.items()}
    name = str(case.get("file") or url)
    wanted = len(case["fields"])
    proposer = Proposer(SavedPages(pages), url, "page", clock=SystemClock())
    try:
        survey = await proposer.survey()
        proposal = await proposer.best(survey)
    except LonglineError as error:
        return Judgement(name, False, 0, wanted, (type(error).__name__,), str(error))
    page = survey.page
    right = page.css(case["items"])
    group = proposal.candidate.group
    codes = tuple(one.code for one in proposal.warnings)
    detail = f"{proposal.candidate.kind}: {proposal.candidate.count} {proposal.candidate.selector}"
    if group is None and proposal.candidate.records is not None:
        return _judged_records(
            page, case, proposal, Judgement(name, False, 0, wanted, codes, detail)
        )
    pairs = _pairs(right, group.nodes) if group is not None else None
    if pairs is None:
        return Judgement(name, False, 0, wanted, codes, f"{detail}, right: {len(right)}")
    fields = _right_fields(page, case["fields"], proposal, pairs)
    return Judgement(name, True, len(fields), wanted, codes, f"{detail}, {', '.join(fields)}")


def _judged_records(
    page: Page, case: Mapping[str, Any], proposal: Proposal, unjudged: Judgement
) -> Judgement:
    """Compare records with the values of the right elements: the records have no elements."""
    right = page.css(case["items"])
    rows = [
        {name: _normal(page, str(value)) for name, value in record.items() if value is not None}
        for record in proposal.records
    ]
    is_as_many = abs(proposal.candidate.count - len(right)) <= (1 - _MOSTLY) * len(right)
    # The records that the trial read; of a long list, those are the first ones.
    read = right[: len(rows)]
    found = []
    for wanted, css in case["fields"].items():
        values = [_normal(page, value_at(node, {"css": css})) for node in read]
        for name in rows[0] if rows else ():
            own = [row.get(name) for row in rows]
            filled = [(a, b) for a, b in zip(values, own, strict=False) if a is not None]
            if filled and sum(a == b for a, b in filled) >= _MOSTLY * len(filled):
                found.append(f"{wanted}={name}")
                break
    # A field in common, item by item in the order of the page, says that the items are the same.
    return replace(
        unjudged,
        has_right_items=is_as_many and bool(found),
        right_fields=len(found),
        detail=f"{unjudged.detail}, {', '.join(found)}, right: {len(right)}",
    )


def _pairs(
    right: list[LexborNode], proposed: list[LexborNode]
) -> list[tuple[LexborNode, LexborNode]] | None:
    """Return which proposed element is which right one; None when they are not the same items."""
    owner = {node.mem_id: node for node in right}
    pairs: dict[int, LexborNode] = {}
    for node in proposed:
        around = [owner[one.mem_id] for one in _with_ancestors(node) if one.mem_id in owner]
        inside = [owner[one.mem_id] for one in node.css("*") if one.mem_id in owner]
        found = around[:1] or inside
        if len(found) != 1 or found[0].mem_id in pairs:
            return None
        pairs[found[0].mem_id] = node
    if len(pairs) < _MOSTLY * len(right):
        return None
    return [(owner[number], node) for number, node in pairs.items()]


def _with_ancestors(node: LexborNode) -> list[LexborNode]:
    found = []
    here: LexborNode | None = node
    while here is not None:
        found.append(here)
        here = here.parent
    return found


def _right_fields(
    page: Page,
    wanted: Mapping[str, str],
    proposal: Proposal,
    pairs: list[tuple[LexborNode, LexborNode]],
) -> list[str]:
    """Return the names of the wanted fields that a proposed field has the values of."""
    found = []
    for name, css in wanted.items():
        values = [_normal(page, value_at(right, {"css": css})) for right, _ in pairs]
        for field in proposal.all_fields:
            if _has_values(page, field, values, pairs):
                found.append(f"{name}={field.name}")
                break
    return found


def _has_values(
    page: Page,
    field: ProposedField,
    values: list[str | None],
    pairs: list[tuple[LexborNode, LexborNode]],
) -> bool:
    if "css" not in field.place:
        return False
    own = [_normal(page, value_at(node, field.place)) for _, node in pairs]
    filled = [(a, b) for a, b in zip(values, own, strict=True) if a is not None]
    equal = sum(a == b or _is_without_label(a, b) for a, b in filled)
    return bool(filled) and equal >= _MOSTLY * len(filled)


def _is_without_label(right: str, own: str | None) -> bool:
    """Return True if a value is the right one without the label before it: `Ref: 40581`."""
    label, colon, rest = right.partition(":")
    return bool(colon) and len(label) <= _LONGEST_LABEL and rest.strip() == own


def _normal(page: Page, value: str | None) -> str | None:
    if value is None:
        return None
    text = " ".join(value.split())
    is_address = text.startswith(("/", "http", "?", "./", "../"))
    return urljoin(page.url, text).rstrip("/") if is_address else text


async def main() -> int:
    """Judge every page of the folder; return 1 when the bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", help="judge this file alone")
    given = parser.parse_args()
    cases = yaml.safe_load((given.folder / "pages.yaml").read_text("utf-8"))
    results = [
        await judged(given.folder, case) for case in cases if given.only in (None, case.get("file"))
    ]
    for one in results:
        state = "right" if one.is_right else "WRONG"
        fields = f"{one.right_fields}/{one.wanted_fields} fields"
        print(f"{state}  {one.name:14} {fields:12} {','.join(one.warnings) or '-':28} {one.detail}")
    right = sum(one.is_right for one in results)
    items = sum(one.has_right_items for one in results)
    silent = [one.name for one in results if not one.has_right_items and not one.is_warned]
    print(f"{items} of {len(results)} have the right items, {right} of them enough right fields")
    print(f"wrong items without a warning: {', '.join(silent) or 'none'}")
    warned = sum(one.is_right and one.is_warned for one in results)
    print(f"{warned} of {right} right proposals have a warning")
    few = [one.name for one in results if one.has_right_items and not one.is_right]
    print(f"right items, too few right fields: {', '.join(few) or 'none'}")
    return 0 if right >= _MOSTLY * len(results) and not silent else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
