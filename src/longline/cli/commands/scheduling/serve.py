"""longline serve: the process that runs what is scheduled or submitted, and its web interface."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from dataclasses import replace

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.log_options import log_options, log_options_of
from longline.cli.options import home_option, settings_given
from longline.config.documents import read_document
from longline.config.settings import Settings, load_settings, prepare_home, settings_file
from longline.core.clock import SystemClock
from longline.core.logging import configure_logging
from longline.core.output import closed_stdout_ignored
from longline.engine.runtime import handling_signals
from longline.http.proxies.configuration import proxy_settings_in
from longline.monitoring.alerts.configuration import alert_settings_in
from longline.monitoring.reports.definitions import report_definitions_in
from longline.server.serve import Server
from longline.storage.store import open_store


@click.command("serve")
@click.option("--no-web", is_flag=True, help="Run without the web interface.")
@click.option("--no-executor", is_flag=True, help="Run only the web interface; start no jobs.")
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="Address of the web interface [default: the setting web_address, 127.0.0.1:8400].",
)
@click.option("--once", is_flag=True, help="Run due schedules, launches and flows, and exit.")
@log_options
@home_option
def serve_command(*, no_web: bool, no_executor: bool, address: str | None, once: bool) -> None:
    """Run the server: dashboard, API, schedules, alerts, reports and event delivery.

    It prints a link that opens the web interface once. Jobs run in child processes, or on workers
    with the setting `engine: celery`. Several servers on one database share the work. On Ctrl-C or
    SIGTERM, running jobs save their state, and the next server continues them; a second signal
    exits immediately, without losing data.
    """
    if no_web and no_executor:
        raise click.UsageError("--no-web and --no-executor leave nothing to run")
    if once and no_executor:
        raise click.UsageError("--once runs what is due, so it cannot be used with --no-executor")
    log = log_options_of(click.get_current_context())
    # A server always logs its start and its end.
    configure_logging(replace(log, verbosity=max(1, log.verbosity)))

    def load() -> Settings:
        return load_settings(**settings_given(), web_address=address)

    settings = load()
    _check_settings_file()
    has_web = not no_web and not once
    listener, link = asyncio.run(open_web(settings)) if has_web else (None, None)
    server = Server(settings, load=load, log=log, listener=listener, has_executor=not no_executor)
    try:
        asyncio.run(run_server(server, settings, link, is_once=once))
    except asyncio.CancelledError:  # a second signal
        sys.exit(ExitCode.INTERRUPTED)
    finally:
        if listener is not None:
            listener.close()


async def run_server(
    server: Server, settings: Settings, link: str | None, *, is_once: bool = False
) -> None:
    """Run a server until a stop signal, and print the link when it is ready."""

    def ready() -> None:
        with closed_stdout_ignored():
            click.echo(f"ready: process {os.getpid()}, home {settings.home}")
            if link is not None:
                click.echo(f"open (once, within 10 minutes): {link}")
            sys.stdout.flush()

    with handling_signals(server.stop):
        await server.run(is_once=is_once, on_ready=ready)


async def open_web(settings: Settings) -> tuple[socket.socket, str]:
    """Return the socket of the web interface and the link that opens it.

    Raises:
        ConfigError: it cannot listen, or nothing would keep other machines out.
    """
    from longline.server.web.part import check_access, listen, make_link  # noqa: PLC0415  # heavy

    listener = listen(settings.web_address)
    try:
        prepare_home(settings)
        now = SystemClock().now()
        host, port = settings.web_address.rpartition(":")[0], listener.getsockname()[1]
        known = settings.model_copy(update={"web_address": f"{host}:{port}"})  # port 0 is any
        with open_store(settings.database) as store:
            await check_access(store, known, now)
            return listener, await make_link(store, known, now)
    except BaseException:
        listener.close()
        raise


def _check_settings_file() -> None:
    """Refuse invalid alerts, reports and proxies: only the log would show it.

    Raises:
        BadFile: the settings file is invalid.
    """
    path = settings_file()
    if path is not None:
        document = read_document(path)
        alert_settings_in(document)
        report_definitions_in(document)
        proxy_settings_in(document)
