"""longline checkpoints: list checkpoint documents."""

from __future__ import annotations

from pathlib import Path

import click

from longline.cli.options import JOB, home_option, json_option, settings_of
from longline.cli.output import print_json
from longline.engine.checkpoints import Checkpoints


@click.command("checkpoints")
@click.argument("job", type=JOB, required=False)
@home_option
@json_option
def command(job: str | None, *, home: Path | None, as_json: bool) -> None:
    """List checkpoint documents.

    With JOB, only those of one job.
    """
    documents = Checkpoints(settings_of(home).checkpoints).list()
    if job is not None:  # the beginning of its id is enough
        documents = [one for one in documents if one["job"].startswith(job)]
    if as_json:
        print_json(documents)
        return
    for one in documents:
        click.echo(
            f"{one['checkpoint_id']}  {one['job']}  {one['state']}  "
            f"{one['processed']} of {one['total']} processed, {one['failed']} failed"
        )
    if not documents:
        click.echo("no checkpoints yet")
