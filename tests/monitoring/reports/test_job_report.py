"""The report of a job: its counts, its history, and what it says about both."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from longline.analysis.job_report import FullReport, read_report
from longline.core.model import ItemState, Job
from longline.drift.detector import judge_run
from longline.drift.profiles import Profile, shape_of
from longline.monitoring.reports.job_page import job_page
from longline.monitoring.reports.page import Level, ReportTable, Shares
from longline.storage.profiles import DriftResult
from longline.storage.store import Store
from tests.monitoring.reports.seeded_runs import SeededRun, seed
from tests.virtual import EPOCH

UTC = ZoneInfo("UTC")
HOUR = 3600.0


def profile_of(*prices: str | None) -> dict[str, Any]:
    """The profile of a run whose records have these prices."""
    shapes = [shape_of(str(n), {"title": "x", "price": price}) for n, price in enumerate(prices)]
    return judge_run(shapes, Profile()).profile.as_json()


async def reported(store: Store, job: Job) -> FullReport:
    return await read_report(store, await store.jobs.get(job.id))


async def test_the_counts_are_those_of_the_items_and_add_up(store: Store) -> None:
    run = SeededRun(
        "shop", EPOCH, {"a": "1", "b": "1"}, {"c": "503"}, {"d": "bad", "e": "bad"}, requests=4
    )
    job = await seed(store, run)

    report = await reported(store, job)

    counts = await store.queue.counts(job.id)
    values = report.statistics
    assert {state: values[state.value] for state in ItemState} == counts
    assert values["discovered"] == sum(counts.values()) == 5
    assert values["requests"] == 20
    assert report.kinds == {"invalid": {"quarantined": 2}, "server": {"failed": 1}}
    assert (report.state, report.ended_at) == ("partial", EPOCH)


async def test_the_bar_of_the_page_has_every_item_once(sqlite_store: Store) -> None:
    job = await seed(sqlite_store, SeededRun("shop", EPOCH, {"a": "1"}, {"c": "503"}))
    report = await reported(sqlite_store, job)

    page = job_page(report, EPOCH, UTC)

    (shares,) = [one for one in page.sections[0].blocks if isinstance(one, Shares)]
    assert shares.total == report.statistics["discovered"]
    assert page.level is Level.WARNING
    assert page.state == "Partial: 1 of 2 items failed"


async def test_a_job_is_compared_with_the_runs_before_it(store: Store) -> None:
    first = await seed(store, SeededRun("shop", EPOCH, {"a": "1", "b": "1", "c": "1"}))
    await seed(store, SeededRun("other", EPOCH + HOUR, {"a": "1"}))
    second = await seed(store, SeededRun("shop", EPOCH + 2 * HOUR, {"a": "1", "b": "2", "d": "1"}))
    await seed(store, SeededRun("shop", EPOCH + 3 * HOUR, {"a": "1"}))

    history = (await reported(store, second)).history

    assert history.changes is not None
    assert history.changes.older == first.id
    assert history.changes.counts == {
        "appeared": 1,
        "changed": 1,
        "disappeared": 1,
        "unchanged": 1,
        "unknown": 0,
    }
    assert history.changes.examples["changed"] == ("b",)
    assert [(run.job, run.found) for run in history.earlier] == [(first.id, 3)]


async def test_the_first_run_has_nothing_before_it(sqlite_store: Store) -> None:
    job = await seed(sqlite_store, SeededRun("shop", EPOCH, {"a": "1"}))

    report = await reported(sqlite_store, job)

    assert report.history.earlier == ()
    assert report.history.changes is not None
    assert report.history.changes.older is None


async def test_fields_are_compared_and_drift_is_named(sqlite_store: Store) -> None:
    store = sqlite_store
    first = await seed(store, SeededRun("shop", EPOCH, {"a": "1"}, is_open=True))
    await store.jobs.finish(first.id, EPOCH, DriftResult(profile_of("1", None)))
    text = "price is empty"
    profile = {**profile_of(None, None), "measured_by": [first.id], "drift": {"price": text}}
    second = await seed(store, SeededRun("shop", EPOCH + HOUR, {"a": "1"}, is_open=True))
    await store.jobs.finish(second.id, EPOCH + HOUR, DriftResult(profile, (text,)))

    report = await reported(store, second)

    coverage = {one.field: (one.now, one.before, one.drift) for one in report.history.coverage}
    assert coverage == {"title": (1.0, 1.0, None), "price": (0.0, 0.5, text)}
    assert report.history.drift == {"price": text}
    assert report.history.baseline_runs == 1


async def test_an_open_job_is_reported_as_far_as_it_is(sqlite_store: Store) -> None:
    job = await seed(sqlite_store, SeededRun("shop", EPOCH, {"a": "1"}, is_open=True))

    report = await reported(sqlite_store, job)
    page = job_page(report, EPOCH, UTC)

    assert (report.state, report.ended_at, report.is_good) == ("running", None, False)
    assert page.level is Level.NEUTRAL


async def test_failures_are_listed_by_kind_with_examples(sqlite_store: Store) -> None:
    bad = {f"k{n}": "503 Service Unavailable" for n in range(9)}
    job = await seed(sqlite_store, SeededRun("shop", EPOCH, {"a": "1"}, bad))

    page = job_page(await reported(sqlite_store, job), EPOCH, UTC)

    kinds, examples = page.sections[2].blocks
    assert isinstance(kinds, ReportTable)
    assert isinstance(examples, ReportTable)
    assert kinds.rows == (("server", "9"),)
    assert [row[:2] for row in examples.rows] == [("server", f"k{n}") for n in range(3)]
