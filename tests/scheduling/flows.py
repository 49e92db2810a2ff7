"""Flows for the tests: small files in a folder, and a source that needs no web."""

from __future__ import annotations

import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from longline.orchestrator import Orchestrator
from longline.scheduling.flow import FrozenFlow, load_flow
from longline.scheduling.flow_runner import FlowRunner, perform_run, start_flow
from longline.storage.scheduling.flows import FlowRun
from longline.wiring import open_flow_runner
from tests.virtual import VirtualClock

SHOP = '''
from longline import Item, Options, Source, layer


class ShopOptions(Options):
    things: int = 3
    price: int = 5


class Shop(Source):
    """Things without a web."""

    name = "shop"
    Options = ShopOptions

    async def discover(self, visit):
        for number in range(self.options.things):
            yield Item(str(number), f"https://shop.test/{number}")

    @layer()
    async def page(self, visit):
        return {"title": f"Thing {visit.item.key}", "price": self.options.price}
'''


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), "utf-8")
    return path


def load(folder: Path, text: str, name: str = "flow.yaml") -> FrozenFlow:
    """Return the flow of this text, next to a source `shop.py`."""
    write(folder, "shop.py", SHOP)
    return load_flow(str(write(folder, name, text)))


class World:
    """A folder with flows, a database, and runners that perform them on virtual time."""

    def __init__(self, folder: Path, orchestrator: Orchestrator, clock: VirtualClock) -> None:
        self.folder = folder
        self.orchestrator = orchestrator
        self.store = orchestrator.store
        self.clock = clock

    def load(self, text: str, name: str = "flow.yaml") -> FrozenFlow:
        return load(self.folder, text, name)

    async def start(self, text: str | FrozenFlow, **params: Any) -> FlowRun:
        flow = self.load(text) if isinstance(text, str) else text
        now = self.clock.now()
        return await start_flow(self.store, flow, params, at=now, origin="command")

    @asynccontextmanager
    async def runner(self, **options: Any) -> AsyncIterator[FlowRunner]:
        """Open a runner; it runs launches by itself, in this process."""
        given: dict[str, Any] = {"run_launch": self.orchestrator.run_launch, **options}
        settings = self.orchestrator.settings
        async with open_flow_runner(settings, self.store, self.clock, **given) as runner:
            yield runner

    async def perform(self, run: FlowRun, **options: Any) -> FlowRun:
        """Perform a run until it ends or waits."""
        async with self.runner(**options) as runner:
            return await perform_run(runner, self.store, run.id)

    async def run(self, text: str | FrozenFlow, **params: Any) -> FlowRun:
        """Run a flow until it ends or waits."""
        return await self.perform(await self.start(text, **params))

    async def states(self, run: FlowRun) -> dict[str, str]:
        """Return the states of the steps, and those of their undos."""
        steps = await self.store.flows.steps(run.id)
        order = FrozenFlow.from_dict(run.definition).spec.order
        return {
            name: steps[name].undo_state or steps[name].state for name in order if name in steps
        }

    async def output(self, run: FlowRun, step: str) -> Any:
        return (await self.store.flows.steps(run.id))[step].output

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file, none if it does not exist."""
        path = self.folder / name
        return path.read_text("utf-8").splitlines() if path.exists() else []
