"""longline status: the services of a home."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.options import home_option, json_option, settings_of
from longline.cli.output import (
    MISSING,
    count_text,
    duration_text,
    print_json,
    size_text,
    value_text,
)
from longline.cli.table import TextTable
from longline.config.settings import Settings
from longline.services.base import ServiceStatus, check_extra, has_cluster, sqlite_status

_LOCAL = "This home has no cluster: jobs run in the process that starts them. See `longline up`."


@click.command("status")
@home_option
@json_option
def command(*, home: Path | None, as_json: bool) -> None:
    """Show the services of this home and their health.

    Exits with 1 if a service is not healthy. A home without a cluster has only its database.
    """
    settings = settings_of(home)
    is_local = not has_cluster(settings)
    file = sqlite_status(settings) if is_local else None
    services = [file] if file is not None else _services(settings)
    if as_json:
        print_json([asdict(one) for one in services])
    else:
        _print_services(services)
        if is_local:
            click.echo(_LOCAL)
    is_healthy = all(one.is_healthy for one in services)
    sys.exit(ExitCode.OK if is_healthy else ExitCode.FAILED)


def _services(settings: Settings) -> list[ServiceStatus]:
    check_extra("longline status")
    from longline.services.cluster import status  # noqa: PLC0415  # needs optional packages

    return [
        one
        if one.is_healthy or not one.is_ours or one.note
        else replace(one, note="run `longline up`")
        for one in status(settings)
    ]


def _print_services(services: list[ServiceStatus]) -> None:
    table = TextTable(
        "service",
        "state",
        "up for",
        "pid",
        "port",
        "version",
        "memory",
        "note",
        right=("memory",),
        drop=("version", "pid", "port", "memory"),
        note="note",
    )
    for one in services:
        health = "healthy" if one.is_healthy else "not healthy"
        table.add(
            one.name,
            health if one.is_ours else f"{health}, external",
            _ago(one.since),
            value_text(one.pid),
            value_text(one.port),
            value_text(one.version),
            MISSING if one.memory_bytes is None else size_text(one.memory_bytes),
            one.note or _activity(one.doing) or (one.address if one.port is None else ""),
        )
    table.print()


def _activity(worker: dict[str, str] | None) -> str:
    if worker is None:
        return ""
    taken = worker.get("last_taken_at")
    last = f", last {_ago(float(taken))} ago" if taken else ""
    processes = count_text(int(worker.get("processes", "0")), "process", "processes")
    return f"{processes}, {count_text(int(worker.get('chunks', '0')), 'chunk')}{last}"


def _ago(at: float | None) -> str:
    return MISSING if at is None else duration_text(max(0.0, time.time() - at))
