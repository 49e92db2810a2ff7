"""What people see of enrichment: a running task, how tasks stand, what was said about a record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import orjson
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from longline.cli.format import SafeLive, cleaned, error_console, plain_console
from longline.core.clock import utc_datetime
from longline.core.model import QuestionState
from longline.enrichment.phase import PhaseProgress, PhaseReport, PhaseState
from longline.storage.records.enrichment import maker_of

_LINE_EVERY = 5.0  # seconds between plain lines
_WIDEST = 300
_COLOURS = {
    PhaseState.COMPLETE: "green",
    PhaseState.PARTIAL: "yellow",
    PhaseState.PAUSED: "yellow",
    PhaseState.INTERRUPTED: "yellow",
}


class PhaseDisplay:
    """Shows the progress of one run on stderr: a line that changes, or a line now and then."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._console = error_console()
        is_live = self._console.is_terminal and not is_quiet
        self._spinner = Spinner("dots", Text("queueing"))
        self._live = SafeLive(self._spinner, console=self._console, transient=True)
        self._is_live = is_live
        self._last: float | None = None

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del kind, error, trace
        if self._is_live:
            self._live.stop()

    def update(self, progress: PhaseProgress) -> None:
        """Show how far it is."""
        if self._is_live:
            self._spinner.update(text=Text(line(progress)))
        elif self._last is None or progress.seconds - self._last >= _LINE_EVERY:
            self._last = progress.seconds
            self.say(line(progress))

    def say(self, text: str) -> None:
        """Say something beside the progress."""
        if not self._is_quiet:
            self._console.print(text, soft_wrap=True)

    def warn(self, sentences: Iterable[str]) -> None:
        """Say what is odd, to programs as well."""
        for one in sentences:
            told = f"warning: {clean(one)}"
            self._console.print(told, soft_wrap=True)

    def stopping(self) -> None:
        """Say what happens after the first ctrl-c."""
        self.say("waiting for answers under way; press ctrl-c again to stop at once")


def line(progress: PhaseProgress) -> str:
    """Return the progress in one line."""
    counts = progress.records
    ends = ", ".join(f"{counts[state]:,} {state}" for state in QuestionState if counts.get(state))
    return (
        f"{progress.task}: {progress.total:,} records ({ends or 'none'}); in {progress.seconds:.0f}"
        f" s {progress.requests:,} requests, {progress.tokens:,} tokens"
    )


def print_report(report: PhaseReport) -> None:
    """Print how a run ended."""
    console = plain_console()
    state = Text(report.state.value, style=_COLOURS.get(report.state, ""))
    console.print(state, end="  ")
    console.print(line(report.progress), soft_wrap=True)
    if report.reason:
        console.print(clean(report.reason), soft_wrap=True)
    if report.progress.records.get(QuestionState.FAILED):
        console.print(f"why some failed: longline enrich status {report.progress.task}")


def print_standing(rows: Sequence[dict[str, Any]]) -> None:
    """Print how tasks stand, and the reasons where they are known."""
    states = list(QuestionState)
    table = Table("task", *(state.value for state in states), "questions", "tokens", box=None)
    for row in rows:
        found = row["states"]
        table.add_row(
            clean(row["task"]),
            *(f"{found[state]['records']:,}" if state in found else "" for state in states),
            f"{sum(one['questions'] for one in found.values()):,}",
            f"{row['tokens']:,}",
        )
    console = plain_console()
    console.print(table if rows else "no task was run yet; see docs/enrichment.md")
    for row in rows:
        for one in row["reasons"]:
            told = f"  {one['records']:,} {one['state']}: {clean(one['reason'])}"
            console.print(told, soft_wrap=True)


def print_shown(record: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
    """Print what machines have said about a record."""
    console = plain_console()
    name = clean(f"{record['source']}/{record['key']}")
    console.print(name, style="bold", soft_wrap=True)
    if not rows:
        console.print("nothing was asked about it")
    for row in rows:
        console.print(f"\n{row['task']}: {row['state']}{_age(row)}", style="bold")
        console.print(_origin(row), soft_wrap=True)
        if row["reason"]:
            console.print(f"  {clean(row['reason'])}", soft_wrap=True)
        for field, value in _fields(row["answer"]):
            console.print(f"  {clean(field)}: {clean(value)}", soft_wrap=True)


def clean(text: str) -> str:
    """Return a text that cannot steer a terminal, and is not endless."""
    plain = cleaned(text, is_line=True)
    return plain if len(plain) <= _WIDEST else f"{plain[:_WIDEST]} … ({len(plain)} chars)"


def _age(row: dict[str, Any]) -> str:
    return "" if row["is_current"] else f" (about version {row['record_version']}, it has changed)"


def _origin(row: dict[str, Any]) -> str:
    origin = f"  machine-made: {clean(maker_of(row))}"
    at = row["answered_at"]
    return f"{origin}, {utc_datetime(at).isoformat(timespec='seconds')}" if at else origin


def _fields(answer: Any) -> list[tuple[str, str]]:
    if answer is None:
        return []
    pairs = answer.items() if isinstance(answer, dict) else [("answer", answer)]
    return [(name, value if isinstance(value, str) else _json(value)) for name, value in pairs]


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
