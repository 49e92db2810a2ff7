"""longline watch: collect a page or a source again and again, and report what has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from longline.cli.options import (
    check_url,
    common_options,
    ignore_robots_option,
    settings_of,
)
from longline.cli.output import (
    iso_time,
    one_line,
    print_facts,
    print_line,
    print_note,
    print_result,
)
from longline.cli.queries import with_store
from longline.core.clock import utc_datetime
from longline.core.errors import BadOption, DestinationUnwritable
from longline.core.model import JobState
from longline.core.output import count_text
from longline.devtools.propose.proposal import shortened
from longline.devtools.watch import PageToWatch, WatchedPage, watch_page
from longline.scheduling.definitions import DefinitionFiles, absolute_reference, sync_files
from longline.scheduling.planning import plan_next
from longline.scheduling.schedule import Schedule, make_schedule
from longline.scheduling.scheduler import launch_of
from longline.sources.loader import SUFFIXES
from longline.storage.events.events import EventFilter
from longline.storage.store import Store

_WEBHOOK = "webhook:"
_PREFIX = "watch-"
_WITH_DATA = (JobState.COMPLETE, JobState.PARTIAL)


@click.command("watch")
@click.argument("source", metavar="URL|SOURCE")
@click.option(
    "--select",
    "selections",
    metavar="CSS",
    multiple=True,
    help="What to watch on the page: a CSS selector, or NAME=CSS. Repeatable.",
)
@click.option("--every", metavar="DURATION", help="Interval, such as 1h.  [default: 1h]")
@click.option("--cron", help="Cron expression instead of an interval, such as '0 6 * * *'.")
@click.option("--timezone", metavar="ZONE", help="Time zone of --cron, such as Europe/Sofia.")
@click.option(
    "--notify",
    "targets",
    metavar="webhook:NAME",
    multiple=True,
    help="Send changes to this webhook. Repeatable.",
)
@click.option(
    "--ignore",
    "ignored",
    metavar="FIELD",
    multiple=True,
    help="Field whose changes are ignored. Repeatable.",
)
@click.option(
    "--name", metavar="NAME", show_default="derived from the URL", help="Name of the new source."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    show_default="NAME.yaml",
    help="Manifest to write.",
)
@click.option(
    "--transport",
    type=click.Choice(["http", "browser"]),
    default="http",
    help="How to fetch the page: `browser` for pages rendered by JavaScript.",
)
@click.option("--stop", is_flag=True, help="Stop watching SOURCE; its records and manifest stay.")
@ignore_robots_option
@common_options
def watch_command(source: str, *, stop: bool, **given: Any) -> None:
    """Watch a page or a source, and report what changes.

    For a URL, a manifest is written first: for the elements that --select finds or, without
    --select, as `longline sources new` proposes. SOURCE is any source of `longline run`. The first
    run is the baseline; each later one that finds new, changed or gone records appends the event
    source.changed. `longline serve --no-web` starts the runs and sends the notifications.
    """
    if stop:
        _stop_watching(source)
        return
    targets = [_webhook_of(text) for text in given.pop("targets")]
    timing = _timing(given.pop("every"), given.pop("cron"), given.pop("timezone"))
    page = None
    path = source
    if "://" in source:
        check_url(source)
        make_schedule({"name": "watch", "source": "page", **timing})  # before a page is fetched
        with_store(lambda store: _check_webhooks(store, targets))
        page, path = _write_manifest(source, given)
    else:
        _refuse_page_options(given)
    result = with_store(lambda store: _watch(store, path, timing, targets))
    if page is not None:
        warnings = [*page.warnings, *result["warnings"]]
        found = {"found": page.found, "samples": page.samples, "warnings": warnings}
        result = {**result, "manifest": path, **found}
    print_result(result, lambda: _print_watch(result))


def _timing(every: str | None, cron: str | None, timezone: str | None) -> dict[str, str]:
    if every is not None and cron is not None:
        raise BadOption("--cron", "use either --every or --cron")
    if timezone is not None and cron is None:
        raise BadOption("--timezone", "it needs --cron")
    trigger = {"cron": cron} if cron is not None else {"every": every or "1h"}
    return trigger | ({"timezone": timezone} if timezone is not None else {})


def _webhook_of(text: str) -> str:
    if not text.startswith(_WEBHOOK) or text == _WEBHOOK:
        raise BadOption("--notify", f"it must be webhook:NAME, not {text!r:.60}")
    return text.removeprefix(_WEBHOOK)


def _refuse_page_options(given: dict[str, Any]) -> None:
    """Refuse options that describe a new manifest, for a source that has one."""
    names = {"selections": "--select", "ignored": "--ignore", "name": "--name", "output": "-o"}
    for key, option in names.items():
        if given[key]:
            raise BadOption(option, "it applies only to a URL; for a source, edit its manifest")


async def _check_webhooks(store: Store, targets: Sequence[str]) -> None:
    for name in targets:
        await store.webhooks.get(name)


def _write_manifest(url: str, given: dict[str, Any]) -> tuple[WatchedPage, str]:
    wanted = PageToWatch(url, **{key: one for key, one in given.items() if key != "output"})
    page = asyncio.run(watch_page(settings_of(), wanted))
    path = given["output"] or Path(f"{page.name}.yaml")
    try:
        if path.exists():
            if path.read_text("utf-8") != page.manifest:
                advice = "choose another with -o or --name, or watch the file itself"
                raise BadOption("-o", f"{path} already exists with other contents; {advice}")
        else:
            path.write_text(page.manifest, "utf-8")
    except OSError as error:
        raise DestinationUnwritable(str(path), error.strerror or str(error)) from error
    return page, str(path.absolute())


async def _watch(
    store: Store, reference: str, timing: dict[str, str], targets: Sequence[str]
) -> dict[str, Any]:
    """Save the schedule and the notifications of a source; queue its first run."""
    now = await store.now()
    files = await _definitions(store, now)
    reference = absolute_reference(reference)
    draft = make_schedule({"name": "watch", "source": reference, **timing})
    source = files.target_of(draft).name
    schedule = make_schedule({"name": _schedule_name(source), "source": reference, **timing})
    await _check_webhooks(store, targets)
    await store.schedules.save(schedule.name, schedule.stated(), now)
    notified = {name: await store.webhooks.watch(name, source, now) for name in targets}
    runs = await store.jobs.list(source=source)
    has_baseline = any(one.state in _WITH_DATA for one in runs)
    if not has_baseline:
        target = files.target_of(schedule)
        await store.schedules.start(
            schedule.name, now, lambda nominal: launch_of(schedule, target, nominal, now)
        )
    return {
        "source": source,
        "schedule": schedule.name,
        "next": _next_time(schedule, now),
        "notify": [{"webhook": name, "by_own_filter": not new} for name, new in notified.items()],
        "baseline": "exists" if has_baseline else "queued",
        "warnings": [
            f"{name} gets all events; add it again with --type source.changed to get changes only"
            for name in targets
            if not (await _subscription_of(store, name)).types
        ],
    }


async def _subscription_of(store: Store, webhook: str) -> EventFilter:
    """Return what a webhook gets by its own filter."""
    subscriber = (await store.webhooks.get(webhook)).subscriber
    return (await store.subscribers.get(subscriber)).wanted


def _schedule_name(source: str) -> str:
    return f"{_PREFIX}{source}"


def _next_time(schedule: Schedule, now: float) -> str | None:
    planned = next(plan_next(schedule, utc_datetime(now), 3660), None)
    return None if planned is None else iso_time(planned.starts_at.timestamp())


async def _definitions(store: Store, now: float) -> DefinitionFiles:
    files = DefinitionFiles(settings_of())
    for error in await sync_files(store, files, now, is_first=True):
        print_note(f"{error}; the previous schedules of this file stay in use")
    return files


def _stop_watching(reference: str) -> None:
    async def remove(store: Store) -> dict[str, Any]:
        now = await store.now()
        files = await _definitions(store, now)
        known = {one.name for one in await store.schedules.list()}
        source = reference
        if _schedule_name(source) not in known and reference.endswith(SUFFIXES):
            draft = {"name": "watch", "source": absolute_reference(reference), "every": "1h"}
            source = files.target_of(make_schedule(draft)).name
        if _schedule_name(source) not in known:
            watched = [one.removeprefix(_PREFIX) for one in known if one.startswith(_PREFIX)]
            listed = ", ".join(sorted(watched)) or "none"
            raise BadOption("--stop", f"{source} is not watched; watched sources: {listed}")
        await store.schedules.remove(_schedule_name(source), now)
        return {"source": source, "stopped": True, "webhooks": await store.webhooks.unwatch(source)}

    result = with_store(remove)
    print_result(result, lambda: print_line(f"stopped watching {result['source']}"))


def _print_watch(result: dict[str, Any]) -> None:
    facts: dict[str, Any] = {"source": result["source"]}
    if "manifest" in result:
        shown = [shortened(one_line(text), 60) for text in result["samples"]]
        facts["found now"] = f"{count_text(result['found'], 'value')}: {'; '.join(shown)}"
        facts["manifest"] = result["manifest"]
    facts["schedule"] = f"{result['schedule']}, next at {result['next']}"
    facts["notify"] = ", ".join(one["webhook"] for one in result["notify"]) or (
        "none; `longline events follow --type source.changed` prints changes"
    )
    if result["baseline"] == "queued":
        facts["baseline"] = "the first run; it is queued until `longline serve --no-web` starts it"
    print_facts(facts, width=10)
    for warning in result["warnings"]:
        print_note(f"warning: {warning}")
