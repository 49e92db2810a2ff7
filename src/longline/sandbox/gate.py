"""The middleware of the practice web: counters, rate limit, latency and faults."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Awaitable, Callable
from typing import cast

from aiohttp import web

from longline.core.clock import Clock
from longline.sandbox.faults import FaultPlan, spoil, status_under
from longline.sandbox.limits import Limits
from longline.sandbox.tally import Tally
from longline.sandbox.templates.routes import reply
from longline.sandbox.youtube import PREFIX as YOUTUBE_PREFIX

FREE_PREFIX = "/__practice__/"
_HTML_PREFIX = "/workflows/"
_OK = 200

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Gate:
    """Limits and delays requests, injects faults, and counts them all.

    The bookkeeping pages pass free. YouTube is another site: it is counted apart, has no limit
    and fails in ways of its own.
    """

    def __init__(
        self,
        limits: Limits,
        faults: FaultPlan,
        tally: Tally,
        *,
        clock: Clock,
        latency: float,
        has_validators: bool = False,
    ) -> None:
        self._limits = limits
        self._faults = faults
        self._tally = tally
        self._clock = clock
        self._latency = latency
        self._has_validators = has_validators

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request through to its handler, or not."""
        if request.path.startswith(FREE_PREFIX):
            return await handler(request)
        if request.path.startswith(f"{YOUTUBE_PREFIX}/"):
            self._tally.arrived_at_youtube(request.path)
            return await handler(request)
        self._tally.arrived(request.path)
        wait = self._limits.take(request.remote or "", self._clock.now())
        if self._latency:
            await self._clock.sleep(self._latency)
        if wait > 0.0:
            return self._turn_away(wait)
        return await self._answer(request, handler)

    def _turn_away(self, wait: float) -> web.Response:
        seconds = max(1, math.ceil(wait))
        self._tally.rate_limited += 1
        self._tally.statuses[429] += 1
        answer = {"error": "too many requests", "retryAfter": seconds}
        return reply(answer, status=429, headers={"Retry-After": str(seconds)})

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        answer = await _sound_answer(request, handler)
        is_html = request.path.startswith(_HTML_PREFIX)
        fault = self._faults.next(request.path_qs, is_html=is_html)
        if fault is None:
            if self._has_validators:
                answer = validated(request, answer)
            self._tally.statuses[answer.status] += 1
            return answer
        self._tally.faults[fault.value] += 1
        status = status_under(fault, answer)
        if status is not None:
            self._tally.statuses[status] += 1
        return await spoil(fault, request, answer, self._clock)


def validated(request: web.Request, answer: web.Response) -> web.Response:
    """Add an ETag to a successful response; it becomes 304 when the client has it."""
    if answer.status != _OK or not isinstance(answer.body, bytes):
        return answer
    tag = f'"{hashlib.sha256(answer.body).hexdigest()[:16]}"'
    if request.headers.get("if-none-match") == tag:
        return web.Response(status=304, headers={"etag": tag})
    answer.headers["etag"] = tag
    return answer


async def _sound_answer(request: web.Request, handler: Handler) -> web.Response:
    try:
        return cast("web.Response", await handler(request))
    except web.HTTPException as error:  # an unknown URL
        return reply({"error": error.reason}, status=error.status)
