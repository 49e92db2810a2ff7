"""Layers that return what is no data or no fields, and errors that cannot say what they are."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from longline.analysis.replay import replay, source_now
from longline.core.errors import FailureKind
from longline.core.model import JobState
from longline.orchestrator import Orchestrator
from tests.virtual import VirtualClock

ODD = """
import threading

from longline import Item, Source, layer

class Mute(Exception):
    def __str__(self):
        raise RuntimeError("the second one")

class Odd(Source):
    name = "odd"
    volatile = frozenset({{"seen"}})

    async def discover(self, visit):
        yield Item("a", "https://odd.test/a")

    @layer(optional={optional})
    async def page(self, visit):
        {code}

    @layer()
    async def more(self, visit):
        return {{"title": "Flat"}}

    def compose(self, item, layers):
        {compose}
        return super().compose(item, layers)
"""


@pytest.fixture
async def longline(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Orchestrator]:
    async with Orchestrator(home=tmp_path, clock=clock) as orchestrator:
        yield orchestrator


def written(folder: Path, code: str, *, optional: bool = False, compose: str = "pass") -> str:
    path = folder / "odd.py"
    path.write_text(ODD.format(code=code, optional=optional, compose=compose))
    return str(path)


def words_of(reason: str) -> set[str]:
    return set(re.findall(r"[\w.]+", reason))


async def ended(longline: Orchestrator, source: str) -> dict[str, Any]:
    """Return the one item of a run, as it ended."""
    report = await longline.execute(source)
    (row,) = await longline.store.queue.finished(report.job)
    return row


@pytest.mark.parametrize(
    ("value", "field", "kind"),
    [
        ("{'o': object()}", "o", "object"),
        ("{'b': [{'c': b'x'}]}", "b.0.c", "bytes"),
        ("{'seen': object()}", "seen", "object"),
        ("{'mutex': threading.Lock()}", "mutex", "lock"),
    ],
)
async def test_a_value_that_is_no_data_is_quarantined(
    longline: Orchestrator, tmp_path: Path, value: str, field: str, kind: str
) -> None:
    row = await ended(longline, written(tmp_path, f"return {value}"))

    assert (row["state"], row["kind"]) == ("quarantined", FailureKind.INVALID)
    assert {field, kind} <= words_of(row["reason"])
    assert await longline.store.records.count() == 0


async def test_a_set_is_stored_as_the_same_list_in_every_run(
    longline: Orchestrator, tmp_path: Path
) -> None:
    source = written(tmp_path, "return {'s': {'b', 'a', 'c'}}")
    first, second = await ended(longline, source), await ended(longline, source)

    assert (first["state"], second["state"]) == ("stored", "unchanged")
    assert (await longline.store.records.get("a"))["data"] == {
        "s": ["a", "b", "c"],
        "title": "Flat",
    }


async def test_what_was_no_data_is_none_in_a_replay_and_can_be_left_out_there(
    longline: Orchestrator, tmp_path: Path, clock: VirtualClock
) -> None:
    report = await longline.execute(written(tmp_path, "return {'b': b'x', 'n': 1}"))
    store, job = longline.store, await longline.store.jobs.get(report.job)

    same = await replay(store, job, source_now(job, None), clock)
    held = await store.quarantine.get(job.id, "a")
    (tmp_path / "mended").mkdir()
    mended = written(tmp_path / "mended", "pass", compose="del layers['page']['b']")
    result = await replay(store, job, source_now(job, mended), clock)

    assert same.ends == {"quarantined": 1}
    assert {"b", "bytes"} <= words_of(held.reason)
    assert result.ends == {"stored": 1}
    assert (await store.records.get("a"))["data"] == {"n": 1, "title": "Flat"}


async def test_a_bug_stays_the_reason_next_to_a_value_that_is_not_data(
    longline: Orchestrator, tmp_path: Path
) -> None:
    row = await ended(longline, written(tmp_path, "return {'b': b'x'}", compose="1 / 0"))

    assert (row["state"], row["kind"]) == ("failed", FailureKind.BUG)
    assert row["reason"].startswith("ZeroDivisionError: ")


@pytest.mark.parametrize(
    ("value", "kind"), [("[1]", "list"), ("None", ""), ("7", "int"), ("'title'", "str")]
)
async def test_a_layer_that_returns_no_fields_is_a_bug_of_the_item(
    longline: Orchestrator, tmp_path: Path, value: str, kind: str
) -> None:
    row = await ended(longline, written(tmp_path, f"return {value}"))

    assert (row["state"], row["kind"]) == ("failed", FailureKind.BUG)
    assert {"page", kind} <= {"", *words_of(row["reason"])}


async def test_an_optional_layer_that_returns_no_fields_is_a_note(
    longline: Orchestrator, tmp_path: Path
) -> None:
    await ended(longline, written(tmp_path, "return [1]", optional=True))

    record = await longline.store.records.get("a")
    (note,) = record["about"]["notes"]
    assert record["data"] == {"title": "Flat"}
    assert note["field"] == "page"
    assert {"page", "list"} <= words_of(note["text"])


async def test_an_error_without_a_text_is_reported_with_its_class_layer_and_line(
    longline: Orchestrator, tmp_path: Path
) -> None:
    report = await longline.execute(written(tmp_path, "raise Mute"))

    (row,) = await longline.store.queue.finished(report.job)
    assert (report.state, row["kind"]) == (JobState.FAILED, FailureKind.BUG)
    assert {"page", "Mute", "RuntimeError"} <= words_of(row["reason"])
    assert "(odd.py:19)" in row["reason"]


async def test_such_an_error_after_the_layers_is_reported_with_its_class(
    longline: Orchestrator, tmp_path: Path
) -> None:
    row = await ended(longline, written(tmp_path, "return {}", compose="raise Mute"))

    assert row["kind"] == FailureKind.BUG
    assert {"Mute", "RuntimeError"} <= words_of(row["reason"])
