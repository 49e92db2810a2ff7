"""Sites that misbehave, all at once, beside a healthy one in the same process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from longline.core.model import JobState
from longline.engine.report import JobReport
from longline.orchestrator import Orchestrator
from longline.sandbox.hostile import HostileSite, Temper
from tests.virtual import VirtualClock

COUNT = {Temper.DRIPPING: 3, Temper.CIRCLING: 5, Temper.BOMBING: 3}
BOMB = 300_000_000


@contextlib.asynccontextmanager
async def serving(
    clock: VirtualClock, *tempers: Temper
) -> AsyncIterator[dict[Temper, HostileSite]]:
    async with contextlib.AsyncExitStack() as stack:
        yield {
            temper: await stack.enter_async_context(
                HostileSite(temper, clock=clock, bomb_bytes=BOMB)
            )
            for temper in tempers
        }


async def collected(home: Path, clock: VirtualClock, site: HostileSite) -> JobReport:
    options = {"site": site.url, "count": COUNT.get(site.temper, 60)}
    spec: dict[str, Any] = {"rate": 5.0, "burst": 5, "timeout": 10.0}
    async with Orchestrator(
        "tests.sample_sources:PageSource", options, home=home, clock=clock, **spec
    ) as one:
        return await one.execute(fresh=True)


def span(site: HostileSite) -> float:
    return site.times[-1] - site.times[0]


@pytest.fixture
async def alone(clock: VirtualClock, tmp_path: Path) -> float:
    """How long a healthy site takes when nothing else is there."""
    async with serving(clock, Temper.HEALTHY) as sites:
        await collected(tmp_path / "alone", clock, sites[Temper.HEALTHY])
        return span(sites[Temper.HEALTHY])


async def test_each_site_ends_in_its_own_state_and_none_disturbs_the_healthy_one(
    clock: VirtualClock, tmp_path: Path, alone: float
) -> None:
    async with serving(clock, *Temper) as sites:
        reports = dict(
            zip(
                sites,
                await asyncio.gather(
                    *(collected(tmp_path / "home", clock, site) for site in sites.values())
                ),
                strict=True,
            )
        )
        healthy = span(sites[Temper.HEALTHY])

    assert {temper: report.state for temper, report in reports.items()} == {
        Temper.HEALTHY: JobState.COMPLETE,
        Temper.BANNING: JobState.PAUSED,
        Temper.FAILING: JobState.COMPLETE,
        Temper.DRIPPING: JobState.FAILED,
        Temper.CHALLENGING: JobState.PAUSED,
        Temper.CIRCLING: JobState.FAILED,
        Temper.BOMBING: JobState.FAILED,
    }
    assert healthy <= alone * 1.05
    assert sites[Temper.BANNING].url.removeprefix("http://") in (
        reports[Temper.BANNING].reason or ""
    )
    assert reports[Temper.BANNING].progress.successful == 30
    assert reports[Temper.CHALLENGING].progress.successful == 0


async def test_a_ban_is_not_hammered_on(clock: VirtualClock, tmp_path: Path) -> None:
    async with serving(clock, Temper.BANNING) as sites:
        report = await collected(tmp_path, clock, sites[Temper.BANNING])
        hits = sites[Temper.BANNING].hits

    assert report.exit_code == 4
    assert hits[403] <= 8  # what was in flight: at most one for each worker


@pytest.mark.parametrize(
    ("temper", "kind", "state"),
    [
        (Temper.DRIPPING, "timeout", "failed"),
        (Temper.CIRCLING, "invalid", "quarantined"),
        (Temper.BOMBING, "invalid", "quarantined"),
    ],
)
async def test_the_ledger_says_what_a_site_did(
    clock: VirtualClock, tmp_path: Path, temper: Temper, kind: str, state: str
) -> None:
    async with serving(clock, temper) as sites:
        report = await collected(tmp_path, clock, sites[temper])
    options = {"site": "http://127.0.0.1:9"}
    async with Orchestrator(
        "tests.sample_sources:PageSource", options, home=tmp_path, clock=clock
    ) as one:
        kinds = await one.store.failures.by_kind(report.job)

    assert kinds[kind][state] == COUNT[temper]
