"""Progress of running jobs: live displays on a terminal, plain lines elsewhere, and summaries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import click
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid
from rich.text import Text

from longline.cli.options import wants_json
from longline.cli.output import (
    SafeConsole,
    SafeLive,
    TextTable,
    duration_text,
    print_facts,
    print_json,
    print_line,
)
from longline.core.clock import utc_datetime
from longline.core.model import ItemState, Job, JobState
from longline.core.threads import use_daemon_threads, use_one_malloc_arena
from longline.engine.progress import PaceStatus, Progress, SiteProgress
from longline.engine.report import INTERRUPTED, JobReport
from longline.orchestrator import Orchestrator

T = TypeVar("T")
STOPPING = "Finishing requests in flight. Press Ctrl-C again to stop immediately."
STOPPED = "Stopped. Run the same command again to resume."
_LINE_INTERVAL = 5.0  # seconds between plain progress lines
_COLOURS = {
    "complete": "green",
    "running": "cyan",
    "partial": "yellow",
    "paused": "yellow",
    "interrupted": "yellow",
    "abandoned": "yellow",
    "failed": "red",
    "cancelled": "red",
}


class LiveDisplay:
    """Shows something that changes on stderr: live on a terminal, else a line now and then.

    With `is_quiet`, only warnings are shown.
    """

    def __init__(self, *, is_quiet: bool = False, line_interval: float = _LINE_INTERVAL) -> None:
        self.is_quiet = is_quiet
        self._console = SafeConsole(stderr=True)
        self._line_interval = line_interval
        self._last_lines: dict[str, float] = {}
        self._live: SafeLive | None = None
        if self._console.is_terminal and not is_quiet:
            self._live = SafeLive(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, name: str, elapsed: float, live: RenderableType, line: str) -> None:
        """Show the state of `name` after `elapsed` seconds; `name` limits its plain lines."""
        if self._live is not None:
            self._live.update(live, refresh=True)
            return
        last = self._last_lines.get(name)
        if last is None or elapsed - last >= self._line_interval:
            self._last_lines[name] = elapsed
            self.say(line)

    def say(self, text: str) -> None:
        """Print a message above the display, unless it is quiet."""
        if not self.is_quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Print a warning above the display, even when it is quiet."""
        self._console.print(text, soft_wrap=True)


class JobDisplay(LiveDisplay):
    """Shows the progress of one job."""

    def update(self, progress: Progress) -> None:
        """Show the progress of the job."""
        line = progress_line(progress)
        self.show(progress.job, progress.elapsed, job_panel(progress), line)


class SitesDisplay(LiveDisplay):
    """Shows the progress of several sources: a table, or a line for each."""

    def __init__(self, sources: Sequence[str], *, is_quiet: bool) -> None:
        super().__init__(is_quiet=is_quiet, line_interval=10.0)
        self._progress: dict[str, Progress | None] = dict.fromkeys(sources)

    def hooks_of(self, source: str) -> Mapping[str, Any]:
        """Return the callbacks of the orchestrator for one source."""

        def update(progress: Progress) -> None:
            self._progress[source] = progress
            rows = [SiteRow.of_run(short_source(name), one) for name, one in self._progress.items()]
            line = with_source(source, progress_line(progress))
            self.show(source, progress.elapsed, sites_table(rows), line)

        return {} if self.is_quiet else {"on_progress": update}


async def run_with_display(
    orchestrator: Orchestrator, display: LiveDisplay, work: Callable[[], Awaitable[T]]
) -> T | None:
    """Run something with live progress and safe interruption; None if it was stopped."""
    use_one_malloc_arena()
    use_daemon_threads()
    try:
        async with orchestrator:
            with orchestrator.handling_signals(lambda: display.say(STOPPING)), display:
                return await work()
    except asyncio.CancelledError:
        click.echo(STOPPED, err=True)
        return None


