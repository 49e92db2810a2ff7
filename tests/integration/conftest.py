"""A practice web and an orchestrator on it, both on the test's virtual time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from longline.orchestrator import Orchestrator
from longline.sandbox.web import PracticeWeb, WebOptions
from tests.fork_server import ForkServer
from tests.integration.senders import Receiver
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

_DATABASES = count()

Serve = Callable[..., contextlib.AbstractAsyncContextManager[PracticeWeb]]
Collect = Callable[..., contextlib.AbstractAsyncContextManager[Orchestrator]]


@pytest.fixture
def serve(clock: VirtualClock) -> Serve:
    """Start a practice web with these options."""

    def start(**options: Any) -> PracticeWeb:
        return PracticeWeb(WebOptions(**options), clock=clock)

    return start


@pytest.fixture
def collect(clock: VirtualClock, tmp_path: Path) -> Collect:
    """Open an orchestrator for the n8n source on a practice web."""

    @contextlib.asynccontextmanager
    async def start(web: PracticeWeb, **spec: Any) -> AsyncIterator[Orchestrator]:
        options = {
            "site_url": web.site_url,
            "api_url": web.api_url,
            "youtube_url": web.youtube_url,
            "transcripts": False,  # they run in a thread, for which virtual time must wait
            **spec.pop("options", {}),
        }
        home = spec.pop("home", tmp_path)
        async with Orchestrator("n8n", options, home=home, clock=clock, **spec) as orchestrator:
            yield orchestrator

    return start


@pytest.fixture
def make_orchestrator(
    clock: VirtualClock, tmp_path: Path, site: ScriptedSite
) -> Callable[..., Orchestrator]:
    """Make an orchestrator for the page source on the scripted site."""

    def make(count: int = 10, **spec: Any) -> Orchestrator:
        options = {"site": site.url, "count": count}
        return Orchestrator(
            "tests.sample_sources:PageSource", options, home=tmp_path, clock=clock, **spec
        )

    return make


@pytest.fixture
async def orchestrator(
    site: ScriptedSite, make_orchestrator: Callable[..., Orchestrator]
) -> AsyncIterator[Orchestrator]:
    """An orchestrator on a site of ten good pages, without a limit."""
    for number in range(10):
        site.says(f"/item/{number}", f"page {number}")
    async with make_orchestrator(rate="unlimited") as orchestrator:
        yield orchestrator


# ---------------- Senders that are killed


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """Start commands quickly, each in a process of its own."""
    with ForkServer() as server:
        yield server


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Receive webhooks."""
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever, args=(0.01,))
        thread.start()
        yield receiver
        receiver.shutdown()
        thread.join()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a new database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'longline.sqlite'}"
    postgres = request.getfixturevalue("postgres_server")
    name = f"killed_{next(_DATABASES)}"
    postgres.execute(f"CREATE DATABASE {name}")
    url: str = postgres.url(name)
    return url
