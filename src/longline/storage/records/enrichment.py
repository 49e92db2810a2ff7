"""Questions about records: queued once a text, leased, put back, settled for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete, exists, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from longline.core.model import QuestionState
from longline.storage.columns import decoding
from longline.storage.database import Database
from longline.storage.schema import enrichments, questions, records
from longline.storage.schema import enrichments as table

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


# ---------------- What machines were asked about records, and what came of it: for those who look

_MANY = 500  # ids in one statement


def enrichments_of(connection: Connection, ids: Sequence[int]) -> dict[int, list[Row]]:
    """Return by record what machines were asked about it, the answers marked as theirs.

    `is_current` is False when the record has changed since it was asked about.
    """
    found: dict[int, list[Row]] = {}
    for start in range(0, len(ids), _MANY):
        rows = connection.execute(_ENRICHED, {"b_ids": list(ids[start : start + _MANY])})
        for row in rows.mappings():
            found.setdefault(row["record_id"], []).append(_enrichment(row))
    return found


def _enrichment(row: Mapping[Any, Any]) -> Row:
    is_answered = row["state"] == QuestionState.ANSWERED
    return {
        "task": row["task"],
        "state": row["state"],
        "answer": row["answer"] if is_answered else None,
        "reason": row["reason"],
        "made_by": "machine",
        "model": row["model"],
        "prompt_version": row["prompt_version"],
        "answered_at": row["finished_at"] if is_answered else None,
        "record_version": row["version"],
        "is_current": row["version"] == row["present"],
        "tries": row["tries"],
        "tokens": row["tokens"],
        "question": row["question_id"],
    }


def maker_of(enrichment: Row) -> str:
    """Return in words who made an answer, as `enrichments_of` has it."""
    model, version = str(enrichment["model"]), str(enrichment["prompt_version"])
    # An enricher has no prompt; its version is that of its library, table or rates.
    said = version if model.startswith(LOCAL_MODEL) else f"prompt version {version}"
    return f"{model}, {said}"


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


def standing(connection: Connection, task: str) -> Standing:
    """Return what is left to do of a task."""
    query = (
        select(questions.c.state, func.count(), func.min(questions.c.due_at))
        .where(
            questions.c.task == task,
            questions.c.state.in_(sorted(OPEN_QUESTIONS)),
            IS_WANTED,
        )
        .group_by(questions.c.state)
    )
    found = {state: (count, due) for state, count, due in connection.execute(query)}
    queued, due = found.get(QuestionState.QUEUED, (0, None))
    leased, _ = found.get(QuestionState.LEASED, (0, None))
    return Standing(queued, leased, due)


def counts(connection: Connection, task: str | None) -> dict[str, dict[str, dict[str, int]]]:
    """Return by task and state how many records and how many different questions there are."""
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
    for name, state, asked, different in connection.execute(query):
        found.setdefault(name, {})[state] = {"records": asked, "questions": different}
    return found


def figures(connection: Connection, task: str) -> Row:
    """Return the tokens that a task's questions took, and the models and prompts they had."""
    mine = questions.c.id.in_(of_task(task))
    tokens = connection.scalar(select(func.sum(questions.c.tokens)).where(mine))
    kinds = select(questions.c.model, questions.c.version).where(mine).distinct()
    pairs = sorted((row.model, row.version) for row in connection.execute(kinds))
    return {
        "tokens": int(tokens or 0),
        "models": sorted({model for model, _ in pairs}),
        "prompt_versions": sorted({version for _, version in pairs}),
    }


def reasons(connection: Connection, task: str, limit: int) -> list[Row]:
    """Return why records have no answer, or an empty one, the most frequent reason first."""
    query = (
        select(questions.c.state, questions.c.reason, func.count())
        .join(enrichments, enrichments.c.question_id == questions.c.id)
        .where(
            enrichments.c.task == task,
            questions.c.reason.is_not(None),
        )
        .group_by(questions.c.state, questions.c.reason)
        .order_by(func.count().desc(), questions.c.reason)
        .limit(limit)
    )
    return [
        {"state": state, "reason": reason, "records": count}
        for state, reason, count in connection.execute(query)
    ]


# ---------------- The questions of all tasks, and which records asked them


