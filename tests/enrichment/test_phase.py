"""A task from its records to their answers, on a model that does what it should."""

from __future__ import annotations

import asyncio

import pytest

from longline.core.model import Record
from longline.enrichment.phase import Phase, PhaseProgress, PhaseState
from longline.sandbox.language_model import LanguageModel, ModelOptions
from longline.storage.database import open_database
from longline.storage.enrichment import Questions
from tests.enrichment.tasks import Desk, is_asked_once, question_about, task_of
from tests.virtual import VirtualClock

TEXTS = [f"flat number {number}" for number in range(12)]


@pytest.mark.parametrize("dialect", ["ollama", "openai"])
async def test_every_record_gets_an_answer_of_the_shape_that_was_asked_for(
    desk: Desk, model: LanguageModel, dialect: str
) -> None:
    await desk.store(*TEXTS)

    report = await desk.run(task_of(model.url, server={"dialect": dialect}))

    answers = [(await desk.enrichment(str(number)))["answer"] for number in range(12)]
    assert (report.state, report.exit_code) == (PhaseState.COMPLETE, 0)
    assert all(set(answer) == {"rooms", "mood"} for answer in answers)
    assert model.tally.answered == {question_about(text): 1 for text in TEXTS}


async def test_an_answer_is_marked_as_made_by_a_machine(
    desk: Desk, model: LanguageModel, clock: VirtualClock
) -> None:
    await desk.store("two rooms")

    await desk.run(task_of(model.url, version="7"))

    made = await desk.enrichment("0")
    assert (made["made_by"], made["model"], made["prompt_version"]) == ("machine", "practice", "7")
    assert made["answered_at"] == pytest.approx(clock.now(), abs=1)
    assert (made["is_current"], made["tries"], made["tokens"] > 0) == (True, 0, True)


async def test_the_data_of_a_record_stays_what_the_site_said(
    desk: Desk, model: LanguageModel
) -> None:
    await desk.store("two rooms")
    before = await desk.records.get("0")

    await desk.run(task_of(model.url))

    assert await desk.records.get("0") == before


async def test_identical_texts_are_asked_once(desk: Desk, model: LanguageModel) -> None:
    await desk.store(*["the same"] * 40)

    report = await desk.run(task_of(model.url, concurrency=8))

    assert model.tally.asked == {question_about("the same"): 1}
    assert report.progress.records == {"answered": 40}


async def test_a_second_run_asks_nothing(desk: Desk, model: LanguageModel) -> None:
    await desk.store(*TEXTS)
    await desk.run(task_of(model.url))

    report = await desk.run(task_of(model.url))

    assert (report.state, report.progress.requests) == (PhaseState.COMPLETE, 0)
    assert is_asked_once(model)


async def test_only_a_record_whose_text_has_changed_is_asked_about_again(
    desk: Desk, model: LanguageModel, clock: VirtualClock
) -> None:
    await desk.store(*TEXTS)
    await desk.run(task_of(model.url))
    changed = Record("flats", "3", "https://flats.test/3", {"description": "new"}, "other")
    await desk.records.create(changed, at=clock.now())
    is_stale = not (await desk.enrichment("3"))["is_current"]

    report = await desk.run(task_of(model.url))

    assert is_stale
    assert report.progress.requests == 1
    assert model.tally.asked[question_about("new")] == 1
    assert (await desk.enrichment("3"))["is_current"]


@pytest.mark.parametrize(
    "other",
    [{"version": "2"}, {"system": "Be kind."}, {"schema": {"type": "object"}}],
    ids=["version", "system", "schema"],
)
async def test_another_prompt_is_another_question(
    desk: Desk, model: LanguageModel, other: dict[str, object]
) -> None:
    await desk.store("two rooms")
    await desk.run(task_of(model.url))

    report = await desk.run(task_of(model.url, **other))

    assert report.progress.requests == 1
    assert report.progress.records == {"answered": 1}


async def test_what_another_task_has_asked_in_the_same_words_is_not_asked_again(
    desk: Desk, model: LanguageModel
) -> None:
    await desk.store("two rooms")
    await desk.run(task_of(model.url))

    report = await desk.run(task_of(model.url, enrich="more"))

    assert (report.state, report.progress.requests) == (PhaseState.COMPLETE, 0)
    assert report.progress.records == {"answered": 1}


