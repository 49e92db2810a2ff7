from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from longline.core.errors import BadOption, UnknownJob
from longline.core.model import ItemState, JobState
from longline.engine.progress import Progress, ProgressTracker
from longline.engine.report import JobReport
from longline.engine.watch import UnknownCheckpoint
from longline.orchestrator import NotResumable, Orchestrator
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

Make = Callable[..., Orchestrator]


async def test_progress_is_reported_while_the_job_runs(
    site: ScriptedSite, make_orchestrator: Make
) -> None:
    for number in range(60):
        site.says(f"/item/{number}", "x")
    seen: list[Progress] = []

    async with make_orchestrator(count=60, rate=5.0, burst=1) as longline:
        report = await longline.execute(on_progress=seen.append)

    processed = [progress.processed for progress in seen]
    assert len(seen) > 10
    assert processed == sorted(processed)
    assert processed[0] < 10
    assert report.progress.processed == processed[-1] == 60
    assert all(one.processed + one.remaining == one.total for one in seen)


async def test_the_eta_knows_the_pace_during_the_burst(
    site: ScriptedSite, make_orchestrator: Make, clock: VirtualClock
) -> None:
    for number in range(100):
        site.says(f"/item/{number}", "x")
    promises: list[tuple[float, float]] = []

    def note(progress: Progress) -> None:
        if progress.is_discovered and progress.eta:
            promises.append((clock.now(), clock.now() + progress.eta))

    async with make_orchestrator(count=100, rate=2.0, burst=30, concurrency=30) as longline:
        await longline.execute(on_progress=note)

    first_promise = promises[0][1] - promises[0][0]
    # 100 items behind a burst of 30 take at least 35 s; speed alone would promise two seconds.
    assert first_promise > 30
    late = promises[len(promises) // 2]
    assert late[1] == pytest.approx(clock.now(), rel=1e-7, abs=6)


async def test_the_eta_counts_what_items_ask_for_and_not_what_finding_them_took(
    site: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    for number in range(40):
        site.says(f"/item/{number}", "x")
    site.says("/trouble", "none")
    etas: list[float] = []
    options = {"site": site.url, "count": 40, "fails_at": 0}  # robots.txt, /trouble, 40 items

    async with Orchestrator(
        "tests.sample_sources:PageSource", options, home=tmp_path, clock=clock
    ) as longline:
        await longline.execute(on_progress=lambda one: etas.append(one.eta or 0.0))

    # Of the burst of 5, three were items: 37 are left, one request each, two a second.
    assert etas[0] == pytest.approx(18.5)


async def test_a_tracker_needs_no_clock_of_its_own(orchestrator: Orchestrator) -> None:
    report = await orchestrator.execute()

    progress = await ProgressTracker(orchestrator.store, report.job).snapshot()

    assert progress.processed == 10


async def test_the_eta_is_unknown_before_the_first_item(
    site: ScriptedSite, orchestrator: Orchestrator, clock: VirtualClock
) -> None:
    report = await orchestrator.execute()
    tracker = ProgressTracker(orchestrator.store, report.job, clock)

    progress = await tracker.snapshot()

    assert progress.eta == 0.0
    assert progress.processed == progress.total == 10
    assert site.hits["/item/1"] == 1


async def test_statistics_add_up(site: ScriptedSite, make_orchestrator: Make) -> None:
    for number in range(10):
        site.says(f"/item/{number}", "x", status={1: 403, 2: 404}.get(number, 200))

    async with make_orchestrator(rate=2.0) as longline:
        progress = (await longline.execute()).progress

    assert (progress.total, progress.processed, progress.remaining) == (10, 10, 0)
    assert (progress.successful, progress.failed) == (8, 1)
    assert progress.success_rate == pytest.approx(8 / 9)
    assert progress.mean_seconds is not None
    assert progress.items_per_minute > 0
    assert progress.last_checkpoint_at is not None


async def test_a_checkpoint_is_written_every_fifty_items_and_at_the_end(
    site: ScriptedSite, make_orchestrator: Make
) -> None:
    for number in range(120):
        site.says(f"/item/{number}", "x")

    async with make_orchestrator(count=120, rate=10.0, burst=1) as longline:
        report = await longline.execute()
        documents = longline.checkpoints.list(report.job)

    processed = [document["processed"] for document in documents]
    assert len(documents) == 3
    assert 50 <= processed[0] < 70
    assert 100 <= processed[1] < 120
    assert processed[2] == 120


async def test_a_checkpoint_document_holds_what_was_promised(
    orchestrator: Orchestrator, tmp_path: Path
) -> None:
    report = await orchestrator.execute()

    document = orchestrator.checkpoints.get("latest")

    path = tmp_path / "checkpoints" / report.job / f"{document['checkpoint_id']}.json"
    assert path.is_file()
    assert document == orchestrator.checkpoints.get(document["checkpoint_id"])
    assert {
        "checkpoint_id",
        "timestamp",
        "total",
        "processed",
        "successful",
        "failed",
        "remaining",
        "last_key",
        "mean_seconds",
        "eta_seconds",
    } <= set(document)
    assert (document["total"], document["processed"], document["remaining"]) == (10, 10, 0)


async def interrupted_at(longline: Orchestrator, processed: int) -> str:
    """Run until so many items are processed, then interrupt; return the job."""

    def look(progress: Progress) -> None:
        if progress.processed >= processed:
            longline.interrupt()

    report = await longline.execute(on_progress=look)
    assert (report.state, report.exit_code) == (JobState.PAUSED, 130)
    return report.job


@pytest.mark.parametrize("way", ["by running again", "newest", "job", "latest", "named"])
async def test_an_interrupted_job_goes_on_in_every_way(
    site: ScriptedSite, make_orchestrator: Make, way: str
) -> None:
    for number in range(40):
        site.says(f"/item/{number}", "x")
    spec = {"count": 40, "rate": 2.0, "burst": 1}
    async with make_orchestrator(**spec) as longline:
        job = await interrupted_at(longline, 10)

    async with make_orchestrator(**spec) as longline:
        named = longline.checkpoints.list(job)[0]["checkpoint_id"]
        ways: dict[str, Callable[[], Awaitable[JobReport]]] = {
            "by running again": longline.execute,
            "newest": longline.resume,
            "job": lambda: longline.resume(job),
            "latest": lambda: longline.resume(checkpoint="latest"),
            "named": lambda: longline.resume(checkpoint=named),
        }
        report = await ways[way]()

    assert (report.job, report.state) == (job, JobState.COMPLETE)
    assert report.progress.successful == 40
    assert all(site.hits[f"/item/{number}"] == 1 for number in range(40))


async def test_a_job_goes_on_from_a_key(site: ScriptedSite, make_orchestrator: Make) -> None:
    for number in range(40):
        site.says(f"/item/{number}", "x")
    spec = {"count": 40, "rate": 2.0, "burst": 1}
    async with make_orchestrator(**spec) as longline:
        job = await interrupted_at(longline, 5)

    async with make_orchestrator(**spec) as longline:
        report = await longline.resume(job, from_key="30")

    assert report.state is JobState.COMPLETE
    assert report.progress.counts[ItemState.SKIPPED] > 10
    assert all(site.hits[f"/item/{number}"] == 1 for number in range(30, 40))
    assert site.hits["/item/29"] == 0


async def test_a_job_that_cannot_be_resumed_is_an_error(orchestrator: Orchestrator) -> None:
    with pytest.raises(UnknownJob):
        await orchestrator.resume()
    report = await orchestrator.execute()

    with pytest.raises(NotResumable) as ended:
        await orchestrator.resume(report.job)
    with pytest.raises(UnknownCheckpoint) as unknown_checkpoint:
        await orchestrator.resume(checkpoint="20200101_000000")
    with pytest.raises(UnknownJob) as unknown_job:
        await orchestrator.resume("nonsense")

    assert (ended.value.job, ended.value.state) == (report.job, "complete")
    assert unknown_checkpoint.value.name == "20200101_000000"
    assert unknown_job.value.job == "nonsense"


async def test_an_unknown_key_to_go_on_from_says_so(
    site: ScriptedSite, make_orchestrator: Make
) -> None:
    for number in range(40):
        site.says(f"/item/{number}", "x")
    async with make_orchestrator(count=40, rate=2.0, burst=1) as longline:
        job = await interrupted_at(longline, 5)

    async with make_orchestrator(count=40) as longline:
        with pytest.raises(BadOption, match="'x'"):
            await longline.resume(job, from_key="x")


async def test_fresh_starts_a_new_job(site: ScriptedSite, make_orchestrator: Make) -> None:
    for number in range(40):
        site.says(f"/item/{number}", "x")
    async with make_orchestrator(count=40, rate=2.0, burst=1) as longline:
        job = await interrupted_at(longline, 5)

    async with make_orchestrator(count=40, rate="unlimited") as longline:
        report = await longline.execute(fresh=True)

    assert report.job != job
    assert report.progress.total == 40