class Questions:
    """The questions of all tasks, and which records asked them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def asked_by(self, task: str, ids: Sequence[int]) -> dict[int, tuple[str, int]]:
        """Return of these records the question each has asked, and in which version."""
        columns = table.c.record_id, table.c.question_id, table.c.version
        query = select(*columns).where(table.c.task == task, table.c.record_id.in_(ids))
        return await self._database.read(
            lambda connection: {
                record: (question, version)
                for record, question, version in connection.execute(query)
            }
        )

    async def queue(self, task: str, wishes: Sequence[Wish], at: float) -> int:
        """Note what records ask, and queue what nobody has asked; return how many these are."""
        count: int = await self._database.write(queue, (task, wishes, at))
        return count

    async def open_links(self, task: str) -> dict[int, str]:
        """Return by record the questions of a task that have not come to an end."""
        query = (
            select(table.c.record_id, table.c.question_id)
            .join(questions, questions.c.id == table.c.question_id)
            .where(table.c.task == task, questions.c.state.in_(sorted(OPEN_QUESTIONS)))
        )
        return await self._database.read(
            lambda connection: {row.record_id: row.question_id for row in connection.execute(query)}
        )

    async def drop(self, task: str, links: Mapping[int, str]) -> int:
        """Forget that these records ask these questions; return how many.

        What was answered meanwhile stays.
        """
        count: int = await self._database.write(drop, (task, links))
        return count

    async def tidy(self, task: str) -> None:
        """Take over what other tasks have queued, and forget what no record asks any more."""
        await self._database.write(tidy, task)

    async def lease(self, task: str, owner: str, *, at: float, until: float) -> Question | None:
        """Give the next question that is due to a worker; None: there is none."""
        wish = {"b_task": task, "b_owner": owner, "b_at": at, "b_until": until}
        question: Question | None = await self._database.write(lease, wish)
        return question

    async def settle(self, settled: Settled) -> bool:
        """Commit how a try ended; False when that is of no use any more.

        An answer is never thrown away, whoever has the lease, unless there is one already.
        """
        is_settled: bool = await self._database.write(settle, settled)
        return is_settled

    async def renew(self, task: str, owner: str, until: float) -> None:
        """Keep all leases of a living worker."""
        await self._database.write(renew, (task, owner, until))

    async def release(self, task: str, owner: str) -> None:
        """Put back all that a worker has leased."""
        await self._database.write(reclaim, (task, 0.0, [owner]))

    async def reclaim(self, task: str, at: float, dead: Sequence[str] = ()) -> int:
        """Take back expired leases, and at once those of owners known to be dead."""
        count: int = await self._database.write(reclaim, (task, at, dead))
        return count

    async def owners(self, task: str) -> list[str]:
        """Return who holds leases of this task."""
        holders = (
            select(questions.c.lease_owner)
            .where(questions.c.task == task, questions.c.state == QuestionState.LEASED)
            .distinct()
        )
        return await self._database.read(
            lambda connection: [one for one in connection.scalars(holders) if one is not None]
        )

    async def retry(self, task: str) -> int:
        """Queue again what has failed, as if it had not been tried; return how many."""
        count: int = await self._database.write(retry, task)
        return count

    async def standing(self, task: str) -> Standing:
        """Return what is left to do."""
        return await self._database.read(lambda connection: standing(connection, task))

    async def counts(self, task: str | None = None) -> dict[str, dict[str, dict[str, int]]]:
        """Return by task and state how many records and how many different questions there are."""
        return await self._database.read(lambda connection: counts(connection, task))

    async def figures(self, task: str) -> Row:
        """Return the tokens that a task's questions took, and the models and prompts they had."""
        return await self._database.read(lambda connection: figures(connection, task))

    async def reasons(self, task: str, *, limit: int = 10) -> list[Row]:
        """Return why records have no answer, or an empty one, the most frequent reason first."""
        return await self._database.read(lambda connection: reasons(connection, task, limit))

    async def of_records(self, ids: Iterable[int]) -> dict[int, list[Row]]:
        """Return what machines were asked about these records; see `stores/enrichments.py`."""
        wanted = list(ids)
        return await self._database.read(lambda connection: enrichments_of(connection, wanted))
