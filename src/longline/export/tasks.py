"""Exports of a job's records that are written later, by whoever comes to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from longline.config.secrets import SecretRef
from longline.core.errors import BadOption, LonglineError, StoreError
from longline.core.model import Job, JobState
from longline.export.base import check_folder
from longline.export.columns import chosen_columns
from longline.export.destinations.base import STDOUT, Wish, check
from longline.export.destinations.postgres import SCHEMES
from longline.export.files import export
from longline.export.writing import form_of
from longline.storage.events import EventRow, event_row
from longline.storage.queue.tasks import Task, TaskKind
from longline.storage.records.selecting import RecordQuery
from longline.storage.store import Store

_WITHOUT_RESULT = (JobState.CANCELLED, JobState.FAILED)


@dataclass(frozen=True, slots=True)
class ExportEnd:
    """What came of an export: so many records at `output`, or none for a `reason`."""

    output: str
    records: int = 0
    reason: str | None = None

    def as_fact(self, job: str, at: float) -> EventRow:
        """Return it as an event of the job."""
        if self.reason is not None:
            return event_row(job, at, "export.failed", output=self.output, reason=self.reason)
        return event_row(job, at, "export.written", output=self.output, records=self.records)


def for_later(wish: Wish, *, option: str, by_worker: bool) -> Wish:
    """Return a wish as it is understood from anywhere: the path of a file is made absolute.

    What is written `by_worker` stands in the database until then, where no password belongs.

    Raises:
        BadOption: it cannot be written, or not without whoever asked for it.
        DestinationUnwritable: the folder of a file that is written here does not exist.
    """
    if wish.output == STDOUT:
        raise BadOption(option, "it is written later, so standard output is no place: name a file")
    scheme = check(wish, option=option)
    chosen_columns(wish.columns, wish.tasks or ())
    if scheme not in SCHEMES:
        name = Path(urlsplit(wish.output).path if scheme else wish.output).name
        form_of(name, wish.form, option=option)
    if not scheme and not by_worker and not wish.makes_folder:
        check_folder(Path(wish.output), makes_folder=False)
    if scheme and by_worker and _has_password(wish.output):
        problem = "workers take no password from an address; say --secret env:NAME, or set"
        raise BadOption(option, f"{problem} PGPASSWORD where they run")
    return replace(wish, output=from_anywhere(wish.output))


def from_anywhere(output: str) -> str:
    """Return a place as it is understood from anywhere: the path of a file is made absolute."""
    scheme, is_address, _ = output.partition("://")
    return output if scheme and is_address else str(Path(output).absolute())


def _has_password(address: str) -> bool:
    parts = urlsplit(address)
    return bool(parts.password) or "password" in parse_qs(parts.query)


def order_of(wish: Wish, job: str, at: float, *, is_after_end: bool) -> Task:
    """Return the order to write the records of a job, now or once it has ended."""
    return Task(job, TaskKind.EXPORT, at, _written_down(wish), is_after_end=is_after_end)


def wish_of(order: Task) -> Wish:
    """Return what an order asks for."""
    said: dict[str, Any] = dict(order.what)
    if secret := said.pop("secret", None):
        said["secret"] = SecretRef.parse(secret)
    for name in ("columns", "tasks"):
        if name in said:
            said[name] = tuple(said[name])
    return Wish(**said)


def _written_down(wish: Wish) -> Mapping[str, Any]:
    names = ("form", "partition", "table", "endpoint")
    said = {name: getattr(wish, name) for name in names if getattr(wish, name) is not None}
    if wish.makes_folder:
        said["makes_folder"] = True
    if wish.secret is not None:
        said["secret"] = str(wish.secret)
    if wish.columns:
        said["columns"] = list(wish.columns)
    if wish.tasks is not None:
        said["tasks"] = list(wish.tasks)
    if not wish.has_schema:
        said["has_schema"] = False
    return {"output": wish.output, **said}


async def write_job(store: Store, job: Job, wish: Wish, *, is_after_end: bool) -> ExportEnd:
    """Write the records of a job, whole or not at all.

    With `is_after_end` a job that was cancelled or failed, and has none, leaves what is there.

    Raises:
        StoreError: the database does not answer.
    """
    query = RecordQuery(job=job.id)
    if is_after_end and job.state in _WITHOUT_RESULT and not await store.records.count(query):
        return ExportEnd(wish.output, reason=f"the job is {job.state.value} and has no records")
    try:
        # In a thread, and from one moment of the database, however long it takes.
        done = await asyncio.to_thread(
            export,
            wish,
            lambda: store.records.stream(query, with_enrichments=wish.tasks is not None),
        )
    except StoreError:
        raise
    except LonglineError as error:
        return ExportEnd(wish.output, reason=str(error))
    except Exception as error:  # noqa: BLE001  # of libraries that write; it would fail again
        return ExportEnd(wish.output, reason=f"it could not be written: {error!r}")
    return ExportEnd(done.path, done.records)
