"""longline sources and plugins: list, show, check, record and create sources."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.padding import Padding
from rich.text import Text

from longline.cli.exit_codes import ExitCode
from longline.cli.options import (
    COUNT,
    ShowByDefault,
    check_url,
    common_options,
    ignore_robots_option,
    json_option,
    param_option,
    profile_option,
    set_option,
    settings_of,
    typed_values,
    wants_json,
)
from longline.cli.output import (
    SafeConsole,
    TextTable,
    duration_text,
    iso_time,
    one_line,
    print_line,
    print_result,
    time_text,
    value_text,
)
from longline.cli.queries import uses_store
from longline.config.job_spec import make_spec
from longline.config.plugins import ENTRY_POINTS, HEALTH, SOURCES, SUBSCRIBERS, list_plugins
from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.core.errors import BadOption, ConfigError, DestinationUnwritable
from longline.core.model import Item, OutcomeAction
from longline.core.output import count_text
from longline.devtools.check import (
    CaseResult,
    Check,
    Checks,
    cases_in,
    check_source,
    record_case,
    replay_case,
)
from longline.devtools.propose.proposal import (
    Candidate,
    ItemKind,
    Proposal,
    edit_fields,
    manifest_text,
    shortened,
)
from longline.devtools.propose.proposer import PageSurvey, Proposer, Transport
from longline.devtools.session import (
    NO_SOURCE,
    Exchange,
    open_page_chain,
    open_session,
    session_spec,
)
from longline.engine.subscribers import plugin_subscription
from longline.http.messages import Page
from longline.sources.base import Source
from longline.sources.loader import (
    as_source,
    attribute_docstrings,
    known_sources,
    load_source,
)
from longline.storage.store import Store

_VALUE = 100  # characters
_RUNS = 20  # that the status of a source shows
_OUTCOMES = {
    OutcomeAction.STORE: "would be stored as a record",
    OutcomeAction.SKIP: "skipped",
    OutcomeAction.FAIL: "failed",
    OutcomeAction.QUARANTINE: "quarantined",
    OutcomeAction.DEFER: "a run would defer this item",
}


@click.group("sources", cls=ShowByDefault)
def sources_command() -> None:
    """List, show, check and create sources.

    `longline sources` lists all sources, `longline sources SOURCE` shows one.
    """


@sources_command.command("show")
@click.argument("source", required=False)
@profile_option
@json_option
def show_source(source: str | None) -> None:
    """Show the options, limits and layers of SOURCE.

    Without SOURCE, list all sources.
    """
    if source is not None:
        row = _source_json(load_source(source))
        print_result([row], lambda: _print_source(row))
        return
    rows = [
        {"name": reference, "about": f"broken: {found}"}
        if isinstance(found, ConfigError)
        else {**_source_json(found), "reference": reference}
        for reference, found in known_sources(settings_of())
    ]
    lines = [f"{row.get('reference', row['name']):12} {row['about']}" for row in rows]
    print_result(rows, lambda: click.echo("\n".join(lines)))


@sources_command.command("status")
@click.argument("source", required=False)
@common_options
@uses_store
async def show_status(store: Store, source: str | None) -> None:
    """Show the latest state of each source.

    With SOURCE, also show its last runs, field coverage and failures by kind.
    """
    if source is None:
        rows = await store.projections.rows("sources")
        print_result([_status_json(row) for row in rows], lambda: _print_statuses(rows))
        return
    found = await store.projections.rows("sources", keys=[source])
    if not found:
        hint = "`longline sources status` lists the sources"
        raise BadOption("SOURCE", f"{source!r} has not been run in this home; {hint}")
    newest = await store.jobs.list(source=source, limit=_RUNS)
    runs = await store.projections.rows("runs", keys=[job.id for job in newest])
    kinds = [row for row in await store.projections.rows("failures") if row["source"] == source]
    shown = {**_status_json(found[0]), "last_runs": runs, "failures": kinds}
    print_result(shown, lambda: _print_status(found[0], runs, kinds))


def _status_json(row: Mapping[str, Any]) -> dict[str, Any]:
    times = ("changed_at", "last_good_at", "record_changed_at")
    return {**row, **{name: iso_time(row[name]) for name in times}}


def _print_statuses(rows: Sequence[Mapping[str, Any]]) -> None:
    now = SystemClock().now()
    table = TextTable(
        "source", "state", "last complete run", "records", "drift", "reason", note="reason"
    )
    for row in rows:
        good = row["last_good_at"]
        age = "never" if good is None else f"{duration_text(max(0.0, now - good))} ago"
        drift = "yes" if row["drift"] else ""
        table.add(row["source"], row["state"], age, row["records"], drift, row["reason"])
    table.print("no run has been started yet; try: longline demo")


def _print_status(
    row: Mapping[str, Any], runs: Sequence[Mapping[str, Any]], kinds: Sequence[Mapping[str, Any]]
) -> None:
    _print_statuses([row])
    table = TextTable("run", "started (UTC)", "state", "ok", "failed", "skipped")
    for run in runs:
        items = run["items"]
        started = time_text(run["started_at"]) if run["started_at"] else ""
        good, bad = items["stored"] + items["unchanged"], items["failed"] + items["quarantined"]
        table.add(run["job"], started, run["state"], good, bad, items["skipped"])
    table.print()
    if row["coverage"]:
        absent = {name: share for name, share in row["coverage"].items() if share < 1}
        table = TextTable("field", "present")
        for name, share in sorted(absent.items(), key=lambda one: one[1]):
            table.add(name, f"{share:.0%}")
        if absent:
            table.print()
        always = len(row["coverage"]) - len(absent)
        print_line(f"{count_text(always, 'field is', 'fields are')} present in every record")
    if kinds:
        table = TextTable("failure", "attempts", "last (UTC)", "last reason", note="last reason")
        for one in kinds:
            count = sum(one["attempts"].values())
            table.add(one["kind"], count, time_text(one["last_at"]), one["last_reason"])
        table.print()


def _source_json(kind: type[Source]) -> dict[str, Any]:
    texts = attribute_docstrings(kind.Options)
    options = kind.Options.model_fields
    texts |= {name: one.description for name, one in options.items() if one.description}
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
                "about": " ".join(texts.get(name, "").split()) or None,
            }
            for name, field in options.items()
        },
    }


def _print_source(one: dict[str, Any]) -> None:
    rate = "unlimited" if one["rate"] is None else one["rate"]
    rate = rate if isinstance(rate, str) else f"{rate:g} requests per second"
    layers = (f"{row['name']}{' (optional)' if row['optional'] else ''}" for row in one["layers"])
    click.echo(f"{one['name']:12} {one['about']}")
    click.echo(f"  rate      {rate}, burst {one['burst']}")
    click.echo(f"  layers    {', '.join(layers)}")
    for name, setting in one["settings"].items():
        value = "…  (required)" if setting["required"] else setting["default"]
        click.echo(f"  --set {name}={value}  {setting['about'] or ''}".rstrip())


# ---------------- check, test


@sources_command.command("check")
@click.argument("source")
@click.option("--url", metavar="URL", help="Page of one item.  [default: the first discovered]")
@click.option("--key", metavar="KEY", help="Key of that item.  [default: its URL]")
@set_option
@param_option
@click.option("--items", type=COUNT, default=1, help="Number of items to check.")
@click.option(
    "--record",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Save responses and record in FOLDER, as a test case for `sources test`.",
)
@ignore_robots_option
@common_options
def check(*, record: Path | None, **given: Any) -> None:
    """Run every layer of SOURCE on one item; store nothing.

    Shows each field with its value and origin, or why it is empty. Exits with 0 if a record
    would be stored, 3 if its data is invalid, 1 if the item fails or is skipped.
    """
    values: dict[str, Any] = {"set": dict(given["options"])}
    values["params"] = typed_values(given["params"])
    if given["ignore_robots"]:  # otherwise the job file decides
        values["ignore_robots"] = given["ignore_robots"]
    spec = session_spec(given["source"], values)
    url = given["url"]
    item = Item(given["key"] or url, url) if url else None
    settings, clock = settings_of(), SystemClock()
    started = clock.now()

    async def checked() -> Checks:
        async with open_session(settings, spec, clock) as session:
            return await check_source(session, clock, items=given["items"], only=item)

    checks = asyncio.run(checked())
    if record is not None:
        is_one = len(checks.items) == 1
        for place, one in enumerate(checks.items, start=1):
            record_case(record if is_one else record / f"{place:02}", spec, one, started)
    print_result(checks.as_dict(), lambda: _print_checks(checks, record))
    sys.exit(checks.exit_code)


def _print_checks(checks: Checks, folder: Path | None) -> None:
    print_line(f"{checks.source}, version {checks.version}")
    if checks.discovery:
        click.echo(f"\ndiscovery, {checks.seconds:.2f} s")
        _print_exchanges(checks.discovery)
    for note in checks.notes:
        print_line(f"  note: {note.field}: {note.text}")
    for one in checks.items:
        _print_check(one)
    if folder:
        click.echo(f"\nrecorded in {folder}; replay with: longline sources test {folder}")


def _print_check(check: Check) -> None:
    click.echo()
    print_line(f"item {check.item.key}, {check.item.url}")
    for layer in check.layers:
        duration = "" if layer.seconds is None else f"{layer.seconds:.2f} s"
        print_line(f"  layer {layer.name:14} {duration:>8}  {layer.end}")
    click.echo("\nfields")
    width = max((len(one.name) for one in check.fields), default=0)
    for field in check.fields:
        value = "(empty)" if field.value is None else one_line(value_text(field.value), _VALUE)
        print_line(f"  {field.name:{width}}  {value}")
        origin = [f"from {field.origin}"] if field.origin else []
        for line in [*origin, *(f"note: {note}" for note in field.notes)]:
            print_line(f"  {'':{width}}    {line}")
    click.echo("\nrequests")
    _print_exchanges(check.exchanges)
    click.echo()
    print_line(f"{_OUTCOMES[check.action]}{f': {check.reason}' if check.reason else ''}")
    if check.found:
        click.echo(f"discovered {count_text(check.found, 'more item')} on its page")
    if check.quality:
        click.echo(f"quality {check.quality.score:g} of 100, {check.quality.grade}")
        for part in check.quality.parts:
            for text in part.reasons:
                print_line(f"  {part.name}: {text}")


def _print_exchanges(exchanges: Sequence[Exchange]) -> None:
    if not exchanges:
        click.echo("  none")
    for one in exchanges:
        page = one.result
        facts = [str(page)]
        if isinstance(page, Page):
            facts = [f"status {page.status}", f"{len(page.body):,} bytes"]
        facts.append(f"{one.seconds:.2f} s")
        if round(one.waited, 2):
            facts.append(f"{one.waited:.2f} s of it waiting for limits")
        if one.requests > 1:
            facts.append(f"{one.requests} requests including redirects, retries and robots.txt")
        if one.is_cached:
            facts.append("cached")
        print_line(f"  {one.request.method} {one.request.url}")
        print_line(f"      {', '.join(facts)}")


@sources_command.command("test")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--source", metavar="SOURCE", help="Use this source instead of the recorded one.")
@json_option
def replay_cases(*, folder: Path, source: str | None) -> None:
    """Replay the test cases in FOLDER.

    `longline sources check --record` saves them. Sends no requests; exits with 1 if a result
    differs.
    """

    async def replayed() -> list[CaseResult]:
        return [await replay_case(case, source) for case in cases_in(folder)]

    results = asyncio.run(replayed())
    rows = [{"case": str(one.folder), "differences": list(one.differences)} for one in results]
    lines = []
    for one in results:
        lines.append(f"{one.folder}: {'same' if one.is_same else 'differs'}")
        lines += [f"  {one_line(difference)}" for difference in one.differences]
    print_result(rows, lambda: click.echo("\n".join(lines)))
    sys.exit(ExitCode.OK if all(one.is_same for one in results) else ExitCode.FAILED)


# ---------------- new

_CANDIDATE_KINDS = {
    ItemKind.PAGES: "{count} elements {selector}, each with its own page ({link})",
    ItemKind.ELEMENTS: "{count} elements {selector}",
    ItemKind.RECORDS: "{count} objects at {selector} in the JSON of {url}",
    ItemKind.SCRIPT: "{count} objects at {selector} in a script of the page",
    ItemKind.PAGE: "the page itself",
}


@sources_command.command("new")
@click.argument("url")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    show_default="NAME.yaml",
    help="Manifest to write.",
)
@click.option(
    "--name", metavar="NAME", show_default="derived from the URL", help="Name of the source."
)
@click.option("--yes", is_flag=True, help="Do not prompt: use the best candidate and all fields.")
@click.option(
    "--candidate", type=COUNT, help="Use the candidate with this number, without a prompt."
)
@click.option(
    "--transport",
    type=click.Choice(["http", "browser"]),
    default="http",
    help="How to fetch pages: `browser` for pages rendered by JavaScript.",
)
@click.option("--dry-run", is_flag=True, help="Print the manifest instead of writing it.")
@ignore_robots_option
@common_options
def propose_source(*, url: str, output: Path | None, yes: bool, **given: Any) -> None:
    """Propose a manifest for the list at URL.

    The manifest defines items, pagination and fields. Candidates for the items are ranked and
    explained. The manifest is tested on the second page of the list and on several items before it
    is written. Exits with 0 if it works, 3 if it works with warnings, 1 if no manifest was found.
    """
    check_url(url)
    if output is not None:
        _check_new(output)
    survey, proposal = asyncio.run(_propose(settings_of(), url, given, has_prompts=not yes))
    path = None if given["dry_run"] else output or Path(f"{proposal.name}.yaml")
    if path is not None:
        _check_new(path)
        try:
            path.write_text(manifest_text(proposal), "utf-8")
        except OSError as error:
            raise DestinationUnwritable(str(path), error.strerror or str(error)) from error
    result = {
        "candidates": [one.as_dict() for one in survey.candidates],
        "proposal": proposal.as_dict(),
        "path": str(path) if path else None,
    }
    print_result(result, lambda: _print_written(proposal, path))
    sys.exit(ExitCode.PARTIAL if proposal.warnings else ExitCode.OK)


def _check_new(path: Path) -> None:
    if path.exists():
        raise BadOption("-o", f"{path} already exists; choose another file")


async def _propose(
    settings: Settings, url: str, given: dict[str, Any], *, has_prompts: bool
) -> tuple[PageSurvey, Proposal]:
    spec = make_spec({"source": NO_SOURCE, "ignore_robots": given["ignore_robots"]})
    transport: Transport = given["transport"]
    clock, chosen = SystemClock(), given["candidate"]
    async with open_page_chain(settings, spec, clock, transport=transport) as chain:
        proposer = Proposer(chain, url, given["name"], clock=clock, transport=transport)
        survey = await proposer.survey()
        count = len(survey.candidates)
        if not wants_json():
            _print_candidates(survey.candidates)
            if has_prompts and not chosen and count > 1:
                kind = click.IntRange(1, count)
                chosen = click.prompt("Which candidate are the items?", type=kind, default=1)
                click.echo()
        if chosen is None:
            proposal = await proposer.best(survey)
        elif chosen > count:
            raise BadOption("--candidate", f"there are only {count} candidates")
        else:
            proposal = await proposer.propose(survey, survey.candidates[chosen - 1])
    if not wants_json():
        _print_proposal(proposal, survey)
        proposal = _edited(proposal) if has_prompts else proposal
    return survey, proposal


def _print_candidates(candidates: Sequence[Candidate]) -> None:
    console = SafeConsole()
    room = console.width - 5
    console.print("Candidates for the items, most likely first:\n")
    for place, one in enumerate(candidates, start=1):
        console.print(Text(f"{place:3}  {shortened(_describe_candidate(one), room)}", "bold"))
        for text in one.samples[:2] if one.kind is not ItemKind.PAGE else ():
            console.print(f"     {shortened(text, room)}")
        score = [f"score {one.score:.0f}"] if one.score else []
        reasons = Text("; ".join([*score, *one.reasons]), "dim")
        console.print(Padding(reasons, (0, 0, 0, 5)))
    console.print()


def _print_proposal(proposal: Proposal, survey: PageSurvey) -> None:
    place = survey.candidates.index(proposal.candidate) + 1
    print_line(f"Candidate {place}: {_describe_candidate(proposal.candidate)}", "bold")
    if proposal.candidate.kind is not ItemKind.PAGE:
        how = ", ".join(f"{name} {value}" for name, value in (proposal.pages or {}).items())
        print_line(f"Pagination: {how or 'none found'}")
    tested = count_text(len(proposal.tried), "page")
    print_line(f"Tested on {tested}: {count_text(len(proposal.records), 'record')}")
    click.echo()
    room = max(20, SafeConsole().width - 46)
    table = TextTable("#", "field", "type", "filled", "example", drop=["filled", "type"])
    for place, one in enumerate(proposal.all_fields, start=1):
        sample = shortened(one.samples[0], room) if one.samples else ""
        table.add(place, one.name, one.kind or "text", f"{one.filled:.0%}", sample)
    table.print()
    for note in proposal.notes:
        print_line(f"note: {note}")
    for warning in proposal.warnings:
        SafeConsole(stderr=True).print(Text(f"warning: {warning.text}", "yellow"))


def _edited(proposal: Proposal) -> Proposal:
    """Return the proposal with the fields that the user keeps and renames."""
    click.echo("\nPress Enter to keep all fields. -3 drops field 3, 2=author renames field 2.")
    while True:
        answer = click.prompt("Fields", default="", show_default=False)
        try:
            return edit_fields(proposal, answer.split())
        except BadOption as error:
            click.echo(str(error), err=True)


def _describe_candidate(candidate: Candidate) -> str:
    return _CANDIDATE_KINDS[candidate.kind].format(
        count=candidate.count,
        selector=candidate.selector,
        link=candidate.link or "the element",
        url=candidate.url,
    )


def _print_written(proposal: Proposal, path: Path | None) -> None:
    if path is None:
        click.echo(f"\n{manifest_text(proposal)}")
        return
    click.echo(f"\nwrote {path}: {count_text(len(proposal.all_fields), 'field')}")
    click.echo(f"  check one item:  longline sources check {path}")
    click.echo(f"  plan the run:    longline plan {path}")
    click.echo(f"  run it:          longline run {path}")


# ---------------- plugins


@click.command("plugins")
@json_option
def plugins_command() -> None:
    """List installed plugins.

    A plugin is a package with entry points for sources, middlewares, pipeline stages, enrichers,
    exporters, limit backends, listeners, event subscribers or health checks.
    """
    from longline.services.health import plugin_check  # noqa: PLC0415  # slow to import

    checks = {SOURCES: as_source, SUBSCRIBERS: plugin_subscription, HEALTH: plugin_check}
    plugins = list_plugins(checks)
    table = TextTable("kind", "name", "package", "target", "state")
    for one in plugins:
        kind = one.group.partition(".")[2].removesuffix("s")
        state = "ok" if one.problem is None else f"broken: {one.problem}"
        table.add(kind, one.name, f"{one.distribution} {one.version}", one.target, state)
    none = f"no plugins are installed (entry point groups: {', '.join(ENTRY_POINTS)})"
    print_result([one.as_dict() for one in plugins], lambda: table.print(none))
