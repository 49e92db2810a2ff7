"""Questions about records: queued once a text, leased, put back, settled for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete, exists, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from longline.model import QuestionState
from longline.stores.columns import decoding
from longline.stores.schema import enrichments, questions

Row = dict[str, Any]
_KEPT_ATTEMPTS = 20
OPEN_QUESTIONS = frozenset({QuestionState.QUEUED, QuestionState.LEASED})
LOCAL_MODEL = "enricher "
"""What the model of a question begins with that an enricher here answers; then comes its name."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One answer that could not be used, or none: when, what was wrong, what was said."""

    at: float
    problem: str
    said: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, whole: it needs no task file to be understood.

    Of a question to an enricher here, `model` is its name and `version` its own.
    `tries` are those answers that could not be used, `attempts` the same and what else went wrong.
    """

    id: str
    task: str
    version: str
    model: str
    text: str
    system: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)
    tries: int = 0
    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True)
class Wish:
    """A version of a record and its question; with a `reason` it is not to be asked."""

    record: int
    version: int
    question: Question
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """How one try at a question ended; `due` is when a queued one is to be tried again."""

    question: Question
    owner: str
    at: float
    state: QuestionState
    answer: Any = None
    reason: str | None = None
    due: float = 0.0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """What is left of a task: queued, leased by anybody, and when the first queued one is due."""

    queued: int = 0
    leased: int = 0
    due: float | None = None


_INSERT = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def queue(connection: Connection, argument: tuple[str, Sequence[Wish], float]) -> int:
    """Note what records ask, and queue what nobody has asked; return how many these are."""
    task, wishes, at = argument
    if not wishes:
        return 0
    insert: Any = _INSERT[connection.dialect.name]
    rows = {one.question.id: _asked(one, at) for one in wishes}
    add = insert(questions).on_conflict_do_nothing().returning(questions.c.state)
    new = connection.scalars(add, list(rows.values())).all()
    link = insert(enrichments)
    link = link.on_conflict_do_update(
        index_elements=["record_id", "task"],
        set_={"question_id": link.excluded.question_id, "version": link.excluded.version},
    )
    links = [
        {
            "record_id": one.record,
            "task": task,
            "question_id": one.question.id,
            "version": one.version,
        }
        for one in wishes
    ]
    connection.execute(link, links)
    return sum(state == QuestionState.QUEUED for state in new)


def _asked(wish: Wish, at: float) -> Row:
    question = wish.question
    is_skipped = wish.reason is not None
    return {
        "id": question.id,
        "task": question.task,
        "version": question.version,
        "model": question.model,
        "asked": _as_asked(question),
        "state": QuestionState.SKIPPED if is_skipped else QuestionState.QUEUED,
        "reason": wish.reason,
        "tries": 0,
        "due_at": 0.0,
        "tokens": 0,
        "created_at": at,
        "finished_at": at if is_skipped else None,
    }


def _as_asked(question: Question) -> Row:
    return {
        "text": question.text,
        "system": question.system,
        "schema": dict(question.schema),
        "attempts": [
            {"at": one.at, "problem": one.problem, "said": one.said}
            for one in question.attempts[-_KEPT_ATTEMPTS:]
        ],
    }


def of_task(task: str) -> Select[Any]:
    """Return the ids of all questions that records ask for a task."""
    return select(enrichments.c.question_id).where(enrichments.c.task == task)


def drop(connection: Connection, argument: tuple[str, Mapping[int, str]]) -> int:
    """Forget that these records ask these questions, unless they were answered meanwhile."""
    task, links = argument
    if not links:
        return 0
    rows = [{"b_task": task, "b_record": one, "b_question": links[one]} for one in links]
    return connection.execute(_DROP, rows).rowcount


_DROP = delete(enrichments).where(
    enrichments.c.task == bindparam("b_task"),
    enrichments.c.record_id == bindparam("b_record"),
    enrichments.c.question_id == bindparam("b_question"),
    exists().where(
        questions.c.id == enrichments.c.question_id,
        # Not `in`, whose list cannot be written for many rows at once.
        or_(*(questions.c.state == state for state in sorted(OPEN_QUESTIONS))),
    ),
)


def tidy(connection: Connection, task: str) -> None:
    """Take over what other tasks have queued, and forget what no record asks any more."""
    is_asked = exists().where(enrichments.c.question_id == questions.c.id)
    connection.execute(
        delete(questions).where(
            questions.c.task == task,
            questions.c.state.not_in([QuestionState.ANSWERED, QuestionState.LEASED]),
            ~is_asked,
        )
    )
    # Two tasks may ask the same; whoever runs last asks it for both.
    connection.execute(
        update(questions)
        .where(
            questions.c.task != task,
            questions.c.state == QuestionState.QUEUED,
            questions.c.id.in_(of_task(task)),
        )
        .values(task=task)
    )


# ---------------------------------------------------------------- leases

IS_WANTED = exists().where(
    enrichments.c.question_id == questions.c.id, enrichments.c.task == questions.c.task
)
"""That a record of its task asks a question. One that was leased when its last record left the
task comes back to the queue, and is not asked."""

_NEXT = (
    select(questions.c.id)
    .where(
        questions.c.task == bindparam("b_task"),
        questions.c.state == QuestionState.QUEUED,
        questions.c.due_at <= bindparam("b_at"),
        IS_WANTED,
    )
    .order_by(questions.c.due_at)  # as the index has it: sorting would read all that is queued
    .limit(1)
    # Who looks at the same moment takes the one after it, instead of waiting for nothing.
    .with_for_update(skip_locked=True, of=questions)
)
_TAKE = (
    update(questions)
    # Not `in`, for which PostgreSQL may look several times, and lock another one each time.
    .where(questions.c.id == _NEXT.scalar_subquery())
    .values(
        state=QuestionState.LEASED,
        lease_owner=bindparam("b_owner"),
        lease_until=bindparam("b_until"),
    )
    .returning(questions)
)


def lease(connection: Connection, wish: Row) -> Question | None:
    """Give the next question that is due to a worker; None: there is none."""
    row = connection.execute(_TAKE, wish).mappings().one_or_none()
    if row is None:
        return None
    asked = row["asked"]
    with decoding(questions.c.asked):
        return Question(
            id=row["id"],
            task=row["task"],
            version=row["version"],
            model=row["model"],
            text=asked["text"],
            system=asked["system"],
            schema=asked["schema"],
            tries=row["tries"],
            attempts=tuple(Attempt(**one) for one in asked["attempts"]),
        )


def settle(connection: Connection, settled: Settled) -> bool:
    """Write down how a try ended; False when that is of no use any more."""
    question, state = settled.question, settled.state
    held = (questions.c.state == QuestionState.LEASED) & (questions.c.lease_owner == settled.owner)
    is_answered = state is QuestionState.ANSWERED
    changed = connection.execute(
        update(questions)
        .where(
            questions.c.id == question.id,
            questions.c.state != QuestionState.ANSWERED if is_answered else held,
        )
        .values(
            state=state,
            answer=settled.answer,
            reason=settled.reason,
            tries=question.tries,
            asked=_as_asked(question),
            due_at=settled.due,
            tokens=questions.c.tokens + settled.tokens,
            lease_owner=None,
            lease_until=None,
            finished_at=None if state in OPEN_QUESTIONS else settled.at,
        )
    )
    return changed.rowcount > 0


def _leased(task: str) -> Any:
    return (questions.c.task == task) & (questions.c.state == QuestionState.LEASED)


def renew(connection: Connection, argument: tuple[str, str, float]) -> None:
    """Keep all leases of an owner until a later moment."""
    task, owner, until = argument
    connection.execute(
        update(questions)
        .where(_leased(task), questions.c.lease_owner == owner)
        .values(lease_until=until)
    )


def reclaim(connection: Connection, argument: tuple[str, float, Sequence[str]]) -> int:
    """Take back leases that are expired or whose owners are dead; return how many."""
    task, at, dead = argument
    freed = connection.execute(
        update(questions)
        .where(
            _leased(task),
            or_(questions.c.lease_until < at, questions.c.lease_owner.in_(list(dead))),
        )
        .values(state=QuestionState.QUEUED, lease_owner=None, lease_until=None)
    )
    return freed.rowcount


def retry(connection: Connection, task: str) -> int:
    """Queue again what has failed; return how many."""
    queued = connection.execute(
        update(questions)
        .where(questions.c.state == QuestionState.FAILED, questions.c.id.in_(of_task(task)))
        .values(state=QuestionState.QUEUED, task=task, tries=0, due_at=0.0, finished_at=None)
    )
    return queued.rowcount
