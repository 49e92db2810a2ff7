"""longline run, plan, resume, retry, pause, cancel: run jobs and control them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from longline.cli.exit_codes import ExitCode, worst_exit_code
from longline.cli.following import follow_launch
from longline.cli.log_options import log_options
from longline.cli.options import (
    COUNT,
    JOB,
    SECONDS,
    SIZE,
    common_options,
    engine_option,
    failure_options,
    given_values,
    home_or_server_options,
    ignore_robots_option,
    job_ignore_robots_option,
    number,
    settings_of,
    source_options,
    typed_values,
    wants_json,
)
from longline.cli.output import duration_text, print_line, print_result
from longline.cli.progress import (
    SiteRow,
    SitesDisplay,
    run_job,
    run_with_display,
    short_source,
    sites_table,
    with_source,
)
from longline.cli.remote import or_on_server
from longline.core.clock import SystemClock
from longline.core.errors import BadOption, FailureKind, LonglineError, Unexpected
from longline.core.model import ItemState, Job, JobState
from longline.devtools.plan import MAX_SAMPLES, REQUESTS, Certainty, Plan, make_plan
from longline.devtools.session import open_session, session_spec
from longline.orchestrator import EngineName, NotStarted, Orchestrator, SiteEnd
from longline.sources.loader import nothing_in

if TYPE_CHECKING:
    from longline.client.client import Client
    from longline.server import models

_SENT = frozenset({"limit", "rate", "concurrency"})  # options of a run on a server


# ---------------- run, on a server


async def _run_on_server(
    client: Client,
    sources: tuple[str, ...],
    *,
    is_all: bool,
    detach: bool,
    options: tuple[tuple[str, str], ...],
    params: tuple[tuple[str, str], ...],
    **given: Any,
) -> int:
    from longline.server.models import JobCreate  # noqa: PLC0415  # only for a server

    if is_all or not sources:
        raise click.UsageError("Name at least one SOURCE of the server.")
    values = given_values(given | {"fresh": given["fresh"] or None})
    _refuse({name: one for name, one in values.items() if name not in _SENT})
    if isinstance(values.get("rate"), str):
        raise BadOption("--rate", "must be a number with --server")
    values |= {"set": dict(options), "params": typed_values(params)}
    launches = [await client.create_job(JobCreate(source=one, **values)) for one in sources]
    if detach:
        rows = [{"launch": one.id, "source": one.name, "state": one.state} for one in launches]
        text = "\n".join(f"submitted launch {one.id}" for one in launches)
        print_result(rows[0] if len(rows) == 1 else {"sites": rows}, lambda: click.echo(text))
        return ExitCode.OK
    return worst_exit_code([await follow_launch(client, one, SystemClock()) for one in launches])


# ---------------- run


@click.command("run")
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@click.option(
    "--all",
    "is_all",
    is_flag=True,
    help="Run every manifest and job file in the folders of the setting `sources`.",
)
@click.option(
    "--parallel/--sequential",
    default=None,
    help="Run sources in parallel (default) or one after another.",
)
@click.option("--limit", type=COUNT, help="Maximum number of items.")
@source_options
@click.option("--timeout", type=SECONDS, metavar="SECONDS", help="Response timeout in seconds.")
@click.option(
    "--retries",
    type=number(int, 0, 99),
    help="Maximum retries of a failed request, not counting the first attempt.",
)
@click.option("--cache/--no-cache", default=None, help="Use the HTTP cache.")
@click.option(
    "--archive/--no-archive",
    default=None,
    help="Archive every response (WARC), for `longline reextract`.",
)
@click.option(
    "--max-requests",
    type=COUNT,
    help="Maximum number of requests; a job that reaches it ends as partial.",
)
@click.option("--max-bytes", type=SIZE, help="Maximum bytes to receive, for example 50MB.")
@click.option(
    "--max-seconds", type=float, metavar="SECONDS", help="Maximum duration of a run in seconds."
)
@engine_option("setting `engine`, or local")
@click.option(
    "--detach",
    is_flag=True,
    help="Submit the job to `longline serve`, or with --engine celery to workers, and exit.",
)
@click.option(
    "--export",
    metavar="FILE",
    help="Export the records of the job when it ends; on a cluster, a worker writes FILE.",
)
@job_ignore_robots_option
@click.option("--fresh", is_flag=True, help="Start a new job even if an unfinished one exists.")
@log_options
@home_or_server_options
@or_on_server(_run_on_server)
def run_command(
    sources: tuple[str, ...],
    *,
    is_all: bool,
    parallel: bool | None,
    engine: EngineName | None,
    detach: bool,
    export: str | None,
    fresh: bool,
    options: tuple[tuple[str, str], ...],
    params: tuple[tuple[str, str], ...],
    **given: Any,
) -> None:
    """Run SOURCE, or resume its unfinished job.

    SOURCE is a name (see `longline sources`), a manifest or job file (YAML), a Python file with a
    Source class, or a class, function or Scrapy spider: package.module:Name or file.py:name.

    Several sources run in parallel. Each has its own limits, and the failure of one does not
    affect the others.
    """
    if is_all == bool(sources):
        raise click.UsageError("Name at least one SOURCE, or use --all.")
    if export is not None and (is_all or len(sources) > 1):
        raise click.UsageError("--export requires a single SOURCE.")
    budget = {name: given.pop(f"max_{name}") for name in ("requests", "bytes", "seconds")}
    retries = given.pop("retries")
    values = given_values(given)
    if any(budget.values()):
        values["budget"] = given_values(budget)
    if retries is not None:
        values["retry"] = {"attempts": retries + 1}
    if options:
        values["set"] = dict(options)  # as text: the source's own model knows the types
    if params:
        values["params"] = typed_values(params)
    settings = settings_of()
    orchestrator = Orchestrator(settings=settings)
    is_on_workers = (engine or settings.engine) == "celery"
    names = list(sources) or None
    how: dict[str, Any]
    if detach:
        how = {"fresh": fresh, "export": export}
        running = _submit(orchestrator, names, values, how, is_on_workers=is_on_workers)
    elif is_all or len(sources) > 1:
        how = {"params": values, "fresh": fresh, "engine": engine, "parallel": parallel}
        running = _run_sites(orchestrator, names, how)
    else:
        how = {"fresh": fresh, "engine": engine, "export": export}
        running = run_job(
            orchestrator,
            lambda hooks: orchestrator.execute(sources[0], values, **how, **hooks),
            is_on_workers=is_on_workers,
        )
    sys.exit(asyncio.run(running))


async def _run_sites(
    orchestrator: Orchestrator, sources: Sequence[str] | None, how: Mapping[str, Any]
) -> int:
    """Run several sources with live progress; return the exit code. None: all known sources."""
    display = SitesDisplay(sources or orchestrator.known_sites(), is_quiet=wants_json())
    for end in orchestrator.broken_sites() if sources is None else ():
        display.warn(str(end.error))
    ends = await run_with_display(
        orchestrator,
        display,
        lambda: orchestrator.scrape_all_sites(sources, hooks_of=display.hooks_of, **how),
    )
    if ends is None:
        return ExitCode.INTERRUPTED
    code = worst_exit_code(end.exit_code for end in ends)
    sites = [_site_json(end) for end in ends]
    print_result({"sites": sites, "exit_code": code}, lambda: _print_sites(ends))
    return code


async def _submit(
    orchestrator: Orchestrator,
    sources: Sequence[str] | None,
    values: Mapping[str, Any],
    how: Mapping[str, Any],
    *,
    is_on_workers: bool,
) -> int:
    """Submit sources to workers or a server; return the exit code. None: all known sources."""
    for name in (name for name, value in how.items() if value and not is_on_workers):
        raise click.UsageError(f"--detach with --{name} requires --engine celery.")
    names = sources or orchestrator.known_sites()
    failed = orchestrator.broken_sites() if sources is None else []
    if not names and not failed:
        raise BadOption("--all", nothing_in(orchestrator.settings.sources))
    submitted: list[dict[str, Any]] = []

    async def submit(source: str) -> dict[str, Any]:
        if is_on_workers:
            job = await orchestrator.submit(source, values, **how)
            return {"job": job.id, "source": job.source, "state": job.state.value}
        launch = await orchestrator.launch(source, values)
        return {"launch": launch.id, "source": launch.name, "state": launch.state.value}

    async with orchestrator:
        for source in names:
            try:
                submitted.append(await submit(source))
            except LonglineError as error:
                failed.append(SiteEnd(source, error=error))
            except Exception as error:  # noqa: BLE001  # the code of a source may raise anything
                failed.append(SiteEnd(source, error=Unexpected(repr(error))))
    rows = submitted + [_site_json(end) for end in failed]
    print_result(
        rows[0] if len(rows) == 1 else {"sites": rows}, lambda: _print_submitted(submitted, failed)
    )
    return worst_exit_code(end.exit_code for end in failed)


def _print_submitted(submitted: Sequence[Mapping[str, Any]], failed: Sequence[SiteEnd]) -> None:
    for row in submitted:
        click.echo(
            f"submitted {row['job']}" if "job" in row else f"submitted launch {row['launch']}"
        )
    for end in failed:
        click.echo(f"longline: {end.error}", err=True)
    if any("job" in row for row in submitted):
        click.echo("Watch progress with: longline top")
    elif submitted:
        click.echo("`longline serve --no-web` runs it. Follow it with: longline launches list")


def _site_json(end: SiteEnd) -> dict[str, Any]:
    if end.report is not None:
        return end.report.as_dict()
    return {"source": short_source(end.source), "state": "failed", "error": str(end.error)}


def _print_sites(ends: Sequence[SiteEnd]) -> None:
    problems: dict[str, list[str]] = {}
    rows = []
    for end in ends:
        name = short_source(end.source)
        if end.report is None and not isinstance(end.error, NotStarted):
            rows.append(SiteRow(name, "failed"))
        else:
            rows.append(SiteRow.of_run(name, end.report.progress if end.report else None))
        if problem := end.error or (end.report and end.report.reason):
            problems.setdefault(str(problem), []).append(name)
    sites_table(rows).print()
    for problem, names in problems.items():
        is_one = len(names) == 1
        print_line(with_source(names[0], problem) if is_one else f"{', '.join(names)}: {problem}")


# ---------------- plan


@click.command("plan")
@click.argument("source")
@click.option("--limit", type=COUNT, help="Maximum number of items to plan for.")
@source_options
@click.option(
    "--requests", type=COUNT, default=REQUESTS, help="Maximum number of requests for discovery."
)
@click.option(
    "--samples", type=COUNT, default=MAX_SAMPLES, help="Maximum number of items in the sample."
)
@ignore_robots_option
@common_options
def plan_command(
    source: str,
    *,
    requests: int,
    samples: int,
    options: tuple[tuple[str, str], ...],
    params: tuple[tuple[str, str], ...],
    **given: Any,
) -> None:
    """Estimate the requests and the duration of a run of SOURCE.

    Sends a few requests to discover items (sitemap or first pages) and fetches a sample of them,
    until the cost of an item is known to within 8% or half of the items have been fetched.
    Stores nothing.
    """
    values = {"set": dict(options), "params": typed_values(params)}
    spec = session_spec(source, {**given_values(given), **values})
    settings, clock = settings_of(), SystemClock()

    async def planned() -> Plan:
        async with open_session(settings, spec, clock) as session:
            return await make_plan(session, settings, clock, requests=requests, samples=samples)

    plan = asyncio.run(planned())
    print_result(plan.as_dict(), lambda: _print_plan(plan))


def _print_plan(plan: Plan) -> None:
    bound = "" if plan.certainty is Certainty.KNOWN else f"{plan.certainty.value} "
    error = f" ± {plan.error:.0%}" if round(plan.error, 2) else ""
    each = f"{plan.requests_per_item:.3g} per item in a sample of {plan.samples}"
    if plan.fewest_per_item != plan.most_per_item:
        each += f" ({plan.fewest_per_item} to {plan.most_per_item})"
    discovery = f"{plan.discovery_requests:,} for discovery"
    click.echo(f"{plan.source}: estimated {bound}{duration_text(plan.seconds)}{error}")
    click.echo(f"  items     {bound}{plan.items:,}")
    click.echo(f"  requests  {bound}{plan.requests:,}: {discovery}, {each}")
    for one in plan.domains:
        limit = "" if one.rate is None else f"{one.rate:.3g} per second, burst {one.burst}, "
        click.echo(f"  rate      {one.domain}: {limit}{one.rate_origin}")
    click.echo(f"  limited by {plan.bound}")
    click.echo(f"  this plan sent {plan.spent} requests")
    for note in plan.notes:
        print_line(f"  note: {note}")


# ---------------- resume, retry, pause, cancel


async def _resume_on_server(client: Client, job: str | None, **given: Any) -> None:
    _refuse(given)
    if job is None:
        raise click.UsageError("Name the JOB to resume on the server.")
    _print_launched(await client.resume_job(job))


async def _retry_on_server(
    client: Client,
    job: str,
    *,
    kind: FailureKind | None,
    state: ItemState | None,
    key: str | None,
    **given: Any,
) -> None:
    from longline.server.models import JobRetry  # noqa: PLC0415  # only for a server

    _refuse(given)
    body = JobRetry.model_validate({"kind": kind, "state": state, "key": key})
    _print_launched(await client.retry_job(job, body))


def _refuse(given: Mapping[str, Any]) -> None:
    """Refuse the options that a server does not take."""
    for name in given_values(dict(given)):
        raise BadOption(f"--{name.replace('_', '-')}", "cannot be used with --server")


def _print_launched(found: models.JobLaunch) -> None:
    job, launch = found.job, found.launch
    text = (
        f"{job.id}: the process that runs it takes the items"
        if launch is None
        else f"{job.id}: launch {launch.id} is queued"
    )
    row = {"job": job.id, "state": job.state.value, "reason": job.reason}
    print_result(row | {"launch": launch and launch.id}, lambda: print_line(text))


@click.command("resume")
@click.argument("job", type=JOB, required=False)
@click.option(
    "--checkpoint", metavar="ID", help="Resume the job of checkpoint ID; 'latest' is the newest."
)
@click.option("--from-key", metavar="KEY", help="Skip unfinished items discovered before KEY.")
@engine_option("as in its last run")
@job_ignore_robots_option
@log_options
@home_or_server_options
@or_on_server(_resume_on_server)
def resume_command(job: str | None, **given: Any) -> None:
    """Resume an unfinished job.

    JOB is a job id or the beginning of one; by default the newest unfinished job.
    """
    orchestrator = Orchestrator(settings=settings_of())
    running = run_job(orchestrator, lambda hooks: orchestrator.resume(job, **given, **hooks))
    sys.exit(asyncio.run(running))


@click.command("retry")
@click.argument("job", type=JOB)
@failure_options(ItemState.FAILED, ItemState.QUARANTINED, ItemState.SKIPPED)
@engine_option("as in its last run")
@job_ignore_robots_option
@log_options
@home_or_server_options
@or_on_server(_retry_on_server)
def retry_command(job: str, **given: Any) -> None:
    """Requeue failed items of JOB and run it.

    Without --kind, --state and --key, all failed and quarantined items are requeued, as are
    items that were skipped because of a failure.
    """
    orchestrator = Orchestrator(settings=settings_of())
    running = run_job(orchestrator, lambda hooks: orchestrator.retry(job, **given, **hooks))
    sys.exit(asyncio.run(running))


async def _pause_on_server(client: Client, job: str) -> None:
    before = await client.get_job(job)
    _print_stopped(before.state, (await client.pause_job(before.id)).job)


async def _cancel_on_server(client: Client, job: str) -> None:
    before = await client.get_job(job)
    _print_stopped(before.state, (await client.cancel_job(before.id)).job)


def _print_stopped(before: JobState, job: Job | models.Job) -> None:
    already = "already " if job.state is before else ""
    print_result(
        {"job": job.id, "state": job.state.value, "reason": job.reason},
        lambda: click.echo(f"{job.id} is {already}{job.state.value}"),
    )


@click.command("pause")
@click.argument("job", type=JOB)
@home_or_server_options
@or_on_server(_pause_on_server)
def pause_command(job: str) -> None:
    """Pause JOB on all workers.

    Requests in flight finish and are committed. On a cluster, they have up to a minute; items that
    take longer are attempted again. `longline resume JOB` continues the job.
    """
    stop_job(Orchestrator.pause, job)


def stop_job(stop: Callable[[Orchestrator, str], Awaitable[Job]], name: str) -> None:
    """Pause or cancel a job, and print its new state."""

    async def stopped() -> tuple[Job, Job]:
        async with Orchestrator(settings=settings_of()) as orchestrator:
            return await orchestrator.store.jobs.get(name), await stop(orchestrator, name)

    before, job = asyncio.run(stopped())
    _print_stopped(before.state, job)


@click.command("cancel")
@click.argument("job", type=JOB)
@home_or_server_options
@or_on_server(_cancel_on_server)
def cancel_command(job: str) -> None:
    """Cancel JOB on all workers.

    Records are kept; unfinished items are not collected. Requests in flight finish and are
    committed; on a cluster, they have up to a minute. A cancelled job cannot be resumed: the same
    `longline run` starts a new one.
    """
    stop_job(Orchestrator.cancel, job)
