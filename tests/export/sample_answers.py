"""Answers of machines about records, without a machine."""

from __future__ import annotations

from typing import Any

from longline.core.model import QuestionState
from longline.storage.enrichment import Question, QuestionOutcome, QuestionRequest
from longline.storage.store import Store
from tests.virtual import EPOCH


async def answered(
    store: Store, key: str, answer: Any, *, task: str = "moods", version: str = "v3"
) -> None:
    """Let a machine say this about a record as it is now."""
    one = await asked(store, key, task=task, version=version)
    await store.questions.complete(
        QuestionOutcome(one, "me", EPOCH + 5, QuestionState.ANSWERED, answer=answer)
    )


async def asked(store: Store, key: str, *, task: str = "moods", version: str = "v3") -> Question:
    """Queue a question about a record as it is now."""
    row = await store.records.get(key)
    name = f"{task} {version} about {key} {row['version']}"
    one = Question(name, task, version, "practice", "What mood?", schema={"type": "object"})
    await store.questions.enqueue(task, [QuestionRequest(row["id"], row["version"], one)], EPOCH)
    return one
