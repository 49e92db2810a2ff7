"""Options that several commands share, their types, and the settings of a command."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson
from pydantic import ByteSize, TypeAdapter, ValidationError

from longline.config.settings import Settings, load_settings
from longline.core.errors import BadOption

Command = TypeVar("Command", bound=Callable[..., Any])
N = TypeVar("N", int, float)
_HOME = "longline.home"
_JSON = "longline.json"
_PROFILE = "longline.profile"
_SETTINGS = "longline.settings"
_SIZE = TypeAdapter(ByteSize)
_LARGEST = 2**63 - 1  # of a database

# ---------------- Types


class Number(click.ParamType[N]):
    """A number within bounds, which the help does not repeat.

    Args:
        kind: int or float.
        low: the least number that is allowed.
        high: the largest number that is allowed.
        above: whether `low` itself is not allowed.
    """

    name = "N"

    def __init__(
        self, kind: type[N], low: float, high: float = math.inf, *, above: bool = False
    ) -> None:
        self._kind: type[N] = kind
        self._low = low
        self._high = high
        self._above = above

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> N:
        try:
            number: N = self._kind(value)
        except ValueError:
            self.fail(f"{value!r} is not a {'whole ' * (self._kind is int)}number", param, ctx)
        is_low = number <= self._low if self._above else number < self._low
        if is_low or number > self._high or math.isnan(number):
            least = "more than" if self._above else "at least"
            most = "" if self._high in (math.inf, _LARGEST) else f" and at most {self._high:g}"
            self.fail(f"must be {least} {self._low:g}{most}, not {value}", param, ctx)
        return number


class Pair(click.ParamType[tuple[str, str]]):
    """`NAME=VALUE`."""

    name = "NAME=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, separator, text = str(value).partition("=")
        if not separator or not name:
            self.fail(f"{value!r} is not of the form NAME=VALUE", param, ctx)
        return name, text


class Size(click.ParamType[int]):
    """A number of bytes: 500KB, 50MB."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        del ctx
        try:
            return _SIZE.validate_python(value)
        except ValidationError as error:
            option = param.opts[0] if param else self.name
            problem = f"{value!r:.80} is not a size; use for example 500KB or 50MB"
            raise BadOption(option, problem) from error


class Rate(click.ParamType[float | str]):
    """Requests per second, `unlimited`, or `auto` where a rate can be learned."""

    name = "RATE"

    def __init__(self, *, has_auto: bool = False) -> None:
        self._words = ("auto", "unlimited") if has_auto else ("unlimited",)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | str:
        if value in self._words:
            return str(value)
        try:
            number = float(value)
        except ValueError:
            words = ", ".join(map(repr, self._words))
            self.fail(f"{value!r} is not a number; it may also be {words}", param, ctx)
        if not 0 < number < math.inf:
            self.fail("must be more than 0; for no limit, use 'unlimited'", param, ctx)
        return number


class JobName(click.ParamType[str]):
    """The id of a job, or the beginning of it."""

    name = "JOB"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        del param, ctx
        if not value:  # every id begins with an empty string
            raise BadOption("JOB", "it is empty; `longline jobs` lists the jobs")
        return str(value)


JOB = JobName()
COUNT = Number(int, 1, _LARGEST)
"""A whole number of at least 1, as far as databases count."""
UP_TO_1000 = Number(int, 1, 1000)
SHARE = Number(float, 0, 1)
SECONDS = Number(float, 0, above=True)


# ---------------- Options


def common_options(command: Command) -> Command:
    """Add `--home`, `--profile` and `--json`."""
    return home_option(json_option(command))


def home_option(command: Command) -> Command:
    """Add `--home` and `--profile`, which `settings_of` reads."""
    return click.option(
        "--home",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="FOLDER",
        show_default="LONGLINE_HOME or ./.longline",
        help="Folder for all data.",
        expose_value=False,
        callback=lambda context, _option, value: _remember(context, _HOME, value),
    )(profile_option(command))


