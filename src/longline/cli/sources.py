"""longline sources: list sources, show one, check it, record it as a test, propose a new one."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from longline.authoring.bench import open_bench, spec_of
from longline.authoring.checking import Checks, check_source
from longline.authoring.recording import CaseResult, cases_in, record_case, replay_case
from longline.cli.options import (
    COUNT,
    Pair,
    home_option,
    ignore_robots_option,
    json_option,
    print_json,
    profile_option,
    settings_of,
    values_of,
)
from longline.cli.sources_new import new
from longline.cli.sources_told import tell_checks, tell_result
from longline.clock import SystemClock
from longline.config.library import survey
from longline.config.manifests.base import Manifest
from longline.config.plugins import SOURCES, plugin_names
from longline.config.settings import Settings
from longline.config.spec import JobSpec
from longline.errors import ConfigError
from longline.model import Item
from longline.sources.base import Source
from longline.sources.load import BUILT_IN, load_source

_SHOW = "show"


class _Sources(click.Group):
    """Takes what is none of its commands for a source to show."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            return _SHOW, self.commands[_SHOW], args
        return super().resolve_command(ctx, args)


@click.group("sources", cls=_Sources, invoke_without_command=True)
@profile_option
@json_option
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> None:
    """List sources, or show the settings and layers of one."""
    context.obj = as_json
    if context.invoked_subcommand is None:
        _show(list(_known()), as_json=as_json)


@command.command(_SHOW)
@click.argument("source")
@json_option
@click.pass_obj
def show(outer: bool, *, source: str, as_json: bool) -> None:  # noqa: FBT001  # click's own call
    """Show the settings and layers of SOURCE; the word show may be left out."""
    told = _told(load_source(source))
    _show([told], as_json=as_json or outer, has_details=True)


@command.command("check")
@click.argument("source")
@click.option("--url", help="The page of one item; without it, the first that is found.")
@click.option("--key", help="The key of that item [its address].")
@click.option("--set", "options", type=Pair(), multiple=True, help="A setting of the source.")
@click.option("--param", "params", type=Pair(), multiple=True, help="A parameter for the source.")
@click.option("--items", type=COUNT, default=1, show_default=True, help="Check so many.")
@click.option(
    "--record",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep answers and record in this folder, as a test.",
)
@ignore_robots_option
@home_option
@json_option
def check(*, record: Path | None, home: Path | None, as_json: bool, **given: Any) -> None:
    """Take one page of SOURCE through every layer, and show what came of it; store nothing.

    Each field is shown with its value, where it comes from, and why it is empty. Exit code 0 is a
    record, 3 a page that lacks what is required, 1 a failure.
    """
    told: dict[str, Any] = {"set": dict(given["options"]), "params": values_of(given["params"])}
    if given["ignore_robots"]:  # else what a job file says of it counts
        told["ignore_robots"] = given["ignore_robots"]
    spec = spec_of(given["source"], told)
    url = given["url"]
    item = Item(given["key"] or url, url) if url else None
    checks = asyncio.run(_check(settings_of(home), spec, given["items"], item, record))
    if as_json:
        print_json(checks.as_dict())
    else:
        tell_checks(checks)
        if record:
            click.echo(f"\nrecorded in {record}; replay it with: longline sources test {record}")
    sys.exit(checks.exit_code)


@command.command("test")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--source", help="Another source than the one that was recorded with.")
@json_option
def test(*, folder: Path, source: str | None, as_json: bool) -> None:
    """Replay what `check --record` kept in FOLDER, without a request; exit with 1 if it differs."""
    results = asyncio.run(_replay(cases_in(folder), source))
    if as_json:
        print_json(
            [{"case": str(one.folder), "differences": list(one.differences)} for one in results]
        )
    else:
        for one in results:
            tell_result(one)
    sys.exit(0 if all(one.is_same for one in results) else 1)


command.add_command(new)


async def _check(
    settings: Settings, spec: JobSpec, items: int, item: Item | None, folder: Path | None
) -> Checks:
    clock = SystemClock()
    async with open_bench(settings, spec, clock) as bench:
        started = clock.now()
        checks = await check_source(bench, clock, items=items, only=item)
    if folder is not None:
        is_one = len(checks.items) == 1
        for number, one in enumerate(checks.items, start=1):
            record_case(folder if is_one else folder / f"{number:02}", spec, one, started)
    return checks


async def _replay(folders: list[Path], source: str | None) -> list[CaseResult]:
    return [await replay_case(folder, source) for folder in folders]


def _known() -> Iterator[dict[str, Any]]:
    """Yield what is known of every source that there is a name for; a broken one says why."""
    written = survey(settings_of())
    manifests = [
        str(one.document.path)
        for one in written.entries.values()
        if isinstance(one.model, Manifest)
    ]
    for reference in (*sorted({*BUILT_IN, *plugin_names(SOURCES)}), *manifests):
        try:
            yield {**_told(load_source(reference)), "reference": reference}
        except ConfigError as error:
            yield {"name": reference, "about": f"cannot be used: {error}"}
    for problem in written.problems:
        yield {"name": getattr(problem, "path", ""), "about": f"cannot be used: {problem}"}


def _show(told: list[dict[str, Any]], *, as_json: bool, has_details: bool = False) -> None:
    if as_json:
        print_json(told)
        return
    for one in told:
        click.echo(f"{one.get('reference', one['name']):12} {one['about']}")
        if has_details:
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
            name: {
                "default": None if field.is_required() else field.get_default(),
                "required": field.is_required(),
                "about": _in_one_line(field.description),
            }
            for name, field in kind.Options.model_fields.items()
        },
    }


def _in_one_line(text: str | None) -> str | None:
    return None if text is None else " ".join(text.split())


def _details(one: dict[str, Any]) -> None:
    rate = one["rate"]
    pace = "unlimited" if rate is None else rate if rate == "auto" else f"{rate:g} a second"
    click.echo(f"  pace      {pace}, bursts of {one['burst']}")
    layers = (f"{row['name']}{' (optional)' if row['optional'] else ''}" for row in one["layers"])
    click.echo(f"  layers    {', '.join(layers)}")
    for name, setting in one["settings"].items():
        value = "…  (required)" if setting["required"] else setting["default"]
        click.echo(f"  --set {name}={value}  {setting['about'] or ''}".rstrip())
