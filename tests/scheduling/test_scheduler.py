"""The scheduler: reads definitions, decides what is due, and hands over to others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from longline.core.clock import utc_datetime
from longline.core.errors import StoreUnreachable
from longline.scheduling import definitions
from longline.storage.events.events import event_row
from longline.storage.scheduling.launches import LaunchLimits
from longline.storage.scheduling.schedules import Schedules
from longline.storage.store import open_store
from tests.scheduling.scheduled_home import AdjustedClock, ScheduledHome
from tests.virtual import EPOCH

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
FIRST = EPOCH + MINUTE  # the first whole minute of a test
LOTS = """
from longline import Source, layer

class Lots(Source):
    name = "lots"

    async def discover(self, visit):
        yield None

    @layer()
    async def page(self, visit):
        return {}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScheduledHome]:
    monkeypatch.chdir(tmp_path)
    with open_store(f"sqlite:///{tmp_path}/longline.sqlite") as store:
        home = ScheduledHome(tmp_path, store)
        home.write("shop")
        yield home


# ---------------- By time


async def test_a_due_occurrence_is_launched_with_its_settings(home: ScheduledHome) -> None:
    await home.add("often", cron="* * * * *", priority=3)

    await home.run(90)

    (one,) = await home.store.launches.list()
    assert (one.name, one.origin, one.priority) == ("shop", "schedule/often", 3)
    assert one.key == f"schedule/often@{utc_datetime(FIRST).isoformat()}"
    assert one.spec["manifest"]["name"] == "shop"
    assert one.created_at == pytest.approx(FIRST, abs=0.01)


async def test_while_a_run_lasts_the_next_one_is_skipped(home: ScheduledHome) -> None:
    await home.add("often", cron="* * * * *")

    await home.run(150)
    await home.end_launches()
    await home.run(60)

    assert [fate for _, fate in await home.fates("often")] == ["fired", "skipped", "fired"]


async def test_a_queued_occurrence_starts_when_the_run_ends(home: ScheduledHome) -> None:
    await home.add("often", cron="* * * * *", overlap="queue_one")
    await home.run(200)
    before = [fate for _, fate in await home.fates("often")]

    await home.end_launches()
    await home.run(2)

    assert before == ["fired", "queued", "skipped"]
    assert [fate for _, fate in await home.fates("often")] == ["fired", "fired", "skipped"]


async def test_the_newest_occurrence_cancels_the_running_one(home: ScheduledHome) -> None:
    await home.add("often", cron="* * * * *", overlap="cancel_running")

    await home.run(150)

    assert [one.result for one in await home.store.launches.list()] == [None, "cancelled"]


async def test_an_idle_scheduler_asks_to_be_called_each_second(home: ScheduledHome) -> None:
    await home.add("nightly", cron="0 3 * * *")

    assert await home.scheduler.tick() == 1.0


async def test_after_a_downtime_every_occurrence_has_a_fate(home: ScheduledHome) -> None:
    await home.add("often", cron="* * * * *", misfire={"policy": "latest", "max_age": "1h"})
    await home.run(70)
    await home.end_launches()

    await asyncio.sleep(2 * DAY)  # longer than one transaction decides
    await home.run(5)

    fates = await home.fates("often")
    times = [at for at, _ in fates]
    assert times == [FIRST + number * MINUTE for number in range(len(times))]
    assert len(times) >= 2 * DAY / MINUTE
    assert [at for at, fate in fates if fate == "fired"] == [times[0], times[-1]]


async def test_the_clock_set_back_fires_nothing_again(home: ScheduledHome) -> None:
    clock = AdjustedClock()
    home.scheduler = home.new_scheduler(clock)
    await home.add("often", cron="* * * * *", overlap="queue_all")
    await home.run(200)
    before = await home.fates("often")
    clock.offset = -HOUR

    await home.run(HOUR - 200)
    between = await home.fates("often")
    await home.run(300)

    assert between == before
    times = [at for at, _ in await home.fates("often")]
    assert times == [FIRST + number * MINUTE for number in range(len(times))]


# ---------------- Definitions


async def test_a_schedule_of_a_file_follows_the_file(home: ScheduledHome) -> None:
    path = home.write("shop", schedule={"cron": "* * * * *"})
    await home.run(70)
    home.write("shop", schedule={"cron": "0 3 * * *", "timezone": "Europe/Sofia"})
    await home.run(5)
    (changed,) = await home.store.schedules.list()

    path.unlink()
    await home.run(5)

    assert (changed.origin, changed.definition["cron"]) == (str(path), "0 3 * * *")
    assert await home.store.schedules.list() == []
    assert [name for name, _ in await home.events("schedule.*")] == [
        "schedule.added",
        "schedule.changed",
        "schedule.removed",
    ]


