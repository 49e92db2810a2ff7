"""A task that asks no model but an enricher of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enriching.tasks import Desk, task_of
from longline.enriching.local import LocalEnricher
from longline.enriching.report import PhaseState
from longline.pipeline.enrichers.base import Addition


class Counting:
    """Counts words, and how often it was asked."""

    name = "counting"

    def __init__(self) -> None:
        self.calls = 0

    def enrich(self, data: Mapping[str, Any]) -> Addition:
        self.calls += 1
        if data["description"] == "bad":
            raise ZeroDivisionError("no words")
        return Addition({"words": len(data["description"].split())})


async def test_an_enricher_of_the_pipeline_can_be_run_as_a_task(desk: Desk) -> None:
    await desk.store("two rooms", "one large room", "two rooms")
    counting = Counting()
    shape = {"type": "object", "required": ["words"]}
    task = task_of("http://127.0.0.1", prompt="{description}", model="counting", schema=shape)
    await desk.queue(task)

    report = await desk.phase(task, LocalEnricher(counting, field="description")).run()

    assert report.state is PhaseState.COMPLETE
    assert (await desk.enrichment("1"))["answer"] == {"words": 3}
    assert counting.calls == 2


async def test_an_enricher_that_raises_fails_its_text_alone(desk: Desk) -> None:
    await desk.store("two rooms", "bad")
    task = task_of("http://127.0.0.1", prompt="{description}", schema={"type": "object"})
    await desk.queue(task)

    report = await desk.phase(task, LocalEnricher(Counting(), field="description")).run()

    assert report.progress.records == {"answered": 1, "failed": 1}
    assert "ZeroDivisionError: no words" in (await desk.enrichment("1"))["reason"]
