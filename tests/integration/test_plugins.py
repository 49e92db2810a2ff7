"""Plugins of an installed package in a whole run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from longline.config.settings import load_settings, prepare_home
from longline.core.errors import BadFile, BadOption, BadSource
from longline.core.model import JobState
from longline.orchestrator import Orchestrator
from longline.sources.base import Source, Visit, layer
from longline.sources.loader import load_middlewares
from longline.storage.query import RecordQuery
from longline.storage.store import open_store
from longline.wiring import open_event_deliveries
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

HTML = {"Content-Type": "text/html"}
ENTRIES = """
[longline.middlewares]
signed = plugged:Signed
[longline.stages]
loud = plugged:Loud
[longline.listeners]
heard = plugged:heard
[longline.backends]
shared = plugged:Shared
[longline.subscribers]
counted = plugged:counted
jobs = plugged:jobs
broken = plugged:missing
blocking = plugged:heard
typo = plugged:typo
"""
CODE = '''
from dataclasses import replace

from longline.limits.backends.state import MemoryStateBackend


class Shared:
    """Keeps the values of all groups in one dict of backends."""

    opened = []

    def __init__(self, settings, clock):
        self._clock = clock
        self.groups = {}
        self.is_closed = False
        self.opened.append(self)

    def backend(self, group, kind):
        return self.groups.setdefault(group, MemoryStateBackend(self._clock))

    async def close(self):
        self.is_closed = True


events = []


def heard(event):
    events.append(event)
    if event.type == "item.stored":
        raise ValueError("a bug of the listener")


counts = {}


async def counted(event):
    counts[event.type] = counts.get(event.type, 0) + 1


class Jobs:
    """Gets events of jobs, and fails at the first."""

    types = ["job.*"]
    source = "shop"

    def __init__(self):
        self.types_seen = []

    async def __call__(self, event):
        self.types_seen.append(event.type)
        if len(self.types_seen) == 1:
            raise ValueError("not yet")


jobs = Jobs()
typo = Jobs()
typo.types = ["jbo.*"]


class Signed:
    """Adds a header to every request."""

    def __init__(self, following):
        self._following = following

    async def __call__(self, request, usage):
        headers = {**request.headers, "X-Signed": "yes"}
        return await self._following(replace(request, headers=headers), usage)


class Loud:
    name = "loud"

    def __init__(self, mark="!"):
        self._mark = mark

    def __call__(self, draft):
        return draft.with_data({**draft.data, "title": draft.data["title"].upper() + self._mark})
'''
MANIFEST = """
manifest: html
name: shop
rate: unlimited
start: "{site}/p/1"
fields: {{title: h1}}
{more}
"""

Write = Callable[[str], Path]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with entry points in a folder on sys.path."""
    folder = tmp_path / "plugged-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1\n")
    (folder / "entry_points.txt").write_text(ENTRIES)
    (tmp_path / "plugged.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "plugged", raising=False)


@pytest.fixture
def write(site: ScriptedSite, tmp_path: Path) -> Write:
    site.says("/p/1", "<h1>rope</h1>", headers=HTML)

    def manifest(more: str) -> Path:
        path = tmp_path / "shop.yaml"
        path.write_text(MANIFEST.format(site=site.url, more=more), "utf-8")
        return path

    return manifest


async def collect(path: Path, clock: VirtualClock) -> list[dict[str, Any]]:
    async with Orchestrator(home=path.parent / "home", clock=clock) as longline:
        report = await longline.execute(str(path))
        rows = await longline.store.records.list(RecordQuery(source="shop"))
    assert report.state is JobState.COMPLETE
    return [row["data"] for row in rows]


@pytest.mark.usefixtures("package")
async def test_every_request_passes_the_middleware_of_a_plugin(
    site: ScriptedSite, clock: VirtualClock, write: Write
) -> None:
    path = write("middlewares: [signed]")
    received: list[str | None] = []

    async def page(request: web.Request) -> web.Response:
        received.append(request.headers.get("X-Signed"))
        return web.Response(text="<h1>rope</h1>", content_type="text/html")

    site.answers["/p/1"] = page
    await collect(path, clock)

    assert received == ["yes"]


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("stage", "title"),
    [("loud", "ROPE!"), ("{loud: {mark: '?'}}", "ROPE?")],
    ids=["name", "options"],
)
async def test_records_pass_the_stage_of_a_plugin(
    clock: VirtualClock, write: Write, stage: str, title: str
) -> None:
    (record,) = await collect(write(f"pipeline: [{{stage: {stage}}}]"), clock)

    assert record == {"title": title}