async def test_a_schedule_stays_paused_when_its_file_is_renamed(home: ScheduledHome) -> None:
    path = home.write("shop", schedule={"cron": "* * * * *"})
    await home.run(5)
    await home.store.schedules.pause("shop", home.clock.now(), "the site asked for it")

    path.rename(path.with_name("store.yaml"))
    await home.run(70)

    (stored,) = await home.store.schedules.list()
    assert (stored.origin, stored.pause_reason) == (
        str(path.with_name("store.yaml")),
        "the site asked for it",
    )
    assert {fate for _, fate in await home.fates("shop")} == {"skipped"}


async def test_an_invalid_file_keeps_its_schedules(
    home: ScheduledHome, caplog: pytest.LogCaptureFixture
) -> None:
    path = home.write("shop", schedule={"cron": "* * * * *"})
    await home.run(5)
    home.write("shop", schedule={"cron": "61 * * * *"})
    caplog.set_level(logging.ERROR)
    await home.run(70)
    kept = await home.store.schedules.list()

    home.write("shop", schedule={"cron": "5 * * * *"})
    await home.run(5)

    ((_, invalid),) = await home.events("config.invalid")
    assert invalid["path"] == str(path)
    assert len(caplog.records) == 1
    assert kept[0].definition["cron"] == "* * * * *"
    assert [fate for _, fate in await home.fates("shop")] == ["fired"]
    assert (await home.store.schedules.get("shop")).definition["cron"] == "5 * * * *"


async def test_a_restart_keeps_the_schedules_of_an_invalid_file(home: ScheduledHome) -> None:
    home.write("shop", schedule={"cron": "* * * * *"})
    await home.run(5)
    home.write("shop", schedule={"cron": "61 * * * *"})
    home.scheduler = home.new_scheduler()

    await home.run(70)

    assert [fate for _, fate in await home.fates("shop")] == ["fired"]


async def test_a_source_in_an_invalid_file_is_missed_for_that_reason(home: ScheduledHome) -> None:
    path = home.write("shop", schedule={"cron": "* * * * *"})
    await home.run(5)
    home.write("shop", schedule={"cron": "* * * * *"}, items=7)
    home.scheduler = home.new_scheduler()

    await home.run(70)

    (one,) = await home.store.schedules.history("shop")
    assert (one.fate, str(path) in (one.reason or "")) == ("missed", True)


async def test_a_file_deleted_during_a_downtime_is_noticed(home: ScheduledHome) -> None:
    path = home.write("shop", schedule={"cron": "* * * * *"})
    await home.run(5)
    path.unlink()
    await home.store.schedules.sync("/elsewhere/a.yaml", {"other": {"name": "other"}}, EPOCH)

    home.scheduler = home.new_scheduler()
    await home.run(1)

    assert [one.name for one in await home.store.schedules.list()] == ["other"]


async def test_job_files_and_settings_define_schedules(home: ScheduledHome) -> None:
    job = home.sources / "nightly.yaml"
    job.write_text("source: shop.yaml\nlimit: 5\nschedule: {every: 1m}\n", "utf-8")
    Path("longline.yaml").write_text("schedules: {often: {source: shop, every: 1m}}\n", "utf-8")

    await home.run(70)

    found = {one.origin: one.spec["limit"] for one in await home.store.launches.list()}
    assert found == {"schedule/nightly": 5, "schedule/often": None}


async def test_settings_with_another_mistake_change_no_schedule(home: ScheduledHome) -> None:
    settings = Path("longline.yaml")
    settings.write_text("schedules: {often: {source: shop, every: 1h}}\n", "utf-8")
    await home.run(5)
    settings.write_text(
        "executor_jobs: many\nschedules: {often: {source: shop, every: 1m}}\n", "utf-8"
    )

    await home.run(5)

    (stored,) = await home.store.schedules.list()
    assert stored.definition["every"] == HOUR


async def test_a_file_with_the_name_of_another_schedule_is_refused(home: ScheduledHome) -> None:
    await home.add("shop", cron="0 3 * * *")
    home.write("shop", schedule={"cron": "* * * * *"})

    await home.run(5)

    assert [name for name, _ in await home.events("config.invalid")] == ["config.invalid"]
    assert (await home.store.schedules.get("shop")).origin == "command"


