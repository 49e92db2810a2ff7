"""What a source says about a single request reaches the site: its timeout and its priority."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from longline.core.errors import FetchError
from longline.core.model import Cursor, Item, JobState
from longline.http.bodies import FilePart
from longline.orchestrator import Orchestrator
from longline.sources.base import Options, Source, Visit, layer
from tests.scripted_site import ScriptedSite
from tests.sources.scripted import ScriptedWeb
from tests.virtual import VirtualClock


class Settings(Options):
    site: str


class Several(Source):
    name = "several"
    rate = 1.0
    burst = 1
    retry = {"attempts": 1}  # noqa: RUF012  # a class attribute as sources have it
    Options = Settings

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        del visit
        yield Item("one", f"{self.options.site}/first")

    @layer()
    async def pages(self, visit: Visit) -> Mapping[str, Any]:
        site = self.options.site
        await visit.fetch(f"{site}/first")
        await asyncio.gather(
            *(visit.fetch(f"{site}/{one}", priority=one) for one in (1, 7, 3)),
        )
        return {"done": True}

    @layer()
    async def slow(self, visit: Visit) -> Mapping[str, Any]:
        began = visit.clock.now()
        try:
            await visit.fetch(f"{self.options.site}/slow", timeout=2)
        except FetchError as error:
            return {"kind": error.kind.value, "seconds": round(visit.clock.now() - began)}
        return {}

    @layer()
    async def form(self, visit: Visit) -> Mapping[str, Any]:
        files = {"name": "rod", "photo": FilePart("a.png", b"\x89", "image/png")}
        page = await visit.fetch(f"{self.options.site}/form", multipart=files)
        plain = await visit.fetch(f"{self.options.site}/form", form={"a": ["1", "2"]})
        return {"sent": page.text, "plain": plain.text}


@pytest.fixture
def order(site: ScriptedSite) -> list[str]:
    """A site with a page that hangs and a form; the order in which pages were requested."""
    asked: list[str] = []

    async def note(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return web.Response()

    async def hang(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(1000)
        return web.Response()

    async def form(request: web.Request) -> web.StreamResponse:
        values = (await request.post()).items()
        sent = [
            f"{name}={one.filename}:{one.content_type}"
            if isinstance(one, web.FileField)
            else f"{name}={one!s}"
            for name, one in values
        ]
        return web.Response(text=" ".join(sent))

    site.answers |= {f"/{one}": note for one in ("first", "1", "3", "7")}
    site.answers |= {"/slow": hang, "/form": form}
    return asked


async def test_a_request_has_its_own_timeout_priority_and_form(
    site: ScriptedSite, order: list[str], tmp_path: Path, clock: VirtualClock
) -> None:
    source = f"{__name__}:Several"
    async with Orchestrator(source, {"site": site.url}, home=tmp_path, clock=clock) as longline:
        report = await longline.execute()
        record = await longline.store.records.get("one")

    assert report.state is JobState.COMPLETE
    assert order[0] == "/first"
    assert order.index("/7") < order.index("/3")
    assert record["data"]["kind"] == "timeout"
    assert 2 <= record["data"]["seconds"] <= 4
    assert record["data"]["sent"] == "name=rod photo=a.png:image/png"
    assert record["data"]["plain"] == "a=1 a=2"


@pytest.mark.parametrize(
    "wrong",
    [
        {"form": {"a": 1}, "json": {"b": 2}},
        {"body": b"", "graphql": {"query": "{a}"}},
        {"timeout": -1.0},
        {"timeout": 0.0},
        {"timeout": float("nan")},
    ],
)
async def test_a_request_that_contradicts_itself_is_not_sent(
    wrong: dict[str, Any], clock: VirtualClock
) -> None:
    web = ScriptedWeb({"http://shop.test/": "ok"})

    with pytest.raises(ValueError, match=r"one body|positive number"):
        await Visit(web, clock).fetch("http://shop.test/", **wrong)

    assert web.requests == []


@pytest.mark.parametrize("url", ["/front.png", "file:///etc/passwd", "data:image/png;base64,AA"])
async def test_only_urls_of_http_are_downloaded(url: str, clock: VirtualClock) -> None:
    web = ScriptedWeb({})
    visit = Visit(web, clock)

    found = await visit.download(url, field="photos[1]")

    assert found is None
    assert [(one.field, "is not the URL of a file" in one.text) for one in visit.notes] == [
        ("photos[1]", True)
    ]
    assert [one.partition(" were")[0] for one in visit.warnings] == ["some files of photos"]
    assert web.requests == []
