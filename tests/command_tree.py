"""The commands of longline as click knows them."""

from __future__ import annotations

from collections.abc import Iterator

import click

from longline.cli.main import cli

Path = tuple[str, ...]


def commands() -> dict[Path, click.Command]:
    """Return every command that can be run by its words; groups that only lead on are left out."""
    return dict(_below((), cli))


def _below(path: Path, command: click.Command) -> Iterator[tuple[Path, click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    if path and command.invoke_without_command:
        yield path, command
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None, name
        yield from _below((*path, name), below)
