"""longline shell: one page, and a Python prompt to look at it with."""

from __future__ import annotations

import code
import importlib
import importlib.util
import rlcompleter
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from longline.cli.options import Pair, home_option, ignore_robots_option, settings_of
from longline.config.job_spec import make_spec
from longline.core.errors import LonglineError
from longline.core.files import make_private_file
from longline.devtools.session import NO_SOURCE, session_spec
from longline.devtools.shell import Help, PageShell
from longline.http.messages import Page

_HISTORY = "shell_history"
_MOST_LINES = 1000


@click.command("shell")
@click.argument("url")
@click.option("--source", help="Ask as this source does: its headers, login, pace.")
@click.option("--set", "options", type=Pair(), multiple=True, help="A setting of the source.")
@click.option("-c", "code_text", metavar="CODE", help="Run this and print it, without a prompt.")
@ignore_robots_option
@home_option
def command(
    *,
    url: str,
    source: str | None,
    options: tuple[tuple[str, str], ...],
    code_text: str | None,
    ignore_robots: tuple[str, ...],
    home: Path | None,
) -> None:
    """Fetch URL politely and open a Python prompt on it: page, fetch, css, text, json."""
    told: dict[str, Any] = {"set": dict(options)}
    if ignore_robots:  # else what a job file says of it counts
        told["ignore_robots"] = ignore_robots
    spec = session_spec(source, told) if source else make_spec({"source": NO_SOURCE, **told})
    settings = settings_of(home)
    with PageShell(settings, spec) as shell:
        shell.fetch(url)
        if code_text is not None:
            _run(code_text, shell.names)
        else:
            _prompt(shell, settings.home)


def _run(text: str, names: dict[str, Any]) -> None:
    """Run code of the command line; print the value of an expression.

    Raises:
        SystemExit: it raised something, which is printed as one line.
    """
    try:
        try:
            compiled = compile(text, "<command>", "eval")
        except SyntaxError:
            exec(compile(text, "<command>", "exec"), names)  # noqa: S102  # the user's own code
            return
        value = eval(compiled, names)  # noqa: S307  # the user's own code
    except LonglineError:
        raise
    except Exception as error:  # noqa: BLE001  # the user's own code, which may raise anything
        click.echo(f"longline: {_one_line(error)}", err=True)
        sys.exit(1)
    if value is not None:
        click.echo(value if isinstance(value, str) else repr(value))


def _one_line(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()


class _Console(code.InteractiveConsole):
    """A prompt that answers an error of ours with its sentence, and no traceback."""

    def showtraceback(self) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, LonglineError):
            self.write(f"{error}\n")
        else:
            super().showtraceback()


def _prompt(shell: PageShell, home: Path) -> None:
    banner = f"{_summary(shell.page)}\n\n{Help()}"
    if importlib.util.find_spec("IPython") is not None:
        click.echo(banner)
        better = importlib.import_module("IPython")  # nicer where it is, and not missed where not
        better.start_ipython(argv=["--no-banner"], user_ns=shell.names)
        return
    usual, sys.displayhook = sys.displayhook, _show
    try:
        with _history(home / _HISTORY, shell.names):
            _Console(shell.names).interact(banner=banner, exitmsg="")
    finally:
        sys.displayhook = usual


def _show(value: object) -> None:
    """Print what a line at the prompt gave: of a page its address and size, not its body."""
    if isinstance(value, Page):
        click.echo(_summary(value))
    else:
        sys.__displayhook__(value)


def _summary(page: Page) -> str:
    return f"{page.url}: status {page.status}, {len(page.body):,} bytes"


@contextmanager
def _history(file: Path, names: dict[str, Any]) -> Iterator[None]:
    """Keep the lines of a prompt in a file for the next one, and complete names with tab."""
    if not sys.stdin.isatty() or importlib.util.find_spec("readline") is None:
        yield
        return
    import readline  # noqa: PLC0415  # it changes how a terminal is read, and Windows has none

    readline.set_completer(rlcompleter.Completer(names).complete)
    readline.parse_and_bind("tab: complete")
    readline.clear_history()
    readline.set_history_length(_MOST_LINES)
    with suppress(OSError):  # the first time there is none
        readline.read_history_file(file)
    try:
        yield
    finally:
        with suppress(OSError):  # a home that cannot be written to is no reason to lose the prompt
            make_private_file(file)
            readline.write_history_file(file)
