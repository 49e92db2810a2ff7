"""longline cache: how full the HTTP cache is, and emptying it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from longline.cli.options import home_option, json_option, print_json, settings_of
from longline.config.settings import prepare_home
from longline.core.clock import utc_datetime
from longline.wiring import open_cache


@click.group("cache")
def command() -> None:
    """Look at the HTTP cache, or empty it."""


@command.command("stats")
@home_option
@json_option
def stats(*, home: Path | None, as_json: bool) -> None:
    """Show how many answers are kept, how large they are and how old."""
    with open_cache(settings_of(home)) as cache:
        found = cache.stats()
    if as_json:
        print_json(asdict(found))
        return
    share = found.size_bytes / found.limit_bytes
    click.echo(f"{found.entries} answers, {_size(found.size_bytes)}, {share:.0%} of the limit")
    if found.oldest is not None and found.newest is not None:
        click.echo(
            f"stored from {utc_datetime(found.oldest):%F %T}"
            f" to {utc_datetime(found.newest):%F %T} UTC"
        )


@command.command("clear")
@click.argument("domain", required=False)
@home_option
@json_option
def clear(domain: str | None, *, home: Path | None, as_json: bool) -> None:
    """Forget all answers, or those of one host."""
    settings = settings_of(home)
    if settings.cache_file.exists():
        prepare_home(settings)
    with open_cache(settings) as cache:
        removed = cache.clear(domain)
    if as_json:
        print_json(asdict(removed))
        return
    whose = f" of {domain}" if domain else ""
    click.echo(f"{removed.entries} answers{whose} removed, {_size(removed.size_bytes)}")


def _size(size_bytes: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= size:
            return f"{size_bytes / size:.1f} {unit}"
    return f"{size_bytes} bytes"
