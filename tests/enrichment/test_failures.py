"""A task on a model that is slow, talks nonsense, is cut off, refuses, breaks down and dies."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from longline.core.model import JobState
from longline.enrichment.phase import PhaseState
from longline.enrichment.task_files import ModelServer
from longline.orchestrator import Orchestrator
from longline.sandbox.language_model import LanguageModel, ModelFault, ModelOptions
from tests.enrichment.tasks import Desk, question_about, task_of
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

TEXTS = [f"flat number {number}" for number in range(12)]
UNUSABLE = [  # a fault and a key word of the problem that is reported for it
    (ModelFault.NONSENSE, "JSON"),
    (ModelFault.CUT, "cut"),
    (ModelFault.WRONG, "'rooms'"),
]


@pytest.mark.parametrize("dialect", ["ollama", "openai"])
@pytest.mark.parametrize(("fault", "problem"), UNUSABLE)
async def test_an_unusable_answer_is_asked_for_again_with_its_problem(
    desk: Desk, model: LanguageModel, fault: ModelFault, problem: str, dialect: str
) -> None:
    await desk.store("two rooms")
    model.script.append(fault)

    report = await desk.run(task_of(model.url, server={"dialect": dialect}))

    first, second = model.tally.conversations
    made = await desk.enrichment("0")
    assert report.state is PhaseState.COMPLETE
    assert (made["state"], made["tries"], made["reason"]) == ("answered", 1, None)
    assert second[: len(first)] == first
    assert [one["role"] for one in second[len(first) :]] == ["assistant", "user"]
    assert problem in second[-1]["content"]


@pytest.mark.parametrize(("fault", "problem"), UNUSABLE)
async def test_after_the_last_attempt_a_question_has_failed_with_its_reason(
    desk: Desk, model: LanguageModel, fault: ModelFault, problem: str
) -> None:
    await desk.store("two rooms", "three rooms")
    model.spoils[question_about("two rooms")] = fault

    report = await desk.run(task_of(model.url, attempts=3))

    made = await desk.enrichment("0")
    assert (report.state, report.exit_code) == (PhaseState.PARTIAL, 3)
    assert (made["state"], made["tries"], made["answer"]) == ("failed", 3, None)
    assert problem in made["reason"]
    assert model.tally.asked[question_about("two rooms")] == 3


async def test_what_has_failed_can_be_tried_again(desk: Desk, model: LanguageModel) -> None:
    await desk.store("two rooms", "three rooms")
    model.spoils[question_about("two rooms")] = ModelFault.NONSENSE
    await desk.run(task_of(model.url))
    model.spoils.clear()

    queued = await desk.questions.retry("rooms")
    report = await desk.run(task_of(model.url))

    assert queued == 1
    assert report.state is PhaseState.COMPLETE
    assert model.tally.asked[question_about("three rooms")] == 1


async def test_a_failed_question_is_not_asked_again_by_itself(
    desk: Desk, model: LanguageModel
) -> None:
    await desk.store("two rooms")
    model.spoils[question_about("two rooms")] = ModelFault.NONSENSE
    await desk.run(task_of(model.url))

    report = await desk.run(task_of(model.url))

    assert (report.state, report.progress.requests) == (PhaseState.PARTIAL, 0)


async def test_retry_after_stops_all_workers(desk: Desk, clock: VirtualClock) -> None:
    options = ModelOptions(retry_after=25)
    async with LanguageModel(options, clock=clock, script=[ModelFault.TOO_MANY]) as model:
        await desk.store(*TEXTS)
        started = clock.now()

        report = await desk.run(task_of(model.url, concurrency=1))

    assert report.state is PhaseState.COMPLETE
    assert 25 <= clock.now() - started < 30
    assert model.tally.asked.total() == 13


async def test_a_long_retry_after_pauses_the_run(desk: Desk, clock: VirtualClock) -> None:
    options = ModelOptions(retry_after=3600)
    async with LanguageModel(options, clock=clock, script=[ModelFault.TOO_MANY]) as model:
        await desk.store(*TEXTS)
        started = clock.now()

        report = await desk.run(task_of(model.url, concurrency=1))

    assert (report.state, report.exit_code) == (PhaseState.PAUSED, 4)
    assert model.url in (report.reason or "")
    assert re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d", report.reason or "")
    assert clock.now() - started < 60
    assert report.progress.records == {"queued": 12}
    assert model.tally.asked.total() == 1


async def test_a_pause_of_less_than_a_minute_is_waited_for(desk: Desk, clock: VirtualClock) -> None:
    options = ModelOptions(retry_after=45)
    async with LanguageModel(options, clock=clock, script=[ModelFault.TOO_MANY]) as model:
        await desk.store(*TEXTS)
        started = clock.now()

        report = await desk.run(task_of(model.url, concurrency=3))

    assert report.state is PhaseState.COMPLETE
    assert 45 <= clock.now() - started < 50
    assert report.progress.requests == model.tally.asked.total() == 13


async def test_an_outage_does_not_fail_a_question(
    desk: Desk, model: LanguageModel, clock: VirtualClock
) -> None:
    await desk.store(*TEXTS)
    model.die(40)
    started = clock.now()

    report = await desk.run(task_of(model.url, concurrency=4))

    assert report.state is PhaseState.COMPLETE
    assert 40 < clock.now() - started < 75
    assert model.tally.asked.total() < 12 + 12  # it was not hammered while it was away


async def test_a_server_that_stays_away_pauses_the_run_and_fails_nothing(
    desk: Desk, model: LanguageModel, clock: VirtualClock
) -> None:
    await desk.store(*TEXTS)
    model.die(10_000)
    started = clock.now()

    first = await desk.run(task_of(model.url, concurrency=4))
    took = clock.now() - started
    await clock.sleep(10_000)
    second = await desk.run(task_of(model.url))

    assert (first.state, first.exit_code) == (PhaseState.PAUSED, 4)
    assert "60 s" in (first.reason or "")
    assert first.progress.records == {"queued": 12}
    assert 60 <= took < 120
    assert second.state is PhaseState.COMPLETE


async def test_a_server_that_was_never_there_pauses_the_run(
    desk: Desk, clock: VirtualClock
) -> None:
    async with LanguageModel(clock=clock) as model:
        gone = model.url
    await desk.store(*TEXTS)

    report = await desk.run(task_of(gone, server={"patience": 5}))

    assert (report.state, report.progress.records) == (PhaseState.PAUSED, {"queued": 12})
    assert "5 s" in (report.reason or "")
    assert gone in (report.reason or "")


@pytest.mark.parametrize("dialect", ["ollama", "openai"])
async def test_a_missing_model_pauses_the_run_immediately(
    desk: Desk, model: LanguageModel, dialect: str
) -> None:
    await desk.store(*TEXTS)
    task = task_of(model.url, model="llama", server={"dialect": dialect}, concurrency=1)

    report = await desk.run(task)

    assert (report.state, report.exit_code) == (PhaseState.PAUSED, 4)
    assert "404 model 'llama'" in (report.reason or "")
    assert report.progress.records == {"queued": 12}
    assert model.tally.asked.total() == 1


async def test_a_refused_key_pauses_the_run_and_is_not_printed(
    desk: Desk, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_KEY", "hush-hush")
    async with LanguageModel(ModelOptions(key="another"), clock=clock) as model:
        await desk.store("two rooms")

        report = await desk.run(task_of(model.url, server={"key": "env:MODEL_KEY"}))

    assert report.state is PhaseState.PAUSED
    assert "401" in (report.reason or "")
    assert "hush" not in str(report.as_dict())


async def test_the_key_goes_with_every_question(
    desk: Desk, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_KEY", "hush-hush")
    async with LanguageModel(ModelOptions(key="hush-hush"), clock=clock) as model:
        await desk.store("two rooms")

        report = await desk.run(
            task_of(model.url, server={"key": "env:MODEL_KEY", "dialect": "openai"})
        )

    assert report.state is PhaseState.COMPLETE


@pytest.mark.parametrize("fault", [ModelFault.ERROR, ModelFault.BROKEN, ModelFault.DROPPED])
async def test_a_text_that_the_server_breaks_down_at_fails_alone(
    desk: Desk, model: LanguageModel, fault: ModelFault
) -> None:
    await desk.store(*TEXTS)
    model.spoils[question_about("flat number 5")] = fault

    report = await desk.run(task_of(model.url, attempts=2))

    made = await desk.enrichment("5")
    assert report.progress.records == {"answered": 11, "failed": 1}
    assert re.search(r"\b4\b", made["reason"])  # how often it was asked


async def test_a_server_that_is_slow_is_waited_for_until_its_deadline(
    desk: Desk, clock: VirtualClock
) -> None:
    script = [ModelFault.SLOW]
    async with LanguageModel(ModelOptions(slow=300), clock=clock, script=script) as model:
        await desk.store("two rooms")
        started = clock.now()

        report = await desk.run(task_of(model.url, server={"timeout": 30}))

    assert report.state is PhaseState.COMPLETE
    assert 30 < clock.now() - started < 35


async def test_whatever_goes_wrong_everything_is_answered_or_has_its_reason(
    desk: Desk, clock: VirtualClock
) -> None:
    texts = [f"flat number {number % 150}" for number in range(300)]
    async with LanguageModel(ModelOptions(faults=0.6), clock=clock) as model:
        await desk.store(*texts)
        asyncio.get_running_loop().call_later(30, model.die, 20)

        report = await desk.run(task_of(model.url, concurrency=4, server={"timeout": 15}))

    assert report.state in (PhaseState.COMPLETE, PhaseState.PARTIAL)
    assert report.progress.open == 0
    assert report.progress.records["answered"] >= 295
    assert all(row["reason"] for row in await desk.questions.reasons("rooms"))
    assert len(model.tally.faults) == 8
    assert set(model.tally.answered.values()) == {1}  # no text that was answered is asked again


async def test_collection_is_never_held_up(
    desk: Desk, clock: VirtualClock, site: ScriptedSite, tmp_path: Path
) -> None:
    for number in range(10):
        site.says(f"/item/{number}", f"page {number}")
    async with LanguageModel(ModelOptions(latency=100), clock=clock) as model:
        await desk.store(*TEXTS[:2])
        asking = asyncio.create_task(desk.run(task_of(model.url, server={"timeout": 500})))
        await clock.sleep(1)
        started = clock.now()

        options = {"site": site.url, "count": 10}
        longline = Orchestrator(
            "tests.sample_sources:PageSource", options, home=tmp_path, clock=clock, rate="unlimited"
        )
        async with longline:
            collected = await longline.execute()
        took = clock.now() - started
        await asking

    assert (collected.state, collected.progress.successful) == (JobState.COMPLETE, 10)
    assert took < 10
    assert asking.result().state is PhaseState.COMPLETE


def test_a_key_is_not_sent_unencrypted_to_another_machine() -> None:
    make: Callable[..., ModelServer] = ModelServer
    with pytest.raises(ValueError, match="allow_http"):
        make(url="http://model.example:11434", key="env:MODEL_KEY")
