"""The command line: its commands by name, each imported only when it is used."""

from __future__ import annotations

import errno
import importlib
import os
import resource
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from longline.cli.closed_pipe import give_up_stdout
from longline.core.output import OutputFailed, protected_output, sanitize, sanitize_error

FAILED, INTERRUPTED = 1, 130
_TRACEBACK = "LONGLINE_TRACEBACK"
_NO_MEMORY = (
    "out of memory; this process is not allowed more memory or threads (see `ulimit -a` and the "
    "limits of its container). What was stored is safe: raise the limit and run it again"
)

GROUPS = {  # the folder of each group in commands/, and its commands
    "run": {
        "run": "Collect from SOURCE; run the same command again to resume it.",
        "resume": "Go on with an unfinished job.",
        "retry": "Queue failed items of JOB again, exactly those that fit, and run it.",
        "pause": "Have whoever works on JOB stop, on this machine or another.",
        "cancel": "End JOB for good, wherever it is worked on.",
        "plan": "Say what a run of SOURCE would take: requests, pace, time; store nothing.",
    },
    "inspect": {
        "jobs": "List jobs, or show one with its settings, counts and events.",
        "failures": "Show what went wrong in JOB: items, kinds, reasons, attempts.",
        "checkpoints": "List checkpoint documents, of all jobs or of one.",
        "report": "Write a performance and validation report of a job.",
        "top": "Watch all jobs and workers live; ctrl-c ends it and nothing else.",
        "drift": "Show how fields of sources have changed, or accept what they look like now.",
    },
    "data": {
        "records": "Look at what was collected.",
        "export": "Write records to a file, a database or a bucket.",
        "quarantine": "Show quarantined items, or process them again without a request.",
        "duplicates": "Find records of several sites that are the same thing, and look at them.",
        "enrich": "Ask a language model, or an enricher here, about records; look at the answers.",
        "reextract": "Extract a job's items again from archived answers, and compare.",
    },
    "sources": {
        "sources": "List sources, or show the settings and layers of one.",
        "shell": "Fetch URL politely and open a Python prompt on it: page, fetch, css, text, json.",
        "config": "Look at settings, manifests and job files, check them, or set a value.",
        "plugins": "List what other packages add: sources, transports, stages and exporters.",
    },
    "sites": {
        "robots": "Explain whether robots.txt allows URL; exit with 4 when it does not.",
        "limits": "List the limits that are known of domains; pin one, or forget it.",
        "breakers": "Show which sites are left alone, why and until when, or ask one again now.",
        "cache": "Look at the HTTP cache, or empty it.",
        "archive": "Look at the answers that jobs have kept.",
    },
    "cluster": {
        "worker": "Work on the jobs of a cluster until told to stop.",
        "up": "Start what a cluster on this machine needs: Redis, PostgreSQL, workers.",
        "down": "Stop what `up` has started, and nothing else.",
        "status": "Show what runs for this home, and whether it is well.",
        "db": "Look at the database, or move all data to another one.",
    },
    "tools": {
        "demo": "See it all work: collect 500 templates from a practice web with faults.",
        "sandbox": "Start a practice web to collect from.",
        "doctor": "Look for what is wrong with this installation, and say how to mend it.",
    },
}
COMMANDS = {name: purpose for group in GROUPS.values() for name, purpose in group.items()}


def module_of(command: str) -> str:
    """Return the name of the module that a command is in."""
    group = next(group for group, names in GROUPS.items() if command in names)
    return f"longline.cli.commands.{group}.{command}"


