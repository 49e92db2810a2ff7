"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson

from longline.config.settings import Settings, load_settings
from longline.errors import BadOption
from longline.exports.jsons import as_text
from longline.output import sanitize_json

Command = TypeVar("Command", bound=Callable[..., Any])
_PROFILE = "longline.profile"
_SETTINGS = "longline.settings"


class Pair(click.ParamType[tuple[str, str]]):
    """`name=value`."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, separator, text = str(value).partition("=")
        if not separator or not name:
            self.fail(f"{value!r} is not of the form name=value", param, ctx)
        return name, text


class Rate(click.ParamType[float | str]):
    """Requests a second, `unlimited`, or, where a pace can be learned, `auto`."""

    name = "rate"

    def __init__(self, *, has_auto: bool = False) -> None:
        self._words = ("unlimited", "auto") if has_auto else ("unlimited",)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | str:
        if value in self._words:
            return str(value)
        try:
            number = float(value)
        except ValueError:
            words = " nor ".join(repr(word) for word in self._words)
            self.fail(f"{value!r} is neither a number nor {words}", param, ctx)
        if not 0 < number < float("inf"):
            self.fail("must be more than 0; for no limit at all say 'unlimited'", param, ctx)
        return number


class JobName(click.ParamType[str]):
    """The id of a job, or its beginning; nothing at all would be the beginning of any."""

    name = "job"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        del param, ctx
        if not value:
            raise BadOption("JOB", "it is empty; say which one, `longline jobs` lists them")
        return str(value)


JOB = JobName()
COUNT = click.IntRange(min=1, max=2**63 - 1)
"""How many rows are wanted: as far as databases count."""


def home_option(command: Command) -> Command:
    """Add `--home` and `--profile`, which is no parameter: `settings_of` knows of it."""
    return click.option(
        "--home",
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder of the data [LONGLINE_HOME or ./.longline].",
    )(profile_option(command))


def engine_option(otherwise: str) -> Callable[[Command], Command]:
    """Add `--engine`; `otherwise` says what counts without it."""
    return click.option(
        "--engine",
        type=click.Choice(["local", "celery"]),
        help=f"Work here, or have workers do it [{otherwise}].",
    )


def profile_option(command: Command) -> Command:
    """Add `--profile`, which is no parameter of the command: `settings_of` knows of it."""
    return click.option(
        "--profile",
        metavar="NAME",
        help="Part of longline.yaml to use [LONGLINE_PROFILE].",
        expose_value=False,
        callback=_keep_profile,
    )(command)


def _keep_profile(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta[_PROFILE] = value


def json_option(command: Command) -> Command:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")(command)


def ignore_robots_option(command: Command) -> Command:
    """Add `--ignore-robots`."""
    return click.option(
        "--ignore-robots",
        multiple=True,
        metavar="HOST",
        help="Go on although robots.txt of HOST says no; recorded in the job.",
    )(command)


def settings_of(home: Path | None = None) -> Settings:
    """Return the settings, with the home and the profile of the command line."""
    settings = load_settings(home=home, profile=profile_given())
    if context := click.get_current_context(silent=True):
        context.meta[_SETTINGS] = settings
    return settings


def settings_used(context: click.Context) -> Settings | None:
    """Return the settings that a command has read; None when it has read none yet."""
    return context.meta.get(_SETTINGS)


def profile_given() -> str | None:
    """Return the profile of the command line; None when it names none."""
    context = click.get_current_context(silent=True)
    return context.meta.get(_PROFILE) if context else None


def values_of(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return `name=value` pairs as a mapping; true, false and numbers keep their type."""
    return {name: _typed(text) for name, text in pairs}


def _typed(text: str) -> Any:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return value if isinstance(value, (bool, int, float)) else text


def print_json(value: Any) -> None:
    """Print one line of JSON."""
    click.echo(sanitize_json(as_text(value)))


def source_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add what may be said of a source and its pace, in whichever way it is used."""
    options = (
        click.option(
            "--set", "options", type=Pair(), multiple=True, help="A setting of the source."
        ),
        click.option(
            "--param", "params", type=Pair(), multiple=True, help="A parameter for the source."
        ),
        click.option(
            "--rate",
            type=Rate(has_auto=True),
            help="Requests a second and domain, 'auto', 'unlimited'.",
        ),
        click.option("--burst", type=COUNT, help="Requests that may go at once."),
        click.option(
            "--at-once",
            type=COUNT,
            help="Requests under way at one domain, over all processes.",
        ),
        click.option(
            "--concurrency", type=click.IntRange(1, 1000), help="Items at once of one domain."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command
