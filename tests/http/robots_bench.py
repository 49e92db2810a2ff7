"""The robots middleware over real HTTP, as its tests use it."""

from __future__ import annotations

from longline.core.model import Usage
from longline.http.messages import Middleware, Page, Request
from longline.http.robots import RobotsMiddleware, RobotsText
from longline.http.transport import HttpTransport
from longline.limits.backends.state import MemoryStateBackend, StateBackend
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

DAY = 24 * 3600
CLOSED = "User-agent: *\nDisallow: /closed\n"


class Calendar(VirtualClock):
    """Virtual time that can skip days: to sit them out would wake every kept connection."""

    skipped = 0.0

    def now(self) -> float:
        return super().now() + self.skipped


class Bench:
    """RobotsMiddleware over real HTTP, with its copies, events and rate limits."""

    def __init__(self, site: ScriptedSite, clock: Calendar, transport: HttpTransport) -> None:
        self.site = site
        self.clock = clock
        self.cells: StateBackend[RobotsText] = MemoryStateBackend(clock)
        self.usage = Usage()
        self.rates: list[tuple[str, float]] = []
        self.transport = transport

    def cap_rate(self, domain: str, rate: float) -> None:
        self.rates.append((domain, rate))

    def middleware(
        self, *, ignored: frozenset[str] = frozenset(), inner: Middleware | None = None
    ) -> RobotsMiddleware:
        return RobotsMiddleware(
            inner or self.transport,
            self.clock,
            ignored=ignored,
            copies=self.cells,
            cap_rate=self.cap_rate,
        )

    async def get(self, robots: Middleware, path: str) -> Page:
        return await robots(Request(f"{self.site.url}{path}"), self.usage)

    def events_of(self, kind: str) -> list[dict[str, object]]:
        return [dict(one.data) for one in self.usage.events if one.type == kind]

    @property
    def host(self) -> str:
        return self.site.url.removeprefix("http://")
