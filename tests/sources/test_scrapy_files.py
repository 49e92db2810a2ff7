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


class Small(ImagesPipeline):
    THUMBS = {"a": (1, 1)}
    EXPIRES = 3
    IMAGES_URLS_FIELD = "photos"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

    def process_item(self, item):
        return item

    def close_spider(self):
        pass


class Posting(FilesPipeline):
    def get_media_requests(self, item, info):
        for url in ItemAdapter(item).get("posted", []):
            yield scrapy.Request(url, method="POST", body=b"a=1")


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
    problem = "some files of file_urls were not stored; the notes of their records say why"
    assert problem in report.caveats.warnings
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
    text = SPIDER.replace("NUMBERED", "{Own: 1, Small: 2}").replace("MADE", "dict")
    path.write_text(text.replace('"IMAGES_STORE"', '"SMALL_IMAGES_MIN_WIDTH": 9, "IMAGES_STORE"'))

    parts = [one.partition(" (")[0] for one in load_source(f"{path}:Shop").not_run]

    module = parts[0].removeprefix("file_path of item pipeline ").removesuffix(".Own")
    assert parts == [
        f"file_path of item pipeline {module}.Own",
        "setting FILES_STORE",
        f"__init__ of item pipeline {module}.Small",
        f"close_spider of item pipeline {module}.Small",
        f"process_item of item pipeline {module}.Small",
        "setting SMALL_IMAGES_MIN_WIDTH",
        f"THUMBS of item pipeline {module}.Small",
        "setting IMAGES_STORE",
    ]


async def test_media_requests_with_a_body_are_not_sent_as_others(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    served = serve(site, "/a.pdf", b"%PDF-1", type="application/pdf")
    item = '{"posted": [s + "/a.pdf"]}'

    report, found = await run("{Posting: 1}", item, site, tmp_path, clock)

    assert found[1]["files"] == []
    assert served.requests == []
    assert any("not with POST" in one for one in report.caveats.warnings)
