"""longline shell: a Python prompt with a fetched page."""

from __future__ import annotations

import code
import importlib
import importlib.util
import sys
import traceback
from typing import Any

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.options import home_option, ignore_robots_option, set_option, settings_of
from longline.config.job_spec import make_spec
from longline.core.errors import LonglineError
from longline.devtools.session import NO_SOURCE, Help, PageShell, session_spec
from longline.http.messages import Page


@click.command("shell")
@click.argument("url")
@click.option(
    "--source", metavar="SOURCE", help="Use the headers, login and limits of this source."
)
@set_option
@click.option("-c", "code_text", metavar="CODE", help="Run CODE and print its value; no prompt.")
@ignore_robots_option
@home_option
def shell_command(
    *,
    url: str,
    source: str | None,
    options: tuple[tuple[str, str], ...],
    code_text: str | None,
    ignore_robots: tuple[str, ...],
) -> None:
    """Fetch URL and open a Python prompt with the page.

    The request obeys robots.txt and rate limits. The prompt provides page, fetch, css, text and
    json.
    """
    values: dict[str, Any] = {"set": dict(options)}
    if ignore_robots:  # otherwise the job file decides
        values["ignore_robots"] = ignore_robots
    spec = session_spec(source, values) if source else make_spec({"source": NO_SOURCE, **values})
    with PageShell(settings_of(), spec) as shell:
        shell.fetch(url)
        if code_text is not None:
            _run_code(code_text, shell.names)
        else:
            _prompt(shell)


def _run_code(text: str, names: dict[str, Any]) -> None:
    """Run the code of `-c`; print the value of an expression.

    Raises:
        SystemExit: the code raised an error, which is printed as one line.
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
    except Exception as error:  # noqa: BLE001  # the user's own code may raise anything
        line = traceback.format_exception_only(error)[-1].strip()
        click.echo(f"longline: {line}", err=True)
        sys.exit(ExitCode.FAILED)
    if value is not None:
        click.echo(value if isinstance(value, str) else repr(value))


class _Console(code.InteractiveConsole):
    """A prompt that prints errors of longline without a traceback."""

    def showtraceback(self) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, LonglineError):
            self.write(f"{error}\n")
        else:
            super().showtraceback()


def _prompt(shell: PageShell) -> None:
    banner = f"{_summary(shell.page)}\n\n{Help()}"
    if importlib.util.find_spec("IPython") is not None:
        click.echo(banner)
        importlib.import_module("IPython").start_ipython(argv=["--no-banner"], user_ns=shell.names)
        return
    displayhook, sys.displayhook = sys.displayhook, _display
    try:
        if sys.stdin.isatty() and importlib.util.find_spec("readline") is not None:
            importlib.import_module("readline")  # line editing and history of this session
        _Console(shell.names).interact(banner=banner, exitmsg="")
    finally:
        sys.displayhook = displayhook


def _display(value: object) -> None:
    """Print the value of a line at the prompt; of a page, its URL and size."""
    if isinstance(value, Page):
        click.echo(_summary(value))
    else:
        sys.__displayhook__(value)


def _summary(page: Page) -> str:
    return f"{page.url}: status {page.status}, {len(page.body):,} bytes"
