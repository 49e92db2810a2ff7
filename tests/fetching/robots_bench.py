"""The robots link over real HTTP, as its tests use it."""

from __future__ import annotations

from longline.fetching.link import Link
from longline.fetching.messages import Page, Request
from longline.fetching.robots import Robots
from longline.fetching.robots_rules import RobotsText
from longline.fetching.transports.http import HttpTransport
from longline.model import Account
from longline.resilience.keepers.cells import Cells
from longline.resilience.keepers.memory import MemoryCells
from scripted_site import ScriptedSite
from virtual import VirtualClock

DAY = 24 * 3600
CLOSED = "User-agent: *\nDisallow: /closed\n"


class Calendar(VirtualClock):
    """Virtual time that can skip days: to sit them out would wake every kept connection."""

    skipped = 0.0

    def now(self) -> float:
        return super().now() + self.skipped


class Bench:
    """The link over real HTTP, with what it keeps, tells and restrains in sight."""

    def __init__(self, site: ScriptedSite, clock: Calendar, transport: HttpTransport) -> None:
        self.site = site
        self.clock = clock
        self.cells: Cells[RobotsText] = MemoryCells(clock)
        self.account = Account()
        self.rates: list[tuple[str, float]] = []
        self.transport = transport

    def restrain(self, domain: str, rate: float) -> None:
        self.rates.append((domain, rate))

    def link(self, *, ignored: frozenset[str] = frozenset(), inner: Link | None = None) -> Robots:
        return Robots(
            inner or self.transport,
            self.clock,
            ignored=ignored,
            cells=self.cells,
            restrain=self.restrain,
        )

    async def get(self, robots: Link, path: str) -> Page:
        return await robots(Request(f"{self.site.url}{path}"), self.account)

    def told(self, kind: str) -> list[dict[str, object]]:
        return [dict(one.data) for one in self.account.happenings if one.kind == kind]

    @property
    def host(self) -> str:
        return self.site.url.removeprefix("http://")
