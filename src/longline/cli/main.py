"""The command line: a group of commands, each imported only when it is used."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from longline.cli.exit_codes import ExitCode, explain_error
from longline.cli.log_options import log_options
from longline.core.output import OutputFailed, discard_stdout, protected_output, sanitize

GROUPS = {  # the folder of each group in commands/, and the first sentence of each command's help
    "run": {
        "run": "Run SOURCE, or resume its unfinished job.",
        "resume": "Resume an unfinished job.",
        "retry": "Requeue failed items of JOB and run it.",
        "pause": "Pause JOB on all workers.",
        "cancel": "Cancel JOB on all workers.",
        "plan": "Estimate the requests and the duration of a run of SOURCE.",
    },
    "inspect": {
        "jobs": "List jobs, or show one with its settings, counts and events.",
        "failures": "List failed items of JOB, with failure kinds and attempts.",
        "checkpoints": "List checkpoint documents.",
        "report": "Report on the performance and checks of a job.",
        "top": "Show live progress of all jobs and workers.",
        "drift": "Show changes in the fields of sources, and accept them.",
    },
    "data": {
        "records": "Query records, their history and their quality.",
        "export": "Export records to a file, a database or an S3 bucket.",
        "quarantine": "Inspect quarantined items and reprocess them offline.",
        "duplicates": "Find records of different sites that describe the same thing.",
        "enrich": "Enrich records with a language model or a local enricher.",
        "reextract": "Extract the items of JOB again from archived responses.",
    },
    "sources": {
        "sources": "List, show, check and create sources.",
        "shell": "Fetch URL and open a Python prompt with the page.",
        "config": "Show, validate and edit settings, manifests and job files.",
        "plugins": "List installed plugins.",
    },
    "sites": {
        "robots": "Explain whether robots.txt allows URL.",
        "limits": "List the rate limits of domains; pin or forget one.",
        "breakers": "List circuit breakers and reset them.",
        "cache": "Inspect or clear the HTTP cache.",
        "archive": "Inspect and verify archived responses.",
    },
    "cluster": {
        "worker": "Run a cluster worker.",
        "up": "Start Redis, PostgreSQL and workers on this machine.",
        "down": "Stop what `longline up` started.",
        "status": "Show the services of this home and their health.",
        "db": "Inspect the database, or copy it to another one.",
    },
    "tools": {
        "demo": "Scrape 500 templates from a local practice web with faults.",
        "sandbox": "Serve the practice web.",
        "doctor": "Check this installation and suggest fixes.",
    },
}
COMMANDS = {name: purpose for group in GROUPS.values() for name, purpose in group.items()}


def module_of(command: str) -> str:
    """Return the name of the module that defines a command."""
    group = next(group for group, names in GROUPS.items() if command in names)
    return f"longline.cli.commands.{group}.{command}"


class _LazyGroup(click.Group):
    """Lists commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(module_of(cmd_name))
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            sentence = _own_server_stopped(error, ctx)
            if sentence is None:
                raise
            sys.exit(_fail(sentence, getattr(error, "exit_code", ExitCode.FAILED)))
        finally:
            from longline.core.logging import reset_logging  # noqa: PLC0415  # as above

            reset_logging()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        for group, commands in GROUPS.items():
            with formatter.section(group.capitalize()):
                formatter.write_dl(list(commands.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@log_options
@click.version_option(package_name="longline", message="longline %(version)s")
def cli() -> None:
    """Run web scrapers that respect rate limits and survive crashes.

    Data is stored in LONGLINE_HOME (default: ./.longline).

    Exit codes: 0 complete, 1 failed, 2 usage or configuration error, 3 partial, 4 paused or
    cancelled, 130 interrupted. Run the same command again to resume a paused or interrupted job.

    To get started, run: longline demo
    """


def _own_server_stopped(error: Exception, context: click.Context) -> str | None:
    """Return what to do when this home's own PostgreSQL is not running; None for other errors."""
    # Imported only now, so that --help stays quick.
    from longline.cli.options import settings_used  # noqa: PLC0415
    from longline.config.settings import read_services  # noqa: PLC0415
    from longline.core.errors import StoreUnreachable  # noqa: PLC0415
    from longline.core.redaction import redact_url  # noqa: PLC0415

    settings = settings_used(context)
    if not isinstance(error, StoreUnreachable) or settings is None or settings.database_url:
        return None
    own = read_services(settings.home).database_url
    if own is None or redact_url(own) != error.address:
        return None
    return (
        f"the PostgreSQL server of this home is not running ({error.problem}). "
        "Start it with `longline up`"
    )


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
        _invoke(on_error)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        sentence = "Interrupted. Run the same command again to continue."
        return _fail(sentence, ExitCode.INTERRUPTED, prefix="")
    except OutputFailed as error:
        return _output_failed(error, ExitCode.FAILED)
    except BaseException as error:  # noqa: BLE001  # the edge of the program
        return _fail(*explain_error(error))
    return ExitCode.OK


def _invoke(on_error: Callable[[BaseException], None] | None) -> None:
    try:
        cli.main(prog_name="longline", standalone_mode=False)
    except Exception as error:
        if on_error:
            on_error(error)
        raise


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
    return _fail(f"standard output cannot be written ({problem})", code or ExitCode.FAILED)


def _fail(sentence: str, code: int, *, prefix: str = "longline: ") -> int:
    click.echo(f"{prefix}{sentence}", err=True)
    return code
