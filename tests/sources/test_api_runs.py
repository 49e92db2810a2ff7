"""API manifests as whole jobs: from a file to records, through the engine and the database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from longline.core.model import JobState
from longline.orchestrator import Orchestrator
from tests.scripted_site import ScriptedSite
from tests.sources.api_bench import ApiSite
from tests.virtual import VirtualClock

MANIFEST = """
manifest: api
name: shop
base_url: {url}
rate: unlimited
endpoints:
  products:
    path: /products
    records: items
    key: id
    fields: {{id: id, name: name}}
    pagination: {{kind: page, has_more: more}}
    incremental: {{field: at, parameter: since}}
    embed: {{sizes: sizes}}
  sizes:
    path: /products/{{parent.id}}/sizes
    records: '@'
"""
START = "2024-01-01T00:00:00Z"


@pytest.fixture
def api(site: ScriptedSite) -> ApiSite:
    """Serve three products on two pages, each with its sizes."""
    api = ApiSite(site)
    products = [{"id": n, "name": f"p{n}", "at": f"2024-01-0{n}"} for n in (1, 2, 3)]

    def page(query: dict[str, str], _body: bytes) -> Any:
        first = query["page"] == "1"
        return {"items": products[:2] if first else products[2:], "more": first}

    api.says("/products", page)
    for number in (1, 2, 3):
        api.says(f"/products/{number}/sizes", [{"size": "m"}])
    return api


@pytest.fixture
def shop(api: ApiSite, tmp_path: Path, clock: VirtualClock) -> Orchestrator:
    path = tmp_path / "shop.yaml"
    path.write_text(MANIFEST.format(url=api.url))
    return Orchestrator(str(path), home=tmp_path / "home", clock=clock)


def sinces(api: ApiSite) -> list[str | None]:
    return [query.get("since") for path, query in api.asked if path == "/products"]


async def test_a_manifest_becomes_records_without_a_line_of_python(
    api: ApiSite, shop: Orchestrator
) -> None:
    async with shop as orchestrator:
        report = await orchestrator.execute()
        record = await orchestrator.store.records.get("3")

    assert (report.state, report.progress.processed) == (JobState.COMPLETE, 3)
    assert record["data"] == {"id": 3, "name": "p3", "sizes": [{"size": "m"}]}
    assert len(api.asked) == 2 + 3


async def test_a_complete_job_moves_the_bookmark_for_the_next(
    api: ApiSite, shop: Orchestrator
) -> None:
    async with shop as orchestrator:
        await orchestrator.execute()
        await orchestrator.execute()

    assert sinces(api) == [None, None, "2024-01-03T00:00:00Z", "2024-01-03T00:00:00Z"]


async def test_a_job_with_a_failed_item_moves_nothing(
    api: ApiSite, shop: Orchestrator, site: ScriptedSite
) -> None:
    async def refuse(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=403)

    site.answers["/products/2/sizes"] = refuse
    async with shop as orchestrator:
        report = await orchestrator.execute()
        await orchestrator.execute(fresh=True)

    assert report.state is JobState.PARTIAL
    assert set(sinces(api)) == {None}


async def test_a_job_with_a_limit_moves_nothing(api: ApiSite, shop: Orchestrator) -> None:
    async with shop as orchestrator:
        report = await orchestrator.execute(params={"limit": 1})
        await orchestrator.execute()

    assert report.progress.processed == 1
    assert set(sinces(api)) == {None}
