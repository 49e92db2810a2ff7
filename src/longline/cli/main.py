"""The command line: a group of commands, each imported only when it is used."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from longline.cli.exit_codes import OUT_OF_MEMORY, ExitCode, explain_error
from longline.cli.log_options import log_options
from longline.core.lazy_imports import import_now
from longline.core.output import OutputFailed, discard_stdout, protected_output, sanitize

GROUPS = {  # of each command: its module in commands/, and the first sentence of its help
    "run": {
        "run": ("run", "Run SOURCE, or resume its unfinished job."),
        "resume": ("run", "Resume an unfinished job."),
        "retry": ("run", "Requeue failed items of JOB and run it."),
        "pause": ("run", "Pause JOB on all workers."),
        "cancel": ("run", "Cancel JOB on all workers."),
        "flow": (
            "scheduling.flow",
            "Run flows: steps that are retried, approved and undone together.",
        ),
        "plan": ("run", "Estimate the requests and the duration of a run of SOURCE."),
    },
    "schedules": {
        "schedule": ("scheduling.schedule", "Run sources and flows automatically."),
        "watch": ("scheduling.watch", "Watch a page or a source, and report what changes."),
    },
    "inspect": {
        "jobs": ("jobs", "List jobs, or show one with its settings, counts and events."),
        "failures": ("jobs", "List failed items of JOB, with failure kinds and attempts."),
        "checkpoints": ("jobs", "List checkpoint documents."),
        "report": (
            "monitoring.reports",
            "Report the result, checks, failures and history of a job.",
        ),
        "digest": (
            "monitoring.reports",
            "Report on all sources over a period: what needs attention, what ran, and trends.",
        ),
        "top": ("top", "Show live progress of all jobs and workers."),
        "drift": ("jobs", "Show changes in the fields of sources, and accept them."),
        "launches": (
            "scheduling.launches",
            "List, show and cancel launches: runs that `longline serve` starts.",
        ),
        "logs": ("monitoring.logs", "Show warnings and errors of all processes."),
        "events": ("monitoring.events", "Read the event log, and manage its subscribers."),
        "webhooks": ("monitoring.webhooks", "Send events to URLs, signed and with retries."),
        "alerts": ("monitoring.alerts", "Show what is wrong, and who is notified."),
        "health": (
            "monitoring.health",
            "Check that this home works: database, disk, Redis, workers, server, lag.",
        ),
        "metrics": (
            "monitoring.metrics",
            "Print the metrics of this home in the text format of Prometheus.",
        ),
    },
    "data": {
        "records": ("records", "Query records, their history and their quality."),
        "export": ("export", "Export records to a file, a database or an S3 bucket."),
        "quarantine": ("quarantine", "Inspect quarantined items and reprocess them offline."),
        "duplicates": (
            "duplicates",
            "Find records of different sites that describe the same thing.",
        ),
        "enrich": ("enrich", "Enrich records with a language model or a local enricher."),
        "reextract": ("quarantine", "Extract the items of JOB again from archived responses."),
    },
    "sources": {
        "sources": ("sources", "List, show, check and create sources."),
        "shell": ("shell", "Fetch URL and open a Python prompt with the page."),
        "config": ("config", "Show, validate and edit settings, manifests and job files."),
        "plugins": ("sources", "List installed plugins."),
    },
    "sites": {
        "robots": ("sites", "Explain whether robots.txt allows URL."),
        "limits": ("sites", "List the rate limits of domains; pin or forget one."),
        "breakers": ("sites", "List circuit breakers and reset them."),
        "cache": ("sites", "Inspect or clear the HTTP cache."),
        "archive": ("sites", "Inspect and verify archived responses."),
        "proxies": ("proxies", "List, add, check and refresh proxies."),
    },
    "cluster": {
        "serve": (
            "scheduling.serve",
            "Run the server: dashboard, API, schedules, alerts, reports and event delivery.",
        ),
        "mcp": ("mcp", "Serve this home to an agent over MCP, on stdin and stdout."),
        "tokens": ("tokens", "Create, list and revoke the tokens of the dashboard and the API."),
        "worker": ("cluster", "Run a cluster worker."),
        "up": ("cluster", "Start Redis, workers and, with --postgres, PostgreSQL on this machine."),
        "down": ("cluster", "Stop what `longline up` started."),
        "status": ("cluster", "Show the services of this home and their health."),
        "db": ("cluster", "Inspect the database, or copy it to another one."),
    },
    "tools": {
        "demo": ("tools", "Scrape 500 templates from a local practice web with faults."),
        "sandbox": ("tools", "Serve the practice web."),
        "doctor": ("tools", "Check this installation and suggest fixes."),
    },
}
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}


def load_command(name: str) -> click.Command:
    """Import a command: `resume` is `resume_command` of its module."""
    module = import_now(f"longline.cli.commands.{COMMANDS[name][0]}")
    command: click.Command = getattr(module, f"{name}_command")
    return command


class _LazyGroup(click.Group):
    """Lists commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        finally:
            from longline.core.logging import reset_logging  # noqa: PLC0415  # --help stays quick

            reset_logging()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        for group, commands in GROUPS.items():
            with formatter.section(group.capitalize()):
                formatter.write_dl([(name, purpose) for name, (_, purpose) in commands.items()])


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@log_options
@click.version_option(package_name="longline", message="longline %(version)s")
def cli() -> None:
    """Run web scrapers that respect rate limits and survive crashes.

    Data is stored in LONGLINE_HOME (default: ./.longline).

    Exit codes: 0 complete, 1 failed, 2 usage or configuration error, 3 partial, 4 paused or
    cancelled, 130 interrupted. Run the same command again to resume a paused or interrupted job.

    To get started, run: longline demo
    """


