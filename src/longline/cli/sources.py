"""longline sources: list sources, or show the settings of one."""

from __future__ import annotations

import inspect
from typing import Any

import click

from longline.cli.options import json_option, print_json
from longline.sources.base import Source
from longline.sources.load import BUILT_IN, load_source


@click.command("sources")
@click.argument("source", required=False)
@json_option
def command(source: str | None, *, as_json: bool) -> None:
    """List sources, or show the settings and layers of one."""
    told = [_told(load_source(name)) for name in ([source] if source else sorted(BUILT_IN))]
    if as_json:
        print_json(told)
        return
    for one in told:
        click.echo(f"{one['name']:12} {one['about']}")
        if source:
            _details(one)


def _told(kind: type[Source]) -> dict[str, Any]:
    return {
        "name": kind.name,
        "version": kind.version,
        "about": (inspect.getdoc(kind) or "").partition("\n")[0],
        "rate": kind.rate,
        "burst": kind.burst,
        "layers": [
            {"name": one.name, "needs": one.needs, "optional": one.is_optional}
            for one in kind.layers()
        ],
        "settings": {
            name: {"default": field.get_default(), "about": _in_one_line(field.description)}
            for name, field in kind.Options.model_fields.items()
        },
    }


def _in_one_line(text: str | None) -> str | None:
    return None if text is None else " ".join(text.split())


def _details(one: dict[str, Any]) -> None:
    pace = "unlimited" if one["rate"] is None else f"{one['rate']:g} a second"
    click.echo(f"  pace      {pace}, bursts of {one['burst']}")
    layers = (f"{row['name']}{' (optional)' if row['optional'] else ''}" for row in one["layers"])
    click.echo(f"  layers    {', '.join(layers)}")
    for name, setting in one["settings"].items():
        click.echo(f"  --set {name}={setting['default']}  {setting['about'] or ''}".rstrip())
