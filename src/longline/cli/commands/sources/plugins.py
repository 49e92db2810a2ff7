"""longline plugins: what other packages have added."""

from __future__ import annotations

import click

from longline.cli.options import json_option, print_json
from longline.config.plugins import GROUPS, SOURCES, Plugin, found_plugins
from longline.sources.loader import as_source


@click.command("plugins")
@json_option
def command(*, as_json: bool) -> None:
    """List what other packages add: sources, transports, stages and exporters."""
    plugins = found_plugins({SOURCES: as_source})
    if as_json:
        print_json([one.as_dict() for one in plugins])
        return
    for one in plugins:
        click.echo(_line(one))
    if not plugins:
        click.echo(f"no package adds anything; entry points are looked for in {', '.join(GROUPS)}")


def _line(one: Plugin) -> str:
    kind = one.group.partition(".")[2].removesuffix("s")
    state = "ok" if one.problem is None else f"broken: {one.problem}"
    return f"{kind:10} {one.name:20} {one.distribution} {one.version} ({one.target})  {state}"
