"""Running many sites in front of a person: a line for each, and one end for all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import click

from longline.cli.display import line
from longline.cli.format import SafeLive, echo_line, error_console, note, plain_console
from longline.cli.options import print_json
from longline.cli.tables import Fitting, SiteRow, site_row, sites_table
from longline.core.errors import BadOption, LonglineError, Unexpected
from longline.core.threads import use_daemon_threads
from longline.engine.progress import Progress
from longline.engine.report import INTERRUPTED
from longline.orchestrator import NotStarted, Orchestrator, SiteEnd

_LINE_EVERY = 10.0  # seconds between two plain lines of one site
_WORST_FIRST = (INTERRUPTED, 2, 1, 4, 3)


class Board:
    """The sites that run, as a table on a terminal and as lines elsewhere."""

    def __init__(self, sources: Sequence[str], *, is_quiet: bool) -> None:
        self._console = error_console()
        self._is_quiet = is_quiet
        self._progress: dict[str, Progress | None] = dict.fromkeys(sources)
        self._told_at: dict[str, float] = {}
        self._troubles: dict[str, set[str]] = {}  # what was said, and by which sites
        self._live: SafeLive | None = None
        if self._console.is_terminal and not is_quiet:
            self._live = SafeLive(console=self._console, auto_refresh=False, transient=True)

    def context(self) -> AbstractContextManager[object]:
        return self._live or nullcontext()

    def hooks_of(self, source: str) -> Mapping[str, Any]:
        hooks: dict[str, Any] = {"on_trouble": lambda text: self._trouble(source, text)}
        if not self._is_quiet:
            hooks["on_progress"] = lambda progress: self._update(source, progress)
        return hooks

    def say(self, text: str, *, is_trouble: bool = False) -> None:
        if is_trouble or not self._is_quiet:
            self._console.print(text, soft_wrap=True)

    def _trouble(self, source: str, text: str) -> None:
        """Say once what several sites have to say; from the same site it is something new."""
        sites = self._troubles.setdefault(text, set())
        if sites and source not in sites:
            sites.add(source)
            return
        self._troubles[text] = {source}
        self.say(_prefixed(source, text), is_trouble=True)

    def _update(self, source: str, progress: Progress) -> None:
        self._progress[source] = progress
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
        elif not self._is_quiet and self._is_due(source, progress.elapsed):
            click.echo(_prefixed(source, line(progress)), err=True)

    def _is_due(self, source: str, elapsed: float) -> bool:
        if elapsed - self._told_at.get(source, -_LINE_EVERY) < _LINE_EVERY:
            return False
        self._told_at[source] = elapsed
        return True

    def _table(self) -> Fitting:
        return sites_table(
            [site_row(_short(source), progress) for source, progress in self._progress.items()]
        )


async def run_many_shown(
    orchestrator: Orchestrator,
    sources: Sequence[str] | None,
    how: Mapping[str, Any],
    *,
    as_json: bool,
) -> int:
    """Run many sites with everything a person expects around it; return the exit code.

    Without `sources`: all files in the folders of the settings.
    """
    use_daemon_threads()
    board = Board(orchestrator.known_sites() if sources is None else sources, is_quiet=as_json)
    for end in orchestrator.broken_sites() if sources is None else ():
        board.say(str(end.error), is_trouble=True)

    def told_to_stop() -> None:
        board.say("finishing what is in flight; press ctrl-c again to stop at once")

    try:
        async with orchestrator:
            with orchestrator.handling_signals(told_to_stop), board.context():
                ends = await orchestrator.scrape_all_sites(sources, hooks_of=board.hooks_of, **how)
    except asyncio.CancelledError:
        click.echo("stopped at once; run the same command again to go on", err=True)
        return INTERRUPTED
    code = exit_code_of(ends)
    if as_json:
        print_json({"sites": [_as_dict(end) for end in ends], "exit_code": code})
    else:
        _print_ends(ends)
    return code


async def leave(
    orchestrator: Orchestrator,
    sources: Sequence[str] | None,
    values: Mapping[str, Any],
    how: Mapping[str, Any],
    *,
    as_json: bool,
) -> int:
    """Hand sites over to workers and leave them to it; return the exit code.

    Without `sources`: all files in the folders of the settings.
    """
    told: list[dict[str, Any]] = []
    names = orchestrator.known_sites() if sources is None else sources
    broken = orchestrator.broken_sites() if sources is None else []
    if not names and not broken:
        raise BadOption("--all", "there is no manifest or job file in the folders of the settings")
    async with orchestrator:
        for source in names:
            try:
                job = await orchestrator.submit(source, values, on_trouble=note, **how)
            except LonglineError as error:
                broken.append(SiteEnd(source, error=error))
            except Exception as error:  # noqa: BLE001  # whatever one site's code raises is its own
                broken.append(SiteEnd(source, error=Unexpected(repr(error))))
            else:
                told.append({"job": job.id, "source": job.source, "state": job.state.value})
    code = exit_code_of(broken)
    told += [_as_dict(end) for end in broken]
    if as_json:
        print_json(told[0] if len(told) == 1 else {"sites": told})
        return code
    for one in told:
        if "error" in one:
            click.echo(f"longline: {one['error']}", err=True)
        else:
            click.echo(f"{one['job']} is with the workers")
    if any("job" in one for one in told):
        click.echo("look at them with: longline top")
    return code


def exit_code_of(ends: Sequence[SiteEnd]) -> int:
    """Return the worst of the sites' exit codes."""
    codes = {end.exit_code for end in ends}
    return next((code for code in _WORST_FIRST if code in codes), max(codes, default=0))


def _as_dict(end: SiteEnd) -> dict[str, Any]:
    if end.report is not None:
        return end.report.as_dict()
    return {"source": _short(end.source), "state": "failed", "error": str(end.error)}


def _print_ends(ends: Sequence[SiteEnd]) -> None:
    plain_console().print(sites_table([_row(end) for end in ends]))
    for problem, sources in _problems(ends).items():
        names = [_short(one) for one in sources]
        is_one = len(names) == 1
        echo_line(_prefixed(sources[0], problem) if is_one else f"{', '.join(names)}: {problem}")


def _row(end: SiteEnd) -> SiteRow:
    if end.report is None and not isinstance(end.error, NotStarted):
        return SiteRow(_short(end.source), "failed")
    return site_row(_short(end.source), end.report.progress if end.report else None)


def _problems(ends: Sequence[SiteEnd]) -> dict[str, list[str]]:
    """Return each problem with the sources that it stopped."""
    found: dict[str, list[str]] = {}
    for end in ends:
        problem = end.error or (end.report and end.report.reason)
        if problem:
            found.setdefault(str(problem), []).append(end.source)
    return found


def _prefixed(source: str, text: str) -> str:
    """Return a line about a source that begins with its name, once."""
    name = _short(source)
    return text if text.startswith((f"{name} ", f"{name}: ")) else f"{name}: {text}"


def _short(source: str) -> str:
    """Return the name of a source as it fits into a table."""
    path = Path(source)
    return path.stem if path.suffix in (".yaml", ".yml", ".py") else source
