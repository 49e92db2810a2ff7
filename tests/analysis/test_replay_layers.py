"""Items that a layer refused: replayed where that takes no request, and else left alone."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from longline.analysis.replay import Replay, replay, source_now
from longline.orchestrator import Orchestrator
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

LISTED = """
manifest: api
name: goods
base_url: {site}
endpoints:
  goods: {{path: /goods, key: id, fields: {{id: id, price: {price}}}}}
"""
PAGES = """
manifest: html
name: goods
start: {site}/good
fields: {{title: {title}}}
"""


async def mended(
    manifest: Path, broken: str, fixed: str, site: ScriptedSite, clock: VirtualClock
) -> tuple[Replay, int]:
    """Run a manifest, mend it and replay; return what came of it, and the number of records."""
    manifest.write_text(broken)
    home = manifest.parent / "home"
    async with Orchestrator(str(manifest), home=home, clock=clock, rate="unlimited") as longline:
        report = await longline.execute(str(manifest))
        site.hits.clear()
        manifest.write_text(fixed)
        job = await longline.store.jobs.get(report.job)
        result = await replay(longline.store, job, source_now(job, None), clock)
        return result, await longline.store.records.count()


async def test_what_discovery_brought_along_is_read_again_without_a_request(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    site.says("/goods", json.dumps([{"id": 1, "price": 5}, {"id": 2}]))
    broken = LISTED.format(site=site.url, price="{path: price, required: true}")
    fixed = LISTED.format(site=site.url, price="price")

    result, records = await mended(tmp_path / "goods.yaml", broken, fixed, site, clock)

    assert (result.ends, result.state.value, records) == ({"stored": 1}, "complete", 2)
    assert site.hits == Counter()


async def test_what_would_take_a_request_is_left_as_it_is(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    site.says("/good", "<p>no title</p>")
    broken = PAGES.format(site=site.url, title="{css: h1, required: true}")
    fixed = PAGES.format(site=site.url, title="h1")

    result, records = await mended(tmp_path / "goods.yaml", broken, fixed, site, clock)

    assert (result.ends, records, result.exit_code) == ({}, 0, 1)
    assert list(result.left) == ["/good"]
    assert (result.state.value, site.hits) == ("failed", Counter())
