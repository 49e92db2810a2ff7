"""longline down: stop what `longline up` has started."""

from __future__ import annotations

from pathlib import Path

import click

from longline.cli.closed_pipe import reader_may_leave
from longline.cli.commands.cluster.up import say, say_nothing
from longline.cli.options import home_option, json_option, print_json, settings_of
from longline.services.needed import check_extra


@click.command("down")
@home_option
@json_option
def command(*, home: Path | None, as_json: bool) -> None:
    """Stop what `up` has started, and nothing else.

    Workers go first and finish what they have in hand, then PostgreSQL, then Redis. No data is
    touched.
    """
    check_extra("longline down")
    from longline.services.down import down  # noqa: PLC0415  # needs optional packages

    stopped = down(settings_of(home), say_nothing if as_json else say)
    with reader_may_leave():
        if as_json:
            print_json({"stopped": [one.name for one in stopped]})
        elif not stopped:
            click.echo("nothing of ours was running")
