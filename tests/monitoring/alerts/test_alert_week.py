"""A simulated week: every trouble is reported in time, about the right source; nothing else is."""

from __future__ import annotations

from pathlib import Path

from longline.storage.store import open_store
from tests.monitoring.alerts.simulated_week import DAY, simulate_week


async def test_a_week_of_trouble_is_reported_and_nothing_else(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path / 'longline.sqlite'}") as store:
        week = await simulate_week(store, 1, sources=7, records=40, intervals=(DAY / 2,))

    assert {one.kind for one in week.troubles} >= {"redesign", "ban", "outage", "decay", "fewer"}
    assert week.missed() == []
    assert week.false_alerts() == []
