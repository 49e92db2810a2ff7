"""Where the robots.txt of a host comes from: the site itself, or what was kept of it."""

from __future__ import annotations

from dataclasses import dataclass

from longline.clock import Clock
from longline.errors import FetchError
from longline.fetching.link import Link
from longline.fetching.messages import Request, origin_of
from longline.fetching.redirects import Redirects
from longline.fetching.retrying import Retrying
from longline.fetching.robots_rules import Explanation, RobotsText, explain
from longline.fetching.robots_text import AGENT, LARGEST, text_of
from longline.fetching.statuses import Statuses
from longline.model import Account
from longline.resilience.handler import RetryHandler
from longline.resilience.keepers.cells import Cells

LIFETIME = 24 * 3600.0
"""Seconds for which a copy may speak for the site, by RFC 9309 2.4."""
_FIRST = 1_000_000  # the priority of what all other requests to a host wait for
_ABSENT = frozenset(range(400, 500)) - {429}  # there is none, so there are no rules
_GOOD = range(200, 300)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What robots.txt says about an address, and how that is known.

    `found` is None when nobody knows the rules; then `problem` says why, and nothing is asked.
    """

    explanation: Explanation | None
    found: RobotsText | None
    is_kept: bool
    problem: str | None = None

    @property
    def is_allowed(self) -> bool:
        """Whether the address may be asked for."""
        return self.explanation is not None and self.explanation.is_allowed


class RobotsReader:
    """Reads robots.txt through `inner`: with redirects, a few tries, and a token for each.

    What was read is kept by origin (`https://host`) in `cells`, for other runs and processes.
    """

    def __init__(self, inner: Link, clock: Clock, cells: Cells[RobotsText]) -> None:
        retry = RetryHandler(circuit_breaker_threshold=None, jitter=0.1, clock=clock)
        self._link = Retrying(Redirects(Statuses(inner, clock)), retry, clock)
        self._clock = clock
        self._cells = cells

    async def kept(self, origin: str) -> RobotsText | None:
        """Return the copy that is kept, however old it is."""
        copy, _now = await self._cells.read(origin)
        return copy

    async def ask(self, origin: str, account: Account) -> RobotsText:
        """Read it from the site, and keep it.

        Raises:
            FetchError: nobody knows the rules now (5xx, 429, no connection); that is no permission.
        """
        # A cached answer would count as younger than it is.
        request = Request(
            f"{origin}/robots.txt",
            headers={"cache-control": "no-cache"},
            accept=_ABSENT,
            priority=_FIRST,
            enough=LARGEST + 1,  # one more says that there is a rest
        )
        page = await self._link(request, account)
        text = text_of(page.body) if page.status in _GOOD else ""
        found = RobotsText(text, page.status, self._clock.now())
        await self._cells.change(origin, lambda _old, _now: (found, None))
        return found

    def is_fresh(self, copy: RobotsText) -> bool:
        """Whether a copy still speaks for the site."""
        # One that claims to be from the future comes from a clock that was wrong.
        return 0 <= self._clock.now() - copy.fetched_at < LIFETIME

    async def judge(self, url: str, *, agent: str = AGENT, is_fresh: bool = False) -> Verdict:
        """Say what holds for an address; with `is_fresh`, ask the site whatever is kept."""
        origin = "://".join(origin_of(url))
        copy, problem = await self.kept(origin), None
        is_kept = not is_fresh and copy is not None and self.is_fresh(copy)
        if not is_kept:
            try:
                copy = await self.ask(origin, Account())
            except FetchError as error:
                is_kept, problem = copy is not None, str(error)
        explanation = None if copy is None else explain(copy.text, url, agent)
        return Verdict(explanation, copy, is_kept, problem)
