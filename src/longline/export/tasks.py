"""Exports of the records of a job as durable tasks, which another process may carry out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
from longline.storage.events.events import EventFilter, EventRow, event_row
from longline.storage.query import RecordQuery
from longline.storage.queue.tasks import Task, TaskKind
from longline.storage.store import Store

_ENDS = {
    "export.written": "written",
    "export.failed": "failed",
    "export.dropped": "dropped",
}
_MOST_ENDS = 1000  # events of one job
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


# ---------------- Exports to files of a home, by name


@dataclass(frozen=True, slots=True)
class FileExport:
    """An export of a job to a file in the folder of exports, as far as it is known.

    `state` is queued, running, written, failed or dropped.
    """

    job: str
    file: str
    state: str
    reason: str | None = None
    records: int | None = None


def exports_folder(home: Path) -> Path:
    """Return the folder of a home for files that callers name without a path."""
    return (home / "exports").absolute()


def file_in(folder: Path, output: Any) -> str | None:
    """Return the name of a destination that is a file in a folder; None if it is not."""
    path = Path(output) if isinstance(output, str) else None
    return path.name if path is not None and path.parent == folder else None


async def enqueue_file_export(
    store: Store, job: Job, folder: Path, file: str, columns: Sequence[str] = ()
) -> FileExport:
    """Enqueue the export of a job to a file in a folder; one that waits for the file is replaced.

    Raises:
        BadOption: the ending of the file or a column is unknown.
    """
    request = ExportRequest(str(folder / file), columns=tuple(columns), makes_folder=True)
    request = prepare_for_task(request, option="file", by_worker=True)
    at = await store.now()
    new = export_task(request, job.id, at, is_after_end=False)
    for task in await store.tasks.of_job(job.id):
        if task.kind is TaskKind.EXPORT and task.what.get("output") == request.output:
            await store.tasks.drop(task, at, ())
    await store.tasks.place(new)
    return FileExport(job.id, file, "queued")


async def file_exports(store: Store, job: str, folder: Path) -> list[FileExport]:
    """Return the exports of a job to files in a folder, by file, each in its latest state."""
    wanted = EventFilter(tuple(_ENDS), job=job)
    found: dict[str, FileExport] = {}
    for event in await store.events.last(wanted, limit=_MOST_ENDS):
        if (file := file_in(folder, event.data.get("output"))) is not None:
            details = {name: event.data.get(name) for name in ("reason", "records")}
            found[file] = FileExport(job, file, _ENDS[event.type], **details)
    now = await store.now()
    for task in await store.tasks.of_job(job):
        file = file_in(folder, task.what.get("output"))
        if task.kind is TaskKind.EXPORT and file is not None:
            state = "queued" if task.owner is None or task.until < now else "running"
            found[file] = FileExport(job, file, state)
    return [found[file] for file in sorted(found)]


# ---------------- Running an export


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
