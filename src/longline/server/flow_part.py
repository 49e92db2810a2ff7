"""Flows in the server: the part that performs them, and launches that start one."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from longline.config.settings import Settings
from longline.core.clock import Clock, sleep_or_wake
from longline.core.errors import LonglineError, StoreError
from longline.scheduling.executor import EndKind, RunEnd, Runner
from longline.scheduling.flow import load_flow
from longline.scheduling.flow_runner import FlowRunner, start_flow
from longline.scheduling.flow_steps import POLL
from longline.storage.scheduling.flows import FlowState
from longline.storage.scheduling.launches import Launch
from longline.storage.store import Store
from longline.wiring import open_flow_runner


class FlowPart:
    """Performs the open runs of flows; the executor runs the launches of their steps."""

    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._runner: FlowRunner | None = None
        self._opened = AsyncExitStack()

    async def tick(self) -> float | None:
        """Begin what is due; return the seconds until the next call."""
        if self._runner is None:
            opening = open_flow_runner(self._settings, self._store, self._clock)
            self._runner = await self._opened.enter_async_context(opening)
        return await self._runner.tick()

    async def close(self) -> None:
        """Release the runs to other servers; steps are performed again there."""
        self._runner = None
        await self._opened.aclose()


class FlowLaunches(Runner):
    """Runs launches of flows: creates the run, which `FlowPart` performs, and waits for its end."""

    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings

    async def run(self, launch: Launch, owner: str, stop: asyncio.Event) -> RunEnd:
        try:
            run = launch.target or await self._start(launch, owner)
        except StoreError:
            raise
        except LonglineError as error:
            return RunEnd(EndKind.ENDED, FlowState.FAILED, str(error))
        while not stop.is_set():
            found = await self._store.flows.get(run)
            if not found.is_open:
                return RunEnd(EndKind.ENDED, found.state, found.reason)
            await sleep_or_wake(POLL, stop)
        return RunEnd(EndKind.INTERRUPTED)

    async def _start(self, launch: Launch, owner: str) -> str:
        flow = await asyncio.to_thread(load_flow, launch.spec["flow"], self._settings)
        run = await start_flow(
            self._store,
            flow,
            launch.spec.get("params") or {},
            at=self._clock.now(),
            origin=launch.origin,
            key=f"launch/{launch.id}",
        )
        await self._store.launches.attach(launch.id, owner, run.id, self._clock.now())
        return run.id
