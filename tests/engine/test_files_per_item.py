"""How many files a reader has to open to follow an item from its lease to its commit."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pytest
from pydantic import BaseModel

import longline
from longline.core.model import Item, Usage
from longline.engine.collector import Collector
from longline.engine.runtime import RunOptions, Runtime
from longline.engine.worker import DomainWorker, StopSignal
from longline.http.messages import Request
from longline.sources.base import Source, Visit, layer
from longline.storage.jobs import NewJob
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim
from longline.storage.store import open_store
from tests.virtual import VirtualClock

PACKAGE = Path(longline.__file__).parent
MOST = 13
MOST_OF_CORE = 5
"""Files of `core/`, which every package uses; they are not among the thirteen."""


class WordRecord(BaseModel):
    word: str


class WordSource(Source):
    """Makes records without requests, whose files are not counted here."""

    name = "words"
    Record = WordRecord

    @layer()
    async def word(self, visit: Visit) -> dict[str, Any]:
        return {"word": visit.item.key}


class CallTrace:
    """Notes the files of the package whose code runs in any thread, while it is on."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._is_on = False

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if self._is_on and event == "call":
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(PACKAGE):
                self.files.add(path.relative_to(PACKAGE).as_posix())

    @contextmanager
    def on(self) -> Iterator[None]:
        self._is_on = True
        sys.setprofile(self)
        try:
            yield
        finally:
            self._is_on = False
            sys.setprofile(None)


@pytest.fixture
def trace() -> Iterator[CallTrace]:
    """Trace threads that are started from now on; this thread only where it is on."""
    trace = CallTrace()
    threading.setprofile(trace)
    yield trace
    threading.setprofile(None)


async def no_request(request: Request, usage: Usage) -> NoReturn:
    del request, usage
    raise AssertionError


async def test_an_item_passes_few_files_from_lease_to_commit(
    trace: CallTrace, tmp_path: Path, clock: VirtualClock
) -> None:
    committed = []
    with open_store(f"sqlite:///{tmp_path}/longline.sqlite") as store:
        job = await store.jobs.create(NewJob("words", {}, {}, clock.now()))
        found = Discovered(job.id, [Item("fish", "https://words.test/fish")], clock.now())
        await store.queue.enqueue(found)
        async with Runtime(store, clock) as runtime:
            await asyncio.sleep(0)  # the loops of the runtime wait for work
            claim = Claim(job.id, "me", 1, clock.now(), clock.now() + 20)
            leases = await store.queue.lease(claim)
            with trace.on():
                await DomainWorker(
                    runtime,
                    Collector(WordSource(), no_request, clock),
                    RunOptions(),
                    leases=leases,
                    room=asyncio.Semaphore(1),
                    stop=StopSignal(),
                    on_commit=lambda lease, _outcome, state: committed.append((lease, state)),
                ).run()

    core = {file for file in trace.files if file.startswith("core/")}
    others = trace.files - core
    assert [(lease.item.key, state) for lease, state in committed] == [("fish", "stored")]
    assert {"engine/worker.py", "storage/database.py"} <= others  # of both threads
    assert len(others) <= MOST, f"{len(others)} files, at most {MOST}: {sorted(others)}"
    assert len(core) <= MOST_OF_CORE, f"of core {len(core)} files: {sorted(core)}"
