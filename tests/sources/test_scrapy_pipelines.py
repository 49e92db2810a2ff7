"""Item pipelines of a Scrapy project: run as Scrapy runs them; what does not run is reported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import scrapy
from scrapy.exceptions import DropItem
from scrapy.http import Response

from longline.core.errors import BadSource, NothingToStore, SkipItem, UnexpectedShape
from longline.core.model import ItemState, JobState
from longline.orchestrator import Orchestrator
from longline.sources.base import Source, Visit
from longline.sources.loader import load_source
from longline.sources.scrapy import scrapy_source
from tests.scripted_site import ScriptedSite
from tests.sources.scrapy_site import build
from tests.sources.scripted import ScriptedWeb, discovered
from tests.sources.test_scrapy_source import PROJECT, SPIDERS, items_of_scrapy, run
from tests.virtual import VirtualClock

SITE = "http://shop.test"


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PROJECT)
    monkeypatch.chdir(PROJECT)


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "chandlery.piped")


@pytest.fixture
def shop(site: ScriptedSite) -> ScriptedSite:
    build(site)
    return site


@pytest.mark.real_time  # Scrapy runs in a process of its own
@pytest.mark.usefixtures("piped")
async def test_pipelines_make_of_items_what_they_make_of_them_in_scrapy(
    shop: ScriptedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHANDLERY_LOG", str(tmp_path / "theirs"))
    theirs = await items_of_scrapy("goods", shop.url, tmp_path)
    monkeypatch.setenv("CHANDLERY_LOG", str(tmp_path / "ours"))

    report, ours = await run("goods", shop.url, tmp_path / "home")

    # Of 15, the 3 at 0.50 are dropped, and one fails.
    assert len(theirs) == 11
    assert ours == theirs
    assert report.state is JobState.PARTIAL
    assert report.progress.counts[ItemState.FAILED] == 1
    assert report.progress.counts[ItemState.SKIPPED] == 3 + 3  # pages, and what was dropped
    logs = [(tmp_path / name).read_text().splitlines() for name in ("theirs", "ours")]
    assert [log[0] for log in logs] == ["open", "open"]
    assert [log[-1] for log in logs] == ["close", "close"]
    assert sorted(logs[0]) == sorted(logs[1])


@pytest.mark.real_time
@pytest.mark.usefixtures("piped")
async def test_a_dropped_item_keeps_the_reason_of_the_pipeline(
    shop: ScriptedSite, tmp_path: Path
) -> None:
    async with Orchestrator(
        SPIDERS["goods"], {"site": shop.url}, home=tmp_path, rate="unlimited"
    ) as longline:
        report = await longline.execute()
        rows = await longline.store.queue.finished(report.job)

    reasons = [str(row["reason"]) for row in rows]
    assert sum("is cheap" in one for one in reasons) == 3
    assert sum("not this one" in one for one in reasons) == 1


class Listed(scrapy.Spider):
    name = "listed"
    start_urls = [SITE]  # noqa: RUF012  # as Scrapy has it

    def parse(self, response: Response, **_kwargs: Any) -> Iterator[Any]:
        del response
        yield {"id": 1, "tags": {"a"}}


class Told:
    """A pipeline that does what its class says; what happened is kept there."""

    opened = 0
    closed = 0
    result: Any = None

    def open_spider(self) -> None:
        type(self).opened += 1

    def process_item(self, item: Any) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return item if self.result is None else self.result

    def close_spider(self) -> None:
        type(self).closed += 1


def spider_with(*pipelines: type) -> type[scrapy.Spider]:
    numbered = {pipeline: place for place, pipeline in enumerate(pipelines)}

    class Piped(Listed):
        custom_settings = {"ITEM_PIPELINES": numbered}  # noqa: RUF012  # as Scrapy has it

    return Piped


async def scraped(kind: type[scrapy.Spider], clock: VirtualClock) -> tuple[Source, Visit]:
    """Return a source and a visit to the one item that its spider scrapes."""
    source = scrapy_source(kind).with_options({})
    web = ScriptedWeb({SITE: "ok"})
    (page,), _ = await discovered(source, web, clock)
    visit = Visit(web, clock, item=page)
    with pytest.raises(NothingToStore):
        await source.record(visit)  # type: ignore[attr-defined]  # its one layer
    (item,) = visit.found
    return source, Visit(web, clock, item=item)


async def test_pipelines_are_opened_with_the_first_item_and_closed_once(
    clock: VirtualClock,
) -> None:
    class Counted(Told):
        pass

    source, visit = await scraped(spider_with(Counted), clock)
    before = Counted.opened
    first = await source.record(visit)  # type: ignore[attr-defined]  # its one layer
    again = await source.record(visit)  # type: ignore[attr-defined]  # the same
    await source.teardown()

    assert first == again == {"id": 1, "tags": ["a"]}
    assert (before, Counted.opened, Counted.closed) == (0, 1, 1)


async def test_what_was_never_opened_is_not_closed(clock: VirtualClock) -> None:
    class Counted(Told):
        pass

    source, _ = await scraped(spider_with(Counted), clock)
    await source.teardown()

    assert (Counted.opened, Counted.closed) == (0, 0)


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (DropItem("too old"), SkipItem),
        (KeyError("price"), KeyError),
        ("text", UnexpectedShape),
        ({"id": object()}, UnexpectedShape),
    ],
)
async def test_what_a_pipeline_does_decides_about_its_item(
    clock: VirtualClock, result: Any, error: type[Exception]
) -> None:
    class Doing(Told):
        pass

    Doing.result = result
    source, visit = await scraped(spider_with(Doing), clock)

    with pytest.raises(error):
        await source.record(visit)  # type: ignore[attr-defined]  # its one layer


async def test_pipelines_that_do_not_open_fail_every_item_and_are_not_opened_again(
    clock: VirtualClock,
) -> None:
    class Closed(Told):
        def open_spider(self) -> None:
            super().open_spider()
            raise ConnectionError

    source, visit = await scraped(spider_with(Closed), clock)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await source.record(visit)  # type: ignore[attr-defined]  # its one layer
    await source.teardown()

    assert (Closed.opened, Closed.closed) == (1, 0)


def test_a_pipeline_that_cannot_be_imported_is_a_bad_source() -> None:
    class Broken(Listed):
        custom_settings = {"ITEM_PIPELINES": {"nowhere.Pipeline": 1}}  # noqa: RUF012  # the same

    with pytest.raises(BadSource, match="nowhere"):
        scrapy_source(Broken)


def test_parts_of_a_project_that_do_not_run_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "chandlery.parted")

    class Signed(Listed):
        http_user = "me"

    parts = [
        ("spider middleware", "chandlery.pipelines.Stamps"),
        ("downloader middleware", "chandlery.pipelines.Stamps"),
        ("extension", "chandlery.pipelines.Stamps"),
        ("item pipeline", "chandlery.pipelines.Files"),
        ("setting", "DOWNLOAD_HANDLERS"),
        ("setting", "FEEDS"),
        ("setting", "HTTPCACHE_ENABLED"),
        ("", "http_user"),
    ]

    not_run = scrapy_source(Signed).not_run

    assert len(not_run) == len(parts)
    assert all(
        kind in said and name in said for (kind, name), said in zip(parts, not_run, strict=True)
    )


def test_a_project_without_such_parts_is_run_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "chandlery.piped")

    assert scrapy_source(Listed).not_run == ()


@pytest.mark.real_time
async def test_what_does_not_run_is_reported_at_the_start_and_in_the_report(
    shop: ScriptedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "chandlery.parted")
    async with Orchestrator(
        SPIDERS["goods"], {"site": shop.url}, home=tmp_path, rate="unlimited"
    ) as longline:
        report = await longline.execute()

    assert report.state is JobState.COMPLETE
    assert len(logged) == 7
    assert "chandlery.pipelines.Stamps" in logged[0]
    assert report.as_dict()["warnings"] == logged


async def test_a_proxy_that_is_not_used_is_reported(clock: VirtualClock) -> None:
    class Proxied(Listed):
        async def start(self) -> AsyncIterator[Any]:
            yield scrapy.Request(SITE, meta={"proxy": "http://proxy.test:3128"})

    source = scrapy_source(Proxied).with_options({})
    web = ScriptedWeb({SITE: "ok"})
    (page,), _ = await discovered(source, web, clock)
    visit = Visit(web, clock, item=page)

    with pytest.raises(NothingToStore):
        await source.record(visit)  # type: ignore[attr-defined]  # its one layer

    assert len(visit.warnings) == 1


ONE_FILE = """
import scrapy