async def run_job(
    orchestrator: Orchestrator,
    start: Callable[[dict[str, Any]], Awaitable[JobReport]],
    *,
    is_on_workers: bool = False,
) -> int:
    """Run a job with live progress, safe interruption and a summary; return the exit code.

    With `is_on_workers`, a worker writes the export of the job.
    """
    display = JobDisplay(is_quiet=wants_json())

    def announce(job: Job, is_new: bool) -> None:  # noqa: FBT001  # called by the orchestrator
        display.say(f"{'Started' if is_new else 'Resumed'} job {job.id} (Ctrl-C stops it safely)")

    hooks = {"on_progress": None if wants_json() else display.update, "on_start": announce}
    report = await run_with_display(orchestrator, display, lambda: start(hooks))
    if report is None:
        return INTERRUPTED
    if wants_json():
        print_json(report.as_dict())
        return report.exit_code
    print_summary(report)
    if report.unwritten:
        print_line(f"  export    failed: {report.unwritten}")
    elif report.output:
        by_worker = f" (written by a worker; see longline jobs {report.job})"
        print_line(f"  export    {report.output}{by_worker if is_on_workers else ''}")
    return report.exit_code


def print_summary(report: JobReport) -> None:
    """Print the final state of a run, counts that add up, and what to do next."""
    values = report.as_dict()
    reason = f" — {report.reason}" if report.reason else ""
    print_line(report.state.value, f"bold {state_colour(report.state)}", end="")
    print_line(f"{reason}  ({report.job}, {duration_text(report.seconds)})")
    names = ("stored", "unchanged", "skipped", "failed", "quarantined", "remaining")
    parts = [f"{values[name]} {name}" for name in names if values[name] or name == "stored"]
    rate = values["success_rate"]
    facts = {
        "items": f"{values['discovered']} discovered = {' + '.join(parts)}",
        "requests": f"{values['requests']}, including {values['retries']} retries; "
        f"{values['rate_limited']} responses with status 429",
        "success": "no items processed" if rate is None else format(rate, ".1%"),
    }
    if values["failed"]:
        facts["failures"] = f"longline failures {report.job}"
    if report.state not in {JobState.COMPLETE, JobState.PARTIAL, JobState.FAILED}:
        host = report.closed_host
        override = f" --ignore-robots {host}  (only if you are permitted to)" if host else ""
        facts["resume"] = f"longline resume {report.job}{override}"
    print_facts(facts, width=9, indent="  ")


# ---------------- One job


def job_panel(progress: Progress) -> Group:
    """Return the live display of a job."""
    head = Grid.grid(padding=(0, 2))
    head.add_row(
        Text(progress.source, style="bold"),
        ProgressBar(total=max(progress.total, 1), completed=progress.processed, width=40),
        Text(f"{progress.processed:,} of {progress.total:,}{_more(progress)}"),
        Text(f"ETA {eta_text(progress)}", style="cyan"),
    )
    counts, mean, at = progress.counts, progress.mean_seconds, progress.last_checkpoint_at
    states = [f"{counts[state]:,} {state.value}" for state in ItemState if counts[state]]
    per_item = "" if mean is None else f"  {mean:.2f} s per item"
    elapsed = duration_text(progress.elapsed)
    retries, rate_limited = progress.statistic("retries"), progress.statistic("rate_limited")
    facts = [
        ("items", "  ".join(states) or "none yet"),
        ("speed", f"{progress.items_per_minute:,.0f} items/min{per_item}  {elapsed} elapsed"),
        (
            "requests",
            f"{progress.statistic('requests'):,}  retries {retries:,}  429s {rate_limited:,}",
        ),
        *(("rate", rate_limit_text(one)) for one in progress.pace),
        ("checkpoint", f"{utc_datetime(at).astimezone():%H:%M:%S}" if at else "none yet"),
    ]
    body = Grid.grid(padding=(0, 2))
    for name, text in facts:
        body.add_row(Text(name, style="dim"), Text(text))
    return Group(head, body)


