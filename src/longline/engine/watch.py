"""Progress of running jobs for people, and checkpoint documents."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from longline.core.clock import Clock, utc_datetime
from longline.core.errors import ConfigError, StoreFull, StoreGone
from longline.core.files import make_private_file, make_private_folder
from longline.engine.progress import Progress, ProgressTracker, rest_after
from longline.storage.events import EventLog, event_row
from longline.storage.queue.queue import JobCounts
from longline.storage.store import Store

# ---------------- Checkpoint documents: dated pictures of a job for people and tools

_KEPT = 100


class Checkpoints:
    """The checkpoint documents of a home, a folder a job, newest kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, progress: Progress, at: float) -> Path:
        """Write a document, whole or not at all; one of the same second is replaced.

        Raises:
            StoreFull: no room is left.
            OSError: it cannot be written for another reason.
        """
        document = snapshot(progress, at)
        path = self._folder / progress.job / f"{document['checkpoint_id']}.json"
        try:
            make_private_folder(self._folder)
            make_private_folder(path.parent)
            _write_whole(path, orjson.dumps(document, option=orjson.OPT_INDENT_2))
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise StoreFull(str(self._folder)) from error
            raise
        for old in sorted(path.parent.glob("*.json"))[:-_KEPT]:
            old.unlink(missing_ok=True)
        return path

    def list(self, job: str | None = None) -> list[dict[str, Any]]:
        """Return the documents, oldest first."""
        found = sorted(self._folder.glob("*/*.json"))
        paths = [path for path in found if job is None or path.parent.name == job]
        documents = [document for path in paths if (document := _read(path)) is not None]
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


def _write_whole(path: Path, content: bytes) -> None:
    # Processes that share a job may write in the same second: each needs a name of its own.
    beside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        make_private_file(beside)
        beside.write_bytes(content)
        beside.replace(path)
    finally:
        with suppress(OSError):  # it was renamed or never came to be
            beside.unlink()


def _read(path: Path) -> dict[str, Any] | None:
    """Return a document, or None when somebody has damaged it: nothing depends on it."""
    try:
        document = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    is_whole = isinstance(document, dict) and {"checkpoint_id", "job"} <= set(document)
    return document if is_whole else None


def snapshot(progress: Progress, at: float) -> dict[str, Any]:
    """Return a checkpoint document."""
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


class UnknownCheckpoint(ConfigError):
    """There is no checkpoint of this id."""

    name: str
    message = "there is no checkpoint {name!r} in this home"
    hint = "`longline checkpoints` lists the checkpoints."


_CHECKPOINT_ITEMS = 50
_CHECKPOINT_SECONDS = 1.0  # a checkpoint's id is its second
_POLL = 0.5  # seconds between two snapshots of the progress

OnProgress = Callable[[Progress], None]


class Watch:
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
        self._tracker = tracker
        self._checkpoints = checkpoints
        self._event_log = events
        self._clock = clock
        self._on_progress = on_progress
        self._is_checkpoint_due = False
        self._items = 0
        self._written = 0.0
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Gets the error that ended the watch, if there is one."""

    @property
    def job(self) -> str:
        """The id of the job."""
        return self._tracker.job

    @property
    def is_due(self) -> bool:
        """Whether somebody wants to see the progress, or a checkpoint has to be written."""
        return self._on_progress is not None or self._has_to_write()

    def count(self) -> None:
        """Note that an item was committed."""
        self._items += 1
        if self._items % _CHECKPOINT_ITEMS == 0:
            self._is_checkpoint_due = True

    async def wait_for_failure(self) -> None:
        """Wait until the progress cannot be read or written; never returns otherwise.

        Raises:
            StoreError: the database does not take any more.
        """
        await self.failure

    async def show(self, counts: JobCounts) -> None:
        """Show the progress, or write a checkpoint if one is due."""
        if self._has_to_write():
            self._is_checkpoint_due = False
            self._written = self._clock.now()
            await self._checkpoint(self._tracker.progress(counts))
        elif self._on_progress:
            self._on_progress(self._tracker.progress(counts))

    async def checkpoint(self) -> Progress:
        """Write a checkpoint now; one that cannot be written is noted as an event.

        Raises:
            StoreFull: no room is left, so the database will not take any more either.
        """
        return await self._checkpoint(await self._tracker.snapshot())

    def _has_to_write(self) -> bool:
        return self._is_checkpoint_due and (
            self._clock.now() - self._written >= _CHECKPOINT_SECONDS
        )

    async def _checkpoint(self, progress: Progress) -> Progress:
        now = self._clock.now()
        if await self._is_written(progress, now):
            self._tracker.last_checkpoint_at = now
            progress = replace(progress, last_checkpoint_at=now)
        if self._on_progress:
            self._on_progress(progress)
        return progress

    async def _is_written(self, progress: Progress, now: float) -> bool:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, self._checkpoints.write, progress, now)
        except OSError as error:  # nothing depends on the document: the run goes on
            reason = str(error)
            await self._event_log.append(
                event_row(progress.job, now, "checkpoint.failed", reason=reason)
            )
            return False
        return True


class ProgressLoop:
    """Shows the progress of all jobs of a process twice a second, with one query.

    It polls less often once there are so many items that counting them takes long.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._watches: set[Watch] = set()
        self._has_watches = asyncio.Event()

    @contextlib.contextmanager
    def following(self, watch: Watch) -> Iterator[None]:
        """Show the progress of a job while the block runs."""
        self._watches.add(watch)
        self._has_watches.set()
        try:
            yield
        finally:
            self._watches.discard(watch)
            if not self._watches:
                self._has_watches.clear()
            watch.failure.cancel()

    async def run(self) -> None:
        """Show the progress of jobs, until cancelled; errors are given to the jobs."""
        pause = _POLL
        while True:
            await self._has_watches.wait()
            await self._clock.sleep(pause)
            begun = self._clock.now()
            due = [watch for watch in self._watches if watch.is_due]
            try:
                await self._show(due)
            except StoreGone:
                pass  # the work itself reports it, or waits for the database
            except Exception as error:  # noqa: BLE001  # every kind belongs to the jobs
                for watch in due:
                    _fail(watch, error)
            pause = rest_after(self._clock.now() - begun, every=_POLL)

    async def _show(self, watches: list[Watch]) -> None:
        if not watches:
            return
        counts = await self._store.queue.progress([watch.job for watch in watches])
        for watch in watches:
            if watch not in self._watches or watch.job not in counts:
                continue  # it has ended meanwhile
            try:
                await watch.show(counts[watch.job])
            except StoreGone:
                raise
            except Exception as error:  # noqa: BLE001  # that of one job is not that of the others
                _fail(watch, error)


def _fail(watch: Watch, error: Exception) -> None:
    if not watch.failure.done():
        watch.failure.set_exception(error)
