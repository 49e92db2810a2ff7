"""Questions to models and local enrichers about records: one per text, leased and answered once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    Connection,
    Select,
    bindparam,
    delete,
    exists,
    func,
    or_,
    select,
    tuple_,
    update,
)

from longline.core.model import QuestionState
from longline.storage.backends import upsert
from longline.storage.database import Repository, Row, reads, writes
from longline.storage.schema import enrichments, questions, records

OPEN_QUESTIONS = frozenset({QuestionState.QUEUED, QuestionState.LEASED})
LOCAL_MODEL = "enricher "
"""Prefix of the model of a question that a local enricher answers; its name follows."""
_KEPT_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt without a usable answer: when, what was wrong, what the model responded."""

    at: float
    problem: str
    response: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A complete prompt, independent of its task file.

    For a local enricher, `model` is its name and `version` its own. `tries` counts unusable
    answers; `attempts` lists them and other failures.
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
class QuestionRequest:
    """A version of a record and its question; with a `reason` the question is skipped."""

    record: int
    version: int
    question: Question
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class QuestionOutcome:
    """The result of one attempt; `due` is when a question that is queued again is due."""

    question: Question
    owner: str
    at: float
    state: QuestionState
    answer: Any = None
    reason: str | None = None
    due: float = 0.0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class QuestionBacklog:
    """What is left of a task: queued, leased, and when the first queued question is due."""

    queued: int = 0
    leased: int = 0
    due: float | None = None


# A leased question whose last record has left the task returns to the queue and is not asked.
_IS_WANTED = exists().where(
    enrichments.c.question_id == questions.c.id, enrichments.c.task == questions.c.task
)


