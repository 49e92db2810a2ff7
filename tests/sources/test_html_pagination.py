"""Pagination of HTML lists."""

from __future__ import annotations

from typing import Any

import pytest

from longline.core.model import Item
from longline.sources.base import Visit
from longline.sources.html.pagination import Pages, make_pager
from tests.sources.manifested import SITE, found_keys, linked, source_of
from tests.sources.scripted import ScriptedWeb, discovered
from tests.virtual import VirtualClock

LIST = f"{SITE}/list"


def paged(pages: str, *, more: str = "") -> str:
    return f"start: {LIST}\nitems: h3 a\npages: {pages}\n{more}"


async def asked(text: str, script: dict[str, Any], clock: VirtualClock) -> list[str]:
    """Return what was asked for after the list's own page, without the host."""
    web = ScriptedWeb(script)
    await discovered(source_of(text), web, clock)
    return [address.removeprefix(SITE) for address in web.addresses[1:]]


def next_link(path: str) -> str:
    return f'<a class="next" href="{path}">next</a>'


# ---------------------------------------------------------------- next


async def test_the_next_link_is_followed_until_there_is_none(clock: VirtualClock) -> None:
    script = {
        LIST: linked("/p/1", more=next_link("/list?page=2")),
        f"{LIST}?page=2": linked("/p/2", more=next_link("?page=3")),
        f"{LIST}?page=3": linked("/p/3"),
    }

    assert await found_keys(paged("a.next"), script, clock) == ["/p/1", "/p/2", "/p/3"]


@pytest.mark.parametrize("back", ["/list", "/list#top", "/list?page=2"])
async def test_a_next_link_that_points_back_ends_the_list(back: str, clock: VirtualClock) -> None:
    script = {
        LIST: linked("/p/1", more=next_link("/list?page=2")),
        f"{LIST}?page=2": linked("/p/2", more=next_link(back)),
    }

    assert await asked(paged("a.next"), script, clock) == ["/list?page=2"]


async def test_a_next_page_that_is_gone_ends_the_list_and_is_a_cut(clock: VirtualClock) -> None:
    visit = Visit(ScriptedWeb({LIST: linked("/p/1", more=next_link("/x"))}), clock)

    found = [one async for one in source_of(paged("a.next")).discover(visit)]

    assert [one.key for one in found if isinstance(one, Item)] == ["/p/1"]
    assert f"{SITE}/x" in visit.cuts[0]


async def test_each_list_has_pages_of_its_own(clock: VirtualClock) -> None:
    text = f"start: [{SITE}/a, {SITE}/b]\nitems: h3 a\npages: a.next"
    script = {
        f"{SITE}/a": linked("/p/1", more=next_link("/a2")),
        f"{SITE}/a2": linked("/p/2"),
        f"{SITE}/b": linked("/p/3", more=next_link("/b2")),
        f"{SITE}/b2": linked("/p/4"),
    }

    assert await found_keys(text, script, clock) == ["/p/1", "/p/2", "/p/3", "/p/4"]


# ---------------------------------------------------------------- numbered and offset


async def test_numbered_pages_end_with_an_empty_one(clock: VirtualClock) -> None:
    script = {
        LIST: linked("/p/1"),
        f"{LIST}?page=2": linked("/p/2"),
        f"{LIST}?page=3": linked(),
    }

    assert await asked(paged("{kind: numbered}"), script, clock) == ["/list?page=2", "/list?page=3"]


async def test_numbered_pages_end_with_one_that_is_gone(clock: VirtualClock) -> None:
    script = {LIST: linked("/p/1"), f"{LIST}/2": linked("/p/2")}
    text = paged('{kind: numbered, url: "{start}/{page}"}')

    assert await asked(text, script, clock) == ["/list/2", "/list/3"]


