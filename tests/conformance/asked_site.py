"""The site of the conformance tests: it counts, and can hold back, refuse and be slow."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Sequence

from aiohttp import web

from tests.scripted_site import ScriptedSite, drop

_BAN = "<title>Shop</title><h1>You have been blocked</h1><p>Your IP has been blocked.</p>"


class AskedSite(ScriptedSite):
    """Answers every item with its number; from `hold_after` on only when the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.at_the_gate = 0
        self.is_down = False
        self.slowness = 0.0
        """Seconds that an answer takes."""
        self._freely = math.inf
        self.says("/robots.txt")

    def has(self, count: int, area: str = "item") -> None:
        """Have so many good pages."""
        for number in range(count):
            self.answers[f"/{area}/{number}"] = self._page

    def hold_after(self, count: int) -> None:
        """Answer so many items, and hold back all others until the gate is opened."""
        self._freely = count

    def asked(self, area: str = "item") -> dict[str, int]:
        """Return how often each item was asked for, by key."""
        return {
            path[1:]: count for path, count in self.hits.items() if path.startswith(f"/{area}/")
        }

    def bans(self) -> None:
        """Answer every item with a page that says so."""
        for path in [path for path in self.answers if path != "/robots.txt"]:
            self.says(path, _BAN, 403, {"Content-Type": "text/html"})

    async def _page(self, request: web.Request) -> web.StreamResponse:
        if self.is_down:
            return await drop(request)
        self._freely -= 1
        if self._freely < 0:
            self.at_the_gate += 1
            await self.gate.wait()
        await asyncio.sleep(self.slowness)
        return web.Response(text=request.path.rpartition("/")[2])


def excess(moments: Sequence[float], rate: float, burst: int) -> float:
    """Return by how many requests a limit was exceeded in the worst of all stretches of time."""
    pairs = itertools.combinations(enumerate(moments), 2)
    return max(j - i + 1 - burst - rate * (last - first) for (i, first), (j, last) in pairs)
