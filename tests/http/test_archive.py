"""The middlewares that archive responses and replay them, over real HTTP."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from longline.core.errors import ConnectFailed, Gone
from longline.core.model import Usage
from longline.http.archive.warc import MISSING, Archive, ArchiveMiddleware, build_replay, open_warc
from longline.http.errors import NotArchived, RobotsDisallowed
from longline.http.messages import Middleware, Page, Request
from longline.http.middleware.status import RedirectMiddleware, StatusMiddleware
from longline.http.transport import HttpOptions, HttpTransport
from tests.http.archived import read_by_fastwarc, records_in
from tests.scripted_site import ScriptedSite, drop
from tests.virtual import VirtualClock


class Forbidding(Middleware):
    """A middleware that refuses every request, as robots.txt may."""

    async def __call__(self, request: Request, usage: Usage) -> Page:
        del usage
        raise RobotsDisallowed(request.url, "not for us")


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[Archive]:
    async with open_warc(tmp_path) as archive:
        yield archive


@pytest.fixture
async def chain(archive: Archive, clock: VirtualClock) -> AsyncIterator[Middleware]:
    transport = HttpTransport(HttpOptions(), clock)
    yield RedirectMiddleware(
        StatusMiddleware(ArchiveMiddleware(transport, archive, "job", clock), clock)
    )
    await transport.close()


@pytest.fixture
def replay(archive: Archive, clock: VirtualClock) -> Middleware:
    return build_replay(archive, "job", clock)


async def test_an_answer_is_given_again_without_a_request(
    site: ScriptedSite, chain: Middleware, replay: Middleware
) -> None:
    site.says("/a", "hello", headers={"X-One": "1"})
    first = await chain(Request(f"{site.url}/a"), Usage())
    usage = Usage()

    again = await replay(Request(f"{site.url}/a"), usage)

    assert (again.url, again.status, again.text) == (first.url, 200, "hello")
    assert list(again.headers.items()) == list(first.headers.items())
    assert (usage.requests, usage.status, site.hits["/a"]) == (0, 200, 1)


async def test_every_hop_of_a_redirect_is_kept(
    site: ScriptedSite, chain: Middleware, replay: Middleware, archive: Archive
) -> None:
    site.says("/old", status=301, headers={"location": "/middle"})
    site.says("/middle", status=302, headers={"location": "/new"})
    site.says("/new", "here")
    await chain(Request(f"{site.url}/old"), Usage())

    page = await replay(Request(f"{site.url}/old"), Usage())

    assert (page.url, page.text) == (f"{site.url}/new", "here")
    assert await archive.count("job") == 3


async def test_an_answer_that_says_no_is_kept_and_says_so_again(
    site: ScriptedSite, chain: Middleware, replay: Middleware
) -> None:
    request = Request(f"{site.url}/nowhere")
    with pytest.raises(Gone):
        await chain(request, Usage())

    with pytest.raises(Gone):
        await replay(request, Usage())


async def test_a_source_that_wants_to_see_a_refusal_sees_it_again(
    site: ScriptedSite, chain: Middleware, replay: Middleware
) -> None:
    site.says("/a", "no captions", status=403)
    request = Request(f"{site.url}/a", accept=frozenset({403}))
    await chain(request, Usage())

    assert (await replay(request, Usage())).text == "no captions"


async def test_a_failure_is_kept_and_raised_again(
    site: ScriptedSite, chain: Middleware, replay: Middleware
) -> None:
    site.answers["/a"] = drop
    with pytest.raises(ConnectFailed) as first:
        await chain(Request(f"{site.url}/a"), Usage())

    with pytest.raises(ConnectFailed) as again:
        await replay(Request(f"{site.url}/a"), Usage())

    assert str(again.value) == str(first.value)


async def test_what_robots_txt_forbade_is_forbidden_again(
    archive: Archive, clock: VirtualClock, replay: Middleware
) -> None:
    closed = ArchiveMiddleware(Forbidding(), archive, "job", clock)
    with pytest.raises(RobotsDisallowed):
        await closed(Request("https://shop.test/a"), Usage())

    with pytest.raises(RobotsDisallowed, match="not for us"):
        await replay(Request("https://shop.test/a"), Usage())


async def test_a_retry_that_went_well_is_the_answer(
    site: ScriptedSite, chain: Middleware, replay: Middleware
) -> None:
    site.says_in_turn("/a", 503, 200)
    accept = frozenset({503})
    await chain(Request(f"{site.url}/a", accept=accept), Usage())
    await chain(Request(f"{site.url}/a"), Usage())

    assert (await replay(Request(f"{site.url}/a"), Usage())).status == 200


async def test_what_was_never_asked_is_not_archived(replay: Middleware) -> None:
    usage = Usage()

    with pytest.raises(NotArchived) as missing:
        await replay(Request("https://shop.test/a", "POST"), usage)

    assert (missing.value.method, missing.value.url) == ("POST", "https://shop.test/a")
    assert [one.type for one in usage.events] == [MISSING]


async def test_a_compressed_answer_opens_in_other_readers(
    site: ScriptedSite, chain: Middleware, archive: Archive, tmp_path: Path
) -> None:
    async def packed(_request: web.Request) -> web.StreamResponse:
        headers = {"content-encoding": "gzip", "content-type": "text/plain; charset=utf-8"}
        return web.Response(body=gzip.compress(b"hello " * 500), headers=headers)

    site.answers["/a"] = packed
    page = await chain(Request(f"{site.url}/a"), Usage())
    await archive.close()

    assert page.body == b"hello " * 500
    assert read_by_fastwarc(tmp_path) == [(True, b"hello " * 500)]
    assert [one.body for one in records_in(tmp_path)][1:] == [b"hello " * 500]


async def test_the_length_that_a_head_announced_comes_back(
    site: ScriptedSite, chain: Middleware, replay: Middleware
) -> None:
    site.says("/a", "x" * 1234)
    request = Request(f"{site.url}/a", "HEAD")
    await chain(request, Usage())

    page = await replay(request, Usage())

    assert (page.headers["content-length"], page.body) == ("1234", b"")


async def test_once_the_account_is_settled_an_answer_is_safe(
    site: ScriptedSite, chain: Middleware, tmp_path: Path
) -> None:
    site.says("/a", "hello")
    usage = Usage()
    await chain(Request(f"{site.url}/a"), usage)

    await usage.settle()

    # The archive is not closed: this is what another process would find now.
    async with open_warc(tmp_path) as another:
        assert await another.find("job", Request(f"{site.url}/a"))
