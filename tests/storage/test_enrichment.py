"""Questions in the store: one a text, leased to one worker, an answer kept for all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from longline.core.model import QuestionState
from longline.storage.database import Database
from longline.storage.enrichment import (
    Attempt,
    Question,
    QuestionOutcome,
    QuestionRequest,
    Questions,
)
from longline.storage.records import Records
from tests.storage.given import record
from tests.virtual import EPOCH


@pytest.fixture
def questions(database: Database) -> Questions:
    return Questions(database)


@pytest.fixture
def records(database: Database) -> Records:
    return Records(database)


def question(text: str, task: str = "rooms") -> Question:
    return Question(f"id of {text}", task, "1", "practice", text, schema={"type": "object"})


async def asked(questions: Questions, records: Records, *texts: str, task: str = "rooms") -> int:
    """Store a record for each text, and queue what it asks; return how many are new."""
    for number, _ in enumerate(texts):
        await records.create(record(str(number)), at=EPOCH)
    wishes = [
        QuestionRequest(number + 1, 1, question(text, task)) for number, text in enumerate(texts)
    ]
    return await questions.enqueue(task, wishes, EPOCH)


async def leased(questions: Questions, owner: str = "me", at: float = EPOCH) -> Question:
    found = await questions.lease("rooms", owner, at=at, until=at + 20)
    assert found is not None
    return found


def answered(one: Question, owner: str = "me", **values: Any) -> QuestionOutcome:
    return QuestionOutcome(
        one, owner, EPOCH + 5, QuestionState.ANSWERED, answer={"rooms": 2}, **values
    )


async def test_a_text_is_queued_once_however_many_records_have_it(
    questions: Questions, records: Records
) -> None:
    new = await asked(questions, records, "same", "same", "other")

    assert new == 2
    assert await questions.counts() == {"rooms": {"queued": {"records": 3, "questions": 2}}}


async def test_queueing_the_same_again_changes_nothing(
    questions: Questions, records: Records
) -> None:
    await asked(questions, records, "same")
    await questions.complete(answered(await leased(questions)))

    new = await asked(questions, records, "same")

    assert new == 0
    assert await questions.counts() == {"rooms": {"answered": {"records": 1, "questions": 1}}}


async def test_a_record_that_is_not_to_be_asked_about_has_its_reason(
    questions: Questions, records: Records
) -> None:
    await records.create(record("0"), at=EPOCH)

    new = await questions.enqueue("rooms", [QuestionRequest(1, 1, question(""), "textless")], EPOCH)

    assert new == 0
    assert await questions.lease("rooms", "me", at=EPOCH, until=EPOCH) is None
    assert await questions.reasons("rooms") == [
        {"state": "skipped", "reason": "textless", "records": 1}
    ]


async def test_a_question_is_leased_to_one_worker(questions: Questions, records: Records) -> None:
    await asked(questions, records, "one", "two")

    given = [await questions.lease("rooms", who, at=EPOCH, until=EPOCH + 20) for who in "abc"]

    assert {one.text for one in given if one} == {"one", "two"}
    assert given[2] is None
    assert sorted(await questions.owners("rooms")) == ["a", "b"]


async def test_a_lease_gives_back_the_whole_question(
    questions: Questions, records: Records
) -> None:
    await asked(questions, records, "one")

    assert await leased(questions) == question("one")


async def test_a_question_that_is_put_back_waits_until_it_is_due_and_keeps_its_attempts(
    questions: Questions, records: Records
) -> None:
    await asked(questions, records, "one")
    one = await leased(questions)
    tried = replace(one, tries=1, attempts=(Attempt(EPOCH, "not JSON", "well…"),))
    back = QuestionOutcome(
        tried, "me", EPOCH, QuestionState.QUEUED, reason="not JSON", due=EPOCH + 30
    )

    await questions.complete(back)

    assert await questions.lease("rooms", "me", at=EPOCH + 29, until=EPOCH + 50) is None
    assert (await questions.backlog("rooms")).due == EPOCH + 30
    assert await leased(questions, at=EPOCH + 30) == tried


async def test_an_answer_counts_even_when_the_lease_is_lost(
    questions: Questions, records: Records
) -> None:
    await asked(questions, records, "one")
    one = await leased(questions, "slow")
    await questions.reclaim("rooms", EPOCH + 21)
    await leased(questions, "quick", at=EPOCH + 21)

    is_settled = await questions.complete(answered(one, "slow"))

    assert is_settled
    assert await questions.counts() == {"rooms": {"answered": {"records": 1, "questions": 1}}}


async def test_an_answer_is_not_replaced_by_a_later_one_nor_by_a_failure(
    questions: Questions, records: Records
) -> None:
    await asked(questions, records, "one")
    one = await leased(questions)
    await questions.complete(answered(one))
    late = replace(answered(one), answer={"rooms": 9})
    failed = QuestionOutcome(one, "me", EPOCH, QuestionState.FAILED, reason="too late")

    assert not await questions.complete(late)
    assert not await questions.complete(failed)

    assert (await questions.of_records([1]))[1][0]["answer"] == {"rooms": 2}


async def test_a_failure_after_a_lost_lease_is_refused(
    questions: Questions, records: Records
) -> None:
    await asked(questions, records, "one")
    one = await leased(questions, "slow")
    await questions.reclaim("rooms", EPOCH, ["slow"])

    is_settled = await questions.complete(
        QuestionOutcome(one, "slow", EPOCH, QuestionState.FAILED, reason="gone")
    )

    assert not is_settled
    assert (await questions.backlog("rooms")).queued == 1


async def test_leases_of_the_dead_and_the_expired_are_taken_back_and_others_left(
    questions: Questions, records: Records
) -> None:
    await asked(questions, records, "one", "two", "three")
    await leased(questions, "dead", at=EPOCH + 15)
    await leased(questions, "late", at=EPOCH)
    await leased(questions, "alive", at=EPOCH)
    await questions.renew("rooms", "alive", EPOCH + 60)

    freed = await questions.reclaim("rooms", EPOCH + 21, ["dead"])

    assert freed == 2
    assert await questions.owners("rooms") == ["alive"]


async def test_a_worker_that_stops_puts_back_what_is_its_own(
    questions: Questions, records: Records
) -> None:
    await asked(questions, records, "one", "two")
    await leased(questions, "me")
    await leased(questions, "you")

    await questions.release("rooms", "me")

    assert await questions.owners("rooms") == ["you"]
    assert (await questions.backlog("rooms")).queued == 1


async def test_what_failed_is_queued_again_with_new_tries_and_what_was_answered_is_not(
    questions: Questions, records: Records
) -> None:
    await asked(questions, records, "one", "two")
    bad = replace(await leased(questions), tries=3)
    await questions.complete(
        QuestionOutcome(bad, "me", EPOCH, QuestionState.FAILED, reason="no use")
    )
    await questions.complete(answered(await leased(questions)))

    count = await questions.retry("rooms")

    assert count == 1
    assert (await leased(questions)).tries == 0


async def test_prune_deletes_unlinked_questions_unless_answered(
    questions: Questions, records: Records
) -> None:
    await asked(questions, records, "old", "older")
    known = await leased(questions)
    await questions.complete(answered(known))
    await asked(questions, records, "new", "newer")

    await questions.prune("rooms")

    assert (await questions.backlog("rooms")).queued == 2
    assert await asked(questions, records, known.text) == 0  # its answer is still there


async def test_tokens_of_all_tries_are_added_up(questions: Questions, records: Records) -> None:
    await asked(questions, records, "one")
    one = await leased(questions)
    await questions.complete(QuestionOutcome(one, "me", EPOCH, QuestionState.QUEUED, tokens=30))
    await questions.complete(answered(await leased(questions), tokens=12))

    statistics = await questions.statistics("rooms")

    assert statistics == {"tokens": 42, "models": ["practice"], "prompt_versions": ["1"]}


async def test_many_records_are_read_with_what_was_said_about_them(
    questions: Questions, records: Records
) -> None:
    texts = [f"text {number}" for number in range(1200)]
    await asked(questions, records, *texts[:3])
    ids = list(range(1, 1201))

    found = await questions.of_records(ids)

    assert sorted(found) == [1, 2, 3]
    assert await questions.of_records([]) == {}
    assert [row["state"] for row in found[1]] == ["queued"]
