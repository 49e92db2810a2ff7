"""Scrapy spiders with FilesPipeline and ImagesPipeline: longline downloads their files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from longline.core.model import ItemState, JobState
from longline.orchestrator import Orchestrator
from longline.sources.loader import load_source
from longline.storage.query import RecordQuery
from tests.http.served_files import PNG, serve, sha256
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

SPIDER = """
import scrapy
from itemadapter import ItemAdapter
from scrapy.exceptions import DropItem
from scrapy.pipelines.files import FilesPipeline
from scrapy.pipelines.images import ImagesPipeline


class Own(FilesPipeline):
    def get_media_requests(self, item, info):
        for url in ItemAdapter(item).get("papers", []):
            yield scrapy.Request(url, headers={"X-Own": "1"})

    def item_completed(self, results, item, info):
        if not any(ok for ok, _ in results):
            raise DropItem("no papers")
        item["papers"] = [(ok, one["path"] if ok else str(one.value)) for ok, one in results]
        return item

    def file_path(self, request, response=None, info=None, *, item=None):
        return "mine/" + request.url


class Shop(scrapy.Spider):
    name = "shop"
    custom_settings = {"ITEM_PIPELINES": NUMBERED, "FILES_STORE": "store", "IMAGES_STORE": "s"}

    async def start(self):
        yield scrapy.Request(self.site + "/list")

    def parse(self, response):
        yield {"id": 1, **MADE(self.site)}
        yield {"id": 2, "file_urls": [], "image_urls": []}
"""


async def run(
    pipelines: str, item: str, site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> tuple[Any, dict[int, dict[str, Any]]]:
    """Run a spider with these pipelines; return the report and the data by id."""
    site.says("/list", "<p>list</p>")
    path = tmp_path / "shop.py"
    path.write_text(SPIDER.replace("NUMBERED", pipelines).replace("MADE", f"(lambda s: {item})"))
    async with Orchestrator(
        f"{path}:Shop", {"site": site.url}, home=tmp_path / "home", clock=clock, rate="unlimited"
    ) as longline:
        report = await longline.execute()
        records = [row["data"] for row in longline.store.records.stream(RecordQuery())]
    return report, {one["id"]: one for one in records}


async def test_files_and_images_have_the_shape_of_scrapy(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    serve(site, "/a.pdf", b"%PDF-1", type="application/pdf")
    serve(site, "/a.png", PNG)
    pipelines = (
        '{"scrapy.pipelines.files.FilesPipeline": 1, "scrapy.pipelines.images.ImagesPipeline": 2}'
    )
    item = '{"file_urls": [s + "/a.pdf", s + "/no.pdf"], "image_urls": [s + "/a.png"]}'

    report, found = await run(pipelines, item, site, tmp_path, clock)

    assert report.state is JobState.COMPLETE
    digest = sha256(b"%PDF-1")
    assert found[1]["files"] == [
        {
            "url": f"{site.url}/a.pdf",
            "path": f"{digest[:2]}/{digest[2:4]}/{digest}.pdf",
            "checksum": hashlib.md5(b"%PDF-1", usedforsecurity=False).hexdigest(),
            "status": "downloaded",
            "sha256": digest,
            "bytes": 6,
            "type": "application/pdf",
        }
    ]
    assert found[1]["images"][0]["sha256"] == sha256(PNG)
    assert (found[2]["files"], found[2]["images"]) == ([], [])
    stored = tmp_path / "home" / "files" / found[1]["files"][0]["path"]
    assert stored.read_bytes() == b"%PDF-1"
    assert not (tmp_path / "store").exists()


async def test_own_requests_and_completions_are_called(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    served = serve(site, "/a.pdf", b"%PDF-1", type="application/pdf")
    item = '{"papers": [s + "/a.pdf", s + "/no.pdf"]}'

    report, found = await run("{Own: 1}", item, site, tmp_path, clock)

    (first, place), (second, problem) = found[1]["papers"]
    assert (first, second) == (True, False)
    assert place.endswith(f"{sha256(b'%PDF-1')}.pdf")
    assert "404" in problem
    assert served.requests[0].headers["X-Own"] == "1"
    assert report.progress.counts[ItemState.SKIPPED] == 2  # the page, and the dropped item


def test_what_is_not_called_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "shop.py"
    text = SPIDER.replace("NUMBERED", "{Own: 1}").replace("MADE", "dict")
    path.write_text(text.replace('"IMAGES_STORE"', '"IMAGES_THUMBS": {"a": (1, 1)}, "X"'))

    file_path, thumbs = load_source(f"{path}:Shop").not_run

    assert "file_path" in file_path
    assert "Own" in file_path
    assert "IMAGES_THUMBS" in thumbs
