"""longline status: the parts of a cluster."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import click

from longline.cli.display import duration
from longline.cli.format import NOTHING, plain_console, written
from longline.cli.options import home_option, json_option, print_json, settings_of
from longline.cli.tables import Fitting
from longline.config.settings import Settings
from longline.services.base import Part
from longline.services.needed import check_extra, has_cluster, sqlite_part

_MEGABYTE = 1_000_000
_LOCAL = (
    "This is a local home: jobs run in the process that starts them. "
    "`longline up` starts a cluster."
)


@click.command("status")
@home_option
@json_option
def command(*, home: Path | None, as_json: bool) -> None:
    """Show what runs for this home, and whether it is well.

    Exits with 1 when a part is not healthy. A home without a cluster has only its database.
    """
    settings = settings_of(home)
    is_local = not has_cluster(settings)
    file = sqlite_part(settings) if is_local else None
    parts = [file] if file is not None else _parts(settings)
    if as_json:
        print_json([asdict(one) for one in parts])
    else:
        _print(parts)
        if is_local:
            click.echo(_LOCAL)
    sys.exit(0 if all(one.is_healthy for one in parts) else 1)


def _parts(settings: Settings) -> list[Part]:
    check_extra("longline status")
    from longline.services.status import status  # noqa: PLC0415  # needs optional packages

    return [_advised(one) for one in status(settings)]


def _print(parts: list[Part]) -> None:
    listing = Fitting(
        "part",
        "state",
        "up for",
        "pid",
        "port",
        "version",
        "memory",
        "note",
        right=("memory",),
        least=("version", "pid", "port", "memory"),
        note="note",
    )
    for one in parts:
        listing.add(
            one.name,
            _state(one),
            _ago(one.since),
            written(one.pid),
            written(one.port),
            written(one.version),
            NOTHING if one.memory_bytes is None else f"{one.memory_bytes / _MEGABYTE:.0f} MB",
            one.note or _doing(one.doing) or (one.address if one.port is None else ""),
        )
    plain_console().print(listing)


def _advised(part: Part) -> Part:
    """Return a part of ours that is gone with what to do about it."""
    if part.is_healthy or not part.is_ours or part.note:
        return part
    return replace(part, note="run `longline up`")


def _state(part: Part) -> str:
    health = "healthy" if part.is_healthy else "not healthy"
    return health if part.is_ours else f"{health}, not ours"


def _doing(told: dict[str, str] | None) -> str:
    if told is None:
        return ""
    taken = told.get("last_taken_at")
    last = f", the last {_ago(float(taken))} ago" if taken else ""
    return f"{_many(told, 'processes', 'process')}, {_many(told, 'chunks', 'chunk')}{last}"


def _many(told: dict[str, str], plural: str, singular: str) -> str:
    number = told.get(plural, "0")
    return f"{number} {singular if number == '1' else plural}"


def _ago(moment: float | None) -> str:
    return NOTHING if moment is None else duration(max(0.0, time.time() - moment))
