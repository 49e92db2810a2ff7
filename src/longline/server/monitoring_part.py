"""Monitoring in the server: the endpoint of metrics and health, and the export of metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from longline.config.settings import Settings
from longline.core.clock import Clock
from longline.core.errors import MissingExtra
from longline.monitoring.endpoint import MonitoringEndpoint, Readiness, Responders
from longline.monitoring.metrics import Measurement, metric_families, render_metrics
from longline.services.background import process_memory
from longline.services.health import HealthState, check_readiness
from longline.storage.store import Store


class MonitoringPart:
    """What a server responds to, and what it sends; each only if a setting asks for it."""

    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings

    def runs(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return what to run, by name."""
        wanted = {
            "monitoring endpoint": (self._settings.monitoring_address, self._serve),
            "export of metrics": (self._settings.otlp_url, self._export),
        }
        return {name: run for name, (address, run) in wanted.items() if address is not None}

    async def _serve(self) -> None:
        token = self._settings.monitoring_token
        endpoint = MonitoringEndpoint(
            str(self._settings.monitoring_address),
            Responders(self._render, self._readiness),
            None if token is None else token.read(),
        )
        await endpoint.serve()

    async def _export(self) -> None:
        try:
            from longline.monitoring.otlp import OtlpExporter  # noqa: PLC0415  # an extra
        except ModuleNotFoundError as error:
            raise MissingExtra("otlp", "the setting otlp_url") from error
        exporter = OtlpExporter(str(self._settings.otlp_url))
        try:
            while True:
                measured = await self._measure()
                await exporter.send(metric_families(measured), measured.home.at)
                await self._clock.sleep(self._settings.otlp_interval)
        finally:
            await exporter.close()

    async def _measure(self) -> Measurement:
        return await measure_home(self._store, self._settings, self._clock.now())

    async def _render(self, accept: str) -> tuple[bytes, str]:
        return await render_home(self._store, self._settings, self._clock.now(), accept)

    async def _readiness(self) -> Readiness:
        report = await check_readiness(self._settings)
        return Readiness(report.state is not HealthState.FAILED, report.as_dict())


async def measure_home(store: Store, settings: Settings, now: float) -> Measurement:
    """Return what the metrics of a home are made of."""
    totals = await store.totals.read(now, max_sources=settings.metrics_sources)
    memory = await asyncio.to_thread(process_memory, settings.home)
    return Measurement(totals, memory)


async def render_home(
    store: Store, settings: Settings, now: float, accept: str
) -> tuple[bytes, str]:
    """Return the metrics of a home as an Accept header wants them, and their content type."""
    # In a thread: thousands of lines would block the loop for some milliseconds.
    return await asyncio.to_thread(render_metrics, await measure_home(store, settings, now), accept)