class Thing(scrapy.Item):
    name = scrapy.Field()


class Checked:
    def process_item(self, item):
        assert isinstance(item, Thing)
        return item


class Goods(scrapy.Spider):
    name = "goods"
    custom_settings = {"ITEM_PIPELINES": {Checked: 1}}

    def __init__(self, site, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [f"{site}/goods/3"]

    def parse(self, response):
        for name in response.css("b::text").getall():
            yield Thing(name=name)
"""


@pytest.mark.real_time
async def test_items_of_a_file_are_of_the_class_that_its_pipelines_know(
    shop: ScriptedSite, tmp_path: Path
) -> None:
    file = tmp_path / "goods.py"
    file.write_text(ONE_FILE)

    def load_again(*_: Any) -> None:
        load_source(f"{file}:Goods")

    async with Orchestrator(
        f"{file}:Goods", {"site": shop.url}, home=tmp_path / "home", rate="unlimited"
    ) as longline:
        report = await longline.execute(on_start=load_again)

    assert report.state is JobState.COMPLETE
    assert report.progress.successful == 5


async def test_signals_that_are_not_sent_are_reported(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Listening(Told):
        @classmethod
        def from_crawler(cls, crawler: Any) -> Listening:
            self = cls()
            crawler.signals.connect(self.keep, signal=scrapy.signals.item_scraped)
            crawler.signals.connect(self.keep, signal=scrapy.signals.spider_closed)
            return self

        def keep(self) -> None:
            pass

    source = scrapy_source(spider_with(Listening)).with_options({})
    visit = Visit(ScriptedWeb({SITE: "ok"}), clock)
    _ = [one async for one in source.discover(visit)]

    signals = [one for one in visit.warnings if "signal" in one]
    assert signals == ["not supported: the signal item_scraped, which is not sent"]
    assert signals[0] in caplog.messages


async def test_a_pipeline_that_cannot_be_created_is_named(clock: VirtualClock) -> None:
    class Unready(Told):
        def __init__(self) -> None:
            message = "no password"
            raise RuntimeError(message)

    source = scrapy_source(spider_with(Unready)).with_options({})

    with pytest.raises(BadSource, match=r"pipeline .*Unready cannot be created: .*no password"):
        _ = [one async for one in source.discover(Visit(ScriptedWeb({SITE: "ok"}), clock))]
