"""A job in a child process: `python -m longline.server.job_process`, and how it is started.

A source that crashes, hangs or leaks takes nothing else down. The plan is one line of JSON on
standard input, where no other user of the machine can read the passwords in it. That pipe stays
open: when it is closed, the executor is gone, and the process ends. The result is one line of JSON
on another pipe, since a source may print.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from asyncio.subprocess import Process
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from longline.config.settings import Settings
from longline.core.errors import LonglineError, StoreError
from longline.core.files import make_private_folder, private_opener
from longline.core.logging import LogContext, LogOptions, configure_logging, rotate_log
from longline.core.model import OPEN_STATES
from longline.core.output import protected_output, sanitize_error
from longline.distributed.processes import die_with
from longline.orchestrator import Orchestrator
from longline.scheduling.executor import EndKind, RunEnd, Runner
from longline.storage.scheduling.launches import Launch

_MODULE = "longline.server.job_process"
_LOG = logging.getLogger(_MODULE)  # in the process itself, __name__ is "__main__"

_GRACE = 30.0  # seconds for a job to commit what is in flight, before it is killed
_LOG_CHECK = 5.0  # seconds between two polls at the size of a log
_LOG_BYTES = 5_000_000  # of one log; as much again of its previous part is kept
_LOGS = 200  # that are kept
_MOST_REASON = 4000  # characters; a pipe holds 64 KiB
_STDERR = 2
_RESUMABLE = 4  # the exit code of errors after which the same command continues


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What an executor passes to the process of a job."""

    settings: dict[str, Any]
    launch: int
    name: str
    owner: str
    spec: dict[str, Any]
    target: str | None
    parent: int
    log_file: str
    log: dict[str, Any]


# ---------------- The executor's side


@dataclass(frozen=True, slots=True)
class _Child:
    """A process that waits for its plan, or runs its job; `result` is where it writes its end."""

    process: Process
    result: int

    @classmethod
    async def start(cls) -> _Child:
        reading, writing = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                _MODULE,
                str(writing),
                stdin=asyncio.subprocess.PIPE,
                stdout=_STDERR,  # until it has its log
                pass_fds=[writing],
                process_group=0,  # the executor handles the Ctrl-C of a terminal
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return cls(process, reading)

    async def end(self) -> None:
        """Kill it and what it has started, if something still runs."""
        self.kill()
        await self.process.wait()
        os.close(self.result)

    def kill(self) -> None:
        # Its group outlives it, if something that it started does.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def run(self, plan: JobPlan, stop: asyncio.Event) -> int:
        """Pass the plan to it and wait for its end; return its exit code."""
        stdin = self.process.stdin
        assert stdin is not None  # noqa: S101  # we asked for a pipe
        async with asyncio.TaskGroup() as group:
            others = [
                group.create_task(self._end_when_stopped(stop)),
                group.create_task(_bound_log(Path(plan.log_file))),
            ]
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has ended
                stdin.write(orjson.dumps(asdict(plan)) + b"\n")
                await stdin.drain()
            code = await self.process.wait()
            for one in others:
                one.cancel()
        return code

    async def _end_when_stopped(self, stop: asyncio.Event) -> None:
        await stop.wait()
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        await asyncio.sleep(_GRACE)
        _LOG.warning("process %s did not end within %.0f s", self.process.pid, _GRACE)
        self.kill()


class JobProcesses(Runner):
    """Runs each job in a child process; with the engine `celery`, the child submits it to workers.

    A spare process has imported everything and waits, so that a job starts immediately.

    Args:
        settings: passed to the jobs; may be replaced, which concerns later runs.
        log: how much a job logs.
        logs: the folder for one log per launch.
    """

    def __init__(self, settings: Settings, log: LogOptions, logs: Path) -> None:
        self.settings = settings
        self._log = log
        self._logs = logs
        self._spare: _Child | None = None

    async def prepare(self) -> None:
        """Start the spare process, if there is none."""
        if self._spare is None:
            self._spare = await _Child.start()

    async def aclose(self) -> None:
        """End the spare process."""
        child, self._spare = self._spare, None
        if child is not None:
            await child.end()

    async def run(self, launch: Launch, owner: str, stop: asyncio.Event) -> RunEnd:
        path = self._logs / f"{launch.id}.log"
        make_private_folder(path.parent)
        _remove_old_logs(path.parent)
        plan = JobPlan(
            self.settings.model_dump(mode="json"),
            launch.id,
            launch.name,
            owner,
            dict(launch.spec),
            launch.target,
            os.getpid(),
            str(path),
            asdict(self._log),
        )
        child = await self._take()
        try:
            code = await child.run(plan, stop)
            return _read_end(child.result) or _death(code, path, is_stopped=stop.is_set())
        finally:
            await child.end()

    async def _take(self) -> _Child:
        """Return the spare process, or a new one, and start the next spare."""
        child, self._spare = self._spare, None
        if child is not None and child.process.returncode is not None:
            await child.end()
            child = None
        child = child or await _Child.start()
        try:
            self._spare = await _Child.start()
        except OSError as error:  # too many processes; the job itself can run
            _LOG.warning("no spare process could be started: %s", error)
        return child


