"""longline sources: list sources, show one, check it, record it as a test, propose a new one."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from longline.cli.commands.sources.sources_new import new
from longline.cli.format import echo_line, one_line, written
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
from longline.config.job_spec import JobSpec
from longline.config.plugins import SOURCES, plugin_names
from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.core.errors import ConfigError
from longline.core.model import Item, OutcomeAction, Quality
from longline.devtools.cases import CaseResult, cases_in, record_case, replay_case
from longline.devtools.check import Check, CheckedField, Checks, check_source
from longline.devtools.session import Exchange, open_session, session_spec
from longline.http.messages import Page
from longline.sources.base import Source
from longline.sources.library import survey
from longline.sources.loader import BUILT_IN, load_source
from longline.sources.manifest import Manifest

# ---------------- What people see of a source that is checked, or replayed from its recorded pages

_WIDTH = 100
_ENDS = {
    OutcomeAction.STORE: "it becomes a record",
    OutcomeAction.SKIP: "it is skipped",
    OutcomeAction.FAIL: "it fails",
    OutcomeAction.QUARANTINE: "it is refused and put into quarantine",
    OutcomeAction.DEFER: "it is put off",
}


def tell_checks(checks: Checks) -> None:
    """Print what the first items of a source came to."""
    echo_line(f"{checks.source}, version {checks.version}")
    if checks.discovery:
        click.echo(f"\nfinding items, {checks.seconds:.2f} s")
        _tell_exchanges(checks.discovery)
    for note in checks.notes:
        echo_line(f"  note: {note.field}: {note.text}")
    for one in checks.items:
        _tell_check(one)


def tell_result(result: CaseResult) -> None:
    """Print what a replayed case came to."""
    click.echo(f"{result.folder}: {'same' if result.is_same else 'differs'}")
    for difference in result.differences:
        echo_line(f"  {difference}")


def _tell_check(check: Check) -> None:
    click.echo()
    echo_line(f"item {check.item.key}, {check.item.url}")
    for layer in check.layers:
        took = "" if layer.seconds is None else f"{layer.seconds:.2f} s"
        echo_line(f"  layer {layer.name:14} {took:>8}  {layer.end}")
    click.echo("\nfields")
    for field in check.fields:
        _tell_field(field, max(len(one.name) for one in check.fields))
    click.echo("\nrequests")
    _tell_exchanges(check.exchanges)
    reason = f": {check.reason}" if check.reason else ""
    click.echo()
    echo_line(f"{_ENDS[check.action]}{reason}")
    if check.found:
        click.echo(f"its page leads to {check.found} more items")
    if check.quality:
        _tell_quality(check.quality)


def _tell_field(field: CheckedField, width: int) -> None:
    value = "(empty)" if field.value is None else shortened(field.value)
    echo_line(f"  {field.name:{width}}  {value}")
    if field.origin:
        echo_line(f"  {'':{width}}    from {field.origin}")
    for note in field.notes:
        echo_line(f"  {'':{width}}    note: {note}")


def _tell_exchanges(exchanges: Sequence[Exchange]) -> None:
    if not exchanges:
        click.echo("  none")
    for one in exchanges:
        echo_line(f"  {one.request.method} {one.request.url}")
        echo_line(f"      {', '.join(_facts(one))}")


def _facts(exchange: Exchange) -> Iterable[str]:
    if isinstance(exchange.result, Page):
        yield f"status {exchange.result.status}"
        yield f"{len(exchange.result.body):,} bytes"
    else:
        yield str(exchange.result)
    yield f"{exchange.seconds:.2f} s"
    if exchange.waited >= 0.01:  # noqa: PLR2004  # what two decimals show
        yield f"of which {exchange.waited:.2f} s waiting for its turn"
    if exchange.requests > 1:
        yield f"{exchange.requests} requests with redirects, retries and robots.txt"
    if exchange.is_cached:
        yield "cached"


def _tell_quality(quality: Quality) -> None:
    click.echo(f"quality {quality.score:g} of 100, {quality.grade}")
    for part in quality.parts:
        for reason in part.reasons:
            echo_line(f"  {part.name}: {reason}")


def shortened(value: Any) -> str:
    """Return a value on one line of bearable length."""
    return one_line(written(value), _WIDTH)


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
    spec = session_spec(given["source"], told)
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
    async with open_session(settings, spec, clock) as bench:
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