class _LazyGroup(click.Group):
    """Knows the names of its commands and what they are for before any is imported."""

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
            sentence = _own_server_away(error, ctx)
            if sentence is None:
                raise
            sys.exit(_fail(sentence, getattr(error, "exit_code", FAILED)))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        for group, commands in GROUPS.items():
            with formatter.section(group.capitalize()):
                formatter.write_dl(list(commands.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="longline", message="longline %(version)s")
def cli() -> None:
    """Run scrapers politely, durably and visibly.

    Data lives in LONGLINE_HOME (./.longline unless set). Exit codes: 0 complete, 1 failed,
    2 wrong usage, 3 partial, 4 paused (resumable), 130 interrupted (resumable).

    New here? Try: longline demo
    """


def _own_server_away(error: Exception, context: click.Context) -> str | None:
    """Return what to do when it is this home's own PostgreSQL that is away; None: it is not."""
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
    return f"the PostgreSQL of this home is away ({error.problem}); `longline up` starts it"


def main(on_error: Callable[[BaseException], None] | None = None) -> None:
    """Run the command line; every error becomes one sentence and its exit code.

    Args:
        on_error: is called with the error that ends the command, before it is printed.
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
        _check_arguments()
        _invoke(on_error)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted; run the same command again to go on", INTERRUPTED, prefix="")
    except BaseException as error:  # noqa: BLE001  # the edge of the program
        return _explain(error)
    return 0


def _invoke(on_error: Callable[[BaseException], None] | None) -> None:
    try:
        cli.main(prog_name="longline", standalone_mode=False)
    except Exception as error:
        if on_error:
            on_error(error)
        raise


def _check_arguments() -> None:
    """Refuse arguments and settings that are not text: no database or address could hold them.

    Raises:
        click.UsageError: one is not valid in the encoding of the locale.
    """
    words = {f"argument {place}": word for place, word in enumerate(sys.argv[1:], 1)}
    words |= {name: text for name, text in os.environ.items() if name.startswith("LONGLINE_")}
    for name, word in words.items():
        if any("\ud800" <= sign <= "\udfff" for sign in word):
            raise click.UsageError(
                f"{name} ({sanitize(word[:100], is_line=True)}) is not valid UTF-8; "
                "rename the file, or write the text in UTF-8"
            )


def _explain(error: BaseException) -> int:
    """Print what happened as one sentence; return the exit code."""
    # Imported only now, so that --help stays quick.
    from longline.core.errors import LonglineError  # noqa: PLC0415

    if isinstance(error, OutputFailed):
        return _output_failed(error, FAILED)
    if isinstance(error, LonglineError):
        return _fail(sanitize_error(error), error.exit_code)
    if os.environ.get(_TRACEBACK):
        traceback.print_exception(error)
    if _is_memory(error):
        return _fail(_NO_MEMORY, FAILED)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return _fail(sanitize_error(f"{where}{error.strerror or error}"), FAILED)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    return _fail(
        sanitize_error(f"internal error ({told}, at {place}); {_TRACEBACK}=1 shows its traceback"),
        FAILED,
    )


def _is_memory(error: BaseException) -> bool:
    """Say whether an error means that the process may not have more memory or threads."""
    if isinstance(error, BaseExceptionGroup):
        return any(_is_memory(one) for one in error.exceptions)
    before = error.__cause__ or error.__context__
    if isinstance(error, MemoryError) or (before is not None and _is_memory(before)):
        return True
    if isinstance(error, OSError) and error.errno in (errno.ENOMEM, errno.EAGAIN):
        return True
    if isinstance(error, SystemError):  # C code that could not allocate, and did not say so
        return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    signs = ("can't start new thread", "failed to map segment", "Cannot allocate memory")
    text = str(error)
    return isinstance(error, ImportError | RuntimeError) and any(one in text for one in signs)


def _output_failed(error: OSError, code: int) -> int:
    """Report that standard output cannot be written; a reader that left needs no report."""
    give_up_stdout()
    if isinstance(error, BrokenPipeError):
        return code
    problem = error.strerror or str(error)
    return _fail(f"standard output cannot be written ({problem})", code or FAILED)


def _fail(sentence: str, code: int, *, prefix: str = "longline: ") -> int:
    click.echo(f"{prefix}{sentence}", err=True)
    return code
