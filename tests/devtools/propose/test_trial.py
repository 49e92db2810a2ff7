"""Proposals are tried on further pages; what does not hold is a warning."""

from __future__ import annotations

from typing import Any

import pytest

from longline.core.errors import UnexpectedShape
from longline.devtools.propose.proposal import ItemKind, Proposal
from longline.devtools.propose.proposer import Proposer
from tests.devtools.propose.generated_sites import HOST, MadeSite
from tests.devtools.propose.judged_sites import SiteMiddleware
from tests.virtual import VirtualClock

CARD = """<div class="card"><h3><a href="/p/{n}">{title}</a></h3>
<span class="price">${n}.50</span></div>"""


def site_of(body: str, **pages: str) -> MadeSite:
    site = MadeSite("scripted", 0)
    site.html("/list", "A list", body)
    for path, inside in pages.items():
        site.html(f"/{path.replace('_', '/')}", "Page", inside)
    return site


def card(n: int) -> str:
    return CARD.format(n=n, title=f"Thing number {n}")


async def best(site: MadeSite, clock: VirtualClock) -> Proposal:
    proposer = Proposer(SiteMiddleware(site), f"{HOST}{site.start}", "made", clock=clock)
    return await proposer.best(await proposer.survey())


def codes(proposal: Proposal) -> set[str]:
    return {one.code for one in proposal.warnings}


async def test_pages_that_do_not_name_their_items_are_not_item_pages(clock: VirtualClock) -> None:
    """Each card links to a page of its own, but all of those are about something else."""
    site = site_of("".join(card(n) for n in range(8)))
    for n in range(8):
        site.html(f"/p/{n}", "Other", f"<h1>Category {n * 7}</h1><p class=a>Offers of zone {n}</p>")

    proposal = await best(site, clock)

    assert proposal.candidate.kind is ItemKind.ELEMENTS
    assert codes(proposal) == set()
    assert {one.name for one in proposal.fields} >= {"title", "price"}


async def test_item_pages_that_are_missing_are_a_warning(clock: VirtualClock) -> None:
    proposal = await best(site_of("".join(card(n) for n in range(8))), clock)

    assert proposal.candidate.kind is ItemKind.ELEMENTS
    assert codes(proposal) == {"pages_unreadable"}


async def test_a_second_page_with_the_same_items_is_a_warning(clock: VirtualClock) -> None:
    rows = "".join(f"<li><b>Name {n}</b> <i>Town {n}</i></li>" for n in range(9))
    body = f'<ul class="rows">{rows}</ul><a rel="next" href="/list?page=2">Next</a>'
    site = site_of(body)
    site.html("/list?page=2", "A list", body)

    proposal = await best(site, clock)

    assert codes(proposal) == {"second_page"}


async def test_a_second_page_that_is_missing_is_a_warning(clock: VirtualClock) -> None:
    rows = "".join(f"<li><b>Name {n}</b> <i>Town {n}</i></li>" for n in range(9))
    body = f'<ul class="rows">{rows}</ul><a rel="next" href="/list?page=2">Next</a>'

    proposal = await best(site_of(body), clock)

    assert codes(proposal) == {"second_page"}


async def test_two_lists_of_equal_weight_are_a_warning(clock: VirtualClock) -> None:
    def listed(name: str) -> str:
        rows = (f"<li><b>{name} {n}</b> <i>Town {n}</i></li>" for n in range(9))
        return f'<ul class="{name}">{"".join(rows)}</ul>'

    proposal = await best(site_of(listed("plants") + listed("animal")), clock)

    assert codes(proposal) == {"rival_list"}


async def test_a_pager_that_is_not_understood_is_a_warning(clock: VirtualClock) -> None:
    rows = "".join(f"<li><b>Name {n}</b> <i>Town {n}</i></li>" for n in range(9))
    body = f'<ul class="rows">{rows}</ul><div class="pagination"><button>More</button></div>'

    proposal = await best(site_of(body), clock)

    assert codes(proposal) == {"pages_unknown"}


async def test_a_page_without_a_list_is_a_warning(clock: VirtualClock) -> None:
    page = "<h1>One</h1><dl><dt>Size</dt><dd>12</dd></dl>"

    proposal = await best(site_of(page), clock)

    assert proposal.candidate.kind is ItemKind.PAGE
    assert codes(proposal) == {"no_list"}


async def test_a_drawn_page_without_data_proposes_nothing(clock: VirtualClock) -> None:
    body = '<div id="root"></div><script>start()</script>'

    with pytest.raises(UnexpectedShape, match="--transport browser"):
        await best(site_of(body), clock)


async def test_json_without_records_proposes_nothing(clock: VirtualClock) -> None:
    site = MadeSite("scripted", 0)
    site.json("/list", {"version": 1})

    with pytest.raises(UnexpectedShape) as failed:
        await best(site, clock)

    assert failed.value.where.endswith("/list")
    assert "JSON" in failed.value.problem


WRAPPED: list[tuple[Any, str]] = [
    ([{"id": n, "name": f"N{n}"} for n in range(4)], "@"),
    ({"data": {"items": [{"id": n, "name": f"N{n}"} for n in range(4)]}}, "data.items"),
    ({"by-name": [{"id": n, "name": f"N{n}"} for n in range(4)]}, '"by-name"'),
    ({str(n): {"id": n, "name": f"N{n}"} for n in range(4)}, "values(@)"),
    (
        {"edges": [{"cursor": n, "node": {"id": n, "a": n, "name": f"N{n}"}} for n in range(4)]},
        "edges[].node",
    ),
]


@pytest.mark.parametrize(("value", "path"), WRAPPED)
async def test_records_are_found_in_json(clock: VirtualClock, value: Any, path: str) -> None:
    site = MadeSite("scripted", 0)
    site.json("/list", value)

    proposal = await best(site, clock)

    assert proposal.candidate.kind is ItemKind.RECORDS
    assert proposal.candidate.selector == path
    assert len(proposal.records) == 4
    assert proposal.key == "id"
    assert codes(proposal) == set()


async def test_candidates_have_reasons_and_are_ranked(clock: VirtualClock) -> None:
    site = site_of("".join(card(n) for n in range(8)))
    proposer = Proposer(SiteMiddleware(site), f"{HOST}/list", "made", clock=clock)

    candidates = (await proposer.survey()).candidates

    assert [one.kind for one in candidates] == [ItemKind.PAGES, ItemKind.ELEMENTS, ItemKind.PAGE]
    assert [one.score for one in candidates] == sorted(
        (one.score for one in candidates), reverse=True
    )
    assert all(one.reasons for one in candidates)


async def test_no_page_is_requested_twice(clock: VirtualClock) -> None:
    site = site_of("".join(card(n) for n in range(8)))
    for n in range(8):
        site.html(f"/p/{n}", "T", f"<h1>Thing number {n}</h1><p class=size>Size {n}</p>")
    middleware = SiteMiddleware(site)
    proposer = Proposer(middleware, f"{HOST}/list", "made", clock=clock)

    await proposer.best(await proposer.survey())

    assert len(middleware.requests) == len(set(middleware.requests))
    assert len(middleware.requests) <= 6
