"""How near the samples of a plan come to what whole catalogues with transcripts take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean

from longline.core.model import Item, Outcome, OutcomeAction, Usage
from longline.devtools.plan import MAX_SAMPLES, Sample, is_precise, spread_items
from longline.devtools.session import Exchange
from longline.engine.extractor import Extraction
from longline.http.messages import Page, Request
from longline.sandbox.templates.generated import GeneratedShelf
from longline.sandbox.web import WebOptions
from longline.sandbox.youtube import VideoOutcome, outcome_of
from longline.sources.n8n.content import find_videos

SEEDS = 20
_PAGE = Page("https://a.test/", 200, {}, b"")
_ENDS_EARLY = {
    VideoOutcome.FAILED: 1,
    VideoOutcome.DISABLED: 2,
    VideoOutcome.UNAVAILABLE: 2,
    VideoOutcome.AGE_RESTRICTED: 2,
    VideoOutcome.UNPLAYABLE: 2,
    VideoOutcome.NEEDS_TOKEN: 2,
}


def requests_of_each(seed: int) -> dict[str, int]:
    """Return what each template of a practice catalogue takes: itself, and three a transcript."""
    items = WebOptions().items
    shelf = GeneratedShelf(items, seed, odd_shapes=True, site=lambda: "https://a.test")
    costs = {}
    for number in shelf.ids:
        template = shelf.template(number)
        notes = [node.get("parameters", {}) for node in template.workflow["nodes"]]
        texts = [template.detail["description"], *(str(note.get("content", "")) for note in notes)]
        videos = [outcome_of(video) for video in find_videos("\n".join(texts))]
        costs[str(number)] = 1 + sum(_ENDS_EARLY.get(outcome, 3) for outcome in videos)
    return costs


def tried(costs: Mapping[str, int]) -> Iterator[int]:
    """Yield what the items cost that a plan would try."""
    samples: list[Sample] = []
    for item in spread_items([Item(key, f"https://a.test/{key}") for key in costs], MAX_SAMPLES):
        extraction = Extraction(item, Outcome(OutcomeAction.STORE), {}, {}, Usage(), 0.0)
        exchange = Exchange(Request(item.url), _PAGE, 0.0, 0.0, costs[item.key])
        samples.append(Sample(extraction, [exchange]))
        yield costs[item.key]
        if is_precise(samples, len(costs), lambda _domain: 2.0):
            return


def test_of_twenty_catalogues_nineteen_are_foretold_within_a_tenth() -> None:
    catalogues = [requests_of_each(seed) for seed in range(SEEDS)]

    off = [fmean(tried(costs)) / fmean(costs.values()) - 1 for costs in catalogues]

    assert sum(abs(share) <= 0.1 for share in off) >= SEEDS - 1
