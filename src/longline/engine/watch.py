"""Progress of running jobs for people, and checkpoint documents."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from longline.core.clock import Clock, utc_datetime
from longline.core.errors import ConfigError, StoreFull, StoreGone
from longline.core.files import make_private_file, make_private_folder, replacing
from longline.engine.process_loop import LoopMember, ProcessLoop
from longline.engine.progress import Progress, ProgressTracker
from longline.storage.events.events import EventLog, event_row
from longline.storage.queue.queue import JobCounts

OnProgress = Callable[[Progress], None]

_MAX_DOCUMENTS = 100  # per job
_CHECKPOINT_ITEMS = 50
_CHECKPOINT_SECONDS = 1.0  # the id of a checkpoint is its second
_POLL = 0.5  # seconds between two snapshots of the progress


class UnknownCheckpoint(ConfigError):
    """There is no checkpoint of this id."""

    name: str
    message = "there is no checkpoint {name!r} in this home"
    hint = "`longline checkpoints` lists the checkpoints."


class Checkpoints:
    """The checkpoint documents of a home, a folder per job; the newest are kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, progress: Progress, at: float) -> Path:
        """Write a document, completely or not at all; one of the same second is replaced.

        Raises:
            StoreFull: the disk is full.
            OSError: it cannot be written for another reason.
        """
        document = _document(progress, at)
        path = self._folder / progress.job / f"{document['checkpoint_id']}.json"
        try:
            make_private_folder(self._folder)
            make_private_folder(path.parent)
            with replacing(path) as draft:
                make_private_file(draft)
                draft.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise StoreFull(str(self._folder)) from error
            raise
        for old in sorted(path.parent.glob("*.json"))[:-_MAX_DOCUMENTS]:
            old.unlink(missing_ok=True)
        return path

    def list(self, job: str | None = None) -> list[dict[str, Any]]:
        """Return the documents, oldest first; damaged ones are left out."""
        documents = []
        for path in sorted(self._folder.glob("*/*.json")):
            if job not in (None, path.parent.name):
                continue
            with contextlib.suppress(OSError, orjson.JSONDecodeError):
                document = orjson.loads(path.read_bytes())
                if isinstance(document, dict) and {"checkpoint_id", "job"} <= set(document):
                    documents.append(document)
        return sorted(documents, key=lambda document: str(document["checkpoint_id"]))

    def get(self, name: str) -> dict[str, Any]:
        """Return the newest document of this id; "latest" is the newest of all.

        Raises:
            UnknownCheckpoint: there is none.
        """
        documents = self.list()
        if name != "latest":
            documents = [one for one in documents if one["checkpoint_id"] == name]
        if not documents:
            raise UnknownCheckpoint(name)
        return documents[-1]


def _document(progress: Progress, at: float) -> dict[str, Any]:
    return {
        "checkpoint_id": f"{utc_datetime(at):%Y%m%d_%H%M%S}",
        "timestamp": utc_datetime(at).isoformat(),
        "job": progress.job,
        "source": progress.source,
        "state": progress.state.value,
        "total": progress.total,
        "processed": progress.processed,
        "successful": progress.successful,
        "failed": progress.failed,
        "remaining": progress.remaining,
        "last_key": progress.last_key,
        "mean_seconds": progress.mean_seconds,
        "eta_seconds": progress.eta,
    }


class Watch(LoopMember):
    """Shows the progress of one running job and writes its checkpoints."""

    def __init__(
        self,
        tracker: ProgressTracker,
        checkpoints: Checkpoints,
        events: EventLog,
        clock: Clock,
        *,
        on_progress: OnProgress | None = None,
    ) -> None:
        super().__init__()
        self._tracker = tracker
        self._checkpoints = checkpoints
        self._event_log = events
        self._clock = clock
        self._on_progress = on_progress
        self._is_checkpoint_due = False
        self._items = 0
        self._written = 0.0

    @property
    def job(self) -> str:
        """The id of the job."""
        return self._tracker.job

    @property
    def is_due(self) -> bool:
        """Whether the progress is shown, or a checkpoint has to be written."""
        return self._on_progress is not None or self._has_to_write()

    def count(self) -> None:
        """Count a committed item."""
        self._items += 1
        if self._items % _CHECKPOINT_ITEMS == 0:
            self._is_checkpoint_due = True

    async def show(self, counts: JobCounts) -> None:
        """Show the progress, or write a checkpoint if one is due."""
        if self._has_to_write():
            self._is_checkpoint_due = False
            self._written = self._clock.now()
            await self._checkpoint(self._tracker.progress(counts))
        elif self._on_progress:
            self._on_progress(self._tracker.progress(counts))

    async def checkpoint(self) -> Progress:
        """Write a checkpoint now; if that fails, an event is appended.

        Raises:
            StoreFull: the disk is full, so the database cannot be written either.
        """
        return await self._checkpoint(await self._tracker.snapshot())

    def _has_to_write(self) -> bool:
        return self._is_checkpoint_due and (
            self._clock.now() - self._written >= _CHECKPOINT_SECONDS
        )

    async def _checkpoint(self, progress: Progress) -> Progress:
        now = self._clock.now()
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, self._checkpoints.write, progress, now)
        except OSError as error:  # the run does not depend on the document
            event = event_row(progress.job, now, "checkpoint.failed", reason=str(error))
            await self._event_log.append(event)
        else:
            self._tracker.last_checkpoint_at = now
            progress = replace(progress, last_checkpoint_at=now)
        if self._on_progress:
            self._on_progress(progress)
        return progress


class ProgressLoop(ProcessLoop[Watch]):
    """Shows the progress of all jobs of a process twice per second, with one query."""

    async def run(self) -> None:
        """Show the progress of jobs until cancelled; the jobs get the errors."""
        while True:
            await self._has_members.wait()
            await self._clock.sleep(_POLL)
            due = [watch for watch in self._members if watch.is_due]
            try:
                if due:
                    await self._show(due)
            except StoreGone:
                pass  # the work itself reports it, or waits for the database
            except Exception as error:  # noqa: BLE001  # every kind belongs to the jobs
                for watch in due:
                    watch.fail(error)

    async def _show(self, watches: list[Watch]) -> None:
        counts = await self._store.queue.progress([watch.job for watch in watches])
        for watch in watches:
            if watch not in self._members or watch.job not in counts:
                continue  # it has ended
            try:
                await watch.show(counts[watch.job])
            except StoreGone:
                raise
            except Exception as error:  # noqa: BLE001  # one job must not fail the others
                watch.fail(error)