async def test_a_circle_of_dependencies_is_refused(home: ScheduledHome) -> None:
    home.write("shop", schedule={"after": "prices"})
    await home.run(1)
    home.write("prices", schedule={"after": "shop"})

    await home.run(5)

    assert [one.name for one in await home.store.schedules.list()] == ["shop"]
    assert len(await home.events("config.invalid")) == 1


async def test_a_job_file_that_follows_its_own_source_is_refused(home: ScheduledHome) -> None:
    job = home.sources / "again.yaml"
    job.write_text("source: shop.yaml\nlimit: 5\nschedule: {after: shop}\n", "utf-8")

    await home.run(5)

    assert await home.store.schedules.list() == []
    assert len(await home.events("config.invalid")) == 1


async def test_a_flow_that_follows_a_source_it_runs_is_refused(home: ScheduledHome) -> None:
    home.write_flow("daily", "flow: daily\nsteps: [{name: a, run: ../sources/shop.yaml}]\n")
    settings = Path("longline.yaml")
    settings.write_text("schedules: {daily: {flow: daily, after: shop}}\n", "utf-8")

    await home.run(5)

    assert await home.store.schedules.list() == []
    assert len(await home.events("config.invalid")) == 1


async def test_the_run_of_a_removed_source_is_missed_with_its_reason(home: ScheduledHome) -> None:
    await home.add("often", cron="* * * * *")
    (home.sources / "shop.yaml").unlink()

    await home.run(70)

    (one,) = await home.store.schedules.history("often")
    assert (one.fate, (one.reason or "").partition(":")[0]) == ("missed", "invalid")


