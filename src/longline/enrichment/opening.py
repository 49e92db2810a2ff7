"""A task in, somebody to ask out: the dialect that it names, at the pace that it wants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from longline.config.enrichment import AnyTask, EnrichTask, LocalTask
from longline.core.clock import Clock
from longline.enrichment.base import Enricher
from longline.enrichment.local import opened
from longline.enrichment.servers import OllamaEnricher, OpenAiEnricher, Speaker
from longline.http.middleware.rate_limit import RateLimitMiddleware
from longline.http.transports.aiohttp import HttpOptions, HttpTransport
from longline.limits.backends.base import RateLimitBackend
from longline.limits.backends.cells import Cells
from longline.limits.learning import Learned
from longline.limits.limiter import RateLimiter

_ROOT = "/v1"


def limiter_of(
    task: AnyTask,
    clock: Clock,
    backend: RateLimitBackend | None = None,
    learned: Cells[Learned] | None = None,
) -> RateLimiter:
    """Return what keeps the pace of the task's server; with a keeper, in all processes."""
    rate = None if task.rate == "unlimited" else task.rate
    return RateLimiter(rate, task.concurrency, clock=clock, backend=backend, learned=learned)


@asynccontextmanager
async def open_enricher(
    task: AnyTask, limiter: RateLimiter, clock: Clock
) -> AsyncIterator[Enricher]:
    """Open connections to the model that a task asks, or make the enricher that it names.

    Raises:
        UnknownSecret: the key of the server cannot be read.
        ConfigError: the enricher lacks its table or its library.
    """
    if isinstance(task, LocalTask):
        yield opened(task)
        return
    async with _connected(task, limiter, clock) as enricher:
        yield enricher


@asynccontextmanager
async def _connected(
    task: EnrichTask, limiter: RateLimiter, clock: Clock
) -> AsyncIterator[Enricher]:
    options = HttpOptions(timeout=task.server.timeout)
    transport = HttpTransport(options, clock)
    speaker = Speaker(task.server, RateLimitMiddleware(transport, limiter, clock))
    try:
        if task.server.dialect == "ollama":
            yield OllamaEnricher(speaker)
        else:
            has_root = task.server.url.rstrip("/").endswith(_ROOT)
            yield OpenAiEnricher(speaker, root="" if has_root else _ROOT)
    finally:
        await transport.close()
