"""longline health: whether a home works, for people and for supervisors."""

from __future__ import annotations

import sys

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.options import common_options, settings_of
from longline.cli.output import TextTable, print_result
from longline.services.health import HealthReport, HealthState, check_health

_CODES = {
    HealthState.OK: ExitCode.OK,
    HealthState.DEGRADED: ExitCode.PARTIAL,
    HealthState.FAILED: ExitCode.FAILED,
}


@click.command("health")
@common_options
def health_command() -> None:
    """Check that this home works: database, disk, Redis, workers, server, lag.

    Exits with 0 if all is well, 3 if something is degraded, 1 if something has failed. Problems of
    sites are not checked: see `longline breakers` and `longline sources status`.
    """
    report = check_health(settings_of())
    print_result(report.as_dict(), lambda: _print_report(report))
    sys.exit(_CODES[report.state])


def _print_report(report: HealthReport) -> None:
    table = TextTable("check", "state", "finding", "to do", note="to do")
    for one in report.as_dict()["checks"]:
        table.add(one["check"], one["state"], one["sentence"], one["remedy"] or "")
    table.print()
    click.echo(f"Health: {report.state.value}")
