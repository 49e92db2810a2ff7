"""How jobs end, the same on every engine and database: complete, unchanged, partial, paused."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from longline.core.model import JobState
from tests.conformance.grounds import EngineOn, until

pytestmark = pytest.mark.real_time


async def test_a_complete_run_stores_every_item_once(engine_on: EngineOn) -> None:
    report = await engine_on.run()

    assert report.state is JobState.COMPLETE
    assert report.exit_code == 0
    assert _counts(report.as_dict()) == {"discovered": 20, "stored": 20}
    assert engine_on.site.asked() == {f"item/{number}": 1 for number in range(20)}
    assert await engine_on.contradictions(report.job) == []


async def test_the_records_of_a_run_are_written_where_it_was_said(
    engine_on: EngineOn, tmp_path: Path
) -> None:
    file = tmp_path / "records.jsonl"

    report = await engine_on.run(export=str(file))

    assert report.output == str(file)
    await until(lambda: asyncio.to_thread(file.exists), "the file")
    assert len(file.read_text("utf-8").splitlines()) == 20


async def test_as_many_requests_are_counted_as_the_site_has_seen(engine_on: EngineOn) -> None:
    report = await engine_on.run()

    assert report.progress.statistic("requests") == engine_on.site.hits.total()


async def test_a_second_run_finds_all_unchanged(engine_on: EngineOn) -> None:
    await engine_on.run()

    report = await engine_on.run()

    assert report.state is JobState.COMPLETE
    assert _counts(report.as_dict()) == {"discovered": 20, "unchanged": 20}
    assert await engine_on.contradictions(report.job) == []


async def test_items_that_items_lead_to_are_collected(engine_on: EngineOn) -> None:
    engine_on.site.has(35)

    report = await engine_on.run(options={"branches": 15})

    assert report.state is JobState.COMPLETE
    assert _counts(report.as_dict()) == {"discovered": 35, "stored": 35}
    assert engine_on.site.asked() == {f"item/{number}": 1 for number in range(35)}
    assert await engine_on.contradictions(report.job) == []


async def test_a_job_of_which_items_fail_is_partial_and_says_why(engine_on: EngineOn) -> None:
    engine_on.site.says("/item/3", status=500)
    engine_on.site.says("/item/4", status=404)
    engine_on.site.says("/item/5", "no number")
    engine_on.site.says("/item/6", "raise")

    report = await engine_on.run()

    counts = {"discovered": 20, "stored": 16, "skipped": 1, "failed": 2, "quarantined": 1}
    assert report.state is JobState.PARTIAL
    assert report.exit_code == 3
    assert _counts(report.as_dict()) == counts
    assert _fates(await engine_on.finished(report.job)) == {
        "item/3": ("failed", "server"),
        "item/4": ("skipped", "gone"),
        "item/5": ("quarantined", "invalid"),
        "item/6": ("failed", "bug"),
    }
    assert engine_on.site.asked()["item/3"] == 3
    assert await engine_on.contradictions(report.job) == []


async def test_what_failed_can_be_tried_again(engine_on: EngineOn) -> None:
    engine_on.site.says("/item/5", "no number")
    partial = await engine_on.run()
    engine_on.site.has(20)

    report = await engine_on.retry(partial.job)

    assert report.state is JobState.COMPLETE
    assert sum(engine_on.site.asked().values()) == 20 + 1
    assert await engine_on.contradictions(report.job) == []


async def test_items_that_robots_txt_forbids_are_left_alone(engine_on: EngineOn) -> None:
    engine_on.site.says("/robots.txt", "User-agent: *\nDisallow: /item/1\n")

    report = await engine_on.run()

    fates = Counter(_fates(await engine_on.finished(report.job)).values())
    assert report.state is JobState.PARTIAL
    assert fates == {("failed", "refused"): 11}
    assert len(engine_on.site.asked()) == 9


async def test_a_search_that_robots_txt_forbids_pauses_the_job(engine_on: EngineOn) -> None:
    engine_on.site.says("/robots.txt", "User-agent: *\nDisallow: /list\n")

    report = await engine_on.run(options={"listing": True})

    assert report.state is JobState.PAUSED
    assert report.exit_code == 4
    data = (
        "robots.txt",
        f"{engine_on.site.url}/list",
        "line 2",
        "'Disallow: /list'",
        f"--ignore-robots {engine_on.domain}",
    )
    assert [datum for datum in data if datum not in (report.reason or "")] == []
    assert engine_on.site.hits == {"/robots.txt": 1}


async def test_a_search_that_finds_nothing_for_an_error_fails_the_job(engine_on: EngineOn) -> None:
    engine_on.site.says("/list", status=404)

    report = await engine_on.run(options={"listing": True})

    assert report.state is JobState.FAILED
    assert report.exit_code == 1
    data = (engine_on.source.stem, f"{engine_on.site.url}/list", "404")
    assert [datum for datum in data if datum not in (report.reason or "")] == []


async def test_a_search_that_fails_at_first_goes_on_where_it_was(engine_on: EngineOn) -> None:
    engine_on.site.says("/trouble", status=404)
    engine_on.options["fails_at"] = 12
    paused = await engine_on.run()
    found = len(engine_on.site.asked())
    engine_on.site.says("/trouble", "over")

    report = await engine_on.resume(paused.job)

    assert (paused.state, found) == (JobState.PAUSED, 12)
    data = (engine_on.source.stem, f"{engine_on.site.url}/trouble", "404")
    assert [datum for datum in data if datum not in (paused.reason or "")] == []
    assert report.state is JobState.COMPLETE
    assert engine_on.site.asked() == {f"item/{number}": 1 for number in range(20)}
    assert await engine_on.contradictions(report.job) == []


def _counts(report: dict[str, int]) -> dict[str, int]:
    """Return what is not zero; all that was found has one of these ends."""
    names = ("discovered", "stored", "unchanged", "skipped", "failed", "quarantined", "remaining")
    return {name: report[name] for name in names if report[name]}


def _fates(finished: dict[str, dict[str, str]]) -> dict[str, tuple[str, str]]:
    """Return the state and the kind of failure of each item that became no record."""
    return {key: (row["state"], row["kind"]) for key, row in finished.items() if row["kind"]}
