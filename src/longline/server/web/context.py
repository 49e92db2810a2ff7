"""What pages and API routes work with: the open home, its settings and its clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from longline.config.settings import Settings
from longline.core.clock import Clock
from longline.orchestrator import Orchestrator
from longline.storage.store import Store

if TYPE_CHECKING:
    from longline.server.web.event_stream import EventStreams
    from longline.server.web.live import LiveParts
    from longline.server.web.pages.workers import Checkup


@dataclass(slots=True)
class Web:
    """An open home, as one server of it uses it.

    Args:
        orchestrator: open; its store is not shared with the executor, which pages must not delay.
        settings: may be replaced when the settings file has changed.
        clock: the time of the home.
        live: sends parts of pages again when something has changed.
        events: sends events to programs.
        checkup: runs the health checks for all pages.
    """

    orchestrator: Orchestrator
    settings: Settings
    clock: Clock
    live: LiveParts = field(init=False)
    events: EventStreams = field(init=False)
    checkup: Checkup = field(init=False)

    @property
    def store(self) -> Store:
        """The database."""
        return self.orchestrator.store


def web_of(request: Request) -> Web:
    """Return the home that an app serves."""
    web: Web = request.app.state.web
    return web


Home = Annotated[Web, Depends(web_of)]
"""The parameter of a route that works with the home."""