def _read_end(pipe: int) -> RunEnd | None:
    """Return the end that a process has written; None: it died before."""
    os.set_blocking(pipe, False)
    try:
        found = orjson.loads(os.read(pipe, 1 << 16))
    except (BlockingIOError, orjson.JSONDecodeError):
        return None
    return RunEnd(**{**found, "kind": EndKind(found["kind"])})


def _death(code: int, log: Path, *, is_stopped: bool) -> RunEnd:
    if is_stopped:
        return RunEnd(EndKind.INTERRUPTED)
    if code < 0:
        with contextlib.suppress(ValueError):
            return RunEnd(EndKind.DIED, reason=f"killed by {signal.Signals(-code).name}")
    last = _last_line(log)
    return RunEnd(EndKind.DIED, reason=f"exit code {code}{f', {last}' if last else ''}")


# ---------------- Logs


def _remove_old_logs(folder: Path) -> None:
    """Remove all but the newest logs."""
    logs = sorted(folder.glob("*.log*"), key=lambda one: one.stat().st_mtime, reverse=True)
    for old in logs[_LOGS:]:
        old.unlink(missing_ok=True)


async def _bound_log(path: Path) -> None:
    """Rotate a log that grows too large."""
    while True:
        await asyncio.sleep(_LOG_CHECK)
        await asyncio.to_thread(rotate_log, path, max_bytes=_LOG_BYTES, parts=1)


def _last_line(path: Path) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1000))
        lines = file.read().decode(errors="replace").split("\n")
        return sanitize_error(next((line for line in reversed(lines) if line.strip()), ""))
    return ""


# ---------------- The process itself


def main() -> int:
    """Run the job of a launch; return the exit code of the command line for it."""
    result = int(sys.argv[1])
    os.set_inheritable(result, False)
    line = sys.stdin.buffer.readline()
    if not line:
        return 0  # the executor has ended, and this spare process was not needed
    plan = JobPlan(**orjson.loads(line))
    die_with(plan.parent)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _log_to(plan.log_file)
    configure_logging(LogOptions(**plan.log))
    end, code = _run(plan)
    if end.reason is not None:
        end = RunEnd(end.kind, end.state, end.reason[:_MOST_REASON], end.job)
    os.write(result, orjson.dumps(asdict(end)))
    return code


def _log_to(path: str) -> None:
    """Append everything that this process prints or logs to a private file."""
    with open(path, "ab", opener=private_opener) as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())


def _exit_with_parent() -> None:
    """Exit when the executor has ended; on Linux, the kernel kills the process before."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(1)


def _run(plan: JobPlan) -> tuple[RunEnd, int]:
    try:
        return asyncio.run(_run_launch(plan))
    except Exception as error:  # noqa: BLE001  # the edge of the process
        return _ended_by(error)


def _ended_by(error: Exception) -> tuple[RunEnd, int]:
    """Log the error that ended a job; return what the executor is to do about it."""
    if isinstance(error, StoreError):
        return RunEnd(EndKind.OUTAGE, reason=sanitize_error(error)), _RESUMABLE
    if isinstance(error, LonglineError):
        _LOG.error(sanitize_error(error))
        is_outage = error.exit_code == _RESUMABLE
        kind = EndKind.OUTAGE if is_outage else EndKind.ENDED
        return RunEnd(kind, "failed", sanitize_error(error)), error.exit_code
    _LOG.error("internal error", exc_info=error)
    return RunEnd(EndKind.DIED, reason=sanitize_error(repr(error))), 1


async def _run_launch(plan: JobPlan) -> tuple[RunEnd, int]:
    context = {"launch": str(plan.launch), "source": plan.name}
    async with Orchestrator(settings=Settings(**plan.settings)) as orchestrator:
        with LogContext(**context, **({"job": plan.target} if plan.target else {})):
            try:
                return await _run_job(orchestrator, plan)
            except Exception as error:  # noqa: BLE001  # logged while the database is open
                return _ended_by(error)


async def _run_job(orchestrator: Orchestrator, plan: JobPlan) -> tuple[RunEnd, int]:
    with orchestrator.handling_signals():
        job, store = plan.target, orchestrator.store
        if job is None:
            if (launch := await store.launches.get(plan.launch)) is not None and launch.result:
                return RunEnd(EndKind.ENDED, launch.result, launch.reason), 0  # it was cancelled
            job = (await orchestrator.find_or_create_job(plan.spec)).id
            # A launch whose lease was lost is not started here; the other executor finds the
            # same job.
            if not await store.launches.attach(plan.launch, plan.owner, job, await store.now()):
                return RunEnd(EndKind.INTERRUPTED, job=job), _RESUMABLE
            found = await store.jobs.get(job)
            if found.state not in OPEN_STATES:  # the launch was cancelled before it had a job
                return RunEnd(EndKind.ENDED, found.state.value, found.reason, job), 0
        if orchestrator.settings.engine == "celery":
            await orchestrator.hand_over(job)
            return RunEnd(EndKind.SUBMITTED, job=job), 0
        report = await orchestrator.resume(job, engine="local")
    is_interrupted = report.is_interrupted and report.state in OPEN_STATES
    kind = EndKind.INTERRUPTED if is_interrupted else EndKind.ENDED
    return RunEnd(kind, report.state.value, report.reason, job), report.exit_code


if __name__ == "__main__":
    with protected_output():
        sys.exit(main())