async def test_a_site_that_repeats_its_last_page_comes_to_an_end(clock: VirtualClock) -> None:
    script = {
        LIST: linked("/p/1"),
        f"{LIST}?page=2": linked("/p/2"),
        f"{LIST}?page=3": linked("/p/2"),
    }

    assert len(await asked(paged("{kind: numbered}"), script, clock)) == 2


async def test_a_site_that_goes_in_circles_comes_to_an_end(clock: VirtualClock) -> None:
    script = {LIST: linked("/p/1")}
    script |= {f"{LIST}?page={n}": linked(f"/p/{n % 2}") for n in range(2, 99)}

    assert len(await asked(paged("{kind: numbered}"), script, clock)) < 8


async def test_a_last_page_that_is_given_or_read_is_the_last(clock: VirtualClock) -> None:
    numbers = '<ul class="pages"><li>1</li><li>2</li><li>… 3</li></ul>'
    script = {LIST: linked("/p/1", more=numbers)}
    script |= {f"{LIST}?page={n}": linked(f"/p/{n}") for n in range(2, 9)}

    given = await asked(paged("{kind: numbered, last: 2}"), script, clock)
    read = await asked(paged('{kind: numbered, last: ".pages li"}'), script, clock)

    assert given == ["/list?page=2"]
    assert read == ["/list?page=2", "/list?page=3"]


async def test_until_last_goes_on_over_empty_pages(clock: VirtualClock) -> None:
    script = {LIST: linked("/p/1"), f"{LIST}?page=2": linked(), f"{LIST}?page=3": linked("/p/3")}
    text = paged("{kind: numbered, until: last, last: 3}")

    assert await found_keys(text, script, clock) == ["/p/1", "/p/3"]


async def test_a_filtered_page_is_not_an_empty_one(clock: VirtualClock) -> None:
    text = f"start: {LIST}\nitems: {{links: h3 a, match: /p/}}\npages: {{kind: numbered, last: 3}}"
    script = {
        LIST: linked("/p/1"),
        f"{LIST}?page=2": linked("/advert/1"),
        f"{LIST}?page=3": linked("/p/3"),
    }

    assert await found_keys(text, script, clock) == ["/p/1", "/p/3"]


async def test_offsets_grow_by_the_size_of_a_page(clock: VirtualClock) -> None:
    script = {
        f"{LIST}?q=x&start=0": linked("/p/1", "/p/2"),
        f"{LIST}?q=x&start=2": linked("/p/3"),
        f"{LIST}?q=x&start=4": linked(),
    }
    text = paged("{kind: offset, param: start, size: 2}").replace(LIST, f"{LIST}?q=x&start=0", 1)

    assert await found_keys(text, script, clock) == ["/p/1", "/p/2", "/p/3"]


async def test_no_list_is_read_further_than_its_most_pages(clock: VirtualClock) -> None:
    script = {LIST: linked("/p/1")}
    script |= {f"{LIST}?page={n}": linked(f"/p/{n}") for n in range(2, 99)}
    visit = Visit(ScriptedWeb(script), clock)

    found = [
        one async for one in source_of(paged("{kind: numbered, most_pages: 4}")).discover(visit)
    ]

    assert len([one for one in found if isinstance(one, Item)]) == 4
    assert len(visit.cuts) == 1


async def test_pages_go_on_after_a_crash_with_the_next_one(clock: VirtualClock) -> None:
    script = {LIST: linked("/p/1")}
    script |= {f"{LIST}?page={n}": linked(f"/p/{n}") for n in range(2, 5)}
    source = source_of(paged("{kind: numbered}"))
    _, cursors = await discovered(source, ScriptedWeb(script), clock)
    web = ScriptedWeb(script)

    items, _ = await discovered(source, web, clock, cursors[1].value)

    assert [item.key for item in items] == ["/p/3", "/p/4"]
    assert web.addresses == [f"{LIST}?page={n}" for n in (3, 4, 5)]


# ---------------------------------------------------------------- load more


