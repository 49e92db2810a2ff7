"""A client for tests that look at a practice web from outside."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import ClientResponse, ClientSession, TraceConfig, TraceRequestEndParams


@contextlib.asynccontextmanager
async def open_client(**options: Any) -> AsyncIterator[ClientSession]:
    """Open a session that closes every answer at its end, read to its end or not."""
    answers: list[ClientResponse] = []

    async def remember(_session: Any, _context: Any, params: TraceRequestEndParams) -> None:
        answers.append(params.response)

    trace = TraceConfig()
    trace.on_request_end.append(remember)
    async with ClientSession(trace_configs=[trace], **options) as client:
        yield client
        for answer in answers:
            answer.close()


async def status_at(client: ClientSession, url: str) -> int:
    """Return the status of an answer."""
    async with client.get(url) as answer:
        return answer.status
