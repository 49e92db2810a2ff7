"""The flows in the folders of the setting `flows`, each read when its file has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longline.config.documents import read_document
from longline.config.settings import Settings
from longline.core.errors import BadFile, BadOption
from longline.scheduling.flow import FrozenFlow, flow_name_in, load_flow, read_flow
from longline.scheduling.flow_runner import start_flow
from longline.sources.loader import yaml_files
from longline.storage.scheduling.flows import FlowRun
from longline.storage.store import Store


@dataclass(frozen=True, slots=True)
class FlowFile:
    """A file of the folders of flows: its flow, or why it is invalid."""

    path: str
    name: str
    flow: FrozenFlow | None = None
    problem: str | None = None


class FlowFiles:
    """The files of flows, each read when it has changed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: dict[Path, tuple[tuple[int, int], FlowFile | None]] = {}

    def read(self) -> list[FlowFile]:
        """Return the flows and invalid files, by name."""
        found: dict[Path, tuple[tuple[int, int], FlowFile | None]] = {}
        for path in yaml_files(self._settings.flows):
            try:
                status = path.stat()
            except OSError:  # deleted meanwhile
                continue
            stamp = (status.st_mtime_ns, status.st_size)
            known = self._known.get(path)
            found[path] = known if known and known[0] == stamp else (stamp, self._load(path))
        self._known = found
        flows = [one for _, one in found.values() if one is not None]
        return sorted(flows, key=lambda one: one.name)

    async def start(
        self, store: Store, name: str, params: Mapping[str, Any], *, at: float, origin: str
    ) -> FlowRun:
        """Create a run of a flow of the folders, which the server performs.

        Raises:
            BadOption: there is no such flow, or no such parameter.
            BadFile: its file is invalid.
        """
        # Only names: a request must not load any file of the machine.
        if name not in {one.name for one in await asyncio.to_thread(self.read)}:
            raise BadOption("flow", f"there is no flow {name!r:.120} in the folders of flows")
        flow = await asyncio.to_thread(load_flow, name, self._settings)
        return await start_flow(store, flow, params, at=at, origin=origin)

    def _load(self, path: Path) -> FlowFile | None:
        name = path.stem
        try:
            document = read_document(path)
            stated = flow_name_in(document)
            if stated is None:
                return None
            name = stated
            return FlowFile(str(path), name, read_flow(document, self._settings))
        except BadFile as error:
            return FlowFile(str(path), name, problem=str(error))