class Questions(Repository):
    """The questions of all tasks, and which records have them."""

    @reads
    def linked(
        self, connection: Connection, task: str, ids: Sequence[int]
    ) -> dict[int, tuple[str, int]]:
        """Return by record its question, and the version of the record that has it."""
        query = select(
            enrichments.c.record_id, enrichments.c.question_id, enrichments.c.version
        ).where(enrichments.c.task == task, enrichments.c.record_id.in_(ids))
        return {
            record: (question, version) for record, question, version in connection.execute(query)
        }

    @reads
    def open_links(self, connection: Connection, task: str) -> dict[int, str]:
        """Return by record the unfinished questions of a task."""
        query = (
            select(enrichments.c.record_id, enrichments.c.question_id)
            .join(questions, questions.c.id == enrichments.c.question_id)
            .where(enrichments.c.task == task, questions.c.state.in_(sorted(OPEN_QUESTIONS)))
        )
        return {row.record_id: row.question_id for row in connection.execute(query)}

    @writes
    def enqueue(
        self, connection: Connection, task: str, requests: Sequence[QuestionRequest], at: float
    ) -> int:
        """Link records to their questions and queue the new ones; return how many are new."""
        if not requests:
            return 0
        rows = {one.question.id: _question_row(one, at) for one in requests}
        add = upsert(connection, questions).on_conflict_do_nothing().returning(questions.c.state)
        new = connection.scalars(add, list(rows.values())).all()
        link = upsert(connection, enrichments)
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
            for one in requests
        ]
        connection.execute(link, links)
        return sum(state == QuestionState.QUEUED for state in new)

    @writes
    def unlink(self, connection: Connection, task: str, links: Mapping[int, str]) -> int:
        """Unlink records from these questions unless they are answered; return how many."""
        is_open = questions.c.state.in_(sorted(OPEN_QUESTIONS))
        pair = tuple_(enrichments.c.record_id, enrichments.c.question_id)
        removed = connection.execute(
            delete(enrichments).where(
                enrichments.c.task == task,
                pair.in_(list(links.items())),
                enrichments.c.question_id.in_(select(questions.c.id).where(is_open)),
            )
        )
        return removed.rowcount

    @writes
    def prune(self, connection: Connection, task: str) -> None:
        """Delete questions that no record has, and take over those queued by other tasks."""
        is_linked = exists().where(enrichments.c.question_id == questions.c.id)
        connection.execute(
            delete(questions).where(
                questions.c.task == task,
                questions.c.state.not_in([QuestionState.ANSWERED, QuestionState.LEASED]),
                ~is_linked,
            )
        )
        # Two tasks may have the same question; the one that runs last asks it for both.
        connection.execute(
            update(questions)
            .where(
                questions.c.task != task,
                questions.c.state == QuestionState.QUEUED,
                questions.c.id.in_(_ids_of(task)),
            )
            .values(task=task)
        )

    @writes
    def lease(
        self, connection: Connection, task: str, owner: str, *, at: float, until: float
    ) -> Question | None:
        """Lease the next due question to a worker; None when there is none."""
        due = (
            select(questions.c.id)
            .where(
                questions.c.task == task,
                questions.c.state == QuestionState.QUEUED,
                questions.c.due_at <= at,
                _IS_WANTED,
            )
            .order_by(questions.c.due_at)  # in the order of the index, so that nothing is sorted
            .limit(1)
            .with_for_update(skip_locked=True, of=questions)
        )
        row = connection.execute(
            update(questions)
            # Not `in`: PostgreSQL may run the subquery again, which locks another row each time.
            .where(questions.c.id == due.scalar_subquery())
            .values(state=QuestionState.LEASED, lease_owner=owner, lease_until=until)
            .returning(questions)
        ).one_or_none()
        if row is None:
            return None
        return Question(
            id=row.id,
            task=row.task,
            version=row.version,
            model=row.model,
            text=row.asked["text"],
            system=row.asked["system"],
            schema=row.asked["schema"],
            tries=row.tries,
            attempts=tuple(
                Attempt(one["at"], one["problem"], one["said"]) for one in row.asked["attempts"]
            ),
        )

    @writes
    def complete(self, connection: Connection, outcome: QuestionOutcome) -> bool:
        """Commit the result of an attempt; False when the lease was lost.

        A first answer is always kept, even after the lease was lost.
        """
        question, state = outcome.question, outcome.state
        if state is QuestionState.ANSWERED:
            may_write = questions.c.state != QuestionState.ANSWERED
        else:
            may_write = (questions.c.state == QuestionState.LEASED) & (
                questions.c.lease_owner == outcome.owner
            )
        changed = connection.execute(
            update(questions)
            .where(questions.c.id == question.id, may_write)
            .values(
                state=state,
                answer=outcome.answer,
                reason=outcome.reason,
                tries=question.tries,
                asked=_question_json(question),
                due_at=outcome.due,
                tokens=questions.c.tokens + outcome.tokens,
                lease_owner=None,
                lease_until=None,
                finished_at=None if state in OPEN_QUESTIONS else outcome.at,
            )
        )
        return changed.rowcount > 0

    @writes
    def renew(self, connection: Connection, task: str, owner: str, until: float) -> None:
        """Extend all leases of a worker."""
        connection.execute(
            update(questions)
            .where(_is_leased(task), questions.c.lease_owner == owner)
            .values(lease_until=until)
        )

    async def release(self, task: str, owner: str) -> None:
        """Return all questions that a worker has leased to the queue."""
        await self.reclaim(task, 0.0, [owner])

    @writes
    def reclaim(
        self, connection: Connection, task: str, at: float, dead: Sequence[str] = ()
    ) -> int:
        """Reclaim expired leases, and those of owners known to be dead; return how many."""
        freed = connection.execute(
            update(questions)
            .where(
                _is_leased(task),
                or_(questions.c.lease_until < at, questions.c.lease_owner.in_(list(dead))),
            )
            .values(state=QuestionState.QUEUED, lease_owner=None, lease_until=None)
        )
        return freed.rowcount

    @reads
    def owners(self, connection: Connection, task: str) -> list[str]:
        """Return the owners of leases of this task."""
        query = select(questions.c.lease_owner).where(_is_leased(task)).distinct()
        return [one for one in connection.scalars(query) if one is not None]

    @writes
    def retry(self, connection: Connection, task: str) -> int:
        """Queue failed questions again with no attempts counted; return how many."""
        queued = connection.execute(
            update(questions)
            .where(questions.c.state == QuestionState.FAILED, questions.c.id.in_(_ids_of(task)))
            .values(state=QuestionState.QUEUED, task=task, tries=0, due_at=0.0, finished_at=None)
        )
        return queued.rowcount

    @reads
    def backlog(self, connection: Connection, task: str) -> QuestionBacklog:
        """Return what is left to do."""
        query = (
            select(questions.c.state, func.count(), func.min(questions.c.due_at))
            .where(
                questions.c.task == task,
                questions.c.state.in_(sorted(OPEN_QUESTIONS)),
                _IS_WANTED,
            )
            .group_by(questions.c.state)
        )
        found = {state: (count, due) for state, count, due in connection.execute(query)}
        queued, due = found.get(QuestionState.QUEUED, (0, None))
        leased, _ = found.get(QuestionState.LEASED, (0, None))
        return QuestionBacklog(queued, leased, due)

    @reads
    def counts(
        self, connection: Connection, task: str | None = None
    ) -> dict[str, dict[str, dict[str, int]]]:
        """Return by task and state the number of records and of distinct questions."""
        query = (
            select(
                enrichments.c.task,
                questions.c.state,
                func.count(),
                func.count(questions.c.id.distinct()),
            )
            .join(questions, questions.c.id == enrichments.c.question_id)
            .group_by(enrichments.c.task, questions.c.state)
            .order_by(enrichments.c.task, questions.c.state)
        )
        if task is not None:
            query = query.where(enrichments.c.task == task)
        found: dict[str, dict[str, dict[str, int]]] = {}
        for name, state, linked, distinct in connection.execute(query):
            found.setdefault(name, {})[state] = {"records": linked, "questions": distinct}
        return found

    @reads
    def statistics(self, connection: Connection, task: str) -> Row:
        """Return the tokens used by a task, its models and its prompt versions."""
        mine = questions.c.id.in_(_ids_of(task))
        tokens = connection.scalar(select(func.sum(questions.c.tokens)).where(mine))
        kinds = connection.execute(
            select(questions.c.model, questions.c.version).where(mine).distinct()
        ).all()
        return {
            "tokens": int(tokens or 0),
            "models": sorted({row.model for row in kinds}),
            "prompt_versions": sorted({row.version for row in kinds}),
        }

    @reads
    def reasons(self, connection: Connection, task: str, *, limit: int = 10) -> list[Row]:
        """Return why records have no answer, or an empty one, the most frequent reason first."""
        query = (
            select(questions.c.state, questions.c.reason, func.count())
            .join(enrichments, enrichments.c.question_id == questions.c.id)
            .where(enrichments.c.task == task, questions.c.reason.is_not(None))
            .group_by(questions.c.state, questions.c.reason)
            .order_by(func.count().desc(), questions.c.reason)
            .limit(limit)
        )
        return [
            {"state": state, "reason": reason, "records": count}
            for state, reason, count in connection.execute(query)
        ]

    @reads
    def of_records(self, connection: Connection, ids: Iterable[int]) -> dict[int, list[Row]]:
        """Return the enrichments of records as `enrichments_of` does."""
        return enrichments_of(connection, list(ids))


