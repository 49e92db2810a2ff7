from __future__ import annotations

import re
from typing import Any

import pytest

from longline.core.errors import BadOption, ConnectFailed, DiscoveryFailed, UnexpectedShape
from longline.core.model import Cursor, Usage
from longline.http.errors import RobotsDisallowed
from longline.http.messages import Page, Request
from longline.sources.base import Visit
from longline.sources.n8n.source import N8n
from tests.sources.scripted import ScriptedWeb, discovered, query_of, status
from tests.sources.templates import API, SITE
from tests.virtual import VirtualClock

INDEX = f"{SITE}/sitemap_index.xml"
SITEMAP = f"{SITE}/sitemap-workflows.xml"
SEARCHING = {"inventory": "search"}
FIRST_PAGE = f"{API}/templates/search?page=1&rows=100&sort=createdAt%3Adesc"


def index(*addresses: str) -> bytes:
    entries = "".join(f"<sitemap><loc>{address}</loc></sitemap>" for address in addresses)
    return f'<sitemapindex xmlns="http://www.sitemaps.org/x">{entries}</sitemapindex>'.encode()


def urlset(*addresses: str) -> bytes:
    entries = "".join(f"<url><loc>{address}</loc></url>" for address in addresses)
    return f'<urlset xmlns="http://www.sitemaps.org/x">{entries}</urlset>'.encode()


async def keys(web: ScriptedWeb, clock: VirtualClock, **options: Any) -> list[str]:
    items, _cursors = await discovered(N8n.with_options(options), web, clock)
    return [item.key for item in items]


# ---------------------------------------------------------------- sitemap


async def test_the_sitemap_gives_key_address_and_slug(clock: VirtualClock) -> None:
    web = ScriptedWeb(
        {INDEX: index(SITEMAP), SITEMAP: urlset(f"{SITE}/workflows/12-do-it/")},
    )

    items, cursors = await discovered(N8n(), web, clock)

    assert [(item.key, item.url, dict(item.data)) for item in items] == [
        ("12", f"{SITE}/workflows/12-do-it/", {"slug": "do-it"})
    ]
    assert cursors == []


async def test_without_an_index_the_sitemap_is_requested_directly(clock: VirtualClock) -> None:
    web = ScriptedWeb({SITEMAP: urlset(f"{SITE}/workflows/12-a/")})

    assert await keys(web, clock) == ["12"]
    assert web.addresses == [INDEX, SITEMAP]


async def test_an_index_that_does_not_name_the_workflows_is_not_the_end(
    clock: VirtualClock,
) -> None:
    web = ScriptedWeb(
        {INDEX: index(f"{SITE}/sitemap-blog.xml"), SITEMAP: urlset(f"{SITE}/workflows/12-a/")}
    )

    assert await keys(web, clock) == ["12"]


async def test_several_workflow_sitemaps_are_read_in_turn(clock: VirtualClock) -> None:
    parts = [f"{SITE}/sitemap-workflows-{n}.xml" for n in (1, 2)]
    web = ScriptedWeb(
        {
            INDEX: index(*parts),
            parts[0]: urlset(f"{SITE}/workflows/1-a/"),
            parts[1]: urlset(f"{SITE}/workflows/2-b/"),
        }
    )

    assert await keys(web, clock) == ["1", "2"]


async def test_doubles_and_malformed_addresses_are_left_out(clock: VirtualClock) -> None:
    web = ScriptedWeb(
        {
            SITEMAP: urlset(
                f"{SITE}/workflows/",
                f"{SITE}/workflows/categories/ai/",
                f"{SITE}/workflows/0-zero/",
                f"{SITE}/workflows/x12-no/",
                "not an address",
                f"{SITE}/workflows/7-first/",
                f"{SITE}/workflows/7-second/",
                f"{SITE}/workflows/8",
            )
        }
    )

    assert await keys(web, clock) == ["7", "8"]


async def test_a_mirror_that_lists_the_original_is_requested_itself(clock: VirtualClock) -> None:
    mirror = "http://127.0.0.1:9/n8n"
    web = ScriptedWeb(
        {
            f"{mirror}/sitemap_index.xml": index(SITEMAP),
            f"{mirror}/sitemap-workflows.xml": urlset(f"{SITE}/workflows/5-e/"),
        }
    )

    items, _cursors = await discovered(N8n.with_options({"site_url": mirror + "/"}), web, clock)

    assert [item.url for item in items] == [f"{mirror}/workflows/5-e/"]


