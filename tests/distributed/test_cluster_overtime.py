"""A worker whose items wait for longer than a message may take works on other sites meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.core.model import ItemState, JobState
from tests.distributed.cluster_home import GatedSite, home_running, until

pytestmark = pytest.mark.real_time


async def test_a_slow_pace_holds_up_no_other_site_and_asks_for_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGLINE_SOFT_LIMIT", "2")
    with home_running(tmp_path) as home:
        async with GatedSite(6, max_in_flight=6) as slow, GatedSite(30, max_in_flight=30) as quick:
            waiting = await home.start_job(slow.url, 6, rate=0.5, burst=1, concurrency=8)
            home.start_worker(processes=1)

            async def is_beyond_the_limit() -> bool:
                return (await home.counts(waiting)).get(ItemState.STORED, 0) >= 2

            await until(is_beyond_the_limit, "items of a site at two seconds each")
            other = await home.start_job(quick.url, 30)
            quick_state = await home.ended(other)
            is_waiting = (await home.store.jobs.get(waiting.id)).state is JobState.RUNNING
            slow_state = await home.ended(waiting)

    assert (quick_state, slow_state) == (JobState.COMPLETE, JobState.COMPLETE)
    assert is_waiting
    assert slow.hits == {"/robots.txt": 1, **{f"/item/{number}": 1 for number in range(6)}}
