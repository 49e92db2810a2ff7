"""longline serve: the process that runs what is scheduled or submitted."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.log_options import log_options, log_options_of
from longline.cli.options import home_option, settings_of
from longline.core.logging import configure_logging
from longline.core.output import closed_stdout_ignored
from longline.engine.runtime import handling_signals
from longline.server.serve import Server


@click.command("serve")
@click.option("--no-web", is_flag=True, help="Run without the web interface.")
@click.option("--once", is_flag=True, help="Run due schedules, launches and deliveries, and exit.")
@log_options
@home_option
def serve_command(*, no_web: bool, once: bool) -> None:
    """Run the server: schedules, launches and deliveries of events.

    Jobs run in child processes, or on workers with the setting `engine: celery`. Several servers
    on one database share the work. On Ctrl-C or SIGTERM, running jobs save their state, and the
    next server continues them; a second signal exits immediately, without losing data.
    """
    if not no_web:
        raise click.UsageError("there is no web interface yet. Run: longline serve --no-web")
    log = log_options_of(click.get_current_context())
    # A server always logs its start and its end.
    configure_logging(replace(log, verbosity=max(1, log.verbosity)))
    settings = settings_of()
    server = Server(settings, load=settings_of, log=log)

    def ready() -> None:
        with closed_stdout_ignored():
            click.echo(f"ready: process {os.getpid()}, home {settings.home}")
            sys.stdout.flush()

    async def serve() -> None:
        with handling_signals(server.stop):
            await server.run(is_once=once, on_ready=ready)

    try:
        asyncio.run(serve())
    except asyncio.CancelledError:  # a second signal
        sys.exit(ExitCode.INTERRUPTED)
