"""longline health: whether a home works, for people and for supervisors."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.options import home_or_server_options, settings_of
from longline.cli.output import TextTable, print_result
from longline.cli.remote import or_on_server
from longline.services.health import HealthState, check_health

if TYPE_CHECKING:
    from longline.client.client import Client

_CODES = {
    HealthState.OK: ExitCode.OK,
    HealthState.DEGRADED: ExitCode.PARTIAL,
    HealthState.FAILED: ExitCode.FAILED,
}


async def _health_on_server(client: Client) -> int:
    return _report((await client.get_health()).model_dump())


@click.command("health")
@home_or_server_options
@or_on_server(_health_on_server)
def health_command() -> None:
    """Check that this home works: database, disk, Redis, workers, server, lag.

    Exits with 0 if all is well, 3 if something is degraded, 1 if something has failed. Problems of
    sites are not checked: see `longline breakers` and `longline sources status`.
    """
    sys.exit(_report(check_health(settings_of()).as_dict()))


def _report(found: Mapping[str, Any]) -> int:
    print_result(found, lambda: _print_report(found))
    return _CODES[HealthState(found["state"])]


def _print_report(found: Mapping[str, Any]) -> None:
    table = TextTable("check", "state", "finding", "to do", note="to do")
    for one in found["checks"]:
        table.add(one["check"], one["state"], one["sentence"], one["remedy"] or "")
    table.print()
    click.echo(f"Health: {found['state']}")
