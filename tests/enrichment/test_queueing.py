"""A changed task file: only its own questions are asked, and errors are reported."""

from __future__ import annotations

import pytest

from longline.core.errors import BadOption
from longline.enrichment.phase import PhaseState
from longline.sandbox.language_model import LanguageModel
from tests.enrichment.tasks import Desk, question_about, task_of
from tests.virtual import VirtualClock

TEXTS = ["with a garden", "with a garage", "with a view", "with nothing"]
GARDEN = "description ~ garden"


async def test_a_narrower_task_asks_only_about_the_records_it_names(
    desk: Desk, model: LanguageModel
) -> None:
    await desk.store(*TEXTS)
    await desk.queue(task_of(model.url))

    report = await desk.run(task_of(model.url, where=GARDEN))

    assert model.tally.asked == {question_about("with a garden"): 1}
    assert (report.state, report.progress.records) == (PhaseState.COMPLETE, {"answered": 1})


async def test_a_task_of_another_source_asks_nothing_about_the_first(
    desk: Desk, model: LanguageModel
) -> None:
    await desk.store(*TEXTS)
    await desk.store("a house", source="houses")
    await desk.queue(task_of(model.url))

    queued = await desk.queue(task_of(model.url, sources="houses"))
    await desk.run(task_of(model.url, sources="houses"))

    assert (queued.records, queued.questions, queued.dropped) == (1, 1, 4)
    assert model.tally.asked == {question_about("a house"): 1}


async def test_answers_of_records_that_have_left_the_task_stay(
    desk: Desk, model: LanguageModel
) -> None:
    await desk.store(*TEXTS)
    await desk.run(task_of(model.url))

    report = await desk.run(task_of(model.url, where=GARDEN))
    again = await desk.run(task_of(model.url))

    assert report.progress.records == again.progress.records == {"answered": 4}
    assert model.tally.asked.total() == 4


async def test_what_was_leased_when_its_record_left_the_task_is_not_asked(
    desk: Desk, model: LanguageModel, clock: VirtualClock
) -> None:
    await desk.store(*TEXTS)
    await desk.queue(task_of(model.url))
    at = clock.now()
    for _ in TEXTS:
        await desk.questions.lease("rooms", "dead", at=at, until=at + 3600)

    narrow = task_of(model.url, where=GARDEN)
    report = await desk.run(narrow, dead_among=lambda owners: [o for o in owners if o == "dead"])

    assert report.state is PhaseState.COMPLETE
    assert model.tally.asked == {question_about("with a garden"): 1}


async def test_what_another_task_still_asks_is_left_to_it(desk: Desk, model: LanguageModel) -> None:
    await desk.store(*TEXTS)
    await desk.queue(task_of(model.url, enrich="more"))
    await desk.queue(task_of(model.url))

    await desk.run(task_of(model.url, where=GARDEN))
    asked = model.tally.asked.total()
    report = await desk.run(task_of(model.url, enrich="more"))

    assert asked == 1
    assert report.progress.records == {"answered": 4}
    assert model.tally.asked.total() == 4


async def test_a_field_that_no_record_has_is_refused_without_a_change(
    desk: Desk, model: LanguageModel
) -> None:
    await desk.store(*TEXTS)
    await desk.run(task_of(model.url))
    before = await desk.enrichment("0")

    with pytest.raises(BadOption, match=r"'descripton'.*description"):
        await desk.queue(task_of(model.url, prompt="How many? {descripton}"))

    assert await desk.enrichment("0") == before


async def test_a_field_that_may_be_missing_and_is_in_no_record_is_a_warning(
    desk: Desk, model: LanguageModel
) -> None:
    await desk.store(*TEXTS)
    task = task_of(model.url, prompt="{title}: {descripton}", optional=["descripton"])

    queued = await desk.queue(task)

    (warning,) = queued.warnings
    assert "'descripton'" in warning
    assert "description" in warning
    assert queued.questions == 4


async def test_a_field_that_only_the_last_record_has_is_known(
    desk: Desk, model: LanguageModel
) -> None:
    await desk.store(*TEXTS)
    last = await desk.records.get("3")
    await desk.records.update("3", {"about": {"city": "Bern"}}, at=last["seen_at"] + 1)

    queued = await desk.queue(task_of(model.url, prompt="Where? {about.city}"))

    assert (queued.records, queued.questions, queued.warnings) == (4, 1, ())


async def test_one_of_several_sources_without_records_is_a_warning(
    desk: Desk, model: LanguageModel
) -> None:
    await desk.store(*TEXTS)

    queued = await desk.queue(task_of(model.url, sources=["flats", "flast"]))

    (warning,) = queued.warnings
    assert warning.startswith("sources")
    assert "flast" in warning
    assert queued.records == 4


async def test_a_task_without_records_is_refused_without_a_change(
    desk: Desk, model: LanguageModel
) -> None:
    await desk.store(*TEXTS)
    await desk.queue(task_of(model.url))

    with pytest.raises(BadOption, match=r"nope.*flats") as raised:
        await desk.queue(task_of(model.url, sources="nope"))

    assert raised.value.option == "sources"
    assert (await desk.questions.backlog("rooms")).queued == 4
