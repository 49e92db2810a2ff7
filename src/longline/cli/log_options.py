"""`-v`, `--log-file` and `--log-format`: on the command line itself and on commands that run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:  # imported only when a command runs, so that --help stays quick
    from longline.core.logging import LogOptions

Command = TypeVar("Command", bound=Callable[..., Any])
_OPTIONS = "longline.log_options"


def log_options(command: Command) -> Command:
    """Add the options; they configure logging and are not parameters of the command."""
    options = (
        click.option(
            "-v",
            "--verbose",
            count=True,
            expose_value=False,
            callback=lambda context, _option, value: _change(context, verbosity=value),
            help="Log every request; -vv also logs details for debugging.",
        ),
        click.option(
            "--log-file",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            expose_value=False,
            callback=lambda context, _option, value: _change(
                context, file=None if value is None else str(value)
            ),
            help="Append the log, including every request, to FILE.",
        ),
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            expose_value=False,
            callback=lambda context, _option, value: _change(context, as_json=value == "json"),
            help="Format of log lines.  [default: text]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def log_options_of(context: click.Context) -> LogOptions:
    """Return the options that were given, before or after the name of the command."""
    from longline.core.logging import LogOptions  # noqa: PLC0415

    return LogOptions(**context.meta.get(_OPTIONS, {}))


def _change(context: click.Context, **given: Any) -> None:
    """Apply an option; one that was not given leaves what the command line said before."""
    from longline.core.logging import configure_logging  # noqa: PLC0415

    values = {name: value for name, value in given.items() if value}
    context.meta[_OPTIONS] = context.meta.get(_OPTIONS, {}) | values
    options = log_options_of(context)
    try:
        configure_logging(options)
    except OSError as error:
        problem = f"{options.file} cannot be written ({error.strerror})"
        raise click.BadParameter(problem, param_hint="--log-file") from error
