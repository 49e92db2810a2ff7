"""Options that several commands share, their types, and the settings of a command."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import ByteSize, TypeAdapter, ValidationError

from longline.cli.log_options import Command, combine
from longline.config.settings import Settings, load_settings
from longline.config.times import Seconds
from longline.config.validation import describe_error
from longline.core.errors import BadOption, ConfigError, FailureKind
from longline.core.json import typed_value
from longline.core.model import ItemState
from longline.http.messages import origin_of

T = TypeVar("T")
N = TypeVar("N", int, float)
_LARGEST = 2**63 - 1  # of a database
_LONGEST_DURATION = 366 * 86_400.0

# ---------------- Types


class ParsedText(click.ParamType[T]):
    """A type whose text `parse` converts.

    Args:
        name: what the help shows.
        parse: raises click.BadParameter, or BadOption, which then names the option as typed.
    """

    def __init__(self, name: str, parse: Callable[[Any], T]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        del ctx
        try:
            return self._parse(value)
        except BadOption as error:
            if isinstance(param, click.Option):
                raise BadOption(param.opts[0], error.problem) from error
            raise


def number(
    kind: type[N], low: float, high: float = math.inf, *, above: bool = False
) -> ParsedText[N]:
    """Return the type of numbers from `low` (with `above`: greater than it) to `high`."""

    def parse(value: Any) -> N:
        try:
            found: N = kind(value)
        except ValueError:
            noun = "whole number" if kind is int else "number"
            raise click.BadParameter(f"{value!r} is not a {noun}") from None
        is_low = found <= low if above else found < low
        if is_low or found > high or math.isnan(found):
            least = "more than" if above else "at least"
            most = "" if high in (math.inf, _LARGEST) else f" and at most {high:g}"
            raise click.BadParameter(f"must be {least} {low:g}{most}, not {value}")
        return found

    return ParsedText("N", parse)


def _parse_pair(value: Any) -> tuple[str, str]:
    name, separator, text = str(value).partition("=")
    if not separator or not name:
        raise click.BadParameter(f"{value!r} is not of the form NAME=VALUE")
    return name, text


def _parse_size(value: Any) -> int:
    try:
        return TypeAdapter(ByteSize).validate_python(value)
    except ValidationError as error:
        problem = f"{value!r:.80} is not a size; use for example 500KB or 50MB"
        raise BadOption("size", problem) from error


def _parse_rate(words: tuple[str, ...], value: Any) -> float | str:
    if value in words:
        return str(value)
    try:
        rate = float(value)
    except ValueError:
        others = ", ".join(map(repr, words))
        raise click.BadParameter(f"{value!r} is not a number; it may also be {others}") from None
    if not 0 < rate < math.inf:
        raise click.BadParameter("must be more than 0; for no limit, use 'unlimited'")
    return rate


def _parse_job(value: Any) -> str:
    if not value:  # every id begins with an empty string
        raise BadOption("JOB", "it is empty; `longline jobs` lists the jobs")
    return str(value)


JOB = ParsedText("JOB", _parse_job)
"""The id of a job, or the beginning of it."""
PAIR = ParsedText("NAME=VALUE", _parse_pair)
SIZE = ParsedText("SIZE", _parse_size)


def _parse_duration(text: Any) -> float:
    try:
        seconds: float = TypeAdapter(Seconds).validate_python(text)
    except ValidationError as error:
        raise BadOption("duration", describe_error(error.errors()[0])) from error
    if not 0 < seconds <= _LONGEST_DURATION:
        raise BadOption("duration", "it must be more than 0 and at most a year")
    return seconds


DURATION = ParsedText("DURATION", _parse_duration)
"""Seconds, or a text such as 30m or 2d."""
RATE = ParsedText("RATE", partial(_parse_rate, ("unlimited",)))
"""Requests per second, or `unlimited`."""
RATE_OR_AUTO = ParsedText("RATE", partial(_parse_rate, ("auto", "unlimited")))
COUNT = number(int, 1, _LARGEST)
"""A whole number of at least 1, as far as databases count."""
UP_TO_1000 = number(int, 1, 1000)
SHARE = number(float, 0, 1)
SECONDS = number(float, 0, above=True)


# ---------------- Options

SERVER_VARIABLE = "LONGLINE_SERVER"
TOKEN_VARIABLE = "LONGLINE_TOKEN"  # noqa: S105  # the name of a variable


def _keep(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Keep an option that is not a parameter of the command; groups share it with commands."""
    if value:
        context.meta[f"longline.{option.name}"] = value


def _kept(name: str) -> Any:
    context = click.get_current_context(silent=True)
    return context.meta.get(f"longline.{name}") if context else None


json_option = click.option(
    "--json", is_flag=True, help="Print JSON.", expose_value=False, callback=_keep
)
profile_option = click.option(
    "--profile",
    metavar="NAME",
    show_default="LONGLINE_PROFILE",
    help="Profile of longline.yaml to use.",
    expose_value=False,
    callback=_keep,
)
_home_and_profile = combine(
    click.option(
        "--home",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="FOLDER",
        show_default="LONGLINE_HOME or ./.longline",
        help="Folder for all data.",
        expose_value=False,
        callback=_keep,
    ),
    profile_option,
)


