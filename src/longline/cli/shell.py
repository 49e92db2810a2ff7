"""longline shell: one page, and a Python prompt to look at it with."""

from __future__ import annotations

import code
import importlib
import importlib.util
from pathlib import Path
from typing import Any

import click

from longline.authoring.bench import SINGLE, spec_of
from longline.authoring.shell import WORDS, PageShell
from longline.cli.options import Pair, home_option, ignore_robots_option, settings_of
from longline.config.spec import make_spec


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
    spec = spec_of(source, told) if source else make_spec({"source": SINGLE, **told})
    with PageShell(settings_of(home), spec) as shell:
        shell.fetch(url)
        if code_text is not None:
            _run(code_text, shell.names)
        else:
            _prompt(shell)


def _run(text: str, names: dict[str, Any]) -> None:
    try:
        compiled = compile(text, "<command>", "eval")
    except SyntaxError:
        exec(compile(text, "<command>", "exec"), names)  # noqa: S102  # the user's own words
        return
    value = eval(compiled, names)  # noqa: S307  # the user's own words
    if value is not None:
        click.echo(value if isinstance(value, str) else repr(value))


def _prompt(shell: PageShell) -> None:
    page = shell.page
    lines = [f"{page.url}: status {page.status}, {len(page.body):,} bytes", ""]
    lines += [f"  {name:16} {about}" for name, about in WORDS.items()]
    banner = "\n".join(lines)
    if importlib.util.find_spec("IPython") is not None:
        click.echo(banner)
        better = importlib.import_module("IPython")  # nicer where it is, and not missed where not
        better.start_ipython(argv=["--no-banner"], user_ns=shell.names)
        return
    code.InteractiveConsole(shell.names).interact(banner=banner, exitmsg="")