@pytest.mark.parametrize("code", ["1 / 0", "import threading; threading.Event().wait()"])
async def test_a_source_that_cannot_be_imported_keeps_no_other_waiting(
    home: ScheduledHome, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr(definitions, "_LONGEST_IMPORT", 0.1)
    file = home.sources / "lots.py"
    file.write_text(f"{code}\n{LOTS}", "utf-8")
    await home.add("bad", source=str(file), cron="* * * * *")
    await home.add("bad_after", source=str(file), after={"source": "shop"})
    await home.add("good", cron="* * * * *")

    await home.run(70)
    home.write("prices", schedule={"cron": "* * * * *"})
    await home.run(60)
    (bad, *_) = await home.store.schedules.history("bad")
    file.write_text(LOTS, "utf-8")
    await home.run(60)

    (corrected, *_) = await home.store.schedules.history("bad")
    assert corrected.fate == "fired"
    assert (bad.fate, (bad.reason or "").partition(":")[0]) == ("missed", "invalid")
    assert [fate for _, fate in await home.fates("good")] == ["fired", "skipped", "skipped"]
    assert [fate for _, fate in await home.fates("prices")] == ["fired", "skipped"]


async def test_options_that_raise_are_the_reason_of_a_missed_run(home: ScheduledHome) -> None:
    file = home.sources / "lots.py"
    options = (
        "from pydantic import model_validator\n"
        "class Picky(Source.Options):\n"
        "    @model_validator(mode='after')\n"
        "    def check(self):\n"
        "        raise KeyError('TOKEN')\n"
    )
    file.write_text(
        LOTS.replace("class Lots", f"{options}\nclass Lots") + "\n    Options = Picky\n"
    )
    await home.add("bad", source=str(file), cron="* * * * *")

    await home.run(70)

    (bad,) = await home.store.schedules.history("bad")
    assert (bad.fate, "KeyError" in (bad.reason or "")) == ("missed", True)


async def test_an_outage_loses_no_change_of_a_file(
    home: ScheduledHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    await home.run(3)
    home.write("prices", schedule={"cron": "0 0 * * *"})
    (home.sources / "shop.yaml").unlink()

    async def fail(*_: Any) -> None:
        raise StoreUnreachable("database", "it does not respond")

    with monkeypatch.context() as outage:
        outage.setattr(Schedules, "sync", fail)
        with pytest.raises(StoreUnreachable):
            await home.run(30)
    await home.run(30)

    assert [one.name for one in await home.store.schedules.list()] == ["prices"]


async def test_an_edited_manifest_concerns_the_next_run(home: ScheduledHome) -> None:
    await home.add("often", cron="* * * * *", overlap="queue_all")
    await home.run(70)
    await home.end_launches()
    home.write("shop", version="2")

    await home.run(60)

    new, old = await home.store.launches.list()
    assert ("version" in old.spec["manifest"], new.spec["manifest"]["version"]) == (False, "2")


async def test_a_disabled_schedule_has_no_occurrences(home: ScheduledHome) -> None:
    await home.add("often", cron="* * * * *", enabled=False)
    await home.run(200)
    await home.add("often", cron="* * * * *")

    await home.run(65)

    assert len(await home.fates("often")) == 1


# ---------------- Several schedulers


async def decision_times(home: ScheduledHome) -> list[float]:
    found = await home.store.schedules.history("often", limit=None)
    return sorted(one.decided_at for one in found)


async def test_another_scheduler_takes_over_within_20_seconds(home: ScheduledHome) -> None:
    await home.add("often", every="1s", overlap="cancel_running")
    other = home.new_scheduler()
    await home.run(5, other)
    died_at = home.clock.now()
    home.scheduler = other  # the first one is not called any more

    await home.run(30)

    decided = await decision_times(home)
    assert max(b - a for a, b in pairwise(decided)) < 20
    assert decided[-1] > died_at + 20


async def test_a_closed_scheduler_hands_over_at_once(home: ScheduledHome) -> None:
    await home.add("often", every="1s", overlap="cancel_running")
    other = home.new_scheduler()
    await home.run(5, other)
    await home.scheduler.close()
    home.scheduler = other

    await home.run(8)

    assert max(b - a for a, b in pairwise(await decision_times(home))) < 7


# ---------------- After other runs


@pytest.mark.parametrize(
    ("states", "is_good", "count"),
    [("complete", True, 1), ("complete", False, 0), ("any", False, 1), ("partial", True, 1)],
)
async def test_the_end_of_a_run_triggers_another(
    home: ScheduledHome, *, states: str, is_good: bool, count: int
) -> None:
    await home.add("then", after={"source": "prices", "states": states})
    await home.run(5)

    await home.end_job("prices", is_good=is_good)
    await home.end_job("other")
    await home.run(5)

    assert len(await home.store.launches.list()) == count


async def test_ends_during_a_downtime_are_handled_once(home: ScheduledHome) -> None:
    await home.add("then", after="prices")
    await home.run(5)
    job = await home.end_job("prices")
    for _ in range(3):
        home.scheduler = home.new_scheduler()
        await home.run(30)

    assert await home.fates("then") == [(job.finished_at, "fired")]


async def test_an_end_before_any_executor_ran_is_not_lost(home: ScheduledHome) -> None:
    await home.add("then", after="prices")
    await asyncio.sleep(1)
    await home.end_job("prices")

    await home.run(5)

    assert len(await home.fates("then")) == 1


async def test_jitter_delays_what_an_end_triggers(home: ScheduledHome) -> None:
    await home.add("then", after="prices", jitter="10m")
    await home.run(1)
    await home.end_job("prices")
    home.scheduler = home.new_scheduler()
    await home.run(2)
    early = await home.fates("then")

    home.scheduler = home.new_scheduler()  # which reads the event again
    await home.run(600)

    assert (early, len(await home.fates("then"))) == ([], 1)


async def test_a_run_that_does_not_end_in_time_is_a_missed_one(home: ScheduledHome) -> None:
    home.write("prices")
    await home.add("prices", source="prices", cron="0 * * * *")
    await home.add("then", after={"source": "prices", "within": "20m"})
    await home.run(HOUR + 25 * MINUTE)
    due = (EPOCH // HOUR + 1) * HOUR
    missed = await home.fates("then")

    job = await home.end_job("prices")
    await home.end_launches(target=job.id)
    await home.run(5)

    assert missed[0] == (due + 20 * MINUTE, "missed")
    assert {fate for _, fate in missed} == {"missed"}


async def test_the_deadline_of_a_source_in_python_counts(home: ScheduledHome) -> None:
    file = home.sources / "lots.py"
    file.write_text(LOTS, "utf-8")
    await home.add("hourly", source=str(file), every=3600)
    await home.add("then", after={"source": "lots", "within": "10m"})

    await home.run(HOUR + 15 * MINUTE)

    assert [fate for _, fate in await home.fates("then")] == ["missed"]


async def test_a_run_that_ends_in_time_meets_the_deadline(home: ScheduledHome) -> None:
    home.write("prices")
    await home.add("prices", source="prices", cron="0 * * * *")
    await home.add("then", after={"source": "prices", "within": "20m"})
    due = (EPOCH // HOUR + 1) * HOUR
    await home.run(due - EPOCH + 60)
    job = await home.end_job("prices")
    await home.end_launches(target=job.id)

    await home.run(40 * MINUTE)

    assert [fate for _, fate in await home.fates("then")] == ["fired"]


async def test_the_end_after_the_deadline_triggers_nothing(home: ScheduledHome) -> None:
    home.write("prices")
    await home.add("prices", source="prices", cron="0 * * * *")
    await home.add("then", after={"source": "prices", "within": "20m"})
    due = (EPOCH // HOUR + 1) * HOUR
    await home.run(due - EPOCH + 25 * MINUTE)
    now = home.clock.now()
    (launch,) = await home.store.launches.lease("me", now, now + 20, LaunchLimits())
    job = await home.end_job("prices")
    await home.store.launches.attach(launch.id, "me", job.id, home.clock.now())
    await home.run(10)

    assert [fate for _, fate in await home.fates("then")] == ["missed"]


FLOW = """\
flow: daily
params: {day: monday}
steps:
  - name: wait
    approve: {message: go on}
"""


async def test_a_flow_is_launched_with_its_file_and_parameters(home: ScheduledHome) -> None:
    path = home.write_flow("daily", FLOW)
    await home.add("weekly", source=None, flow="daily", every="1m", params={"day": "sunday"})

    await home.run(70)

    (one,) = await home.store.launches.list()
    assert (one.kind, one.name) == ("flow", "daily")
    assert one.spec == {"flow": str(path), "params": {"day": "sunday"}}


async def test_the_end_of_a_flow_triggers_a_run(home: ScheduledHome) -> None:
    await home.add("then", after={"flow": "daily", "states": "partial"})
    await home.run(5)

    for state, flow in (("failed", "daily"), ("partial", "other"), ("partial", "daily")):
        row = event_row(None, home.clock.now(), f"flow.{state}", run=f"{flow}-1", flow=flow)
        await home.store.events.append(row)
    await home.run(5)

    assert len(await home.fates("then")) == 1


# ---------------- On events, and by age


async def test_an_event_of_a_source_triggers_a_run(home: ScheduledHome) -> None:
    await home.add("mend", on={"event": "job.failed", "source": "prices"})
    await home.run(5)

    await home.end_job("other", is_good=False)
    await home.end_job("prices", is_good=False)
    await home.run(5)

    assert len(await home.fates("mend")) == 1


async def test_a_run_is_not_triggered_by_its_own_events(home: ScheduledHome) -> None:
    await home.add("loop", on="job.*")
    await home.run(5)

    await home.end_job("shop")
    await home.run(5)

    assert await home.fates("loop") == []


@pytest.mark.parametrize("pattern", ["job.*", "flow.*"])
async def test_a_flow_is_not_triggered_by_what_it_runs(home: ScheduledHome, pattern: str) -> None:
    home.write_flow("daily", "flow: daily\nsteps: [{name: a, run: ../sources/shop.yaml}]\n")
    await home.add("loop", source=None, flow="daily", on=pattern)
    await home.run(5)

    await home.end_job("shop")
    row = event_row(None, home.clock.now(), "flow.complete", run="daily-1", flow="daily")
    await home.store.events.append(row)
    await home.run(5)

    assert await home.fates("loop") == []


async def test_the_cursor_is_deleted_with_the_last_trigger(home: ScheduledHome) -> None:
    await home.add("then", after="prices")
    await home.run(2)
    before = await home.store.schedules.cursor()

    await home.store.schedules.remove("then", home.clock.now())
    await home.run(2)

    assert before is not None
    assert await home.store.schedules.cursor() is None


async def test_old_data_triggers_a_run_and_again_after_a_failure(home: ScheduledHome) -> None:
    await home.end_job("shop")
    await home.add("keep", fresh="1h")
    await home.run(HOUR + 5)
    await home.end_launches("failed")
    await home.run(HOUR)
    await home.end_launches()
    await home.end_job("shop")

    await home.run(HOUR - 60)

    assert [at - EPOCH for at, _ in await home.fates("keep")] == [HOUR, 2 * HOUR]


async def test_a_source_without_data_is_run_at_first(home: ScheduledHome) -> None:
    await home.add("keep", fresh="1h")

    await home.run(5)

    assert len(await home.store.launches.list()) == 1


async def test_late_data_is_reported_until_it_is_fresh(home: ScheduledHome) -> None:
    home.write("shop", fresh="1h")
    await home.run(2 * HOUR, home.new_scheduler())
    late = await home.events("source.*")

    await home.end_job("shop")
    await home.run(5)

    assert [(name, data["data_at"]) for name, data in late] == [("source.late", None)]
    events = [name for name, _ in await home.events("source.late", "source.fresh")]
    assert events == ["source.late", "source.fresh"]


async def test_failures_pause_and_skip(home: ScheduledHome) -> None:
    await home.add("often", cron="* * * * *", pause_after_failures=1)
    await home.run(70)
    await home.end_launches("failed")

    await home.run(60)

    assert [fate for _, fate in await home.fates("often")] == ["fired", "skipped"]
