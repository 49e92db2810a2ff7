"""longline up, down, status, worker, db: the services of a home."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.log_options import log_options, log_options_of
from longline.cli.options import (
    UP_TO_1000,
    ParsedText,
    common_options,
    home_option,
    number,
    settings_of,
    wants_json,
)
from longline.cli.output import (
    TextTable,
    duration_text,
    number_text,
    print_facts,
    print_result,
)
from longline.config.settings import prepare_home
from longline.core.errors import MissingExtra
from longline.core.logging import configure_logging
from longline.core.output import closed_stdout_ignored, count_text, sanitize, size_text
from longline.engine.owner import this_host
from longline.services.database_copy import CopiedHome, copy_home
from longline.services.processes import ServiceStatus, check_extra, has_cluster, sqlite_status
from longline.storage.database import DatabaseInfo, describe, open_database


@click.command("up")
@click.option(
    "--workers",
    type=number(int, 0, 1000),
    show_default="as before, or 1",
    help="Number of workers; 0 starts only the servers. Running workers are never stopped.",
)
@click.option(
    "--processes",
    type=UP_TO_1000,
    show_default="as before, or one per core",
    help="Processes of each worker that is started.",
)
@click.option(
    "--postgres",
    "with_postgres",
    is_flag=True,
    help="Store jobs and records in a PostgreSQL server managed by this home (remembered).",
)
@click.option(
    "--executor/--no-executor",
    "with_executor",
    default=None,
    show_default="with workers",
    help="Start the executor (`longline serve --no-web`).",
)
@common_options
def up_command(*, with_executor: bool | None, **options: Any) -> None:
    """Start Redis, workers and, with --postgres, PostgreSQL on this machine.

    Also starts the executor, which runs scheduled and submitted jobs. An Ollama server and a proxy
    rotator are started if the settings name them and they do not respond yet.

    Healthy services are not restarted. If a service fails to start, or on Ctrl-C, everything that
    this command started is stopped again. A Redis or PostgreSQL server that the settings
    name is used, but never started or stopped.
    """
    check_extra("longline up")
    # Needs optional packages.
    from longline.services.cluster import ClusterOptions, status, up  # noqa: PLC0415

    settings = settings_of()
    if with_executor is None:
        with_executor = options["workers"] != 0
    wanted = ClusterOptions(**options, with_executor=with_executor)
    started = up(settings, wanted, _print_service_step)
    parts = [asdict(one) for one in status(settings)] if wants_json() else []
    ready = "Ready. Run: longline run SOURCE --engine celery"
    if not started.workers:
        ready = "The servers are ready. Start a worker with: longline up --workers 1"
    found = {"started": [one.name for one in started.processes], "parts": parts}
    with closed_stdout_ignored():
        print_result(found, lambda: click.echo(ready))


def _print_service_step(service: str, step: str) -> None:
    """Print a step of `up` or `down`, unless with --json."""
    if not wants_json():
        with closed_stdout_ignored():
            click.echo(f"{service:10} {step}")


# ---------------- down


@click.command("down")
@common_options
def down_command() -> None:
    """Stop what `longline up` started.

    The executor releases its jobs and workers drain, then the servers stop. No data is removed.
    """
    check_extra("longline down")
    from longline.services.cluster import down  # noqa: PLC0415  # needs optional packages

    stopped = [one.name for one in down(settings_of(), _print_service_step)]
    with closed_stdout_ignored():
        if wants_json() or not stopped:
            text = "no service of this home was running"
            print_result({"stopped": stopped}, lambda: click.echo(text))


# ---------------- status

_LOCAL = "This home has no cluster: jobs run in the process that starts them. See `longline up`."


@click.command("status")
@common_options
def status_command() -> None:
    """Show the services of this home and their health.

    Exits with 1 if a service is not healthy. A home without a cluster has only its database.
    """
    settings = settings_of()
    is_local = not has_cluster(settings)
    file = sqlite_status(settings) if is_local else None
    if file is not None:
        services = [file]
    else:
        check_extra("longline status")
        from longline.services.cluster import status  # noqa: PLC0415  # needs optional packages

        services = status(settings)
    print_result(
        [asdict(one) for one in services], lambda: _print_services(services, is_local=is_local)
    )
    is_healthy = all(one.is_healthy for one in services)
    sys.exit(ExitCode.OK if is_healthy else ExitCode.FAILED)


def _print_services(services: list[ServiceStatus], *, is_local: bool) -> None:
    columns = ("service", "state", "up for", "pid", "port", "version", "memory", "note")
    table = TextTable(*columns, drop=("version", "pid", "port", "memory"), note="note")
    for one in services:
        health = "healthy" if one.is_healthy else "not healthy"
        table.add(
            one.name,
            health if one.is_ours else f"{health}, external",
            _age(one.since),
            *(None if value is None else str(value) for value in (one.pid, one.port, one.version)),
            None if one.memory_bytes is None else size_text(one.memory_bytes),
            one.note or _activity(one.doing) or (one.address if one.port is None else ""),
        )
    table.print()
    if is_local:
        click.echo(_LOCAL)


def _activity(worker: dict[str, str] | None) -> str:
    if worker is None:
        return ""
    last_at = worker.get("last_taken_at")
    last = f", last {_age(float(last_at))} ago" if last_at else ""
    processes = count_text(int(worker.get("processes", "0")), "process", "processes")
    return f"{processes}, {count_text(int(worker.get('chunks', '0')), 'chunk')}{last}"


def _age(at: float | None) -> str:
    return "" if at is None else duration_text(max(0.0, time.time() - at))


# ---------------- worker

_QUEUES = ("fetch", "process", "output")


def _parse_queues(value: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",")))
    for name in names:
        if name not in _QUEUES:
            raise click.BadParameter(f"{name!r} is not a queue; queues: {', '.join(_QUEUES)}")
    return names


@click.command("worker")
@click.option(
    "-n",
    "--processes",
    type=UP_TO_1000,
    default=lambda: os.cpu_count() or 1,
    show_default="one per core",
    help="Number of child processes.",
)
@click.option(
    "--queues",
    type=ParsedText("NAMES", _parse_queues),
    default=",".join(_QUEUES),
    help="Queues to serve: fetch (items), process (finished jobs), output (exports).",
)
@click.option(
    "--items",
    type=UP_TO_1000,
    show_default="LONGLINE_CONCURRENCY",
    help="Maximum concurrent items per domain in each process, for jobs that do not set it.",
)
@click.option("--name", metavar="NAME", show_default="host and process id", help="Worker name.")
@log_options
@home_option
def worker_command(
    *, processes: int, queues: tuple[str, ...], items: int | None, name: str | None
) -> None:
    """Run a cluster worker.

    The worker executes jobs submitted with `longline run --engine celery`, together with other
    workers on any machine that shares the database and Redis. On the first Ctrl-C, the worker
    finishes items in flight and releases the others; on the second, it exits immediately, without
    losing data.
    """
    try:
        from longline.distributed.processes import WorkerOptions  # noqa: PLC0415  # an optional part
        from longline.distributed.supervisor import run_worker  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingExtra("cluster", "a worker") from error
    settings = settings_of()
    if items is not None:
        settings = settings.model_copy(update={"concurrency": items})
    prepare_home(settings)
    name = name or f"{this_host()}-{os.getpid()}"
    log = replace(log_options_of(click.get_current_context()), worker=name)
    options = WorkerOptions(name, processes, queues, log)
    # A worker always logs its start and its end.
    configure_logging(replace(log, verbosity=max(1, log.verbosity)))
    sys.exit(asyncio.run(run_worker(settings, options)))


# ---------------- db


@click.group("db")
def db_command() -> None:
    """Inspect the database, or copy it to another one."""


@db_command.command("copy")
@click.argument("target")
@click.option(
    "--from",
    "source",
    metavar="ADDRESS",
    show_default="the database of this home",
    help="Database to copy.",
)
@click.option("--force", is_flag=True, help="Copy even if jobs are running.")
@common_options
def copy(target: str, *, source: str | None, force: bool) -> None:
    """Copy all data including history to TARGET, which must be empty.

    TARGET is an address (postgresql://user@host/name, sqlite:////path/file), `postgres` for the
    server that longline runs in this home, or `sqlite` for the SQLite file of this home. The copy
    is atomic: after an interruption TARGET is still empty. The source is not changed.
    """
    copied = asyncio.run(copy_home(settings_of(), target, source, force=force))
    state = {"is_in_use": copied.is_in_use, "is_behind": copied.is_behind}
    print_result({**asdict(copied.copied), **state}, lambda: _print_copied(copied))
    if copied.is_behind:
        click.echo(
            f"{sanitize(copied.copied.source)} was changed during the copy, so the copy is "
            "incomplete. Stop all jobs and copy it again to an empty database.",
            err=True,
        )
        sys.exit(ExitCode.OK if force else ExitCode.FAILED)


@db_command.command("info")
@common_options
def info() -> None:
    """Show the database of this home, its size and its tables."""
    settings = settings_of()
    prepare_home(settings)
    with closing(open_database(settings.database)) as database:
        address, found = database.address, asyncio.run(database.read(describe))
    print_result({"address": address, **asdict(found)}, lambda: _print_database(address, found))


def _print_database(address: str, found: DatabaseInfo) -> None:
    facts = {
        "address": address,
        "kind": f"{found.kind} {found.version}",
        "schema": f"version {found.tables_version}",
        "size": size_text(found.size_bytes),
    }
    print_facts(facts, width=9)
    table = TextTable("table", "rows")
    for name, rows in found.rows.items():
        table.add(name, rows)
    table.print()


def _print_copied(copied: CopiedHome) -> None:
    table = TextTable("table", "rows", "checksum")
    for one in copied.copied.tables:
        table.add(one.name, one.rows, one.checksum)
    table.print()
    target = sanitize(copied.copied.target)
    rows = number_text(sum(one.rows for one in copied.copied.tables))
    click.echo(f"Copied {rows} rows; counts and checksums match.")
    if copied.is_in_use:
        click.echo(f"This home now uses {target}.")
    else:
        click.echo(
            f"To use it, set LONGLINE_DATABASE_URL={target} or database_url in longline.yaml, "
            "with the password in place of ***."
        )
