"""What machines were asked about records, and what came of it: for those who look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from longline.model import QuestionState
from longline.stores.asking import IS_WANTED, LOCAL_MODEL, OPEN_QUESTIONS, Standing, of_task
from longline.stores.schema import enrichments, questions, records

Row = dict[str, Any]
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
