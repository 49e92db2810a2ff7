"""Scrapy spiders taken over unchanged: same items as Scrapy gives, and they survive a kill."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from longline.core.model import ItemState, JobState
from longline.engine.report import JobReport
from longline.orchestrator import Orchestrator
from longline.storage.query import RecordQuery
from tests.scripted_site import ScriptedSite
from tests.sources.scrapy_site import PAGES, build

PROJECT = Path(__file__).parent / "scrapy_project"
SPIDERS = {
    "goods": "chandlery.spiders.goods:GoodsSpider",
    "links": "chandlery.spiders.links:LinksSpider",
    "members": "chandlery.spiders.members:MembersSpider",
}
# Left alone, it would ask the internet which domains are public.
SCRAPY = """
import sys, tldextract
from scrapy.downloadermiddlewares import cookies
from scrapy.cmdline import execute
cookies._split_domain = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)
execute(sys.argv[1:])
"""

pytestmark = pytest.mark.real_time  # Scrapy runs in a process of its own


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PROJECT)
    monkeypatch.chdir(PROJECT)
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "chandlery.settings")


@pytest.fixture
def shop(site: ScriptedSite) -> ScriptedSite:
    build(site)
    return site


def sorted_items(items: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(item, sort_keys=True) for item in items)


async def items_of_scrapy(spider: str, site: str, folder: Path) -> list[str]:
    file = folder / "items.jsonl"
    words = ("scrapy", "crawl", spider, "-a", f"site={site}", "-O", str(file))
    scrapy = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SCRAPY, *words), cwd=PROJECT
    )
    assert await scrapy.wait() == 0
    return sorted_items([orjson.loads(line) for line in file.read_bytes().splitlines()])


async def run(spider: str, site: str, home: Path, **spec: Any) -> tuple[JobReport, list[str]]:
    async with Orchestrator(
        SPIDERS[spider], {"site": site}, home=home, **{"rate": "unlimited", **spec}
    ) as longline:
        report = await longline.execute()
        rows = list(longline.store.records.stream(RecordQuery()))
    return report, sorted_items([row["data"] for row in rows])


@pytest.mark.parametrize("spider", SPIDERS)
async def test_a_spider_gives_the_items_that_it_gives_to_scrapy(
    shop: ScriptedSite, tmp_path: Path, spider: str
) -> None:
    theirs = await items_of_scrapy(spider, shop.url, tmp_path)
    asked = +shop.hits
    shop.hits.clear()

    _, ours = await run(spider, shop.url, tmp_path / "home")

    del shop.hits["/robots.txt"]
    assert len(ours) > 5
    assert ours == theirs
    assert shop.hits == asked


async def test_a_page_is_no_record_and_no_failure(shop: ScriptedSite, tmp_path: Path) -> None:
    report, items = await run("goods", shop.url, tmp_path)

    assert report.state is JobState.COMPLETE
    assert (report.progress.successful, report.progress.counts[ItemState.SKIPPED]) == (15, 3)
    assert (report.progress.total, len(items)) == (18, 15)


async def test_a_second_run_finds_every_item_unchanged(shop: ScriptedSite, tmp_path: Path) -> None:
    _, items = await run("members", shop.url, tmp_path)

    report, again = await run("members", shop.url, tmp_path)

    assert again == items
    assert report.progress.counts[ItemState.UNCHANGED] == len(items)


async def test_the_field_that_names_an_item_can_be_said(shop: ScriptedSite, tmp_path: Path) -> None:
    options = {"site": shop.url, "record_key": "name"}
    async with Orchestrator(SPIDERS["goods"], options, home=tmp_path, rate="unlimited") as longline:
        await longline.execute()

        record = await longline.store.records.get("good 2-3")

    assert record["data"] == {"name": "good 2-3", "price": "3.50 €"}
    assert record["url"] == f"{shop.url}/goods/2"


async def start(home: Path, site: str, *more: str) -> asyncio.subprocess.Process:
    code = "from longline.cli.main import main; main()"
    words = ("run", SPIDERS["members"], "--set", f"site={site}", "--home", str(home), *more)
    path = os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")])
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, *words, "--json"),
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=asyncio.subprocess.PIPE,
    )


async def test_a_spider_goes_on_after_kill_9_without_a_second_login(
    shop: ScriptedSite, tmp_path: Path
) -> None:
    is_halfway = asyncio.Event()
    halfway = f"/members/{PAGES // 2}"
    plain = shop.answers[halfway]

    async def telling(request: web.Request) -> web.StreamResponse:
        is_halfway.set()
        return await plain(request)

    shop.answers[halfway] = telling
    first = await start(tmp_path, shop.url, "--rate", "30", "--burst", "1")
    async with asyncio.timeout(60):
        await is_halfway.wait()
    first.send_signal(signal.SIGKILL)
    await first.wait()

    second = await start(tmp_path, shop.url, "--rate", "30", "--burst", "1")
    out, _ = await second.communicate()

    report = orjson.loads(out.splitlines()[-1])
    asked = [shop.hits[f"/members/{n}"] for n in range(PAGES)]
    assert (second.returncode, report["state"]) == (0, "complete")
    assert shop.hits["POST"] == 1
    assert min(asked) == 1
    assert sum(asked) <= PAGES + 8  # those in flight at the kill are asked for again
    _, items = await run("members", shop.url, tmp_path)
    assert len(items) == PAGES
