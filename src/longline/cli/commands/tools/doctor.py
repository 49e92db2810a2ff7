"""longline doctor: check the installation."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.options import home_option, json_option, profile_given
from longline.cli.output import print_json, stdout_console
from longline.core.output import sanitize
from longline.services.doctor.base import Finding, Verdict
from longline.services.doctor.doctor import diagnose, fix

_SYMBOLS = {Verdict.OK: "✓", Verdict.WARNING: "!", Verdict.PROBLEM: "✗"}
_COLOURS = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.PROBLEM: "red"}


@click.command("doctor")
@click.option(
    "--fix", "is_fixing", is_flag=True, help="Remove the permissions of other users from the home."
)
@home_option
@json_option
def command(*, is_fixing: bool, home: Path | None, as_json: bool) -> None:
    """Check this installation and suggest fixes.

    Starts nothing, and changes nothing without --fix. Exits with 1 if there is a problem, not for
    warnings.
    """
    done = fix(home, profile_given()) if is_fixing else []
    found = [*done, *diagnose(home, profile_given())]
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        for one in found:
            _print_finding(one)
    is_failed = any(one.verdict is Verdict.PROBLEM for one in found)
    sys.exit(ExitCode.FAILED if is_failed else ExitCode.OK)


def _print_finding(finding: Finding) -> None:
    console = stdout_console(soft_wrap=True)
    symbol = _SYMBOLS[finding.verdict] if console.is_terminal else f"{finding.verdict.value:8}"
    console.print(symbol, style=_COLOURS[finding.verdict], end=" ")
    console.print(sanitize(f"{finding.about:16} {finding.sentence}", is_line=True))
    if finding.remedy is not None:
        remedy = sanitize(finding.remedy, is_line=True)
        console.print(f"{'':{len(symbol)}} {'':16} → {remedy}")
