"""A job with a budget ends when it is spent, says so, and can be taken up again."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from longline.core.errors import FailureKind
from longline.core.model import ItemState, JobState
from longline.orchestrator import Orchestrator
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock


@pytest.fixture
def pages(site: ScriptedSite) -> ScriptedSite:
    for number in range(20):
        site.says(f"/item/{number}", f"page {number}" * 10)
    return site


@contextlib.asynccontextmanager
async def opened(
    home: Path, clock: VirtualClock, site: ScriptedSite, **spec: Any
) -> AsyncIterator[Orchestrator]:
    options = {"site": site.url, "count": 20, **spec.pop("options", {})}
    values = {"rate": "unlimited", "concurrency": 4, **spec}
    async with Orchestrator(
        "tests.sample_sources:PageSource", options, home=home, clock=clock, **values
    ) as orchestrator:
        yield orchestrator


@pytest.mark.parametrize(
    ("budget", "data"),
    [
        ({"budget": {"requests": 8}}, ["8 requests"]),
        ({"budget": {"bytes": 400}}, ["400 bytes"]),
        ({"budget_per_domain": {"requests": 8}}, ["8 requests", "127.0.0.1"]),
    ],
)
async def test_a_spent_budget_ends_the_job_as_partial_with_the_reason(
    pages: ScriptedSite,
    clock: VirtualClock,
    tmp_path: Path,
    budget: dict[str, Any],
    data: list[str],
) -> None:
    async with opened(tmp_path, clock, pages, **budget) as orchestrator:
        report = await orchestrator.execute()

    counts = report.progress.counts
    assert (report.state, report.exit_code) == (JobState.PARTIAL, 3)
    assert [datum for datum in data if datum not in (report.reason or "")] == []
    assert counts[ItemState.STORED] + counts[ItemState.SKIPPED] == 20
    assert 0 < counts[ItemState.STORED] < 20


async def test_not_one_request_goes_beyond_the_budget(
    pages: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    async with opened(tmp_path, clock, pages, budget={"requests": 8}) as orchestrator:
        report = await orchestrator.execute()

    assert sum(pages.hits.values()) == report.progress.statistic("requests") == 8


async def test_time_that_is_up_ends_the_job(
    pages: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    spec: dict[str, Any] = {"rate": 1.0, "burst": 1, "budget": {"seconds": 10}}
    async with opened(tmp_path, clock, pages, **spec) as orchestrator:
        started = clock.now()
        report = await orchestrator.execute()

    assert report.state is JobState.PARTIAL
    assert "10 s" in (report.reason or "")
    assert clock.now() - started < 15


async def test_a_budget_that_is_spent_in_discovery_is_an_event(
    pages: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    pages.says("/trouble", "fine")
    spec: dict[str, Any] = {"budget": {"requests": 3}, "options": {"fails_at": 15}}
    async with opened(tmp_path, clock, pages, **spec) as orchestrator:
        report = await orchestrator.execute()
        events = await orchestrator.store.events.list(report.job, types=["budget.spent"])

    assert report.state is JobState.PARTIAL
    assert "3 requests" in (report.reason or "")
    assert len(events) == 1


async def test_what_was_not_asked_can_be_retried(
    pages: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    async with opened(tmp_path, clock, pages, budget={"requests": 12}) as orchestrator:
        first = await orchestrator.execute()
        second = await orchestrator.retry(first.job, kind=FailureKind.BUDGET)

    assert first.progress.counts[ItemState.STORED] == 11  # one request went for robots.txt
    assert second.state is JobState.COMPLETE
    assert second.progress.counts[ItemState.STORED] == 20
