"""longline plugins: installed plugins."""

from __future__ import annotations

import click

from longline.cli.options import json_option
from longline.cli.output import print_json
from longline.cli.table import TextTable
from longline.config.plugins import GROUPS, SOURCES, list_plugins
from longline.sources.loader import as_source


@click.command("plugins")
@json_option
def command(*, as_json: bool) -> None:
    """List installed plugins.

    A plugin is a package with entry points for sources, middlewares, pipeline stages, enrichers
    or exporters.
    """
    plugins = list_plugins({SOURCES: as_source})
    if as_json:
        print_json([one.as_dict() for one in plugins])
        return
    if not plugins:
        click.echo(f"no plugins are installed (entry point groups: {', '.join(GROUPS)})")
        return
    table = TextTable("kind", "name", "package", "target", "state", wrap=("target", "state"))
    for one in plugins:
        kind = one.group.partition(".")[2].removesuffix("s")
        state = "ok" if one.problem is None else f"broken: {one.problem}"
        table.add(kind, one.name, f"{one.distribution} {one.version}", one.target, state)
    table.print()
