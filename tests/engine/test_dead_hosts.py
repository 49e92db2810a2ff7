"""A job over several hosts, one of which is dead: it ends, and says which items failed and why."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from longline.core.errors import FailureKind
from longline.core.model import Cursor, Item, ItemState, JobState
from longline.orchestrator import Orchestrator
from longline.sources.base import Visit
from tests.sample_sources import PageOptions, PageSource
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

LOOKED_UP = "dead.test"
PAGES = 3  # of each host
PATHS = [f"/item/{number}" for number in range(PAGES)]
MOST = 3600.0  # seconds for the attempts on the dead host


class ScatteredOptions(PageOptions):
    others: list[str]


class Scattered(PageSource):
    """Pages /item/0, /item/1, … of several hosts in turn."""

    name = "scattered"
    Options = ScatteredOptions  # type: ignore[assignment]  # a subclass

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        del visit
        for number in range(self.options.count):
            for place, host in enumerate([self.options.site, *self.options.others]):
                yield Item(f"{place}-{number}", f"{host}/item/{number}")


@pytest.fixture
def unknown_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make one name unknown to the resolver, without asking a server for it."""
    resolve = socket.getaddrinfo

    def look_up(host: Any, *args: Any, **options: Any) -> Any:
        if host == LOOKED_UP:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.mark.usefixtures("unknown_name")
@pytest.mark.parametrize(
    ("dead", "kind"),
    [
        ("http://127.0.0.3:9", FailureKind.NETWORK),
        (f"http://{LOOKED_UP}", FailureKind.REFUSED),
    ],
)
async def test_a_dead_host_fails_its_items_and_no_others(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite, dead: str, kind: FailureKind
) -> None:
    started = clock.now()
    async with ScriptedSite("127.0.0.2") as other:
        for live in (site, other):
            for path in PATHS:
                live.says(path, f"page {path}")
        options = {"site": site.url, "count": PAGES, "others": [dead, other.url]}
        async with Orchestrator(
            f"{__name__}:Scattered",
            options,
            home=tmp_path,
            clock=clock,
            rate="unlimited",
            concurrency=4,
        ) as orchestrator:
            report = await orchestrator.execute()
            rows = await orchestrator.store.queue.rows(report.job)

    ended = {row["key"]: (row["state"], row["kind"]) for row in rows}
    assert ended == {
        f"{place}-{number}": (ItemState.FAILED, kind) if place == 1 else (ItemState.STORED, None)
        for place in range(3)
        for number in range(PAGES)
    }
    assert all(dead in row["reason"] for row in rows if row["state"] == ItemState.FAILED)
    assert (report.state, report.exit_code) == (JobState.PARTIAL, 3)
    assert report.progress.remaining == 0
    assert site.hits == other.hits == {"/robots.txt": 1, **dict.fromkeys(PATHS, 1)}
    assert clock.now() - started < MOST