@pytest.mark.parametrize(
    "body",
    [
        b"<!DOCTYPE html><html><body>Sorry</body></html>",
        b"<html><body/></html>",
        b"<urlset><url><loc>cut o",
        b'<!DOCTYPE u [<!ENTITY a "b">]><urlset><url><loc>&a;</loc></url></urlset>',
    ],
)
async def test_an_answer_that_is_not_a_sitemap_is_refused(body: bytes, clock: VirtualClock) -> None:
    web = ScriptedWeb({SITEMAP: body})

    with pytest.raises(UnexpectedShape) as raised:
        await keys(web, clock)

    assert raised.value.where == SITEMAP


async def test_an_image_in_the_sitemap_is_no_template(clock: VirtualClock) -> None:
    body = (
        b'<urlset xmlns:image="http://www.google.com/x"><!-- made by hand -->'
        b"<url><loc><![CDATA[https://n8n.io/workflows/1-a/?x=1&y=2]]></loc>"
        b"<image:image><image:loc>https://n8n.io/workflows/2-b/</image:loc></image:image></url>"
        b"</urlset>"
    )

    assert await keys(ScriptedWeb({SITEMAP: body}), clock) == ["1"]


async def test_a_host_without_a_sitemap_is_advised_to_search(clock: VirtualClock) -> None:
    with pytest.raises(DiscoveryFailed, match="inventory=search"):
        await keys(ScriptedWeb({}), clock)


async def test_an_empty_sitemap_is_not_a_success(clock: VirtualClock) -> None:
    with pytest.raises(DiscoveryFailed, match=SITE):
        await keys(ScriptedWeb({SITEMAP: urlset()}), clock)


# ---------------------------------------------------------------- search


class ShiftingList(ScriptedWeb):
    """A search whose list grows at its front by one template with every page asked for."""

    def __init__(self, count: int, *, growth: int = 0, claimed: int | None = None) -> None:
        super().__init__({})
        self._ids = list(range(count, 0, -1))
        self._growth = growth
        self._claimed = claimed

    async def __call__(self, request: Request, usage: Usage) -> Page:
        self.requests.append(request)
        query = query_of(request.url)
        rows, page = int(query["rows"]), int(query["page"])
        found = [{"id": key} for key in self._ids[(page - 1) * rows : page * rows]]
        total = len(self._ids) if self._claimed is None else self._claimed
        self._ids = [self._ids[0] + 1] * self._growth + self._ids
        self.script = {request.url: {"totalWorkflows": total, "workflows": found, "filters": []}}
        self.requests.pop()
        return await super().__call__(request, usage)


async def test_the_search_is_paged_until_all_were_seen(clock: VirtualClock) -> None:
    web = ShiftingList(5)

    items, cursors = await discovered(N8n.with_options({**SEARCHING, "rows": 2}), web, clock)

    assert [item.key for item in items] == ["5", "4", "3", "2", "1"]
    assert cursors == [
        Cursor({"page": n, "before": before}) for n, before in ((1, 0), (2, 2), (3, 4))
    ]
    assert len(web.requests) == 3


async def test_a_list_that_shifts_gives_each_template_once(clock: VirtualClock) -> None:
    web = ShiftingList(6, growth=1)

    found = await keys(web, clock, rows=2, **SEARCHING)

    assert len(found) == len(set(found))
    assert set(found) >= {"1", "2", "3", "4", "5", "6"}


async def test_an_empty_page_ends_the_search_whatever_the_total_says(clock: VirtualClock) -> None:
    web = ShiftingList(3, claimed=100)
    visit = Visit(web, clock)

    found = [entry async for entry in N8n.with_options(SEARCHING).discover(visit)]

    assert len(found) == 3 + 2
    (cut,) = visit.cuts
    assert re.findall(r"\d+", cut) == ["100", "3"]


async def test_discovery_goes_on_with_the_page_it_was_at(clock: VirtualClock) -> None:
    web = ShiftingList(6)
    source = N8n.with_options({**SEARCHING, "rows": 2})

    items, _cursors = await discovered(source, web, clock, {"page": 2})

    assert [item.key for item in items] == ["4", "3", "2", "1"]
    assert query_of(web.addresses[0])["page"] == "2"