def profile_option(command: Command) -> Command:
    """Add `--profile`, which `settings_of` reads."""
    return click.option(
        "--profile",
        metavar="NAME",
        show_default="LONGLINE_PROFILE",
        help="Profile of longline.yaml to use.",
        expose_value=False,
        callback=lambda context, _option, value: _remember(context, _PROFILE, value),
    )(command)


def json_option(command: Command) -> Command:
    """Add `--json`, which `wants_json` reads."""
    return click.option(
        "--json",
        is_flag=True,
        help="Print JSON.",
        expose_value=False,
        callback=lambda context, _option, value: _remember(context, _JSON, value or None),
    )(command)


def _remember(context: click.Context, name: str, value: object) -> None:
    """Keep an option that is not a parameter of the command; groups share it with commands."""
    if value is not None:
        context.meta[name] = value


def _remembered(name: str) -> Any:
    context = click.get_current_context(silent=True)
    return context.meta.get(name) if context else None


def engine_option(default: str) -> Callable[[Command], Command]:
    """Add `--engine`; `default` describes what counts without it."""
    return click.option(
        "--engine",
        type=click.Choice(["local", "celery"]),
        show_default=default,
        help="Run in this process, or on cluster workers.",
    )


def ignore_robots_option(command: Command, *, note: str = "") -> Command:
    """Add `--ignore-robots`."""
    return click.option(
        "--ignore-robots",
        multiple=True,
        metavar="HOST",
        help=f"Ignore robots.txt of HOST{note}. Repeatable.",
    )(command)


def job_ignore_robots_option(command: Command) -> Command:
    """Add `--ignore-robots` to a command that runs a job."""
    return ignore_robots_option(command, note="; recorded in the job")


def set_option(command: Command) -> Command:
    """Add `--set`."""
    return click.option(
        "--set",
        "options",
        type=Pair(),
        multiple=True,
        help="Set an option of the source. Repeatable.",
    )(command)


def param_option(command: Command) -> Command:
    """Add `--param`."""
    return click.option(
        "--param",
        "params",
        type=Pair(),
        multiple=True,
        help="Pass a value to a Python source, as visit.params. Repeatable.",
    )(command)


def source_options(command: Command) -> Command:
    """Add the options and limits of a source."""
    limits = (
        click.option(
            "--rate",
            type=Rate(has_auto=True),
            help="Maximum requests per second per domain, 'auto' to learn it, or 'unlimited'.",
        ),
        click.option("--burst", type=COUNT, help="Maximum requests in a burst per domain."),
        click.option(
            "--max-in-flight",
            type=COUNT,
            help="Maximum concurrent requests per domain, over all processes.",
        ),
        click.option("--concurrency", type=UP_TO_1000, help="Maximum concurrent items per domain."),
    )
    for option in reversed(limits):
        command = option(command)
    return set_option(param_option(command))


def key_options(command: Command) -> Command:
    """Add the argument KEY of a record, and `--source`."""
    source = click.option(
        "--source", metavar="NAME", help="Source of the record, if several have this key."
    )
    return click.argument("key")(source(command))


# ---------------- Values


def settings_of() -> Settings:
    """Return the settings, with the home and the profile of the command line."""
    settings = load_settings(home=home_given(), profile=profile_given())
    if context := click.get_current_context(silent=True):
        context.meta[_SETTINGS] = settings
    return settings


def settings_used(context: click.Context) -> Settings | None:
    """Return the settings that a command has read; None when it has read none yet."""
    return context.meta.get(_SETTINGS)


def home_given() -> Path | None:
    """Return the home of the command line; None when it names none."""
    home: Path | None = _remembered(_HOME)
    return home


def profile_given() -> str | None:
    """Return the profile of the command line; None when it names none."""
    profile: str | None = _remembered(_PROFILE)
    return profile


def wants_json() -> bool:
    """Return whether the command line has `--json`."""
    return bool(_remembered(_JSON))


def typed_values(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return name and value pairs as a mapping; true, false and numbers keep their type."""
    return {name: _typed(text) for name, text in pairs}


def _typed(text: str) -> Any:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return value if isinstance(value, (bool, int, float)) else text


def given_values(values: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in values.items() if value not in (None, ())}
