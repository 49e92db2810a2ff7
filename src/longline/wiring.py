"""Settings in, objects out: the one place that names a concrete backend."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from longline.clock import Clock
from longline.config.settings import Settings
from longline.config.spec import JobSpec
from longline.fetching.chain import Policies, build_chain
from longline.fetching.link import Link
from longline.fetching.transports.http import USER_AGENT, HttpOptions, HttpTransport
from longline.resilience.circuit import CircuitBreaker
from longline.resilience.handler import RetryHandler
from longline.resilience.keepers.sqlite import SqliteBreakerKeeper, SqlitePaceKeeper
from longline.resilience.limiter import RateLimiter
from longline.sources.base import Source


@dataclass(frozen=True, slots=True)
class Fetching:
    """The request chain of one run, and the policies whose state people want to see."""

    link: Link
    limiter: RateLimiter
    breaker: CircuitBreaker
    rate: float | None


@asynccontextmanager
async def open_fetching(
    settings: Settings,
    spec: JobSpec,
    source: type[Source],
    clock: Clock,
    transport: Link | None = None,
) -> AsyncIterator[Fetching]:
    """Build the request chain for one run; `transport` replaces HTTP in simulations."""
    rate = source.rate if spec.rate is None else None if spec.rate == "unlimited" else spec.rate
    burst = spec.burst or source.burst
    # Processes of one home share the limits through this file; unlimited pace never asks it.
    paces = SqlitePaceKeeper(settings.pace_file, clock)
    breakers = SqliteBreakerKeeper(settings.pace_file, clock)
    limiter = RateLimiter(rate, burst, clock=clock, keeper=paces)
    breaker = CircuitBreaker(clock=clock, keeper=breakers)
    policies = Policies(
        limiter,
        breaker,
        RetryHandler(circuit_breaker_threshold=None, jitter=0.1, clock=clock),
        frozenset(spec.ignore_robots),
    )
    http = HttpTransport(_http_options(settings, spec, is_timed=rate is not None), clock)
    try:
        yield Fetching(build_chain(transport or http, policies, clock), limiter, breaker, rate)
    finally:
        await http.close()
        await paces.close()
        await breakers.close()


def _http_options(settings: Settings, spec: JobSpec, *, is_timed: bool) -> HttpOptions:
    return HttpOptions(
        is_timed=is_timed,
        timeout=spec.timeout or settings.timeout,
        user_agent=settings.user_agent or USER_AGENT,
        connections=max(100, 2 * (spec.concurrency or settings.concurrency)),
    )
