"""What a test of enriching begins with: records, a task, and a run of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from longline.core.clock import Clock
from longline.core.model import Record
from longline.enrichment.enricher import Enricher
from longline.enrichment.phase import Phase, PhaseReport, Queued, queue_records
from longline.enrichment.servers import open_enricher, task_limiter
from longline.enrichment.task_files import AnyTask, EnrichTask
from longline.sandbox.language_model import LanguageModel
from longline.storage.database import Database
from longline.storage.enrichment import Questions
from longline.storage.records import Records

SCHEMA = {
    "type": "object",
    "properties": {
        "rooms": {"type": "integer", "minimum": 1, "maximum": 9},
        "mood": {"enum": ["plain", "eager"]},
    },
    "required": ["rooms", "mood"],
    "additionalProperties": False,
}


def task_of(url: str, **values: Any) -> EnrichTask:
    """Return a task that asks about the description of every flat."""
    server = {"url": url, **values.pop("server", {})}
    whole = {
        "enrich": "rooms",
        "sources": ["flats"],
        "server": server,
        "model": "practice",
        "prompt": "How many rooms? {description}",
        "schema": SCHEMA,
        "rate": "unlimited",
        **values,
    }
    return EnrichTask.model_validate(whole)


def question_about(text: str) -> str:
    return f"How many rooms? {text}"


@dataclass(slots=True)
class Desk:
    """A database, a clock, and the tasks that run on them."""

    database: Database
    clock: Clock
    records: Records = field(init=False)
    questions: Questions = field(init=False)

    def __post_init__(self) -> None:
        self.records = Records(self.database)
        self.questions = Questions(self.database)

    async def store(self, *texts: str | None, source: str = "flats") -> None:
        """Store a record for each description; its key is its number."""
        for number, text in enumerate(texts):
            data = {"title": f"Flat {number}", "description": text}
            record = Record(source, str(number), f"https://flats.test/{number}", data, f"{text}")
            await self.records.create(record, at=self.clock.now())

    async def queue(self, task: AnyTask) -> Queued:
        return await queue_records(task, self.records, self.questions, self.clock)

    async def run(
        self,
        task: AnyTask,
        *,
        limit: int | None = None,
        owner: str = "me",
        using: Callable[[Phase], None] = lambda _phase: None,
        **phase: Any,
    ) -> PhaseReport:
        """Queue and ask, as the command does."""
        await self.queue(task)
        limiter = task_limiter(task, self.clock)
        async with open_enricher(task, limiter, self.clock) as enricher:
            made = self.phase(task, enricher, owner=owner, limiter=limiter, **phase)
            using(made)
            return await made.run(limit)

    def phase(
        self, task: AnyTask, enricher: Enricher, *, owner: str = "me", **values: Any
    ) -> Phase:
        return Phase(task, self.questions, enricher, self.clock, owner=owner, **values)

    async def enrichment(self, key: str) -> dict[str, Any]:
        """Return the only thing that was asked about a record."""
        row = await self.records.get(key)
        (only,) = (await self.questions.of_records([row["id"]]))[row["id"]]
        return only


def is_asked_once(model: LanguageModel) -> bool:
    return set(model.tally.asked.values()) == {1}
