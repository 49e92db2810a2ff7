"""A site that is redesigned while it is read, and the same site when it is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longline.core.model import Event, ItemState, JobState
from longline.drift.monitor import accept_profile
from longline.engine.report import JobReport
from longline.orchestrator import Orchestrator
from longline.sandbox.web import PracticeWeb, WebOptions
from longline.storage.query import RecordQuery
from tests.sample_sources import PageSource
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

LOTS = """
manifest: html
name: lots
parameters: {{base_url: "{url}"}}
start: "{{base_url}}/redesign/{after}/"
pages: a[rel=next]@href
items: .lot a@href
key: {{url: '/lot/(\\d+)'}}
fields:
  title: {{css: .title, required: true}}
  estimate: {{css: .estimate, type: number, locale: en, required: {required}}}
  reserve: {{css: .reserve, type: number, locale: en}}
  signed: .signed
  bids: {{css: .bids, type: integer}}
  made: .made
  text: .text
"""
Lots = Callable[..., Orchestrator]


@pytest.fixture
def lots(tmp_path: Path, clock: VirtualClock) -> Lots:
    """Make an orchestrator for the lots of a practice web."""

    def make(
        web: PracticeWeb, after: str = "never", *, required: bool = False, rate: Any = "unlimited"
    ) -> Orchestrator:
        path = tmp_path / "lots.yaml"
        path.write_text(LOTS.format(url=web.url, after=after, required=str(required).lower()))
        return Orchestrator(str(path), home=tmp_path, clock=clock, rate=rate)

    return make


def web_of(clock: VirtualClock, seed: int = 1) -> PracticeWeb:
    return PracticeWeb(WebOptions(items=1, seed=seed), clock=clock)


async def noticed(orchestrator: Orchestrator, report: JobReport) -> dict[str, Event]:
    events = await orchestrator.store.events.list(report.job, types=["drift.noticed"])
    return {event.data["field"]: event for event in events}


async def test_a_redesign_half_way_is_noticed_within_fifty_items(
    lots: Lots, clock: VirtualClock
) -> None:
    async with web_of(clock) as web, lots(web, "100") as orchestrator:
        report = await orchestrator.execute()
        events = await noticed(orchestrator, report)

    assert set(events) == {"estimate", "text"}
    assert all(100 < event.data["item"] <= 150 for event in events.values())
    assert (report.state, report.exit_code) == (JobState.PARTIAL, 3)
    assert report.reason is not None
    assert "drift" in report.reason
    assert all(event.data["now"] in report.reason for event in events.values())
    assert "6" in events["text"].data["now"]
    assert report.progress.counts[ItemState.STORED] == 200


async def test_the_coverage_of_fields_is_that_of_the_records(
    lots: Lots, clock: VirtualClock
) -> None:
    async with web_of(clock) as web, lots(web, "100") as orchestrator:
        report = await orchestrator.execute()
        (event,) = await orchestrator.store.events.list(report.job, types=["source.profiled"])
        rows = [row["data"] for row in await orchestrator.store.records.list(RecordQuery())]

    filled = {name: sum(row[name] is not None for row in rows) for name in rows[0]}
    assert event.data["coverage"] == {name: n / len(rows) for name, n in filled.items()}
    assert 0 < event.data["coverage"]["estimate"] < event.data["coverage"]["title"] == 1
    assert (event.data["records"], event.data["is_sound"]) == (200, False)


async def test_a_required_field_that_vanishes_is_named_by_what_is_quarantined(
    lots: Lots, clock: VirtualClock
) -> None:
    async with web_of(clock, seed=3) as web, lots(web, "100", required=True) as orchestrator:
        report = await orchestrator.execute()
        events = await noticed(orchestrator, report)

    assert "estimate" in events
    assert events["estimate"].data["item"] <= 150
    assert report.state is JobState.PARTIAL
    assert events["estimate"].data["now"] in str(report.reason)


@pytest.mark.parametrize("seed", range(8))
async def test_normal_variation_raises_nothing(seed: int, lots: Lots, clock: VirtualClock) -> None:
    async with web_of(clock, seed) as web, lots(web) as orchestrator:
        report = await orchestrator.execute()
        events = await noticed(orchestrator, report)

    assert (report.state, report.reason, events) == (JobState.COMPLETE, None, {})


async def test_a_second_run_of_an_unchanged_site_raises_nothing(
    lots: Lots, clock: VirtualClock
) -> None:
    async with web_of(clock) as web, lots(web) as orchestrator:
        reports = [await orchestrator.execute() for _ in range(2)]

    assert [(one.state, one.reason) for one in reports] == [(JobState.COMPLETE, None)] * 2


async def test_a_later_run_is_measured_by_earlier_ones(lots: Lots, clock: VirtualClock) -> None:
    async with web_of(clock) as web:
        async with lots(web) as orchestrator:
            await orchestrator.execute()
        async with lots(web, "0") as orchestrator:
            report = await orchestrator.execute()
            events = await noticed(orchestrator, report)

    assert report.state is JobState.PARTIAL
    assert set(events) == {"estimate", "text"}
    assert events["estimate"].data["item"] <= 20


async def test_a_shape_that_a_person_accepts_is_the_measure_from_then_on(
    lots: Lots, clock: VirtualClock
) -> None:
    async with web_of(clock) as web:
        async with lots(web) as orchestrator:
            await orchestrator.execute()
        await clock.sleep(3600)  # on virtual time a run may end in the moment it began
        async with lots(web, "0") as orchestrator:
            drifted = await orchestrator.execute()
            await accept_profile(orchestrator.store, drifted.job, clock.now())

            report = await orchestrator.execute()

    assert (drifted.state, report.state, report.reason) == (
        JobState.PARTIAL,
        JobState.COMPLETE,
        None,
    )


async def test_a_drifted_run_is_no_measure_for_the_next(lots: Lots, clock: VirtualClock) -> None:
    async with web_of(clock) as web:
        async with lots(web) as orchestrator:
            await orchestrator.execute()
        async with lots(web, "0") as orchestrator:
            states = [(await orchestrator.execute()).state for _ in range(3)]

    assert states == [JobState.PARTIAL] * 3


async def test_a_watch_goes_on_where_an_interrupted_run_has_ended(
    lots: Lots, clock: VirtualClock
) -> None:
    async with web_of(clock) as web:
        async with lots(web, "100", rate=50) as orchestrator:

            def stop_at_90(progress: Any) -> None:
                if progress.processed >= 90:
                    orchestrator.interrupt()

            stopped = await orchestrator.execute(on_progress=stop_at_90)
        async with lots(web, "100") as orchestrator:
            report = await orchestrator.execute()
            events = await noticed(orchestrator, report)

    assert report.job == stopped.job
    assert set(events) == {"estimate", "text"}
    assert report.state is JobState.PARTIAL


async def test_nothing_found_is_a_warning_where_only_runs_with_other_options_found_something(
    site: ScriptedSite, make_orchestrator: Callable[..., Orchestrator]
) -> None:
    for number in range(10):
        site.says(f"/item/{number}", f"page {number}")

    async with make_orchestrator(count=0, rate="unlimited") as orchestrator:
        first = await orchestrator.execute()
    async with make_orchestrator(count=10, rate="unlimited") as orchestrator:
        await orchestrator.execute()
    async with make_orchestrator(count=0, rate="unlimited") as orchestrator:
        last = await orchestrator.execute(fresh=True)

    assert (first.state, last.state) == (JobState.COMPLETE, JobState.COMPLETE)
    assert first.caveats.warnings == last.caveats.warnings == (first.reason,)
    assert first.reason == last.reason


async def test_a_column_that_is_always_empty_is_a_warning(orchestrator: Orchestrator) -> None:
    report = await orchestrator.execute()

    assert report.state is JobState.COMPLETE
    assert report.caveats.warnings == (report.as_dict()["reason"],)
    assert "extra" in report.as_dict()["reason"]
    assert "10" in report.as_dict()["reason"]


async def test_a_column_that_is_usually_empty_is_not_a_warning(
    orchestrator: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PageSource, "usually_empty", frozenset({"extra"}))

    reports = [await orchestrator.execute(fresh=True) for _ in range(2)]

    assert [report.state for report in reports] == [JobState.COMPLETE] * 2
    assert [report.as_dict()["reason"] for report in reports] == [None] * 2


async def test_an_empty_column_is_told_once_and_not_with_every_run(
    orchestrator: Orchestrator,
) -> None:
    reports = [await orchestrator.execute(fresh=True) for _ in range(3)]

    assert [len(report.caveats.warnings) for report in reports] == [1, 0, 0]


async def test_an_empty_column_is_told_again_after_a_much_smaller_trial(
    site: ScriptedSite, make_orchestrator: Callable[..., Orchestrator]
) -> None:
    for number in range(10):
        site.says(f"/item/{number}", f"page {number}")

    async with make_orchestrator(rate="unlimited", limit=4) as orchestrator:
        trial = await orchestrator.execute()
    async with make_orchestrator(rate="unlimited") as orchestrator:
        whole = await orchestrator.execute(fresh=True)

    assert [len(report.caveats.warnings) for report in (trial, whole)] == [1, 1]


ALIKE = """
manifest: html
name: tags
start: "{url}/"
items: .tag a
usually_empty: [price]
fields: {{title: title, price: .price}}
"""


async def test_records_that_are_all_alike_are_warned_of_until_accepted(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    links = "".join(f'<p class="tag"><a href="/tag/{n}">{n}</a></p>' for n in range(12))
    site.says("/", links)
    for number in range(12):
        site.says(f"/tag/{number}", "<title>Quotes to Scrape</title>")
    path = tmp_path / "tags.yaml"
    path.write_text(ALIKE.format(url=site.url))

    spec: dict[str, Any] = {"home": tmp_path, "clock": clock, "rate": "unlimited"}
    async with Orchestrator(str(path), **spec) as orchestrator:
        first, second = [await orchestrator.execute(fresh=True) for _ in range(2)]
        await accept_profile(orchestrator.store, second.job, clock.now())
        third = await orchestrator.execute(fresh=True)

    assert [one.state for one in (first, second, third)] == [JobState.COMPLETE] * 3
    assert [len(one.caveats.warnings) for one in (first, second, third)] == [2, 2, 0]
    assert all(text in (first.reason or "") for text in first.caveats.warnings)
