"""Proxies in the server: refreshes begin when they are due, and their steps run here."""

from __future__ import annotations

import asyncio
import logging

from longline.config.settings import Settings
from longline.core.clock import Clock
from longline.core.errors import BadFile
from longline.distributed.proxy_tasks import ProxyTasks, begin_refresh, due_reason
from longline.http.proxies.configuration import ProxySettings, read_proxy_settings
from longline.services.background import restart_mubeng
from longline.services.processes import ServiceError
from longline.services.proxies import note_pool
from longline.storage.store import Store
from longline.wiring import open_proxy_pool

_LOG = logging.getLogger(__name__)

_TICK = 10.0  # seconds between two checks whether a refresh is due
_POLL = 1.0  # seconds between two polls for steps
_FOR_WORKERS = 2.0  # seconds that a step is left to the workers of a cluster


class ProxyKeeper:
    """Begins a refresh when the pool is below its minimum, or the last one is old."""

    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._problem = ""

    async def tick(self) -> float | None:
        """Begin what is due; return the seconds until the next call."""
        known = self._read_settings()
        now = self._clock.now()
        last = await self._store.proxy_refreshes.advance(now)
        async with open_proxy_pool(self._settings, self._clock, self._store) as pool:
            summary = await note_pool(self._store, self._clock, pool)
        reason = None if known is None else due_reason(known, last, summary, now)
        if reason is not None:
            _LOG.info("refresh of proxies: %s", reason)
            await begin_refresh(self._store, now, reason)
        await asyncio.to_thread(self._restart_rotator)
        return _TICK

    def _restart_rotator(self) -> None:
        """Start the rotator again when the pool has changed: it does not read its list again."""
        try:
            if restart_mubeng(self._settings):
                _LOG.info("the rotator was started again with the changed proxies")
        except ServiceError as error:
            _LOG.warning("the rotator was not started again: %s", error)

    async def close(self) -> None:
        """Release nothing: a lease of a step expires with its process."""

    def _read_settings(self) -> ProxySettings | None:
        """Return what the settings file says; None, and a warning once, if it is invalid."""
        try:
            known = read_proxy_settings()
        except BadFile as error:
            if str(error) != self._problem:
                _LOG.warning("the settings of proxies are invalid: %s", error)
            self._problem = str(error)
            return None
        self._problem = ""
        return known


async def run_proxy_tasks(store: Store, clock: Clock, settings: Settings) -> None:
    """Run steps of refreshes until this is cancelled; workers of a cluster come first."""
    tasks = ProxyTasks(store, clock, settings)
    wait = _FOR_WORKERS if settings.engine == "celery" else 0.0
    while True:
        if not await tasks.run_next(wait=wait):
            await clock.sleep(_POLL)
