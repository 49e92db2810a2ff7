"""A run that is killed with -9 in the middle: no text that had been answered is asked again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from longline.core.clock import SystemClock
from longline.sandbox.language_model import LanguageModel, ModelOptions
from longline.storage.database import open_database
from tests.enrichment.tasks import Desk, question_about

PROGRAM = Path(__file__).with_name("asking_process.py")
TEXTS = [f"flat number {number}" for number in range(60)]
TASK = """
enrich: rooms
sources: flats
server: {{url: "{url}"}}
model: practice
prompt: "How many rooms? {{description}}"
schema: {{type: object, properties: {{rooms: {{type: integer}}}}, required: [rooms]}}
rate: unlimited
concurrency: 3
"""


@pytest.fixture
def real_desk(address: str) -> Iterator[Desk]:
    database = open_database(address)
    yield Desk(database, SystemClock())
    database.close()


def start(home: Path, task: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(home), str(task)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def kill_after(process: subprocess.Popen[str], desk: Desk, answered: int) -> None:
    """Kill a process once this many questions are answered."""
    while process.poll() is None:
        counts = (await desk.questions.counts("rooms")).get("rooms", {})
        if counts.get("answered", {}).get("questions", 0) >= answered:
            process.kill()
        await asyncio.sleep(0.01)
    await asyncio.to_thread(process.communicate)


@pytest.mark.real_time
async def test_a_killed_run_does_not_repeat_answered_questions(
    real_desk: Desk, tmp_path: Path
) -> None:
    task = tmp_path / "task.yaml"
    await real_desk.store(*TEXTS)
    async with LanguageModel(ModelOptions(latency=0.03)) as model:
        task.write_text(TASK.format(url=model.url))
        safe: dict[str, int] = {}  # what was answered, and how often it had been asked by then
        for answered in (5, 30):
            await kill_after(start(tmp_path, task), real_desk, answered)
            for text in await answered_texts(real_desk):
                safe.setdefault(text, model.tally.asked[text])

        last = start(tmp_path, task)
        out, error = await asyncio.to_thread(last.communicate)

    assert (last.returncode, error) == (0, "")
    assert '"answered":60' in out
    assert 30 <= len(safe) < 60
    assert {text: model.tally.asked[text] for text in safe} == safe
    # Three in flight are all that each of two deaths can have cost.
    assert model.tally.asked.total() <= 60 + 2 * 3


async def answered_texts(desk: Desk) -> set[str]:
    rows = [await desk.enrichment(str(number)) for number in range(len(TEXTS))]
    return {
        question_about(text)
        for text, row in zip(TEXTS, rows, strict=True)
        if row["state"] == "answered"
    }