@pytest.mark.usefixtures("package")
async def test_a_listener_is_called_with_outcomes_and_the_end_of_the_job(
    site: ScriptedSite, clock: VirtualClock, write: Write
) -> None:
    await collect(write("listeners: [heard]"), clock)

    item, job = sys.modules["plugged"].events
    assert (item.type, item.source, item.url) == ("item.stored", "shop", f"{site.url}/p/1")
    assert item.record.data == {"title": "rope"}
    assert (job.type, job.job, job.key) == ("job.complete", item.job, None)


@pytest.mark.usefixtures("package")
async def test_subscribers_of_plugins_get_events_with_a_durable_cursor(
    clock: VirtualClock, write: Write, logged: list[str]
) -> None:
    path = write("")
    settings = load_settings(home=path.parent / "home")
    prepare_home(settings)
    with open_store(settings.database) as store:
        async with open_event_deliveries(settings, store, clock) as deliveries:
            await deliveries.run_once()  # adds them
            await collect(path, clock)
            await deliveries.run_once()
            await clock.sleep(1)  # until the retry
            await deliveries.run_once()
        subscribers = await store.subscribers.list()

    plugged = sys.modules["plugged"]
    ends = ["job.created", "job.started", "job.discovered", "job.complete"]
    assert plugged.jobs.types_seen == ["job.created", *ends]
    assert plugged.counts["item.stored"] == plugged.counts["job.complete"] == 1
    assert [(one.name, one.lag) for one in subscribers] == [
        ("plugin/counted", 0),
        ("plugin/jobs", 0),
    ]
    refused = [text for text in logged if text.startswith("no events")]
    assert len(refused) == 3  # of the broken ones


@pytest.mark.usefixtures("package")
async def test_limits_are_kept_in_the_backend_of_a_plugin(
    site: ScriptedSite, clock: VirtualClock, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGLINE_STATE_BACKEND", "shared")
    path = write("").with_name("shop.yaml")
    path.write_text(path.read_text("utf-8").replace("rate: unlimited", "rate: 2"), "utf-8")

    await collect(path, clock)

    (states,) = sys.modules["plugged"].Shared.opened
    assert list(await states.groups["pace"].all()) == [site.url.removeprefix("http://")]
    assert states.is_closed
    assert not list(path.parent.rglob("pace.sqlite"))


@pytest.mark.usefixtures("package")
async def test_a_backend_that_is_not_installed_is_refused(
    clock: VirtualClock, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGLINE_STATE_BACKEND", "shred")

    with pytest.raises(BadOption) as caught:
        await collect(write(""), clock)

    assert caught.value.option == "state_backend"


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    "more",
    [
        "middlewares: [sigend]",
        "listeners: [herd]",
        "pipeline: [{stage: laud}]",
        "pipeline: [{stage: {a: {}, b: {}}}]",
    ],
)
async def test_a_plugin_that_is_not_installed_is_refused(
    clock: VirtualClock, write: Write, more: str
) -> None:
    with pytest.raises(BadFile):
        await collect(write(more), clock)


@pytest.mark.usefixtures("package")
def test_a_python_source_names_plugins_or_functions() -> None:
    class Named(Source):
        name = "named"
        middlewares = ("signed", lambda following: following)

        @layer()
        async def record(self, visit: Visit) -> dict[str, Any]:
            return {"key": visit.item.key}

    signed, own = load_middlewares(Named)

    assert getattr(signed, "__name__", "") == "Signed"
    assert own is Named.middlewares[1]


def test_a_python_source_with_an_unknown_middleware_is_refused() -> None:
    class Unknown(Source):
        name = "unknown"
        middlewares = ("nowhere",)

    with pytest.raises(BadSource):
        load_middlewares(Unknown)
