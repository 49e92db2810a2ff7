"""Each occurrence is decided once: three schedulers, kills, clock jumps and changes of DST."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.scheduling.schedules import utc
from tests.scheduling.simulation import Result, Simulation
from tests.servers import PostgresServer

HOURS = 4


@pytest.mark.parametrize(
    ("start", "zone", "cron", "due"),
    [  # written by hand; times are UTC
        # 03:00 becomes 04:00 at 01:00; 03:30 is due then.
        ("2026-03-28T22:00:10", "Europe/Sofia", "30 3 * * *", "2026-03-29T01:00"),
        # 02:00 becomes 01:00 at 06:00; 01:30 is due the first time, four hours behind UTC.
        ("2026-11-01T03:00:10", "America/New_York", "30 1 * * *", "2026-11-01T05:30"),
        # 02:00 becomes 02:30 at 15:30; 02:15 is due then.
        ("2026-10-03T13:00:10", "Australia/Lord_Howe", "15 2 * * *", "2026-10-03T15:30"),
        # 03:45 becomes 02:45 at 14:00; 03:30 is due the first time, 13:45 ahead of UTC.
        ("2026-04-04T11:00:10", "Pacific/Chatham", "30 3 * * *", "2026-04-04T13:45"),
    ],
)
@pytest.mark.rows_without_events  # the ends of runs
async def test_every_occurrence_has_one_row_and_fires_once(
    tmp_path: Path, start: str, zone: str, cron: str, due: str
) -> None:
    address = f"sqlite:///{tmp_path}/longline.sqlite"
    simulation = Simulation(
        tmp_path, address, minutely=16, start=utc(start), daily={zone: cron}, seed=len(zone)
    )

    result = await simulate(simulation, HOURS, [utc(due).timestamp()])

    assert result.problems == []
    assert result.kills > 5
    assert result.jumps > 0
    assert set(result.occurrences) == {"fired", "skipped", "missed"}


@pytest.mark.rows_without_events
async def test_it_holds_on_a_server_too(tmp_path: Path, postgres_server: PostgresServer) -> None:
    postgres_server.execute("CREATE DATABASE once")
    simulation = Simulation(
        tmp_path, postgres_server.url("once"), minutely=16, start=utc("2026-03-08T05:00:10")
    )

    result = await simulate(simulation, 2, [])

    assert result.problems == []
    assert result.occurrences.total() >= 16 * 2 * 60


async def simulate(simulation: Simulation, hours: float, daily: Sequence[float]) -> Result:
    await simulation.begin()
    start = simulation.now()
    await simulation.run(hours * 3600)
    end = simulation.now()
    await simulation.settle()
    simulation.judge(start, end, daily)
    await simulation.judge_events()
    simulation.close()
    return simulation.result