def _is_leased(task: str) -> Any:
    return (questions.c.task == task) & (questions.c.state == QuestionState.LEASED)


def _ids_of(task: str) -> Select[Any]:
    """Select the ids of all questions that records have for a task."""
    return select(enrichments.c.question_id).where(enrichments.c.task == task)


def _question_row(request: QuestionRequest, at: float) -> Row:
    question = request.question
    is_skipped = request.reason is not None
    return {
        "id": question.id,
        "task": question.task,
        "version": question.version,
        "model": question.model,
        "asked": _question_json(question),
        "state": QuestionState.SKIPPED if is_skipped else QuestionState.QUEUED,
        "reason": request.reason,
        "tries": 0,
        "due_at": 0.0,
        "tokens": 0,
        "created_at": at,
        "finished_at": at if is_skipped else None,
    }


def _question_json(question: Question) -> Row:
    return {
        "text": question.text,
        "system": question.system,
        "schema": dict(question.schema),
        "attempts": [
            {"at": one.at, "problem": one.problem, "said": one.response}
            for one in question.attempts[-_KEPT_ATTEMPTS:]
        ],
    }


# ---------------- The enrichments of records


def enrichments_of(connection: Connection, ids: Sequence[int]) -> dict[int, list[Row]]:
    """Return by record its questions and answers, marked as machine-made.

    `is_current` is False when the record has changed since.
    """
    found: dict[int, list[Row]] = {}
    for row in connection.execute(_ENRICHED, {"b_ids": list(ids)}):
        is_answered = row.state == QuestionState.ANSWERED
        found.setdefault(row.record_id, []).append(
            {
                "task": row.task,
                "state": row.state,
                "answer": row.answer if is_answered else None,
                "reason": row.reason,
                "made_by": "machine",
                "model": row.model,
                "prompt_version": row.prompt_version,
                "answered_at": row.finished_at if is_answered else None,
                "record_version": row.version,
                "is_current": row.version == row.present,
                "tries": row.tries,
                "tokens": row.tokens,
                "question": row.question_id,
            }
        )
    return found


_ENRICHED = (
    select(
        enrichments.c.record_id,
        enrichments.c.task,
        enrichments.c.version,
        enrichments.c.question_id,
        records.c.version.label("present"),
        questions.c.version.label("prompt_version"),
        *(
            questions.c[name]
            for name in ("state", "answer", "reason", "model", "finished_at", "tries", "tokens")
        ),
    )
    .join(questions, questions.c.id == enrichments.c.question_id)
    .join(records, records.c.id == enrichments.c.record_id)
    .where(enrichments.c.record_id.in_(bindparam("b_ids", expanding=True)))
    .order_by(enrichments.c.record_id, enrichments.c.task)
)


def answer_origin(enrichment: Row) -> str:
    """Return which model and version made an answer, of a row of `enrichments_of`."""
    model, version = str(enrichment["model"]), str(enrichment["prompt_version"])
    # A local enricher has no prompt; its version is that of its library, table or rates.
    return f"{model}, {version if model.startswith(LOCAL_MODEL) else f'prompt version {version}'}"
