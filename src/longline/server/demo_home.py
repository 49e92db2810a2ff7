"""What `longline demo --serve` shows: sources, schedules and a flow of the practice web."""

from __future__ import annotations

import re
from importlib import resources
from importlib.abc import Traversable
from pathlib import Path

from longline.config.settings import Settings
from longline.core.files import make_private_folder
from longline.orchestrator import Orchestrator
from longline.scheduling.flow import load_flow
from longline.scheduling.flow_runner import start_flow

_ADDRESS = re.compile(r"(http://(?:127\.0\.0\.1|localhost)):\d+")  # of the practice web
_LOTS = 80  # of a run of the auction; its site changes after 100


def prepare_demo(settings: Settings, port: int) -> Settings:
    """Write the sources and flows into the home; return the settings that find them there.

    A file that exists keeps its text; only the port of the practice web is replaced in it.
    """
    _copy(resources.files("longline.server") / "demo", settings.home, port)
    folders = {"sources": (settings.home / "sources",), "flows": (settings.home / "flows",)}
    return settings.model_copy(update=folders)


async def fill_demo(orchestrator: Orchestrator) -> None:
    """Run sources, and submit what the server is to run; a home that is filled is not changed."""
    store, settings = orchestrator.store, orchestrator.settings
    folder = settings.sources[0]
    if await store.jobs.list(source="auction", limit=1):
        return
    await orchestrator.execute(str(folder / "quotes.yaml"))
    for _ in range(2):
        await orchestrator.execute(str(folder / "auction.yaml"), {"limit": _LOTS})
    await orchestrator.launch(str(folder / "errands.yaml"))
    flow = load_flow("flats", settings)
    await start_flow(store, flow, {}, at=await store.now(), origin="command")


def _copy(found: Traversable, target: Path, port: int) -> None:
    if found.is_dir():
        make_private_folder(target)
        for one in found.iterdir():
            _copy(one, target / one.name, port)
        return
    text = (target if target.exists() else found).read_text("utf-8")
    target.write_text(_ADDRESS.sub(rf"\g<1>:{port}", text), "utf-8")
