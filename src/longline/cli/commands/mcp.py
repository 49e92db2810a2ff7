"""longline mcp: the home of this machine as tools for agents."""

from __future__ import annotations

import asyncio

import click

from longline.cli.options import home_option, settings_of
from longline.core.errors import MissingExtra


@click.command("mcp")
@click.option(
    "--allow-changes",
    is_flag=True,
    help="Also offer tools that run, pause, resume, cancel and retry jobs.",
)
@home_option
def mcp_command(*, allow_changes: bool) -> None:
    """Serve this home to an agent over MCP, on stdin and stdout.

    The tools read sources, jobs, failures, records, drift and alerts, and check and plan a source.
    A client starts this command by itself; see docs/mcp.md.
    """
    try:
        from longline.server.agents.mcp_server import serve  # noqa: PLC0415  # needs an extra
    except ModuleNotFoundError as error:
        raise MissingExtra("mcp", "`longline mcp`") from error

    asyncio.run(serve(settings_of(), allows_changes=allow_changes))