async def test_what_another_task_has_only_queued_is_asked_for_both(
    desk: Desk, model: LanguageModel
) -> None:
    await desk.store("two rooms")
    await desk.queue(task_of(model.url))

    await desk.run(task_of(model.url, enrich="more"))

    counts = await desk.questions.counts()
    assert counts["rooms"] == counts["more"] == {"answered": {"records": 1, "questions": 1}}
    assert is_asked_once(model)


async def test_a_record_without_the_field_is_recorded_with_its_reason_and_not_asked_about(
    desk: Desk, model: LanguageModel
) -> None:
    await desk.store("two rooms", None, "  ", None)

    report = await desk.run(task_of(model.url))

    assert report.progress.records == {"answered": 1, "skipped": 3}
    assert (report.state, report.progress.requests) == (PhaseState.COMPLETE, 1)
    skipped = await desk.enrichment("1")
    assert (skipped["state"], skipped["answer"]) == ("skipped", None)
    assert "description" in skipped["reason"]


async def test_a_field_that_may_be_missing_does_not_keep_a_record_from_being_asked_about(
    desk: Desk, model: LanguageModel
) -> None:
    await desk.store(None)
    prompt = "{title}: {description}"

    await desk.run(task_of(model.url, prompt=prompt, optional=["description"]))

    assert model.tally.asked == {"Flat 0: ": 1}


async def test_only_records_that_fit_the_conditions_are_asked_about(
    desk: Desk, model: LanguageModel
) -> None:
    await desk.store("with a garden", "with a garage")
    await desk.store("elsewhere, with a garden", source="houses")

    await desk.run(task_of(model.url, where="description ~ garden"))

    assert list(model.tally.asked) == [question_about("with a garden")]


async def test_a_task_keeps_to_its_rate(
    desk: Desk, model: LanguageModel, clock: VirtualClock
) -> None:
    await desk.store(*TEXTS)
    started = clock.now()

    await desk.run(task_of(model.url, rate=0.5, concurrency=2))

    assert clock.now() - started == pytest.approx(20, abs=1.5)  # two immediately, then one in two s


async def test_concurrent_questions_are_limited(desk: Desk, clock: VirtualClock) -> None:
    async with LanguageModel(ModelOptions(latency=10), clock=clock) as model:
        await desk.store(*TEXTS)
        started = clock.now()

        await desk.run(task_of(model.url, concurrency=4))

    assert clock.now() - started == pytest.approx(30, abs=3)


@pytest.mark.parametrize(
    ("budget", "limit"),
    [
        ({"requests": 5}, "5 requests"),
        ({"tokens": 40}, "40 tokens"),
        ({"seconds": 25}, "25 seconds"),
    ],
    ids=["requests", "tokens", "seconds"],
)
async def test_a_spent_budget_pauses_the_run_and_the_next_goes_on(
    desk: Desk, clock: VirtualClock, budget: dict[str, float], limit: str
) -> None:
    async with LanguageModel(ModelOptions(latency=5), clock=clock) as model:
        await desk.store(*TEXTS)
        task = task_of(model.url, budget=budget, concurrency=1)

        first = await desk.run(task)
        second = await desk.run(task_of(model.url, concurrency=1))

    assert (first.state, first.exit_code) == (PhaseState.PAUSED, 4)
    assert limit in (first.reason or "")
    assert 3 <= first.progress.records["answered"] <= 6
    assert second.state is PhaseState.COMPLETE
    assert is_asked_once(model)


async def test_concurrent_workers_do_not_exceed_a_budget_of_requests(
    desk: Desk, model: LanguageModel
) -> None:
    await desk.store(*TEXTS)

    await desk.run(task_of(model.url, budget={"requests": 5}, concurrency=8))

    assert model.tally.asked.total() == 5


async def test_a_run_ends_at_its_limit_of_questions(desk: Desk, model: LanguageModel) -> None:
    await desk.store(*TEXTS)

    report = await desk.run(task_of(model.url, concurrency=4), limit=5)

    assert (report.state, report.exit_code) == (PhaseState.LIMITED, 0)
    assert report.progress.records == {"answered": 5, "queued": 7}


