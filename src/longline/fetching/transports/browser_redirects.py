"""Redirects of a page itself: given back to the chain, where each hop is judged and paid for."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from multidict import CIMultiDict
from playwright.async_api import CDPSession, Page
from playwright.async_api import Error as PlaywrightError

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PAGES_ANSWER = {"urlPattern": "*", "resourceType": "Document", "requestStage": "Response"}


@dataclass(frozen=True, slots=True)
class Redirect:
    """An answer that sends the browser elsewhere."""

    status: int
    headers: CIMultiDict[str]


class Hops:
    """Stops a page at its first redirect; afterwards, forms and scripts may lead where they do."""

    def __init__(self, session: CDPSession, frame: str) -> None:
        self._session = session
        self._frame = frame
        self._is_looking = True
        self.found: Redirect | None = None

    @classmethod
    async def watch(cls, page: Page) -> Hops:
        """Begin to look at the answers that a page is made of."""
        session = await page.context.new_cdp_session(page)
        tree = await session.send("Page.getFrameTree")
        hops = cls(session, tree["frameTree"]["frame"]["id"])
        session.on("Fetch.requestPaused", hops._paused)
        await session.send("Fetch.enable", {"patterns": [_PAGES_ANSWER]})
        return hops

    async def stop(self) -> None:
        """Look no longer: what the page does from now on is its own business."""
        self._is_looking = False
        with suppress(PlaywrightError):
            await self._session.send("Fetch.disable")

    async def _paused(self, event: dict[str, Any]) -> None:
        with suppress(PlaywrightError):  # the page may be gone already
            await self._judge(event)

    async def _judge(self, event: dict[str, Any]) -> None:
        status = event.get("responseStatusCode", 0)
        # A connection that failed has neither.
        headers = CIMultiDict(
            (one["name"], one["value"]) for one in event.get("responseHeaders", ())
        )
        is_hop = status in _REDIRECTS and "location" in headers
        if self._is_looking and is_hop and event["frameId"] == self._frame:
            self.found = Redirect(status, headers)
            order, more = "Fetch.failRequest", {"errorReason": "Aborted"}
        else:
            order, more = "Fetch.continueRequest", {}
        await self._session.send(order, {"requestId": event["requestId"], **more})
