"""Valid answers, and the questions for a model."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import pytest

from longline.core.errors import BadOption, MissingExtra, UnexpectedShape
from longline.core.model import Record
from longline.enrichment.enricher import (
    Answer,
    LocalEnricher,
    messages_of,
    question_for,
    read_answer,
)
from longline.enrichment.phase import PhaseState
from longline.enrichment.task_files import EnrichBudget, LocalTask
from longline.pipeline.enrich import Addition
from longline.storage.enrichment import Attempt, Question
from tests.enrichment.tasks import Desk, task_of

NESTED = {
    "type": "object",
    "properties": {"address": {"type": "object", "properties": {"city": {"type": "string"}}}},
    "required": ["address"],
}


def row(**data: Any) -> dict[str, Any]:
    return {"id": 1, "version": 4, "data": data}


@pytest.mark.parametrize(
    "text",
    [
        '{"address": {"city": "a } in it"}}',
        '  {"address": {"city": "a } in it"}}\n',
        '```json\n{"address": {"city": "a } in it"}}\n```',
        '```\n{"address": {"city": "a } in it"}}```',
    ],
)
def test_json_is_read_alone_or_in_a_fence(text: str) -> None:
    assert read_answer(Answer(text), NESTED) == {"address": {"city": "a } in it"}}


@pytest.mark.parametrize(
    ("text", "where", "problem"),
    [
        ("", "answer", "JSON"),
        ("I think it is {}", "answer", "JSON"),
        ('{"address": {"city": "So', "answer", "JSON"),
        ('{"address": {}} {"address": {}}', "answer", "JSON"),
        ('{"address": NaN}', "answer", "JSON"),
        ("[]", "answer", "'object'"),
        ("{}", "answer", "'address'"),
        ('{"address": {"city": 5}}', "answer.address.city", "'string'"),
    ],
)
def test_an_unusable_answer_is_reported_with_its_place_and_problem(
    text: str, where: str, problem: str
) -> None:
    with pytest.raises(UnexpectedShape) as raised:
        read_answer(Answer(text), NESTED)

    assert raised.value.where == where
    assert problem in raised.value.problem


def test_a_cut_answer_is_refused_even_where_it_looks_whole() -> None:
    with pytest.raises(UnexpectedShape):
        read_answer(Answer("12", is_cut=True), {"type": "integer"})


@pytest.mark.parametrize("levels", [250, 1000])
def test_an_answer_of_too_many_levels_is_none(levels: int) -> None:
    bottomless = {"type": "object", "additionalProperties": {"$ref": "#"}}
    text = '{"a":' * levels + "5" + "}" * levels

    with pytest.raises(UnexpectedShape):
        read_answer(Answer(text), bottomless)


def test_a_prompt_is_filled_with_fields_as_a_model_reads_them() -> None:
    task = task_of("http://127.0.0.1", prompt="{a.b}, {rooms}, {tags}: {{x}}")

    request = question_for(task, row(a={"b": "deep"}, rooms=0, tags=["x", "ü"]))

    assert request.question.text == 'deep, 0, ["x","ü"]: {x}'
    assert (request.record, request.version, request.reason) == (1, 4, None)


@pytest.mark.parametrize("empty", [None, "", " \n", [], {}])
def test_a_needed_field_that_is_empty_is_the_reason_not_to_ask(empty: Any) -> None:
    task = task_of("http://127.0.0.1", prompt="{title}: {description}")

    request = question_for(task, row(title="Flat", description=empty))

    assert request.reason is not None
    assert "description" in request.reason
    assert "title" not in request.reason


def test_zero_and_false_are_values() -> None:
    task = task_of("http://127.0.0.1", prompt="{floor} {lift}")

    assert question_for(task, row(floor=0, lift=False)).reason is None


def test_the_same_text_is_the_same_question_whichever_record_and_task_asks_it() -> None:
    first = question_for(task_of("http://127.0.0.1"), row(description="two", title="a"))
    second = question_for(
        task_of("http://127.0.0.1", enrich="more"), row(description="two", title="b")
    )

    assert first.question.id == second.question.id


@pytest.mark.parametrize(
    "other",
    [
        {"model": "llama"},
        {"version": "2"},
        {"system": "Be kind."},
        {"prompt": "Rooms? {description}"},
        {"schema": {"type": "object"}},
    ],
    ids=lambda other: next(iter(other)),
)
def test_another_model_prompt_or_schema_makes_another_question(other: dict[str, Any]) -> None:
    first = question_for(task_of("http://127.0.0.1"), row(description="two"))
    second = question_for(task_of("http://127.0.0.1", **other), row(description="two"))

    assert first.question.id != second.question.id


def test_the_model_gets_its_last_invalid_answer_back() -> None:
    attempts = (
        Attempt(1, "not JSON", "first"),
        Attempt(2, "rooms is missing", "second"),
        Attempt(3, "could not be reached"),
    )
    question = Question("id", "rooms", "1", "practice", "How many?", attempts=attempts)

    said = messages_of(question)

    assert [one["role"] for one in said] == ["system", "user", "assistant", "user"]
    assert said[2]["content"] == "second"
    assert "rooms is missing" in said[3]["content"]


def test_a_budget_without_limits_is_never_exhausted() -> None:
    used = {"tokens": 10**9, "requests": 10**9, "seconds": 10**9}

    assert EnrichBudget().exhausted(**used) is None
    assert EnrichBudget(requests=10**9).exhausted(**used) is not None


GERMAN = "Helle Zweizimmerwohnung mit Balkon, frisch renoviert, nahe am Park."
LANGUAGE = {"language": {"fields": "description"}}


def local_task(enricher: Mapping[str, Any], **values: Any) -> LocalTask:
    whole = {"enrich": "facts", "sources": ["flats"], "enricher": enricher, **values}
    return LocalTask.model_validate(whole)


def currency(rate: float) -> dict[str, Any]:
    options = {"field": "price", "assume": "BGN", "to": "EUR", "date": "2026-01-02"}
    return {"currency": {**options, "rates": {"BGN": rate}}}


def geocode(*rows: Mapping[str, Any]) -> dict[str, Any]:
    return {"geocode": {"by": {"name": "city"}, "table": rows}}


async def store_flat(desk: Desk, **data: Any) -> None:
    record = Record("flats", "1", "https://flats.test/1", data, "print")
    await desk.records.create(record, at=desk.clock.now())


class Counting:
    """Counts words."""

    name = "counting"

    def enrich(self, data: Mapping[str, Any]) -> Addition:
        if data["description"] == "bad":
            raise ZeroDivisionError("no words")
        return Addition({"words": len(data["description"].split())})


async def test_an_enricher_that_raises_fails_its_text_alone(desk: Desk) -> None:
    await desk.store("two rooms", "bad")
    prompt = '{{"description": "{description}"}}'
    task = task_of("http://127.0.0.1", prompt=prompt, schema={"type": "object"})
    await desk.queue(task)

    report = await desk.phase(task, LocalEnricher(Counting())).run()

    assert report.progress.records == {"answered": 1, "failed": 1}
    assert "ZeroDivisionError: no words" in (await desk.enrichment("1"))["reason"]


async def test_a_task_names_an_enricher_instead_of_a_model(desk: Desk) -> None:
    await desk.store("", GERMAN, GERMAN)

    report = await desk.run(local_task(LANGUAGE))

    said = await desk.enrichment("1")
    assert (report.state, report.progress.requests) == (PhaseState.COMPLETE, 1)
    assert report.progress.records == {"answered": 2, "skipped": 1}
    assert (said["answer"], said["made_by"]) == ({"language": "de"}, "machine")
    assert (said["model"], said["tokens"]) == ("enricher language", 0)
    assert said["prompt_version"] == f"py3langid {version('py3langid')}"


async def test_an_unknown_value_is_null_with_a_reason(desk: Desk) -> None:
    await desk.store("Garage", None)

    await desk.run(local_task(LANGUAGE))

    said, unsaid = await desk.enrichment("0"), await desk.enrichment("1")
    assert (said["state"], said["answer"]) == ("answered", {"language": None})
    assert said["reason"].startswith("language")
    assert re.findall(r"\d+", said["reason"]) == ["6", "20"]  # letters there are and needed
    assert unsaid["state"] == "skipped"
    assert "description" in unsaid["reason"]
    reasons = {one["reason"] for one in await desk.questions.reasons("facts")}
    assert reasons == {said["reason"], unsaid["reason"]}


async def test_nothing_is_worked_out_twice(desk: Desk) -> None:
    await desk.store(GERMAN)
    await desk.run(local_task(LANGUAGE))

    again = await desk.run(local_task(LANGUAGE))

    assert (again.state, again.progress.requests) == (PhaseState.COMPLETE, 0)


async def test_of_several_texts_one_is_enough(desk: Desk) -> None:
    await desk.store(None)
    fields = ["title", "description", "summary"]

    queued = await desk.queue(local_task({"language": {"fields": fields}}))

    (warning,) = queued.warnings
    assert queued.questions == 1
    assert warning.startswith("enricher")
    assert "'summary'" in warning


async def test_other_rates_are_another_question(desk: Desk) -> None:
    await store_flat(desk, price=100)
    await desk.run(local_task(currency(0.5)))
    first = await desk.enrichment("1")

    await desk.run(local_task(currency(0.51)))

    second = await desk.enrichment("1")
    assert (first["answer"], second["answer"]) == ({"price_eur": 50.0}, {"price_eur": 51.0})
    assert second["prompt_version"] == "rates of 2026-01-02"


async def test_another_table_of_places_is_another_question(desk: Desk) -> None:
    await store_flat(desk, city="Sofia")
    await desk.run(local_task(geocode({"name": "Sofia", "lat": 42.0})))
    first = await desk.enrichment("1")

    await desk.run(local_task(geocode({"name": "Sofia", "lat": 42.7})))

    second = await desk.enrichment("1")
    assert first["answer"] == {"place": {"lat": 42.0}}
    assert second["answer"] == {"place": {"lat": 42.7}}
    assert first["prompt_version"] != second["prompt_version"]


async def test_a_value_that_cannot_be_kept_fails_its_question_alone(desk: Desk) -> None:
    await store_flat(desk, city="Sofia")

    report = await desk.run(local_task(geocode({"name": "Sofia", "people": 10**30})))

    assert report.state is PhaseState.PARTIAL
    assert "exceeds 64-bit range" in (await desk.enrichment("1"))["reason"]


async def test_a_field_that_no_record_has_is_refused_before_queueing(desk: Desk) -> None:
    await desk.store(GERMAN)

    with pytest.raises(BadOption, match=r"'descripton'.*description"):
        await desk.run(local_task({"language": {"fields": "descripton"}}))

    assert await desk.questions.counts() == {}


async def test_a_missing_library_is_reported_before_queueing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "py3langid", None)
    await desk.store(GERMAN)

    with pytest.raises(MissingExtra):
        await desk.run(local_task(LANGUAGE))

    assert await desk.questions.counts() == {}