async def test_an_interrupted_run_finishes_what_it_asks_and_goes_on_later(
    desk: Desk, clock: VirtualClock
) -> None:
    def stop_soon(phase: Phase) -> None:
        asyncio.get_running_loop().call_later(15, phase.stop)

    async with LanguageModel(ModelOptions(latency=10), clock=clock) as model:
        await desk.store(*TEXTS)

        first = await desk.run(task_of(model.url), using=stop_soon)
        second = await desk.run(task_of(model.url))

    assert (first.state, first.exit_code) == (PhaseState.INTERRUPTED, 130)
    assert first.progress.records == {"answered": 4, "queued": 8}
    assert second.state is PhaseState.COMPLETE
    assert is_asked_once(model)


async def test_a_run_that_is_cancelled_leaves_nothing_leased(
    desk: Desk, clock: VirtualClock
) -> None:
    async with LanguageModel(ModelOptions(latency=10), clock=clock) as model:
        await desk.store(*TEXTS)
        running = asyncio.create_task(desk.run(task_of(model.url)))
        await clock.sleep(5)

        running.cancel()
        await asyncio.wait([running])

    standing = await desk.questions.backlog("rooms")
    assert running.cancelled()
    assert (standing.queued, standing.leased) == (12, 0)


async def test_concurrent_runs_share_the_questions(desk: Desk, clock: VirtualClock) -> None:
    async with LanguageModel(ModelOptions(latency=3), clock=clock) as model:
        await desk.store(*TEXTS)
        task = task_of(model.url)

        reports = await asyncio.gather(desk.run(task), desk.run(task, owner="you"))

    assert [report.state for report in reports] == [PhaseState.COMPLETE] * 2
    assert min(report.progress.requests for report in reports) > 0
    assert is_asked_once(model)


class HeldUp(Questions):
    """Questions whose heartbeat waits for the writes of others as long as a database does."""

    clock: VirtualClock

    async def renew(self, task: str, owner: str, until: float) -> None:
        await self.clock.sleep(60)
        await super().renew(task, owner, until)


async def test_a_living_run_whose_heartbeat_is_held_up_keeps_what_it_asks(
    desk: Desk, address: str, clock: VirtualClock
) -> None:
    database = open_database(address)
    slow = Desk(database, clock)
    slow.questions = HeldUp(database)
    slow.questions.clock = clock
    async with LanguageModel(ModelOptions(latency=50), clock=clock) as model:
        await desk.store(*TEXTS[:4])
        task = task_of(model.url)

        await asyncio.gather(slow.run(task, owner="slow"), desk.run(task))

    database.close()
    assert is_asked_once(model)


async def test_what_a_dead_run_has_leased_is_taken_over_in_seconds(
    desk: Desk, model: LanguageModel, clock: VirtualClock
) -> None:
    await desk.store(*TEXTS)
    task = task_of(model.url)
    await desk.queue(task)
    for _ in range(3):
        at = clock.now()
        await desk.questions.lease("rooms", "dead", at=at, until=at + 3600)
    started = clock.now()

    report = await desk.run(task, dead_among=lambda owners: [o for o in owners if o == "dead"])

    assert report.state is PhaseState.COMPLETE
    assert clock.now() - started < 5


async def test_a_lease_without_heartbeat_expires(
    desk: Desk, model: LanguageModel, clock: VirtualClock
) -> None:
    await desk.store("two rooms")
    task = task_of(model.url)
    await desk.queue(task)
    at = clock.now()
    await desk.questions.lease("rooms", "far away", at=at, until=at + 20)

    report = await desk.run(task)

    assert report.state is PhaseState.COMPLETE
    assert clock.now() - at == pytest.approx(21, abs=3)


async def test_progress_is_reported_while_it_runs(desk: Desk, clock: VirtualClock) -> None:
    reported: list[PhaseProgress] = []
    async with LanguageModel(ModelOptions(latency=4), clock=clock) as model:
        await desk.store(*TEXTS)

        await desk.run(task_of(model.url), on_progress=reported.append)

    answered = [one.records.get("answered", 0) for one in reported]
    assert (answered[0], answered[-1]) == (0, 12)
    assert answered == sorted(answered)
    assert len(set(answered)) > 4
    assert all(one.total == 12 for one in reported)
