"""Layers that return what is no data or no fields, and errors that cannot say what they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from longline.errors import FailureKind
from longline.jobs.quarantine import replay, source_now
from longline.model import JobState
from longline.orchestrator import Orchestrator
from virtual import VirtualClock

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
BYTES = "it cannot be stored: field b is of type bytes, which is no data; return text, numbers, "


@pytest.fixture
async def longline(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Orchestrator]:
    async with Orchestrator(home=tmp_path, clock=clock) as orchestrator:
        yield orchestrator


def written(folder: Path, code: str, *, optional: bool = False, compose: str = "pass") -> str:
    path = folder / "odd.py"
    path.write_text(ODD.format(code=code, optional=optional, compose=compose))
    return str(path)


async def ended(longline: Orchestrator, source: str) -> dict[str, Any]:
    """Return the one item of a run, as it ended."""
    report = await longline.execute(source)
    (row,) = await longline.store.queue.finished(report.job)
    return row


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("{'o': object()}", "field o is of type object, which is no data; return "),
        ("{'b': [{'c': b'x'}]}", "field b.0.c is of type bytes, which is no data; return "),
        ("{'seen': object()}", "field seen is of type object, which is no data; return "),
        ("{'lock': threading.Lock()}", "field lock is of type lock, which is no data; return "),
    ],
)
async def test_a_value_that_is_no_data_is_quarantined(
    longline: Orchestrator, tmp_path: Path, value: str, problem: str
) -> None:
    row = await ended(longline, written(tmp_path, f"return {value}"))

    assert (row["state"], row["kind"]) == ("quarantined", FailureKind.INVALID)
    assert row["reason"].startswith(f"it cannot be stored: {problem}")
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
    assert held.reason.startswith(BYTES)
    assert result.ends == {"stored": 1}
    assert (await store.records.get("a"))["data"] == {"n": 1, "title": "Flat"}


async def test_a_bug_beside_a_value_that_is_no_data_stays_the_reason(
    longline: Orchestrator, tmp_path: Path
) -> None:
    row = await ended(longline, written(tmp_path, "return {'b': b'x'}", compose="1 / 0"))

    assert (row["state"], row["kind"]) == ("failed", FailureKind.BUG)
    assert row["reason"] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("value", "found"),
    [("[1]", "a list"), ("None", "nothing"), ("7", "an int"), ("'title'", "a str")],
)
async def test_a_layer_that_returns_no_fields_is_told(
    longline: Orchestrator, tmp_path: Path, value: str, found: str
) -> None:
    row = await ended(longline, written(tmp_path, f"return {value}"))

    assert (row["state"], row["kind"]) == ("failed", FailureKind.BUG)
    assert row["reason"] == f"layer page returned {found}, not fields by name"


async def test_an_optional_layer_that_returns_no_fields_is_a_note(
    longline: Orchestrator, tmp_path: Path
) -> None:
    await ended(longline, written(tmp_path, "return [1]", optional=True))

    record = await longline.store.records.get("a")
    told = "layer page returned a list, not fields by name"
    assert record["data"] == {"title": "Flat"}
    assert record["about"]["notes"] == [{"field": "page", "text": told}]


async def test_an_error_whose_text_cannot_be_had_is_told_with_its_class_layer_and_line(
    longline: Orchestrator, tmp_path: Path
) -> None:
    report = await longline.execute(written(tmp_path, "raise Mute"))

    (row,) = await longline.store.queue.finished(report.job)
    told = "layer page raised Mute: it has no text, since its __str__ raised RuntimeError"
    assert (report.state, row["kind"]) == (JobState.FAILED, FailureKind.BUG)
    assert row["reason"] == f"{told} (odd.py:19)"


async def test_such_an_error_after_the_layers_is_told_with_its_class(
    longline: Orchestrator, tmp_path: Path
) -> None:
    row = await ended(longline, written(tmp_path, "return {}", compose="raise Mute"))

    assert row["reason"] == "Mute: it has no text, since its __str__ raised RuntimeError"
