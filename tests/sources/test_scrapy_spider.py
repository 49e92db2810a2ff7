"""Errbacks, callbacks, settings, sessions and cookies of spiders."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from datetime import date
from decimal import Decimal
from typing import Any, ClassVar, Self

import pytest
import scrapy
from scrapy import Request, signals
from scrapy.exceptions import CloseSpider, DownloadConnectionRefusedError, DownloadTimeoutError
from scrapy.http import Response
from scrapy.http.request import VerboseCookie
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

from longline.core.errors import (
    BadSource,
    CircuitOpen,
    ConnectFailed,
    Gone,
    NothingToStore,
    RobotsUnreachable,
    SkipItem,
    UnexpectedShape,
)
from longline.core.model import Item
from longline.http.errors import TimedOut
from longline.http.messages import Page
from longline.sources.base import Source, Visit
from longline.sources.scrapy import pack, pack_request, scrapy_source, unpack, unpack_request
from longline.sources.spider import Jars
from tests.sources.scrapy_project.chandlery.spiders.goods import Anchor, Compass, Lamp, Rope
from tests.sources.scripted import ScriptedWeb, discovered, status
from tests.virtual import VirtualClock

SITE = "http://shop.test"


class Odd(scrapy.Spider):
    name = "odd"
    start_urls = [SITE]  # noqa: RUF012  # as Scrapy has it
    closed_as: str | None = None

    def parse(self, response: Response, **_kwargs: Any) -> Iterator[Any]:
        yield {"name": "first"}
        if response.body == b"close":
            raise CloseSpider("enough")
        if response.body == b"lambda":
            callback: Any = lambda _response: None  # noqa: E731  # no method of the spider
            yield scrapy.Request(f"{SITE}/a", callback=callback)
        if response.body == b"text":
            yield "no item"
        if response.body == b"raise":
            raise ZeroDivisionError
        yield {"name": "last"}

    def lost(self, failure: Any) -> Iterator[Any]:
        yield {"lost": failure.type.__name__}

    def closed(self, reason: str) -> None:
        type(self).closed_as = reason


def made(kind: type[scrapy.Spider] = Odd, **options: Any) -> Source:
    return scrapy_source(kind).with_options(options)


async def page_of(
    source: Source, answer: Any, clock: VirtualClock, **request: Any
) -> tuple[list[Item], Exception]:
    """Run the layer on a page; return what was queued and how it ended."""
    spider = source._crawl.spider  # type: ignore[attr-defined]  # the way in for one request
    packed = pack_request(scrapy.Request(SITE, **request), spider)
    visit = Visit(
        ScriptedWeb({SITE: answer}), clock, item=Item("k", SITE, data={"request": packed})
    )
    with pytest.raises(Exception) as ended:  # noqa: PT011  # which one is the test's business
        await source.record(visit)  # type: ignore[attr-defined]  # its one layer
    return visit.found, ended.value


def scraped(found: list[Item]) -> list[Any]:
    return [item.data["record"] for item in found if "record" in item.data]


async def test_a_page_that_gives_items_is_done_and_stores_nothing_itself(
    clock: VirtualClock,
) -> None:
    found, ended = await page_of(made(), "ok", clock)

    assert scraped(found) == [{"name": "first"}, {"name": "last"}]
    assert isinstance(ended, NothingToStore)
    assert re.findall(r"\d+", str(ended)) == ["2", "0"]  # items and links


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (ConnectFailed(SITE, "refused"), DownloadConnectionRefusedError),
        (TimedOut(SITE, 30), DownloadTimeoutError),
    ],
)
async def test_an_errback_receives_the_exception_of_scrapy(
    clock: VirtualClock, error: Exception, name: type[Exception]
) -> None:
    source = made()
    lost = source._crawl.spider.lost  # type: ignore[attr-defined]  # the spider's own method

    found, ended = await page_of(source, error, clock, errback=lost)

    assert scraped(found) == [{"lost": name.__name__}]
    assert isinstance(ended, NothingToStore)


async def test_an_errback_is_called_for_a_dead_host(clock: VirtualClock) -> None:
    source = made()
    lost = source._crawl.spider.lost  # type: ignore[attr-defined]  # the spider's own method
    error = RobotsUnreachable(SITE, "refused")
    error.__cause__ = ConnectFailed(f"{SITE}/robots.txt", "refused")

    found, ended = await page_of(source, error, clock, errback=lost)

    assert scraped(found) == [{"lost": DownloadConnectionRefusedError.__name__}]
    assert isinstance(ended, NothingToStore)


class Signalled(Odd):
    name = "signalled"
    seen: ClassVar[list[str]] = []

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Self:
        spider = super().from_crawler(crawler, *args, **kwargs)
        for name in ("spider_opened", "engine_started", "spider_closed", "engine_stopped"):
            crawler.signals.connect(getattr(spider, f"on_{name}"), getattr(signals, name))
        return spider

    def on_spider_opened(self) -> None:
        self.seen.append("spider_opened")

    def on_engine_started(self) -> None:
        self.seen.append("engine_started")

    def on_spider_closed(self) -> None:
        self.seen.append("spider_closed")

    def on_engine_stopped(self) -> None:
        self.seen.append("engine_stopped")


async def test_the_signals_of_the_engine_are_sent_in_the_order_of_scrapy(
    clock: VirtualClock,
) -> None:
    source = made(Signalled)

    await page_of(source, "ok", clock)
    await source.teardown()

    assert Signalled.seen == ["spider_opened", "engine_started", "spider_closed", "engine_stopped"]


async def test_a_request_that_follows_a_redirect_has_the_referer_of_scrapy(
    clock: VirtualClock,
) -> None:
    source = made()
    spider = source._crawl.spider  # type: ignore[attr-defined]  # as above
    answer = Page(SITE, 302, {"location": f"{SITE}/there"}, b"")

    found, _ = await page_of(source, answer, clock, headers={"Referer": "http://before.test/"})

    onward = unpack_request(found[0].data["request"], spider)
    assert onward.url == f"{SITE}/there"
    assert onward.headers["Referer"] == SITE.encode()


async def test_no_errback_is_called_while_the_breaker_is_open(clock: VirtualClock) -> None:
    source = made()
    lost = source._crawl.spider.lost  # type: ignore[attr-defined]  # the spider's own method

    found, ended = await page_of(source, CircuitOpen(SITE, 5.0), clock, errback=lost)

    assert found == []
    assert isinstance(ended, CircuitOpen)


async def test_a_missing_page_fails_as_gone(clock: VirtualClock) -> None:
    found, ended = await page_of(made(), status(SITE, 404), clock)

    assert found == []
    assert isinstance(ended, Gone)


async def test_a_status_that_the_spider_handles_reaches_its_callback(clock: VirtualClock) -> None:
    found, _ = await page_of(
        made(), status(SITE, 404), clock, meta={"handle_httpstatus_list": [404]}
    )

    assert len(scraped(found)) == 2


async def test_what_came_before_an_exception_is_kept(clock: VirtualClock) -> None:
    found, ended = await page_of(made(), "raise", clock)

    assert scraped(found) == [{"name": "first"}]
    assert isinstance(ended, ZeroDivisionError)


@pytest.mark.parametrize(("answer", "problem"), [("lambda", "lambda"), ("text", "str")])
async def test_a_result_that_cannot_be_kept_loses_nothing_else(
    clock: VirtualClock, answer: str, problem: str
) -> None:
    found, ended = await page_of(made(), answer, clock)

    assert scraped(found) == [{"name": "first"}, {"name": "last"}]
    assert isinstance(ended, UnexpectedShape)
    assert problem in str(ended)


async def test_a_closed_spider_sends_no_more_requests(clock: VirtualClock) -> None:
    source = made()
    found, _ = await page_of(source, "close", clock)

    _, ended = await page_of(source, "ok", clock)
    await source.teardown()

    assert scraped(found) == [{"name": "first"}]
    assert isinstance(ended, SkipItem)
    assert "enough" in str(ended)
    assert Odd.closed_as == "enough"


async def test_items_that_look_alike_are_all_kept(clock: VirtualClock) -> None:
    class Twice(scrapy.Spider):
        name = "twice"

        async def start(self) -> AsyncIterator[Any]:
            yield {"id": 1}
            yield {"id": 1}

    items, _ = await discovered(made(Twice), ScriptedWeb({}), clock)

    assert len({item.key for item in items}) == 2


async def test_start_requests_of_older_spiders_count(clock: VirtualClock) -> None:
    class Older(scrapy.Spider):
        name = "older"

        def start_requests(self) -> Iterator[Any]:
            yield scrapy.Request(f"{SITE}/older", headers={"X-A": "é"}, priority=3)

    items, _ = await discovered(made(Older), ScriptedWeb({}), clock)

    assert [(item.url, item.priority) for item in items] == [(f"{SITE}/older", 3)]


async def test_a_crawl_spider_follows_its_rules(clock: VirtualClock) -> None:
    class Ruled(CrawlSpider):
        name = "ruled"
        rules = (Rule(LinkExtractor(), callback="parse_one"),)

        def parse_one(self, response: Response) -> Any:
            return {"url": response.url}

    source = made(Ruled)
    page = '<html><a href="/one">one</a></html>'
    found, _ = await page_of(source, page, clock)
    visit = Visit(ScriptedWeb({f"{SITE}/one": "<html></html>"}), clock, item=found[0])

    with pytest.raises(NothingToStore):
        await source.record(visit)  # type: ignore[attr-defined]  # its one layer

    assert scraped(visit.found) == [{"url": f"{SITE}/one"}]


async def test_settings_of_the_spider_count(clock: VirtualClock) -> None:
    class Slow(Odd):
        custom_settings = {"DOWNLOAD_DELAY": 4, "USER_AGENT": "slow/1"}  # noqa: RUF012  # the same

    kind = scrapy_source(Slow)
    web = ScriptedWeb({SITE: "ok"})
    source = kind.with_options({})
    (item,), _ = await discovered(source, web, clock)

    with pytest.raises(NothingToStore):
        await source.record(Visit(web, clock, item=item))  # type: ignore[attr-defined]  # its layer

    assert (kind.rate, kind.burst) == (0.25, 1)
    assert web.requests[0].headers["User-Agent"] == "slow/1"


async def test_a_session_goes_on_in_another_process(clock: VirtualClock) -> None:
    class Linked(Odd):
        def parse(self, response: Response, **_kwargs: Any) -> Iterator[Any]:
            del response
            yield scrapy.Request(f"{SITE}/next")

    first = made(Linked)
    page = status(SITE, 200)
    page.headers["set-cookie"] = "session=s3; Path=/"  # type: ignore[index]  # a dict in tests
    found, _ = await page_of(first, page, clock)
    web = ScriptedWeb({f"{SITE}/next": "ok"})

    with pytest.raises(NothingToStore):
        await made(Linked).record(Visit(web, clock, item=found[0]))  # type: ignore[attr-defined]

    assert web.requests[0].headers["Cookie"] == "session=s3"


async def test_requests_of_a_cookie_jar_belong_to_one_session(clock: VirtualClock) -> None:
    class Jarred(Odd):
        async def start(self) -> AsyncIterator[Any]:
            for number, jar in enumerate((1, 1, 2)):
                yield scrapy.Request(f"{SITE}/{number}", meta={"cookiejar": jar})

    web = ScriptedWeb({f"{SITE}/{number}": "ok" for number in range(3)})
    source = made(Jarred)
    items, _ = await discovered(source, web, clock)

    for item in items:
        with pytest.raises(NothingToStore):
            await source.record(Visit(web, clock, item=item))  # type: ignore[attr-defined]  # its layer

    first, second, other = (request.scope for request in web.requests)
    assert first == second != other


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True]},
        {1: ("b", b"\xff"), "$": {"x"}},
        date(2026, 1, 2),
        Decimal("1.50"),
        Anchor("a", "1"),
        Lamp("a", "1"),
        Compass(name="a", price="1"),
        Rope(name="a", price="1"),
    ],
    ids=str,
)
def test_what_requests_carry_comes_back_the_same(value: Any) -> None:
    assert unpack(pack(value, "here")) == value


def test_the_login_of_a_proxy_is_not_stored() -> None:
    spider = Odd()
    login = {"Proxy-Authorization": "Basic YWRhOlNlY3IzdC05"}
    request = scrapy.Request(
        SITE, meta={"proxy": "http://ada:Secr3t-9@proxy.test:80"}, headers=login
    )

    packed = pack_request(request, spider)

    again = unpack_request(packed, spider)
    assert again.meta["proxy"] == "http://proxy.test:80"
    assert "Proxy-Authorization" not in again.headers
    assert "Secr3t-9" not in str(packed)


def test_a_request_is_restored_completely() -> None:
    spider = Odd()
    request = scrapy.FormRequest(
        SITE,
        formdata={"a": "ö"},
        callback=spider.parse,
        errback=spider.lost,
        meta={"cookiejar": 1},
        cb_kwargs={"more": (1,)},
        cookies=[{"name": "a", "value": "b"}],
        dont_filter=True,
        priority=-2,
    )

    again = unpack_request(pack_request(request, spider), spider)

    assert again.to_dict(spider=spider) == request.to_dict(spider=spider)


def test_a_value_that_cannot_be_stored_is_reported_with_its_place() -> None:
    request = scrapy.Request(SITE, meta={"socket": object()})

    with pytest.raises(UnexpectedShape, match=r"meta\['socket'\].*object"):
        pack_request(request, Odd())


def test_a_spider_without_a_name_is_refused() -> None:
    class Nameless(scrapy.Spider):
        pass

    with pytest.raises(BadSource, match=r"Nameless.*name"):
        scrapy_source(Nameless)


def test_only_items_are_made_of_what_the_database_names() -> None:
    with pytest.raises(UnexpectedShape, match=r"subprocess:Popen"):
        unpack({"$": "item", "class": "subprocess:Popen", "as": {"args": "true"}})


def sent_after(setting: str, cookie: str, asking: str) -> str | None:
    jars = Jars()
    jars.process_response(Request(setting), Response(setting, headers={"Set-Cookie": cookie}))
    request = Request(asking)
    jars.process_request(request)
    found = request.headers.get("Cookie")
    return None if found is None else found.decode()


@pytest.mark.parametrize("domain", ["co.uk", ".co.uk", "uk"])
def test_a_cookie_for_a_public_suffix_is_refused(domain: str) -> None:
    cookie = f"a=1; Domain={domain}; Path=/"

    assert sent_after("https://shop.co.uk/", cookie, "https://other.co.uk/") is None


def test_a_cookie_for_the_registered_domain_is_kept() -> None:
    cookie = "a=1; Domain=Shop.CO.uk; Path=/"

    assert sent_after("https://www.shop.co.uk/", cookie, "https://api.shop.co.uk/") == "a=1"


def test_a_request_cannot_bring_a_cookie_for_a_public_suffix() -> None:
    jars = Jars()
    cookie: VerboseCookie = {"name": "a", "value": "1", "domain": "co.uk", "path": "/"}
    jars.process_request(Request("https://shop.co.uk/", cookies=[cookie]))
    stranger = Request("https://other.co.uk/")
    jars.process_request(stranger)

    assert stranger.headers.get("Cookie") is None


def dressed(url: str, cookies: Any) -> bytes | None:
    request = Request(url, cookies=cookies)
    Jars().process_request(request)
    return request.headers.get("Cookie")


def test_a_cookie_of_a_request_without_name_or_value_is_left_out() -> None:
    cookies = [{"value": "x"}, {"name": "a"}, {"name": "b", "value": None}]

    assert dressed("http://shop.test/", [*cookies, {"name": "c", "value": "1"}]) == b"c=1"


def test_bytes_that_are_not_utf_8_are_read_as_latin_1() -> None:
    assert dressed("http://shop.test/", {"a": b"\xe1"}) == "a=\u00e1".encode()


@pytest.mark.parametrize(("said", "sent"), [({}, None), ({"secure": False}, b"a=1")])
def test_a_cookie_of_an_https_request_stays_there_unless_said_otherwise(
    said: dict[str, bool], sent: bytes | None
) -> None:
    jars = Jars()
    cookies: Any = [{"name": "a", "value": "1", **said}]
    jars.process_request(Request("https://shop.test/", cookies=cookies))
    plain = Request("http://shop.test/")
    jars.process_request(plain)

    assert plain.headers.get("Cookie") == sent
