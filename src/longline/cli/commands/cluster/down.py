"""longline down: stop what `longline up` started."""

from __future__ import annotations

from pathlib import Path

import click

from longline.cli.commands.cluster.up import step_printer
from longline.cli.options import home_option, json_option, settings_of
from longline.cli.output import print_json
from longline.core.output import closed_stdout_ignored
from longline.services.base import check_extra


@click.command("down")
@home_option
@json_option
def command(*, home: Path | None, as_json: bool) -> None:
    """Stop what `longline up` started.

    Workers drain first, then PostgreSQL and Redis stop. No data is removed.
    """
    check_extra("longline down")
    from longline.services.cluster import down  # noqa: PLC0415  # needs optional packages

    stopped = down(settings_of(home), step_printer(is_quiet=as_json))
    with closed_stdout_ignored():
        if as_json:
            print_json({"stopped": [one.name for one in stopped]})
        elif not stopped:
            click.echo("no service of this home was running")
