"""longline enrich: ask a language model or an enricher about records, in a phase of its own."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from longline.cli.commands.data.enrich_shown import (
    PhaseDisplay,
    print_report,
    print_shown,
    print_standing,
)
from longline.cli.opening import found_record, with_store
from longline.cli.options import COUNT, home_option, json_option, print_json, settings_of
from longline.config.settings import Settings, prepare_home
from longline.core.clock import SystemClock
from longline.core.errors import BadOption
from longline.engine.owner import dead_among, handling_signals, this_run
from longline.engine.report import INTERRUPTED
from longline.enrichment.phase import Phase, PhaseReport
from longline.enrichment.queueing import queries_of, queue_records
from longline.enrichment.servers import open_enricher, task_limiter
from longline.enrichment.task_files import AnyTask, read_task
from longline.sources.library import SUFFIXES
from longline.storage.records.enrichment import Questions
from longline.storage.records.records import Row
from longline.storage.store import Store, open_store
from longline.wiring import open_limit_backends

_FILE = click.Path(path_type=Path)


@click.group("enrich")
def command() -> None:
    """Ask a language model, or an enricher here, about records; look at the answers."""


@command.command("run")
@click.argument("file", type=_FILE, metavar="TASK.yaml")
@click.option("--limit", type=COUNT, help="End after this many questions.")
@home_option
@json_option
def run(file: Path, *, limit: int | None, home: Path | None, as_json: bool) -> None:
    """Ask what TASK.yaml asks about every record that has something new; goes on where it was."""
    task = read_task(file)
    queries_of(task)  # a wrong condition is told before anything is opened
    settings = settings_of(home)
    prepare_home(settings)
    sys.exit(asyncio.run(_run_shown(task, settings, limit, is_quiet=as_json)))


@command.command("status")
@click.argument("task", required=False)
@home_option
@json_option
def status(task: str | None, *, home: Path | None, as_json: bool) -> None:
    """Show how far the tasks are, or one with its reasons; TASK is its name or its file."""
    name = None if task is None else _name(task)
    rows = with_store(home, lambda store: _standing(store.questions, name))
    if as_json:
        print_json(rows)
    else:
        print_standing(rows)


@command.command("show")
@click.argument("key")
@click.option("--source", help="The source, when several have such a key.")
@home_option
@json_option
def show(key: str, *, source: str | None, home: Path | None, as_json: bool) -> None:
    """Show what machines have said about the record KEY, with model, version and moment."""
    record, rows = with_store(home, lambda store: _shown(store, key, source))
    if as_json:
        print_json({"source": record["source"], "key": record["key"], "enrichments": rows})
    else:
        print_shown(record, rows)


@command.command("retry")
@click.argument("task")
@home_option
@json_option
def retry(task: str, *, home: Path | None, as_json: bool) -> None:
    """Queue the failed questions of TASK, its name or its file, to be asked in the next run."""
    name = _name(task)
    count = with_store(home, lambda store: _retried(store.questions, name))
    if as_json:
        print_json({"task": name, "queued": count})
    else:
        click.echo(f"{count:,} questions of {name} are queued again")


async def _run_shown(
    task: AnyTask, settings: Settings, limit: int | None, *, is_quiet: bool
) -> int:
    display = PhaseDisplay(is_quiet=is_quiet)
    try:
        with open_store(settings.database) as store, display:
            report = await _run(task, settings, store, limit, display)
    except asyncio.CancelledError:
        click.echo("stopped at once; run the same command again to go on", err=True)
        return INTERRUPTED
    if is_quiet:
        print_json(report.as_dict())
    else:
        print_report(report)
    return report.exit_code


async def _run(
    task: AnyTask,
    settings: Settings,
    store: Store,
    limit: int | None,
    display: PhaseDisplay,
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
            with handling_signals(phase.stop, display.stopping):
                queued = await queue_records(task, store.records, questions, clock)
                display.warn(queued.warnings)
                display.say(
                    f"{task.enrich}: {queued.records:,} records, {queued.asking:,} with something "
                    f"new to ask, {queued.questions:,} new questions, {queued.dropped:,} no longer "
                    "asked (ctrl-c stops it safely)"
                )
                return await phase.run(limit)


async def _standing(questions: Questions, name: str | None) -> list[dict[str, Any]]:
    counts = await questions.counts(name)
    if name is not None and not counts:
        raise _unknown(name)
    return [
        {
            "task": task,
            "states": states,
            **await questions.figures(task),
            "reasons": await questions.reasons(task) if name else [],
        }
        for task, states in counts.items()
    ]


async def _shown(store: Store, key: str, source: str | None) -> tuple[Row, list[Row]]:
    record = await found_record(store, key, source)
    said = await store.questions.of_records([record["id"]])
    return record, said.get(record["id"], [])


async def _retried(questions: Questions, name: str) -> int:
    if not await questions.counts(name):
        raise _unknown(name)
    return await questions.retry(name)


def _name(task: str) -> str:
    """Return the name of a task, which may be given by its file."""
    return read_task(Path(task)).enrich if task.endswith(SUFFIXES) else task


def _unknown(name: str) -> BadOption:
    problem = f"no task {name!r} was run here; `longline enrich status` lists those that were"
    return BadOption("TASK", problem)
