"""longline enrich: run enrichment tasks over records and inspect the answers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.spinner import Spinner
from rich.text import Text

from longline.cli.exit_codes import ExitCode
from longline.cli.options import COUNT, home_option, json_option, key_options, settings_of
from longline.cli.output import (
    TextTable,
    count_text,
    duration_text,
    iso_time,
    one_line,
    print_json,
    stdout_console,
    value_text,
)
from longline.cli.progress import STOPPED, LiveDisplay
from longline.cli.queries import find_record, with_store
from longline.config.settings import Settings, prepare_home
from longline.core.clock import SystemClock
from longline.core.errors import BadOption
from longline.core.model import QuestionState
from longline.engine.owner import dead_among, this_run
from longline.engine.runtime import handling_signals
from longline.enrichment.phase import Phase, PhaseProgress, PhaseReport, PhaseState
from longline.enrichment.queueing import queries_of, queue_records
from longline.enrichment.servers import open_enricher, task_limiter
from longline.enrichment.task_files import AnyTask, read_task
from longline.sources.loader import SUFFIXES
from longline.storage.database import Row
from longline.storage.enrichment import Questions, answer_origin
from longline.storage.store import Store, open_store
from longline.wiring import open_limit_backends

_STOPPING = "Waiting for responses in flight. Press Ctrl-C again to stop immediately."
_VALUE = 300  # characters of a value
_COLOURS = {
    PhaseState.COMPLETE: "green",
    PhaseState.PARTIAL: "yellow",
    PhaseState.PAUSED: "yellow",
    PhaseState.INTERRUPTED: "yellow",
}


@click.group("enrich")
def enrich_command() -> None:
    """Enrich records with a language model or a local enricher."""


@enrich_command.command("run")
@click.argument("file", type=click.Path(path_type=Path), metavar="TASK.yaml")
@click.option("--limit", type=COUNT, help="Maximum number of questions.")
@home_option
@json_option
def run(file: Path, *, limit: int | None, home: Path | None, as_json: bool) -> None:
    """Run TASK.yaml over new and changed records.

    A second run resumes where the first one stopped.
    """
    task = read_task(file)
    queries_of(task)  # reports a wrong condition before anything is opened
    settings = settings_of(home)
    prepare_home(settings)
    sys.exit(asyncio.run(_run_task(task, settings, limit, as_json=as_json)))


@enrich_command.command("status")
@click.argument("task", required=False)
@home_option
@json_option
def status(task: str | None, *, home: Path | None, as_json: bool) -> None:
    """Show the progress of all tasks, or of TASK.

    TASK is a task's name or its file; its failure reasons are shown, too.
    """
    name = None if task is None else _task_name(task)
    rows = with_store(home, lambda store: _status_rows(store.questions, name))
    if as_json:
        print_json(rows)
    else:
        _print_status(rows)


@enrich_command.command("show")
@key_options
@home_option
@json_option
def show_enrichments(key: str, *, source: str | None, home: Path | None, as_json: bool) -> None:
    """Show the enrichments of a record.

    With model, version and time of each.
    """

    async def enrichments(store: Store) -> tuple[Row, list[Row]]:
        record = await find_record(store, key, source)
        found = await store.questions.of_records([record["id"]])
        return record, found.get(record["id"], [])

    record, rows = with_store(home, enrichments)
    if as_json:
        print_json({"source": record["source"], "key": record["key"], "enrichments": rows})
    else:
        _print_enrichments(record, rows)


@enrich_command.command("retry")
@click.argument("task")
@home_option
@json_option
def retry(task: str, *, home: Path | None, as_json: bool) -> None:
    """Requeue the failed questions of TASK for its next run.

    TASK is a task's name or its file.
    """
    name = _task_name(task)

    async def requeue(store: Store) -> int:
        await _check_task(store.questions, name)
        return await store.questions.retry(name)

    count = with_store(home, requeue)
    if as_json:
        print_json({"task": name, "queued": count})
    else:
        click.echo(f"requeued {count_text(count, 'question')} of {name}")


# ---------------- Running a task


class _TaskDisplay(LiveDisplay):
    """Shows the progress of one task."""

    def __init__(self, *, is_quiet: bool) -> None:
        super().__init__(is_quiet=is_quiet)
        self._spinner = Spinner("dots", Text("queueing"))

    def update(self, progress: PhaseProgress) -> None:
        """Show the progress of the task."""
        line = _progress_line(progress)
        self._spinner.update(text=Text(line))
        self.show(progress.seconds, lambda: self._spinner, lambda: line, progress.task)


async def _run_task(task: AnyTask, settings: Settings, limit: int | None, *, as_json: bool) -> int:
    display = _TaskDisplay(is_quiet=as_json)
    try:
        with open_store(settings.database) as store, display:
            report = await _run_phase(task, settings, store, limit, display)
    except asyncio.CancelledError:
        click.echo(STOPPED, err=True)
        return ExitCode.INTERRUPTED
    if as_json:
        print_json(report.as_dict())
    else:
        _print_report(report)
    return report.exit_code


async def _run_phase(
    task: AnyTask, settings: Settings, store: Store, limit: int | None, display: _TaskDisplay
) -> PhaseReport:
    clock, questions = SystemClock(), store.questions
    async with open_limit_backends(settings, clock) as backends:
        limiter = task_limiter(task, clock, backends.rate_limits, backends.limits)
        async with open_enricher(task, limiter, clock) as enricher:
            phase = Phase(
                task,
                questions,
                enricher,
                clock,
                owner=this_run(),
                limiter=limiter,
                dead_among=dead_among,
                on_progress=display.update,
            )
            with handling_signals(phase.stop, lambda: display.say(_STOPPING)):
                queued = await queue_records(task, store.records, questions, clock)
                for warning in queued.warnings:
                    display.warn(f"warning: {one_line(warning, _VALUE)}")
                display.say(
                    f"{task.enrich}: {queued.records:,} records, {queued.asking:,} of them new or "
                    f"changed; {queued.questions:,} questions added, {queued.dropped:,} removed "
                    "(Ctrl-C stops safely)"
                )
                return await phase.run(limit)


def _progress_line(progress: PhaseProgress) -> str:
    counts = progress.records
    states = ", ".join(f"{counts[one]:,} {one}" for one in QuestionState if counts.get(one))
    return (
        f"{progress.task}: {progress.total:,} records ({states or 'none'}), "
        f"{progress.requests:,} requests, {progress.tokens:,} tokens, "
        f"{duration_text(progress.seconds)}"
    )


def _print_report(report: PhaseReport) -> None:
    console = stdout_console()
    console.print(Text(report.state.value, style=_COLOURS.get(report.state, "")), end="  ")
    console.print(_progress_line(report.progress), soft_wrap=True)
    if report.reason:
        console.print(one_line(report.reason, _VALUE), soft_wrap=True)
    if report.progress.records.get(QuestionState.FAILED):
        console.print(f"failure reasons: longline enrich status {report.progress.task}")


# ---------------- Tasks and answers in the database


async def _status_rows(questions: Questions, name: str | None) -> list[dict[str, Any]]:
    if name is not None:
        await _check_task(questions, name)
    return [
        {
            "task": task,
            "states": states,
            **await questions.statistics(task),
            "reasons": await questions.reasons(task) if name else [],
        }
        for task, states in (await questions.counts(name)).items()
    ]


async def _check_task(questions: Questions, name: str) -> None:
    if not await questions.counts(name):
        raise BadOption(
            "TASK", f"task {name!r} was never run here; `longline enrich status` lists the tasks"
        )


def _task_name(task: str) -> str:
    return read_task(Path(task)).enrich if task.endswith(SUFFIXES) else task


def _print_status(rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        click.echo("no task has been run yet; see docs/enrichment.md")
        return
    states = list(QuestionState)
    numbers = (*(state.value for state in states), "questions", "tokens")
    table = TextTable("task", *numbers, right=numbers)
    for row in rows:
        found = row["states"]
        table.add(
            row["task"],
            *(f"{found[state]['records']:,}" if state in found else "" for state in states),
            f"{sum(one['questions'] for one in found.values()):,}",
            f"{row['tokens']:,}",
        )
    table.print()
    for row in rows:
        for one in row["reasons"]:
            click.echo(f"  {one['records']:,} {one['state']}: {one_line(one['reason'], _VALUE)}")


def _print_enrichments(record: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
    console = stdout_console()
    name = one_line(f"{record['source']}/{record['key']}", _VALUE)
    console.print(name, style="bold", soft_wrap=True)
    if not rows:
        console.print("no enrichments")
    for row in rows:
        old = "" if row["is_current"] else f" (for version {row['record_version']}, now outdated)"
        console.print(f"\n{row['task']}: {row['state']}{old}", style="bold")
        at = f", {iso_time(row['answered_at'])}" if row["answered_at"] else ""
        console.print(f"  machine-made: {one_line(answer_origin(row), _VALUE)}{at}", soft_wrap=True)
        if row["reason"]:
            console.print(f"  {one_line(row['reason'], _VALUE)}", soft_wrap=True)
        answer = row["answer"] if isinstance(row["answer"], dict) else {"answer": row["answer"]}
        for field, value in answer.items() if row["answer"] is not None else ():
            text = one_line(value_text(value), _VALUE)
            console.print(f"  {one_line(field, _VALUE)}: {text}", soft_wrap=True)
