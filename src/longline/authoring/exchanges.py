"""What a source asks for and is given, written down beside the chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from longline.clock import Clock
from longline.errors import BudgetSpent, FetchError
from longline.fetching.link import Link
from longline.fetching.messages import Page, Request
from longline.model import Account


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request of a source, and what it was given: a page, or the error in its place.

    `requests` were really made for it, with redirects, retries and robots.txt; 0 when nobody had to
    be asked. `waited` seconds of its `seconds` went into the site's pace.
    """

    request: Request
    result: Page | FetchError
    at: float
    seconds: float
    requests: int = 0
    retries: int = 0
    waited: float = 0.0

    @property
    def status(self) -> int | None:
        """The status of the answer; None when there was none."""
        if isinstance(self.result, Page):
            return self.result.status
        return getattr(self.result, "status", None)

    @property
    def is_cached(self) -> bool:
        """Whether the answer was there already."""
        return isinstance(self.result, Page) and (self.result.is_cached or not self.requests)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        is_page = isinstance(self.result, Page)
        return {
            "method": self.request.method,
            "url": self.request.url,
            "status": self.status,
            "bytes": len(self.result.body) if isinstance(self.result, Page) else None,
            "seconds": round(self.seconds, 3),
            "waited": round(self.waited, 3),
            "requests": self.requests,
            "cached": self.is_cached,
            "problem": None if is_page else str(self.result),
        }


class Watching(Link):
    """Passes requests on and writes down what became of them.

    Args:
        inner: the chain.
        clock: what durations are measured by.
        most: so many requests may be made; those after them are refused. None is any number.
    """

    def __init__(self, inner: Link, clock: Clock, *, most: int | None = None) -> None:
        self._inner = inner
        self._clock = clock
        self.most = most
        self.exchanges: list[Exchange] = []
        self.is_spent = False

    async def __call__(self, request: Request, account: Account) -> Page:
        if self.most is not None and sum(one.requests for one in self.exchanges) >= self.most:
            self.is_spent = True
            raise BudgetSpent(request.url, f"the budget of {self.most} requests")
        before = account.requests, account.retries, account.waited
        started = self._clock.now()
        try:
            page = await self._inner(request, account)
        except FetchError as error:
            self._note(request, error, started, before, account)
            raise
        self._note(request, page, started, before, account)
        return page

    def take(self) -> list[Exchange]:
        """Return what was written down, and begin anew."""
        taken, self.exchanges = self.exchanges, []
        return taken

    def _note(
        self,
        request: Request,
        result: Page | FetchError,
        started: float,
        before: tuple[int, int, float],
        account: Account,
    ) -> None:
        requests, retries, waited = before
        self.exchanges.append(
            Exchange(
                request,
                result,
                started,
                self._clock.now() - started,
                account.requests - requests,
                account.retries - retries,
                account.waited - waited,
            )
        )
