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
from longline.config.documents import read_document
from longline.config.settings import settings_file
from longline.core.logging import configure_logging
from longline.core.output import closed_stdout_ignored
from longline.engine.runtime import handling_signals
from longline.monitoring.alerts.configuration import alert_settings_in
from longline.monitoring.reports.definitions import report_definitions_in
from longline.server.serve import Server


@click.command("serve")
@click.option("--no-web", is_flag=True, help="Run without the web interface.")
@click.option("--once", is_flag=True, help="Run due schedules, launches and flows, and exit.")
@log_options
@home_option
def serve_command(*, no_web: bool, once: bool) -> None:
    """Run the server: schedules, launches, alerts, reports and event delivery.

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
    _check_settings_file()
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


def _check_settings_file() -> None:
    """Refuse invalid alerts and reports: no one would be notified, and only the log would show it.

    Raises:
        BadFile: the settings file is invalid.
    """
    path = settings_file()
    if path is not None:
        document = read_document(path)
        alert_settings_in(document)
        report_definitions_in(document)