async def test_more_may_come_as_pieces_of_html(clock: VirtualClock) -> None:
    text = paged('{kind: more, url: "{start}/more?offset={offset}", size: 1}')
    script = {
        LIST: linked("/p/1"),
        f"{LIST}/more?offset=1": linked("/p/2"),
        f"{LIST}/more?offset=2": "",
    }

    assert await found_keys(text, script, clock) == ["/p/1", "/p/2"]


async def test_more_may_come_as_rows_without_a_table(clock: VirtualClock) -> None:
    text = f"""
    start: {LIST}
    items: {{elements: tr}}
    key: td
    fields: {{n: td}}
    pages: {{kind: more, url: "{SITE}/rows?page={{page}}"}}
    """
    script = {
        LIST: "<table><tr><td>a</td></tr></table>",
        f"{SITE}/rows?page=2": "<tr><td>b</td></tr>",
        f"{SITE}/rows?page=3": "",
    }

    assert await found_keys(text, script, clock) == ["a", "b"]


async def test_more_may_come_as_html_in_json_with_a_cursor(clock: VirtualClock) -> None:
    text = paged('{kind: more, url: "{start}/api?c={cursor}", html: html, cursor: next}')
    script: dict[str, Any] = {
        LIST: linked("/p/1"),
        f"{LIST}/api?c=": {"html": linked("/p/2"), "next": "c2"},
        f"{LIST}/api?c=c2": {"html": linked("/p/3"), "next": None},
    }

    assert await found_keys(text, script, clock) == ["/p/1", "/p/2", "/p/3"]


async def test_a_repeated_cursor_ends_the_list(clock: VirtualClock) -> None:
    text = paged('{kind: more, url: "{start}/api?c={cursor}", links: urls, cursor: next}')
    script: dict[str, Any] = {
        LIST: linked("/p/1"),
        f"{LIST}/api?c=": {"urls": ["/p/2"], "next": "x"},
        f"{LIST}/api?c=x": {"urls": ["/p/3"], "next": "x"},
    }

    assert await asked(text, script, clock) == ["/list/api?c=", "/list/api?c=x"]


async def test_more_may_come_as_urls_in_json(clock: VirtualClock) -> None:
    text = paged('{kind: more, url: "{start}/api?p={page}", first: 1, links: "items[].url"}')
    script: dict[str, Any] = {
        LIST: "<div id=shell></div>",
        f"{LIST}/api?p=1": {"items": [{"url": "/p/1"}, {"url": "/p/2"}]},
        f"{LIST}/api?p=2": {"items": []},
    }

    assert await found_keys(text, script, clock) == ["/p/1", "/p/2"]


async def test_more_may_come_as_records_in_json(clock: VirtualClock) -> None:
    text = f"""
    start: {LIST}
    items: {{elements: .quote}}
    key: [b, {{path: text}}]
    fields: {{text: [b, {{path: text}}]}}
    pages: {{kind: more, url: "{{start}}/api?p={{page}}", records: quotes}}
    """
    script: dict[str, Any] = {
        LIST: '<p class="quote"><b>one</b></p>',
        f"{LIST}/api?p=2": {"quotes": [{"text": "two"}]},
        f"{LIST}/api?p=3": {"quotes": []},
    }

    assert await found_keys(text, script, clock) == ["one", "two"]


async def test_requests_for_more_have_headers_of_their_own(clock: VirtualClock) -> None:
    text = paged('{kind: more, url: "{start}/m?p={page}", headers: {X-Requested-With: fetch}}')
    web = ScriptedWeb({LIST: linked("/p/1"), f"{LIST}/m?p=2": ""})

    await discovered(source_of(text), web, clock)

    assert [dict(request.headers) for request in web.requests] == [
        {},
        {"X-Requested-With": "fetch"},
    ]


def test_a_kind_without_a_pager_is_not_read_as_a_single_page() -> None:
    unknown: Any = Pages()

    with pytest.raises(AssertionError):
        make_pager(unknown, {})
