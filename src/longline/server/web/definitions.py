"""The files of schedules and flows, as the pages and the API of one app read them."""

from __future__ import annotations

from starlette.requests import Request

from longline.scheduling.definitions import DefinitionFiles, sync_files
from longline.scheduling.flow_files import FlowFiles
from longline.server.web.context import Web


async def read_schedule_files(request: Request, web: Web) -> DefinitionFiles:
    """Store what the files define now, as the commands do; an invalid file is not used."""
    state = request.app.state
    if not hasattr(state, "definition_files"):
        state.definition_files = DefinitionFiles(web.settings)
    files: DefinitionFiles = state.definition_files
    await sync_files(web.store, files, web.clock.now(), is_first=True)
    return files


def flow_files_of(request: Request, web: Web) -> FlowFiles:
    """Return the files of flows."""
    state = request.app.state
    if not hasattr(state, "flow_files"):
        state.flow_files = FlowFiles(web.settings)
    files: FlowFiles = state.flow_files
    return files
