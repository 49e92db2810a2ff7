"""Pages of a list that a click shows: which visits are made for them, without a browser."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from longline.core.model import Cursor, Item, Usage
from longline.http.browser.transport import BrowserPage, Clicked, Shown, clicked_in, with_clicked
from longline.http.messages import Middleware, Page, Request
from longline.sources.base import Visit
from longline.sources.html.manifest import HtmlManifest
from longline.sources.html.source import html_source
from tests.sources.manifested import SITE
from tests.virtual import VirtualClock

MANIFEST: dict[str, Any] = {
    "name": "shop",
    "start": f"{SITE}/list",
    "items": {"elements": ".item"},
    "key": "b",
    "fields": {"title": "b"},
    "transport": "browser",
    "pages": {"click": ".next"},
}


class Clicking(Middleware):
    """A list of so many pages that clicks lead to, as the browser gives it."""

    def __init__(self, pages: int, *, has_address: bool = False) -> None:
        self._pages = pages
        self._has_address = has_address
        self.asked: list[tuple[str, int, int]] = []

    async def __call__(self, request: Request, usage: Usage) -> Page:
        del usage
        assert request.clicks is not None
        clicks = request.clicks
        self.asked.append((request.url.removeprefix(SITE), clicks.skip, clicks.most))
        opened = int(request.url.partition("#")[2] or 1)
        first = opened + clicks.skip
        last = min(first + clicks.most - 1, self._pages)
        shown = tuple(
            Shown(f"{SITE}/list#{number}", f"<p class=item><b>{number}</b></p>")
            for number in range(first, last + 1)
        )
        end = "more" if last < self._pages else "last"
        clicked = Clicked(shown, end, self._has_address)
        return BrowserPage(request.url, 200, {}, b"", clicked=clicked)


async def discover(
    link: Clicking, clock: VirtualClock, cursor: Cursor | None = None, **said: Any
) -> tuple[list[str], list[Cursor], Visit]:
    manifest = HtmlManifest.model_validate({**MANIFEST, **said})
    source = html_source(manifest).with_options({})
    visit = Visit(link, clock, cursor=cursor.value if cursor else None)
    found = [one async for one in source.discover(visit)]
    keys = [one.key for one in found if isinstance(one, Item)]
    return keys, [one for one in found if isinstance(one, Cursor)], visit


async def test_each_visit_clicks_further_than_the_last(clock: VirtualClock) -> None:
    link = Clicking(45)

    keys, _, visit = await discover(link, clock)

    assert keys == [str(number) for number in range(1, 46)]
    assert link.asked == [("/list", 0, 10), ("/list", 10, 20), ("/list", 30, 40)]
    assert visit.cuts == []


async def test_pages_with_an_address_are_not_clicked_through_again(clock: VirtualClock) -> None:
    link = Clicking(45, has_address=True)

    keys, _, _ = await discover(link, clock)

    assert keys == [str(number) for number in range(1, 46)]
    assert link.asked == [("/list", 0, 10), ("/list#10", 1, 20), ("/list#30", 1, 40)]


@pytest.mark.parametrize("has_address", [False, True])
async def test_a_discovery_goes_on_after_the_last_visit_that_was_committed(
    clock: VirtualClock, *, has_address: bool
) -> None:
    _, cursors, _ = await discover(Clicking(45, has_address=has_address), clock)

    keys, _, _ = await discover(Clicking(45, has_address=has_address), clock, cursors[0])

    assert keys == [str(number) for number in range(11, 46)]


async def test_most_pages_bounds_the_clicks_and_is_reported(clock: VirtualClock) -> None:
    link = Clicking(45)

    keys, _, visit = await discover(link, clock, pages={"click": ".next", "most_pages": 13})

    assert len(keys) == 13
    assert [most for _, _, most in link.asked] == [10, 3]
    assert len(visit.cuts) == 1


async def test_most_pages_of_the_source_bounds_the_clicks_too(clock: VirtualClock) -> None:
    keys, _, visit = await discover(Clicking(45), clock, most_pages=12)

    assert len(keys) == 12
    assert len(visit.cuts) == 1


async def test_a_list_that_has_become_shorter_is_reported(clock: VirtualClock) -> None:
    class Shorter(Clicking):
        async def __call__(self, request: Request, usage: Usage) -> Page:
            page = await super().__call__(request, usage)
            assert request.clicks is not None
            if not request.clicks.skip:
                return page
            return BrowserPage(page.url, 200, {}, b"", clicked=Clicked((), "only 4 pages"))

    keys, _, visit = await discover(Shorter(45), clock)

    assert len(keys) == 10
    assert len(visit.cuts) == 1


def test_pages_of_clicks_survive_an_archive() -> None:
    shown = (Shown(f"{SITE}/1", "<b>1</b><script>1</script>"), Shown(f"{SITE}/2", "<b>ö</b>"))
    clicked = Clicked(shown, "more", has_address=True)
    body = with_clicked("<html><b>2</b></html>", clicked).encode()

    archived = Page(SITE, 200, {"content-type": "text/html; charset=utf-8"}, body)

    assert clicked_in(archived) == clicked


def test_clicks_need_a_browser() -> None:
    with pytest.raises(ValidationError, match="transport: browser"):
        HtmlManifest.model_validate({**MANIFEST, "transport": "http"})
