"""Compare a proposed manifest with what a made site holds, by running it to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from longline.core.clock import Clock
from longline.core.errors import Gone, LonglineError
from longline.core.model import Item, Usage
from longline.devtools.propose.proposal import Proposal, manifest_text
from longline.devtools.propose.proposer import Proposer
from longline.engine.collector import Collector
from longline.http.messages import Middleware, Page, Request
from longline.sources.loader import load_source
from tests.devtools.propose.generated_sites import HOST, MadeSite

_FEWEST_FIELDS = 3
_MOSTLY = 0.9
_CONSTANT = 14  # characters around a value that are the same everywhere: `by `, `(`, ` replies`


class SiteMiddleware(Middleware):
    """Answers with the pages of a made site, without a network."""

    def __init__(self, site: MadeSite) -> None:
        self._site = site
        self.requests: list[str] = []

    async def __call__(self, request: Request, usage: Usage) -> Page:
        del usage
        self.requests.append(request.url)
        found = self._site.pages.get(request.url.removeprefix(HOST))
        if found is None:
            raise Gone(request.url, 404)
        kind, text = found
        return Page(request.url, 200, {"content-type": kind}, text.encode())


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a proposal compares with the truth of its site."""

    layout: str
    seed: int
    has_right_items: bool = False
    right_fields: tuple[str, ...] = ()
    wanted_fields: int = 0
    warnings: tuple[str, ...] = ()
    detail: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the items are right, and three fields or all there are."""
        enough = min(_FEWEST_FIELDS, self.wanted_fields)
        return self.has_right_items and len(self.right_fields) >= enough

    @property
    def is_silently_wrong(self) -> bool:
        """Whether it is wrong and nothing warns of it."""
        return not self.is_right and not self.warnings


async def judged(site: MadeSite, clock: Clock) -> Judgement:
    """Propose a manifest for a made site, run it, and compare the records."""
    wanted = len(site.truth[0])
    middleware = SiteMiddleware(site)
    try:
        proposer = Proposer(middleware, f"{HOST}{site.start}", "made", clock=clock)
        proposal = await proposer.best(await proposer.survey())
    except LonglineError as error:
        codes: tuple[str, ...] = (type(error).__name__,)
        return Judgement(site.layout, site.seed, False, (), wanted, codes, str(error))
    records = await collected(proposal, middleware, clock)
    codes = tuple(one.code for one in proposal.warnings)
    chosen = proposal.candidate
    detail = f"{chosen.kind} {chosen.selector} {chosen.link or ''} {proposal.pages}: {len(records)}"
    order = _matched(site.truth, records)
    if order is None:
        return Judgement(
            site.layout, site.seed, False, (), wanted, codes, f"{detail} of {len(site.truth)}"
        )
    fields = tuple(name for name in site.truth[0] if _has_field(name, site.truth, order))
    return Judgement(site.layout, site.seed, True, fields, wanted, codes, detail)


async def collected(
    proposal: Proposal, middleware: Middleware, clock: Clock
) -> list[Mapping[str, Any]]:
    """Return all records that the proposed manifest gives."""
    source = load_source("made", yaml.safe_load(manifest_text(proposal)))()
    collector = Collector(source, middleware, clock)
    visit = collector.visit()
    items: dict[str, Item] = {}
    try:
        async for one in source.discover(visit):
            if isinstance(one, Item):
                items.setdefault(one.key, one)
    except LonglineError:
        return []
    extractions = [await collector.collect(item) for item in items.values()]
    return [one.record.data for one in extractions if one.record is not None]


def _matched(
    truth: Sequence[Mapping[str, Sequence[str]]], records: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]] | None:
    """Return the record of each item of the truth; None when the items are not the same."""
    if len(records) != len(truth):
        return None
    wanted = [one["title"][0] for one in truth]
    for name in records[0]:
        by_text = {_text(record.get(name)): record for record in records}
        if all(title in by_text for title in wanted):
            return [by_text[title] for title in wanted]
    return None


def _has_field(
    name: str,
    truth: Sequence[Mapping[str, Sequence[str]]],
    records: Sequence[Mapping[str, Any]],
) -> bool:
    return any(_is_same(name, one, truth, records) for one in records[0])


def _is_same(
    name: str,
    proposed: str,
    truth: Sequence[Mapping[str, Sequence[str]]],
    records: Sequence[Mapping[str, Any]],
) -> bool:
    """Return True if a proposed field has the right value, apart from a constant frame."""
    right = 0
    frames = set()
    for row, record in zip(truth, records, strict=True):
        text = _text(record.get(proposed))
        found = next((one for one in row[name] if one in text), None)
        if found is not None:
            right += 1
            before, _, after = text.partition(found)
            frames.add((before, after))
    is_framed = len(frames) == 1 and sum(map(len, frames.pop())) <= _CONSTANT
    return is_framed and right >= _MOSTLY * len(truth)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        amount = value.get("amount")
        return f"{amount:.2f}" if isinstance(amount, int | float) else str(value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.2f}"
    return " ".join(str(value).split())