def main(on_error: Callable[[BaseException], None] | None = None) -> None:
    """Run the command line; every error becomes one sentence and an exit code.

    Args:
        on_error: called with the error that ends the command, before it is printed.
    """
    with protected_output() as stdout:
        code = _run(on_error)
        try:
            stdout.flush()
        except OSError as error:
            code = _output_failed(error, code)
        sys.stderr.flush()
    if code:
        sys.exit(code)


def _run(on_error: Callable[[BaseException], None] | None) -> int:
    """Run the command; return its exit code."""
    try:
        _check_encoding()
        cli.main(prog_name="longline", standalone_mode=False)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException as error:  # noqa: BLE001  # the edge of the program
        if on_error and isinstance(error, Exception):
            on_error(error)
        return _report(error)
    return ExitCode.OK


def _report(error: BaseException) -> int:
    """Print the sentence of an error; return its exit code."""
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        click.echo("Interrupted. Run the same command again to continue.", err=True)
        return ExitCode.INTERRUPTED
    if isinstance(error, OutputFailed):
        return _output_failed(error, ExitCode.FAILED)
    sentence, code = explain_error(error)
    click.echo(f"longline: {sentence}", err=True)
    if sentence is OUT_OF_MEMORY:
        # Without memory the interpreter's own shutdown fails and prints an error per object.
        with contextlib.suppress(OSError, MemoryError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    return code


def _check_encoding() -> None:
    """Check that arguments and settings are text that databases and addresses can hold.

    Raises:
        click.UsageError: one is not valid in the encoding of the locale.
    """
    texts = {f"argument {place}": text for place, text in enumerate(sys.argv[1:], 1)}
    texts |= {name: text for name, text in os.environ.items() if name.startswith("LONGLINE_")}
    for name, text in texts.items():
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise click.UsageError(
                f"{name} ({sanitize(text[:100], is_line=True)}) is not valid UTF-8. "
                "Rename the file, or encode the text as UTF-8."
            )


def _output_failed(error: OSError, code: int) -> int:
    """Report that stdout cannot be written; a closed pipe needs no report."""
    discard_stdout()
    if isinstance(error, BrokenPipeError):
        return code
    problem = error.strerror or str(error)
    click.echo(f"longline: standard output cannot be written ({problem})", err=True)
    return code or ExitCode.FAILED
