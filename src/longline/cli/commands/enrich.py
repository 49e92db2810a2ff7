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
from longline.cli.options import COUNT, common_options, key_options, settings_of, wants_json
from longline.cli.output import (
    TextTable,
    duration_text,
    one_line,
    print_heading,
    print_json,
    print_line,
    print_result,
    time_text,
    value_text,
)
from longline.cli.progress import STOPPED, LiveDisplay, state_colour
from longline.cli.queries import find_record, uses_store
from longline.config.settings import Settings, prepare_home
from longline.core.clock import SystemClock
from longline.core.errors import BadOption
from longline.core.model import QuestionState
from longline.core.output import count_text
from longline.engine.runtime import handling_signals
from longline.enrichment.phase import PhaseProgress, PhaseReport, queries_of, queue_records
from longline.enrichment.task_files import AnyTask, read_task
from longline.monitoring.log_store import storing_logs
from longline.sources.loader import SUFFIXES
from longline.storage.enrichment import Questions, answer_origin
from longline.storage.store import Store, open_store
from longline.wiring import open_phase

_STOPPING = "Waiting for responses in flight. Press Ctrl-C again to stop immediately."
_VALUE = 300  # characters of a value


@click.group("enrich")
def enrich_command() -> None:
    """Enrich records with a language model or a local enricher."""


@enrich_command.command("run")
@click.argument("file", type=click.Path(path_type=Path), metavar="TASK.yaml")
@click.option("--limit", type=COUNT, help="Maximum number of questions.")
@common_options
def run_task(file: Path, *, limit: int | None) -> None:
    """Run the task in TASK.yaml on new and changed records.

    A second run resumes where the first one stopped.
    """
    task = read_task(file)
    queries_of(task)  # reports a wrong condition before anything is opened
    settings = settings_of()
    prepare_home(settings)
    sys.exit(asyncio.run(_run_task(task, settings, limit)))


@enrich_command.command("status")
@click.argument("task", required=False)
@common_options
@uses_store
async def show_status(store: Store, task: str | None) -> None:
    """Show the progress of all tasks, or of TASK.

    TASK is a task's name or its file. With TASK, failure reasons are shown as well.
    """
    name = None if task is None else _task_name(task)
    if name is not None:
        await _check_task(store.questions, name)
    questions = store.questions
    rows = [
        {
            "task": found,
            "states": states,
            **await questions.statistics(found),
            "reasons": await questions.reasons(found) if name else [],
        }
        for found, states in (await questions.counts(name)).items()
    ]
    print_result(rows, lambda: _print_status(rows))


@enrich_command.command("show")
@key_options
@common_options
@uses_store
async def show_enrichments(store: Store, key: str, *, source: str | None) -> None:
    """Show the enrichments of a record and their origin."""
    record = await find_record(store, key, source)
    rows = (await store.questions.of_records([record["id"]])).get(record["id"], [])
    name = {"source": record["source"], "key": record["key"]}
    if wants_json():
        print_json({**name, "enrichments": rows})
        return
    print_line(f"{record['source']}/{record['key']}")
    print_enrichments(rows)
    if not rows:
        click.echo("no enrichments")


@enrich_command.command("retry")
@click.argument("task")
@common_options
@uses_store
async def retry_questions(store: Store, task: str) -> None:
    """Requeue the failed questions of TASK for its next run.

    TASK is a task's name or its file.
    """
    name = _task_name(task)
    await _check_task(store.questions, name)
    count = await store.questions.retry(name)
    text = f"requeued {count_text(count, 'question')} of {name}"
    print_result({"task": name, "queued": count}, lambda: click.echo(text))


# ---------------- Running a task


async def _run_task(task: AnyTask, settings: Settings, limit: int | None) -> int:
    display = LiveDisplay(is_quiet=wants_json())
    spinner = Spinner("dots", Text("queueing"))

    def update(progress: PhaseProgress) -> None:
        line = _progress_line(progress)
        spinner.update(text=Text(line))
        display.show(progress.task, progress.seconds, spinner, line)

    try:
        with (
            open_store(settings.database) as store,
            storing_logs(store, settings, SystemClock()),
            display,
        ):
            async with open_phase(settings, task, store, on_progress=update) as phase:
                with handling_signals(phase.stop, lambda: display.say(_STOPPING)):
                    await _queue_questions(task, store, display)
                    report = await phase.run(limit)
    except asyncio.CancelledError:
        click.echo(STOPPED, err=True)
        return ExitCode.INTERRUPTED
    print_result(report.as_dict(), lambda: _print_phase(report))
    return report.exit_code


async def _queue_questions(task: AnyTask, store: Store, display: LiveDisplay) -> None:
    queued = await queue_records(task, store.records, store.questions, SystemClock())
    for warning in queued.warnings:
        display.warn(f"warning: {one_line(warning, _VALUE)}")
    display.say(
        f"{task.enrich}: {queued.records:,} records, {queued.asking:,} of them new or changed; "
        f"{queued.questions:,} questions added, {queued.dropped:,} removed (Ctrl-C stops safely)"
    )


def _progress_line(progress: PhaseProgress) -> str:
    counts = progress.records
    states = ", ".join(f"{counts[one]:,} {one}" for one in QuestionState if counts.get(one))
    return (
        f"{progress.task}: {progress.total:,} records ({states or 'none'}), "
        f"{progress.requests:,} requests, {progress.tokens:,} tokens, "
        f"{duration_text(progress.seconds)}"
    )


def _print_phase(report: PhaseReport) -> None:
    print_line(report.state.value, state_colour(report.state), end="  ")
    print_line(_progress_line(report.progress))
    if report.reason:
        print_line(one_line(report.reason, _VALUE))
    if report.progress.records.get(QuestionState.FAILED):
        click.echo(f"failure reasons: longline enrich status {report.progress.task}")


# ---------------- Tasks and answers in the database


async def _check_task(questions: Questions, name: str) -> None:
    if not await questions.counts(name):
        raise BadOption(
            "TASK", f"task {name!r} was never run here; `longline enrich status` lists the tasks"
        )


def _task_name(task: str) -> str:
    return read_task(Path(task)).enrich if task.endswith(SUFFIXES) else task


def _print_status(rows: Sequence[dict[str, Any]]) -> None:
    states = list(QuestionState)
    table = TextTable("task", *(state.value for state in states), "questions", "tokens")
    for row in rows:
        found = row["states"]
        table.add(
            row["task"],
            *(found[state]["records"] if state in found else None for state in states),
            sum(one["questions"] for one in found.values()),
            row["tokens"],
        )
    table.print("no task has been run yet; see docs/enrichment.md")
    for row in rows:
        for one in row["reasons"]:
            click.echo(f"  {one['records']:,} {one['state']}: {one_line(one['reason'], _VALUE)}")


def print_enrichments(rows: Sequence[dict[str, Any]]) -> None:
    """Print the enrichments of one record."""
    if rows:
        print_heading("enrichments (machine-made, not collected)")
    for row in rows:
        old = "" if row["is_current"] else f", for version {row['record_version']} of the record"
        at = f", {time_text(row['answered_at'])}" if row["answered_at"] is not None else ""
        origin = f"{row['task']}: {row['state']}{old} ({answer_origin(row)}{at})"
        answer = row["answer"]
        fields = answer if isinstance(answer, dict) else {"answer": answer}
        lines = [] if answer is None else [f"{key}: {value_text(fields[key])}" for key in fields]
        print_line(f"  {one_line(origin, _VALUE)}")
        for line in [row["reason"], *lines] if row["reason"] else lines:
            print_line(f"    {one_line(line, _VALUE)}")
