"""The MCP server: tools over stdin and stdout, with the official SDK."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.core.errors import LonglineError
from longline.core.logging import redact_text
from longline.core.output import sanitize_error
from longline.orchestrator import Orchestrator
from longline.server.agents.results import NOTE, result_text
from longline.server.agents.tools import ChangeTools, ReadTools, Tool
from longline.server.web.context import Web

_LOG = logging.getLogger(__name__)
_INSTRUCTIONS = (
    "longline runs web scrapers. A source describes what to collect from a site, a job is one run "
    "of a source, its items become records. To find out why something is wrong: list_alerts, "
    "list_jobs, then get_job and list_failures; get_coverage and get_drift show fields that a site "
    f"no longer has. {NOTE}"
)
_SENDS_REQUESTS = frozenset({"check_source", "plan_source"})


def make_server(web: Web, *, allows_changes: bool) -> MCPServer[Any]:
    """Return the server of a home; the tools that change something only if that is allowed."""
    if not logging.getLogger().handlers:  # the SDK would add one of its own, for stderr
        logging.getLogger().addHandler(logging.NullHandler())
    server: MCPServer[Any] = MCPServer(
        "longline", version=version("longline"), instructions=_INSTRUCTIONS
    )
    for tool in ReadTools(web).all():
        _add(server, tool, is_change=False)
    for tool in ChangeTools(web).all() if allows_changes else ():
        _add(server, tool, is_change=True)
    return server


async def serve(settings: Settings, *, allows_changes: bool) -> None:
    """Serve a home over stdin and stdout until the client closes them."""
    clock = SystemClock()
    async with Orchestrator(settings=settings, clock=clock, stores_logs=False) as orchestrator:
        server = make_server(Web(orchestrator, settings, clock), allows_changes=allows_changes)
        with _plain_streams():
            await server.run_stdio_async()


@contextmanager
def _plain_streams() -> Iterator[None]:
    """Give the SDK the streams of the process, which it keeps from all other output."""
    before = sys.stdin, sys.stdout
    sys.stdin, sys.stdout = sys.__stdin__ or sys.stdin, sys.__stdout__ or sys.stdout
    try:
        yield
    finally:
        sys.stdin, sys.stdout = before


def _add(server: MCPServer[Any], tool: Tool, *, is_change: bool) -> None:
    name = tool.__name__
    annotations = ToolAnnotations(
        read_only_hint=not is_change,
        destructive_hint=name == "cancel_job",
        open_world_hint=is_change or name in _SENDS_REQUESTS,
    )
    # As text: a schema of the result would not fit one that was cut.
    server.add_tool(_answering(tool), annotations=annotations, structured_output=False)


def _answering(tool: Tool) -> Tool:
    """Return a tool whose result is JSON text, and whose errors are sentences."""

    @functools.wraps(tool)
    async def call(*args: Any, **kwargs: Any) -> str:
        try:
            return result_text(await tool(*args, **kwargs))
        except LonglineError as error:
            raise ToolError(redact_text(sanitize_error(error))) from error
        except Exception as error:
            _LOG.warning("tool failed", extra={"tool": tool.__name__}, exc_info=error)
            problem = redact_text(sanitize_error(f"{type(error).__name__}: {error}"))
            raise ToolError(problem) from error

    return call