def _server_options(*, is_hidden: bool) -> Callable[[Command], Command]:
    """Add `--server` and `--token`; hidden for commands that then refuse to run."""
    return combine(
        click.option(
            "--server",
            "server_url",  # arguments of commands have other names
            metavar="URL",
            show_default=SERVER_VARIABLE,
            help="Use the home of this server, such as http://127.0.0.1:8400.",
            expose_value=False,
            hidden=is_hidden,
            callback=_keep,
        ),
        click.option(
            "--token",
            "server_token",
            metavar="TOKEN",
            show_default=TOKEN_VARIABLE,
            help="Token for the server; others on this machine can read it here.",
            expose_value=False,
            hidden=is_hidden,
            callback=_keep,
        ),
    )


home_option = combine(_home_and_profile, _server_options(is_hidden=True))
common_options = combine(home_option, json_option)
home_or_server_options = combine(_home_and_profile, json_option, _server_options(is_hidden=False))
"""The options of a command that `longline.cli.remote` can also run on a server."""


def engine_option(default: str) -> Callable[[Command], Command]:
    """Add `--engine`; `default` describes what counts without it."""
    return click.option(
        "--engine",
        type=click.Choice(["local", "celery"]),
        show_default=default,
        help="Run jobs in this process (local), or on cluster workers (celery).",
    )


ignore_robots_option = click.option(
    "--ignore-robots",
    multiple=True,
    metavar="HOST",
    help="Ignore the robots.txt of HOST. Repeatable.",
)
job_ignore_robots_option = click.option(
    "--ignore-robots",
    multiple=True,
    metavar="HOST",
    help="Ignore the robots.txt of HOST; recorded in the job. Repeatable.",
)
set_option = click.option(
    "--set",
    "options",
    type=PAIR,
    multiple=True,
    help="Set an option of the source. Repeatable.",
)
param_option = click.option(
    "--param",
    "params",
    type=PAIR,
    multiple=True,
    help="Pass a value to a Python source, as visit.params. Repeatable.",
)
source_options = combine(
    set_option,
    param_option,
    click.option(
        "--rate",
        type=RATE_OR_AUTO,
        help="Maximum requests per second per domain, 'auto' to learn it, or 'unlimited'.",
    ),
    click.option("--burst", type=COUNT, help="Maximum requests in a burst per domain."),
    click.option(
        "--max-in-flight",
        type=COUNT,
        help="Maximum concurrent requests per domain, across all processes.",
    ),
    click.option(
        "--concurrency",
        type=UP_TO_1000,
        help="Maximum concurrent items per domain in each process.",
    ),
    click.option(
        "--proxies",
        metavar="TIERS",
        help="Proxies for requests: 'any', 'none', or tiers in order: datacentre,residential.",
    ),
)


def enum_option(name: str, members: Iterable[StrEnum], text: str) -> Callable[[Command], Command]:
    """Add an option whose value is one of several members of an enum, or None."""
    by_value = {one.value: one for one in members}
    return click.option(
        name,
        type=click.Choice(list(by_value)),
        callback=lambda _context, _option, value: by_value.get(value),
        help=text,
    )


def failure_options(*states: ItemState) -> Callable[[Command], Command]:
    """Add `--kind`, `--state` and `--key`, which select failed items."""
    return combine(
        enum_option("--kind", FailureKind, "Only items with this kind of failure."),
        enum_option("--state", states, "Only items in this state."),
        click.option("--key", metavar="KEY", help="Only this item."),
    )


key_options = combine(
    click.argument("key"),
    click.option(
        "--source", metavar="NAME", help="Source of the record, if several have this key."
    ),
)


class ShowByDefault(click.Group):
    """A group that accepts the argument of its command `show` in place of a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in {*self.commands, "-h", "--help"}:
            args = ["show", *args]
        return super().parse_args(ctx, args)


# ---------------- Values


class NeedsHome(ConfigError):
    """A server was named, and the command works only with a home."""

    command: str
    server: str
    message = "`{command}` works with a home on this machine, not with the server {server}"
    hint = "Run it on the machine of the server, without --server and LONGLINE_SERVER."


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A server, and the token for it."""

    url: str
    token: str | None


def server_given() -> ServerAddress | None:
    """Return the server of the command line or of the environment; None: a home is used.

    Raises:
        BadOption: the command line names a home as well, or a token without a server.
    """
    home, named = _kept("home"), _kept("server_url")
    if named and home:
        raise BadOption("--server", "cannot be combined with --home")
    url = named or (None if home else os.environ.get(SERVER_VARIABLE))
    token = _kept("server_token")
    if not url and token:
        raise BadOption("--token", "needs --server")
    return ServerAddress(url, token or os.environ.get(TOKEN_VARIABLE) or None) if url else None


def settings_given() -> dict[str, Any]:
    """Return the home and the profile of the command line; None where it names none.

    Raises:
        NeedsHome: a server is named instead.
    """
    if (server := server_given()) is not None:
        raise NeedsHome(click.get_current_context().command_path, server.url)
    return {"home": _kept("home"), "profile": _kept("profile")}


def settings_of() -> Settings:
    """Return the settings, with the home and the profile of the command line.

    Raises:
        NeedsHome: a server is named instead.
    """
    return load_settings(**settings_given())


def wants_json() -> bool:
    """Return whether the command line has `--json`."""
    return bool(_kept("json"))


def check_url(url: str) -> None:
    """Check that an argument is a full URL.

    Raises:
        BadOption: it is not.
    """
    scheme, host = origin_of(url)
    if scheme not in {"http", "https"} or not host:
        raise BadOption("URL", f"must be a full URL like https://example.org/a, not {url!r}")


def typed_values(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return name and value pairs as a mapping; true, false and numbers keep their type."""
    return {name: typed_value(text) for name, text in pairs}


def given_values(values: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in values.items() if value not in (None, ())}
