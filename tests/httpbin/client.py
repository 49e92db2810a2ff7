"""A client of the whole request chain for the httpbin cases."""

from __future__ import annotations

import base64
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.core.model import Usage
from longline.http.chain import Policies, build_chain
from longline.http.messages import Page, Request
from longline.http.transport import HttpOptions, HttpTransport
from longline.limits.breaker import CircuitBreaker
from longline.limits.limiter import RateLimiter
from longline.limits.retry import RetryHandler
from longline.wiring import user_agent_of


class Client:
    """Asks a site through the chain, without a limit and almost without waits between tries."""

    def __init__(self, url: str) -> None:
        clock = SystemClock()
        self.url = url
        self.usage = Usage()
        options = HttpOptions(timeout=20, user_agent=user_agent_of(Settings()))
        self._transport = HttpTransport(options, clock)
        policies = Policies(
            limiter=RateLimiter(None, clock=clock),
            breaker=CircuitBreaker(clock=clock),
            retry=RetryHandler(3, 0.001, circuit_breaker_threshold=None, clock=clock),
        )
        self._closing = AsyncExitStack()
        self._closing.push_async_callback(self._transport.close)
        self._chain = build_chain(self._transport, policies, clock, self._closing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._closing.aclose()

    async def ask(self, path: str, **values: Any) -> Page:
        """Ask for a path; `{other}` in it is the same site under another name."""
        path = path.replace("{other}", self.url.replace("127.0.0.1", "localhost"))
        return await self._chain(Request(f"{self.url}{path}", **values), self.usage)

    @property
    def requests(self) -> int:
        """The number of requests besides the one for robots.txt."""
        return self.usage.requests - 1


def basic(user: str, password: str) -> dict[str, str]:
    """Return the header that names a user."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}
