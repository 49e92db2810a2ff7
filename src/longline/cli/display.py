"""What people see of a running job: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Self

import click
from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from longline.cli.format import SafeLive, error_console, plain_console
from longline.core.clock import utc_datetime
from longline.core.model import ItemState, JobState
from longline.engine.progress import PaceStatus, Progress
from longline.engine.report import JobReport

_LINE_EVERY = 5.0  # seconds between plain lines
_COLOURS = {
    JobState.COMPLETE: "green",
    JobState.PARTIAL: "yellow",
    JobState.PAUSED: "yellow",
    JobState.FAILED: "red",
}


class Display:
    """Shows the progress of one run on stderr, in the way that fits what stderr is."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._is_quiet = is_quiet
        self._console = error_console()
        self._live: SafeLive | None = None
        self._last_line: float | None = None
        if self._console.is_terminal and not is_quiet:
            self._live = SafeLive(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._context().__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._context().__exit__(kind, error, trace)

    def update(self, progress: Progress) -> None:
        """Show how far the job is."""
        if self._live is not None:
            self._live.update(picture(progress), refresh=True)
        elif not self._is_quiet and self._is_due(progress):
            click.echo(line(progress), err=True)

    def say(self, text: str, *, is_trouble: bool = False) -> None:
        """Say something beside the progress; of a trouble even those who want no progress hear."""
        if is_trouble or not self._is_quiet:
            self._console.print(text, soft_wrap=True)

    def _context(self) -> AbstractContextManager[object]:
        return self._live or nullcontext()

    def _is_due(self, progress: Progress) -> bool:
        if self._last_line is not None and progress.elapsed - self._last_line < _LINE_EVERY:
            return False
        self._last_line = progress.elapsed
        return True


def picture(progress: Progress) -> Group:
    """Return the live display of one moment."""
    total = progress.total
    bar = ProgressBar(total=max(total, 1), completed=progress.processed, width=40)
    head = Table.grid(padding=(0, 2))
    head.add_row(
        Text(progress.source, style="bold"),
        bar,
        Text(f"{progress.processed:,} of {total:,}{'' if progress.is_discovered else '+'}"),
        Text(f"ETA {eta_text(progress)}", style="cyan"),
    )
    body = Table.grid(padding=(0, 2))
    for name, text in _facts(progress):
        body.add_row(Text(name, style="dim"), Text(text))
    return Group(head, body)


def _facts(progress: Progress) -> list[tuple[str, str]]:
    counts = progress.counts
    ends = [f"{counts[state]:,} {state.value}" for state in ItemState if counts[state]]
    mean = progress.mean_seconds
    pieces = [f"{progress.items_per_minute:,.0f} items/min", f"{duration(progress.elapsed)} so far"]
    if mean is not None:
        pieces.insert(1, f"{mean:.2f} s an item")
    facts = [("items", "  ".join(ends) or "none yet"), ("speed", "  ".join(pieces))]
    requests = f"{progress.figure('requests'):,}  retries {progress.figure('retries'):,}"
    facts.append(("requests", f"{requests}  429s {progress.figure('rate_limited'):,}"))
    facts += [("pace", pace_text(pace)) for pace in progress.pace]
    at = progress.last_checkpoint_at
    facts.append(("checkpoint", f"{utc_datetime(at).astimezone():%H:%M:%S}" if at else "none yet"))
    return facts


def pace_text(pace: PaceStatus) -> str:
    """Return the state of a domain's limit in a few words."""
    if pace.rate is None or pace.tokens is None:
        return f"{pace.domain}  unlimited"
    return (
        f"{pace.domain}  {pace.rate:g}/s  burst {pace.capacity}  tokens {max(pace.tokens, 0):.1f}"
        f"  waited {duration(pace.waited)} in {pace.waits:,} waits"
    )


def line(progress: Progress) -> str:
    """Return the progress as one line, for logs and pipes."""
    rate = progress.success_rate
    parts = [
        f"{progress.processed}/{progress.total}{'' if progress.is_discovered else '+'} items",
        f"{progress.successful} ok",
        f"{progress.failed} failed",
        f"{progress.items_per_minute:.0f}/min",
        f"{progress.figure('requests')} requests",
        f"{progress.figure('rate_limited')} 429s",
        f"ETA {eta_text(progress)}",
    ]
    if rate is not None:
        parts.insert(3, f"{rate:.1%}")
    return f"{progress.source}: {', '.join(parts)}"


def eta_text(progress: Progress) -> str:
    """Return the remaining time in words; a lower bound while discovery goes on."""
    if progress.eta is None:
        return "unknown yet"
    return f"{'' if progress.is_discovered else 'over '}{duration(progress.eta)}"


def duration(seconds: float) -> str:
    """Return seconds as people say them: 42 s, 3 min 05 s, 2 h 10 min."""
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004  # seconds in a minute
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"  # noqa: PLR2004  # tenths matter
    minutes, rest = divmod(whole, 60)
    if minutes < 60:  # noqa: PLR2004  # minutes in an hour
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def print_summary(report: JobReport, *, echo: Callable[[str], None] = click.echo) -> None:
    """Print how a run ended, with counts that add up and what to do next."""
    console = plain_console(soft_wrap=True)
    values = report.as_dict()
    colour = _COLOURS.get(report.state, "white")
    reason = f" — {report.reason}" if report.reason else ""
    console.print(report.state.value, style=f"bold {colour}", end="")
    echo(f"{reason}  ({report.job}, {duration(report.seconds)})")
    names = ("stored", "unchanged", "skipped", "failed", "quarantined", "remaining")
    parts = [f"{values[name]} {name}" for name in names if values[name] or name == "stored"]
    echo(f"  items     {values['discovered']} discovered = {' + '.join(parts)}")
    echo(
        f"  requests  {values['requests']}, of which {values['retries']} retries; "
        f"{values['rate_limited']} answers were 429"
    )
    rate = values["success_rate"]
    echo(f"  success   {'nothing was tried' if rate is None else format(rate, '.1%')}")
    if values["failed"]:
        echo(f"  reasons   longline failures {report.job}")
    if report.state not in {JobState.COMPLETE, JobState.PARTIAL, JobState.FAILED}:
        closed = report.closed_host
        option = f" --ignore-robots {closed}  (only with the right to do so)" if closed else ""
        echo(f"  go on     longline resume {report.job}{option}")
