"""What counts as an answer, and how questions are put."""

from __future__ import annotations

from typing import Any

import pytest

from longline.core.errors import UnexpectedShape
from longline.enrichment.enricher import Answer, read_answer
from longline.enrichment.phase import OutageTimer, PhaseUsage
from longline.enrichment.prompts import messages_of, question_for
from longline.enrichment.task_files import EnrichBudget
from longline.storage.records.enrichment import Attempt, Question
from tests.enrichment.tasks import task_of

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
        ('{"address": {"city": "\\u0000"}}', "answer", "NUL"),
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

    wish = question_for(task, row(a={"b": "deep"}, rooms=0, tags=["x", "ü"]))

    assert wish.question.text == 'deep, 0, ["x","ü"]: {x}'
    assert (wish.record, wish.version, wish.reason) == (1, 4, None)


@pytest.mark.parametrize("empty", [None, "", " \n", [], {}])
def test_a_needed_field_that_is_empty_is_the_reason_not_to_ask(empty: Any) -> None:
    task = task_of("http://127.0.0.1", prompt="{title}: {description}")

    wish = question_for(task, row(title="Flat", description=empty))

    assert wish.reason is not None
    assert "description" in wish.reason
    assert "title" not in wish.reason


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


def test_the_last_bad_answer_is_told_to_its_author_and_trouble_of_the_network_is_not() -> None:
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


def test_patience_ends_after_so_many_seconds_without_any_answer() -> None:
    outage = OutageTimer(60)
    outage.failed(100)
    outage.failed(150)
    assert not outage.is_exceeded(159)
    assert outage.is_exceeded(160)

    outage.answered()

    assert not outage.is_exceeded(1000)


def test_a_silent_server_is_left_alone_longer_and_longer() -> None:
    outage = OutageTimer(60)
    outage.failed(100)

    assert [outage.pause(100 + silent) for silent in (0, 1, 2, 4, 8, 16, 50)] == [
        *(1, 1, 2, 4, 8, 15, 15)
    ]


def test_a_budget_without_limits_is_never_spent() -> None:
    assert PhaseUsage(10**9, 10**9).exceeded(EnrichBudget(), 10**9) is None
