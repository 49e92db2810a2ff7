"""longline doctor: what is wrong, and how to mend it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from longline.cli.format import cleaned, plain_console
from longline.cli.options import home_option, json_option, print_json, profile_given
from longline.services.doctor.base import Finding, Verdict
from longline.services.doctor.doctor import diagnose, fix

_SIGNS = {Verdict.OK: "✓", Verdict.WARNING: "!", Verdict.PROBLEM: "✗"}
_COLOURS = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.PROBLEM: "red"}


@click.command("doctor")
@click.option("--fix", "is_fixing", is_flag=True, help="Make the files of the home private.")
@home_option
@json_option
def command(*, is_fixing: bool, home: Path | None, as_json: bool) -> None:
    """Look for what is wrong with this installation, and say how to mend it.

    Nothing is started, and nothing is changed without --fix. Exits with 1 when there is a problem;
    warnings are none.
    """
    done = fix(home, profile_given()) if is_fixing else []
    found = [*done, *diagnose(home, profile_given())]
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        for one in found:
            _print(one)
    sys.exit(1 if any(one.verdict is Verdict.PROBLEM for one in found) else 0)


def _print(finding: Finding) -> None:
    console = plain_console(soft_wrap=True)
    sign = _SIGNS[finding.verdict] if console.is_terminal else f"{finding.verdict.value:8}"
    console.print(sign, style=_COLOURS[finding.verdict], end=" ")
    console.print(cleaned(f"{finding.about:16} {finding.sentence}", is_line=True))
    if finding.remedy is not None:
        remedy = cleaned(finding.remedy, is_line=True)
        console.print(f"{'':{len(sign)}} {'':16} → {remedy}")