async def test_a_host_that_repeats_its_page_does_not_go_on_for_ever(clock: VirtualClock) -> None:
    class Stuck(ScriptedWeb):
        async def __call__(self, request: Request, usage: Usage) -> Page:
            self.script[request.url] = {"totalWorkflows": 9, "workflows": [{"id": 1}]}
            return await super().__call__(request, usage)

    web = Stuck({})

    with pytest.raises(DiscoveryFailed, match=rf"{API}.*\b1\b"):
        await keys(web, clock, **SEARCHING)
    assert len(web.requests) == 4


async def test_what_only_the_search_knows_travels_with_the_item(clock: VirtualClock) -> None:
    row = {"id": 9, "name": "x", "price": 5, "purchaseUrl": "https://shop", "totalViews": 3}
    web = ScriptedWeb({FIRST_PAGE: {"totalWorkflows": 1, "workflows": [row, {"id": "odd"}, None]}})

    items, _cursors = await discovered(N8n.with_options(SEARCHING), web, clock)

    assert [(item.key, item.url) for item in items] == [("9", f"{SITE}/workflows/9")]
    assert items[0].data == {"price": 5, "purchase_url": "https://shop", "total_views": 3}


async def test_filters_go_to_the_search(clock: VirtualClock) -> None:
    web = ShiftingList(1)

    await keys(web, clock, search="mail", category="AI,Sales", **SEARCHING)

    query = query_of(web.addresses[0])
    assert (query["search"], query["category"]) == ("mail", "AI,Sales")


@pytest.mark.parametrize("answer", [b"[]", b"{}", b'{"workflows": null}'])
async def test_a_search_answer_without_a_list_is_refused(
    answer: bytes, clock: VirtualClock
) -> None:
    web = ScriptedWeb({FIRST_PAGE: answer})

    with pytest.raises(UnexpectedShape, match="workflows"):
        await keys(web, clock, **SEARCHING)


# ---------------------------------------------------------------- settings and robots


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"site_url": "n8n.io"}, "site_url.*'n8n.io'"),
        ({"api_url": "ftp://host/api"}, "api_url.*'ftp://host/api'"),
        ({"youtube_url": "https://host/?a=b"}, r"youtube_url.*\?.*#"),
        ({"search": "mail"}, "search.*inventory=search"),
        ({"category": "AI"}, "category.*inventory=search"),
        ({"rows": 101}, "rows.*100"),
        ({"detail": "both"}, "detail.*api.*pages"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_a_wrong_setting_is_named(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadOption, match=problem):
        N8n.with_options(options)


def test_slashes_at_the_end_of_addresses_do_no_harm() -> None:
    source = N8n.with_options({"site_url": f"{SITE}/", "api_url": f"{API}//"})

    assert source.options.site_url == SITE
    assert source.options.api_url == API


async def test_an_api_closed_by_robots_stops_the_job_with_advice(clock: VirtualClock) -> None:
    health = f"{API}/health"
    web = ScriptedWeb({health: RobotsDisallowed(health, "Disallow: /")})

    with pytest.raises(RobotsDisallowed, match="--set detail=pages") as caught:
        await N8n().prepare(Visit(web, clock))
    assert "Disallow: /" in str(caught.value)


@pytest.mark.parametrize("code", [200, 404, 500])
async def test_a_host_without_a_health_address_may_be_used(code: int, clock: VirtualClock) -> None:
    web = ScriptedWeb({f"{API}/health": status(f"{API}/health", code)})

    await N8n().prepare(Visit(web, clock))

    assert web.addresses == [f"{API}/health"]


async def test_a_host_that_is_down_is_left_to_the_items(clock: VirtualClock) -> None:
    health = f"{API}/health"

    await N8n().prepare(Visit(ScriptedWeb({health: ConnectFailed(health, "refused")}), clock))


async def test_pages_from_the_sitemap_need_no_api(clock: VirtualClock) -> None:
    web = ScriptedWeb({})

    await N8n.with_options({"detail": "pages"}).prepare(Visit(web, clock))

    assert web.requests == []


async def test_pages_from_the_search_need_the_api_all_the_same(clock: VirtualClock) -> None:
    health = f"{API}/health"
    web = ScriptedWeb({health: RobotsDisallowed(health, "Disallow: /")})

    with pytest.raises(RobotsDisallowed, match=r"--set detail=pages .*--set inventory=sitemap"):
        await N8n.with_options({"detail": "pages", **SEARCHING}).prepare(Visit(web, clock))
