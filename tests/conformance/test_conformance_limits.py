"""Limits that a job declares, kept over all its processes on every engine and database."""

from __future__ import annotations

import pytest

from longline.core.model import JobState
from tests.conformance.asked_site import excess
from tests.conformance.grounds import EngineOn

pytestmark = pytest.mark.real_time

_RATE, _BURST = 20, 3


async def test_a_declared_rate_is_never_exceeded_and_used_well(engine_on: EngineOn) -> None:
    engine_on.site.has(60)
    engine_on.options["count"] = 60

    report = await engine_on.run(rate=_RATE, burst=_BURST)

    moments = engine_on.site.moments
    shortest = (len(moments) - _BURST) / _RATE
    assert report.state is JobState.COMPLETE
    assert len(moments) > 60
    assert excess(moments, _RATE, _BURST) <= 1
    assert moments[-1] - moments[0] <= 1.25 * shortest


async def test_a_budget_of_requests_is_kept_to_the_last_one(engine_on: EngineOn) -> None:
    engine_on.site.has(60)
    engine_on.options["count"] = 60

    report = await engine_on.run(budget={"requests": 25})

    kinds = {row["kind"] for row in (await engine_on.finished(report.job)).values()}
    assert engine_on.site.hits.total() == 25
    assert report.state is JobState.PARTIAL
    assert report.exit_code == 3
    assert kinds == {None, "budget"}
    assert report.progress.remaining == 0
    assert await engine_on.contradictions(report.job) == []
