"""`-v`, `--log-file` and `--log-format`: on the command line itself and on commands that run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:  # imported only when a command runs, so that --help stays quick
    from longline.core.logging import LogOptions

Command = TypeVar("Command", bound=Callable[..., Any])
_OPTIONS = "longline.log_options"


def combine(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return a decorator that adds several options; the help lists them in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def log_options_of(context: click.Context) -> LogOptions:
    """Return the options that were given, before or after the name of the command."""
    from longline.core.logging import LogOptions  # noqa: PLC0415

    return LogOptions(**context.meta.get(_OPTIONS, {}))


def _configure(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Apply an option; without it, what was given before the name of the command is kept."""
    from longline.core.logging import configure_logging  # noqa: PLC0415

    if value:
        given = value == "json" if option.name == "as_json" else value
        context.meta[_OPTIONS] = context.meta.get(_OPTIONS, {}) | {option.name: given}
    options = log_options_of(context)
    try:
        configure_logging(options)
    except OSError as error:
        problem = f"{options.file} cannot be written ({error.strerror})"
        raise click.BadParameter(problem, param_hint="--log-file") from error


log_options = combine(
    click.option(
        "-v",
        "--verbose",
        "verbosity",
        count=True,
        show_default=False,
        expose_value=False,
        callback=_configure,
        help="Log every request; -vv also logs details for debugging.",
    ),
    click.option(
        "--log-file",
        "file",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        expose_value=False,
        callback=_configure,
        help="Append the log, including every request, to FILE.",
    ),
    click.option(
        "--log-format",
        "as_json",
        type=click.Choice(["text", "json"]),
        expose_value=False,
        callback=_configure,
        help="Format of log lines.  [default: text]",
    ),
)
