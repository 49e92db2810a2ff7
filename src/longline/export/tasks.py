"""Exports of the records of a job as durable tasks, which another process may carry out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from longline.config.secrets import SecretRef
from longline.core.errors import BadOption, LonglineError, StoreError
from longline.core.model import Job, JobState
from longline.export.atomic_files import check_parent_folder
from longline.export.export import STDOUT, ExportRequest, check_request, export
from longline.export.formats import parse_format
from longline.export.postgres import SCHEMES
from longline.storage.events.events import EventRow, event_row
from longline.storage.query import RecordQuery
from longline.storage.queue.tasks import Task, TaskKind
from longline.storage.store import Store

_WITHOUT_RESULT = (JobState.CANCELLED, JobState.FAILED)


@dataclass(frozen=True, slots=True)
class ExportOutcome:
    """The number of records written to `output`, or the `reason` why none was."""

    output: str
    records: int = 0
    reason: str | None = None

    def as_event(self, job: str, at: float) -> EventRow:
        """Return it as an event of the job."""
        if self.reason is not None:
            return event_row(job, at, "export.failed", output=self.output, reason=self.reason)
        return event_row(job, at, "export.written", output=self.output, records=self.records)


def prepare_for_task(request: ExportRequest, *, option: str, by_worker: bool) -> ExportRequest:
    """Check a request that is carried out later, and make the path of a file absolute.

    A request for a worker is stored in the database, so it must not contain a password.

    Raises:
        BadOption: it cannot be carried out by another process.
        DestinationUnwritable: the folder of a file on this machine does not exist.
    """
    if request.output == STDOUT:
        raise BadOption(option, "a worker cannot export to standard output: name a file")
    scheme = check_request(request, option=option)
    if scheme not in SCHEMES:
        name = Path(urlsplit(request.output).path if scheme else request.output).name
        parse_format(name, request.format, option=option)
    if not scheme and not by_worker and not request.makes_folder:
        check_parent_folder(Path(request.output), makes_folder=False)
    address = urlsplit(request.output)
    has_password = bool(address.password) or "password" in parse_qs(address.query)
    if scheme and by_worker and has_password:
        problem = "workers do not accept a password in the address; use --secret env:NAME, or set"
        raise BadOption(option, f"{problem} PGPASSWORD on the workers")
    return replace(request, output=absolute_output(request.output))


def absolute_output(output: str) -> str:
    """Return a destination that does not depend on the working folder."""
    scheme, is_address, _ = output.partition("://")
    return output if scheme and is_address else str(Path(output).absolute())


def export_task(request: ExportRequest, job: str, at: float, *, is_after_end: bool) -> Task:
    """Return the task to export the records of a job, now or once it has ended."""
    changed = {
        one.name: value
        for one in fields(request)
        if (value := getattr(request, one.name)) != one.default and one.name != "redactor"
    }
    if "format" in changed:
        changed["form"] = changed.pop("format")  # the stored name
    if "secret" in changed:
        changed["secret"] = str(changed["secret"])
    return Task(job, TaskKind.EXPORT, at, changed, is_after_end=is_after_end)


def request_of(task: Task) -> ExportRequest:
    """Return the request of a task."""
    values: dict[str, Any] = dict(task.what)
    if "form" in values:
        values["format"] = values.pop("form")
    if "secret" in values:
        values["secret"] = SecretRef.parse(values["secret"])
    for name in ("columns", "tasks"):
        if name in values:
            values[name] = tuple(values[name])
    return ExportRequest(**values)


async def export_job(
    store: Store, job: Job, request: ExportRequest, *, is_after_end: bool
) -> ExportOutcome:
    """Export the records of a job.

    With `is_after_end`, a cancelled or failed job without records leaves the destination unchanged.

    Raises:
        StoreError: the database does not respond.
    """
    query = RecordQuery(job=job.id)
    if is_after_end and job.state in _WITHOUT_RESULT and not await store.records.count(query):
        reason = f"the job is {job.state.value} and has no records"
        return ExportOutcome(request.output, reason=reason)
    try:
        # In a thread, and from one snapshot of the database.
        result = await asyncio.to_thread(
            export,
            request,
            lambda: store.records.stream(query, with_enrichments=request.tasks is not None),
        )
    except StoreError:
        raise
    except LonglineError as error:
        return ExportOutcome(request.output, reason=str(error))
    except Exception as error:  # noqa: BLE001  # of a library that writes; it would fail again
        return ExportOutcome(request.output, reason=f"it could not be written: {error!r}")
    return ExportOutcome(result.path, result.records)