def rate_limit_text(limit: PaceStatus) -> str:
    """Return the state of a domain's rate limit."""
    if limit.rate is None or limit.tokens is None:
        return f"{limit.domain}  unlimited"
    return (
        f"{limit.domain}  {limit.rate:g}/s  burst {limit.capacity}  "
        f"tokens {max(limit.tokens, 0):.1f}  waited {duration_text(limit.waited)} "
        f"in {limit.waits:,} waits"
    )


def progress_line(progress: Progress) -> str:
    """Return the progress of a job as one line."""
    rate = progress.success_rate
    parts = [
        f"{progress.processed}/{progress.total}{_more(progress)} items",
        f"{progress.successful} ok",
        f"{progress.failed} failed",
        *([] if rate is None else [f"{rate:.1%}"]),
        f"{progress.items_per_minute:.0f}/min",
        f"{progress.statistic('requests')} requests",
        f"{progress.statistic('rate_limited')} 429s",
        f"ETA {eta_text(progress)}",
    ]
    return f"{progress.source}: {', '.join(parts)}"


def eta_text(progress: Progress) -> str:
    """Return the remaining time; a lower bound while discovery continues."""
    if progress.eta is None:
        return "unknown"
    return f"{'' if progress.is_discovered else 'over '}{duration_text(progress.eta)}"


def _more(progress: Progress) -> str:
    return "" if progress.is_discovered else "+"


# ---------------- Many jobs


@dataclass(frozen=True, slots=True)
class SiteRow:
    """One row of the table of sites; None is unknown."""

    name: str
    state: str
    done: int = 0
    total: int = 0
    records: int = 0
    failed: int = 0
    per_minute: float | None = None
    eta: float | None = None

    @classmethod
    def of_run(cls, name: str, progress: Progress | None) -> SiteRow:
        """Return the row of a job of this command; None: it has not started."""
        if progress is None:
            return cls(name, "waiting")
        counts = (progress.processed, progress.total, progress.successful, progress.failed)
        state = progress.state.value
        return cls(name, state, *counts, progress.items_per_minute, progress.eta)

    @classmethod
    def of_job(
        cls, progress: SiteProgress, per_minute: float | None, *, is_abandoned: bool
    ) -> SiteRow:
        """Return the row of a job of any process."""
        done, total = progress.completed_items, progress.total_items
        state = "abandoned" if is_abandoned else progress.state.value
        eta = (total - done) * 60 / per_minute if per_minute and not progress.is_over else None
        counts = (done, total, progress.result_count, progress.failed_items)
        return cls(progress.job, state, *counts, per_minute, eta)


def sites_table(rows: Sequence[SiteRow], *, first: str = "site") -> TextTable:
    """Return the progress of several jobs as a table."""
    numbers = ("done", "discovered", "records", "failed", "per minute", "ETA")
    drop = ("", "per minute", "discovered", "ETA", "records", "failed")
    table = TextTable(first, "state", "", *numbers, drop=drop)
    for row in rows:
        table.add(
            row.name,
            Text(row.state, style=state_colour(row.state)),
            ProgressBar(total=max(row.total, 1), completed=row.done, width=12),
            row.done,
            row.total,
            row.records,
            Text(f"{row.failed:,}", style="red" if row.failed else ""),
            None if row.per_minute is None else round(row.per_minute),
            None if row.eta is None else duration_text(row.eta),
        )
    return table


def with_source(source: str, text: str) -> str:
    """Return a line that begins with the name of its source, once."""
    name = short_source(source)
    return text if text.startswith((f"{name} ", f"{name}: ")) else f"{name}: {text}"


def short_source(source: str) -> str:
    """Return a source as tables show it: a file by its name without the suffix."""
    path = Path(source)
    return path.stem if path.suffix in (".yaml", ".yml", ".py") else source


def state_colour(state: str) -> str:
    """Return the style of a state of a job or an enrichment task."""
    return _COLOURS.get(state, "dim")
