"""Which items are tried for a plan, and how many."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from longline.core.model import Item, Outcome, OutcomeAction, Usage
from longline.devtools.plan import MIN_SAMPLES, Sample, is_precise, spread_items, uncertainty
from longline.devtools.session import Exchange
from longline.engine.extractor import Extraction
from longline.http.messages import Page, Request

ITEMS = [Item(str(number), f"https://a.test/{number}") for number in range(300)]
PAGE = Page("https://a.test/", 200, {}, b"")


def costing(requests: Sequence[int], host: str = "a.test") -> list[Sample]:
    outcome = Outcome(OutcomeAction.STORE)
    return [
        Sample(
            Extraction(ITEMS[0], outcome, {}, {}, Usage(), 0.0),
            [Exchange(Request(f"https://{host}/"), PAGE, 0.0, 0.0, count)],
        )
        for count in requests
    ]


def rate_of(domain: str) -> float | None:
    return {"a.test": 2.0}.get(domain)


@pytest.mark.parametrize("most", [1, 12, 50, 1000])
def test_samples_are_different_and_no_more_than_half(most: int) -> None:
    taken = [item.key for item in spread_items(ITEMS, most)]

    assert len(set(taken)) == len(taken) == min(most, 150)


def test_a_dozen_samples_come_from_all_parts_of_the_list() -> None:
    taken = sorted(int(item.key) for item in spread_items(ITEMS, 12))

    gaps = [after - before for before, after in zip([0, *taken], [*taken, 300], strict=True)]
    assert max(gaps) < 60


def test_a_short_list_is_tried_whole() -> None:
    assert len(list(spread_items(ITEMS[:8], 100))) == 8


def test_a_dozen_that_cost_the_same_do_not_prove_that_all_others_do() -> None:
    assert not is_precise(costing([1] * MIN_SAMPLES), 300, rate_of)
    assert is_precise(costing([1] * 50), 300, rate_of)


def test_items_that_differ_need_more() -> None:
    assert not is_precise(costing([1, 4] * 25), 300, rate_of)
    assert is_precise(costing([1, 4] * 75), 300, rate_of)


def test_a_list_that_was_tried_whole_is_certain() -> None:
    assert uncertainty(costing([1, 4] * 4), 8, rate_of) == 0


def test_what_a_domain_without_a_limit_costs_does_not_matter() -> None:
    assert uncertainty(costing([1, 9] * 6, "free.test"), 300, rate_of) == 0
