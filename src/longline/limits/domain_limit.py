"""What a process knows of one domain's limit, and what it still has to tell the others."""

from __future__ import annotations

import math
from collections.abc import Callable

from longline.limits import learning
from longline.limits.backends.cells import Cells
from longline.limits.learning import Learned
from longline.limits.rate_limit import RateLimit

_FRESHNESS = 0.5  # seconds between two looks of a learner at what the processes share
_PATIENCE = 2.0  # seconds between two looks whether somebody has pinned or forgotten a limit
_MANY = 8  # requests without an answer; a site that is slow to answer is not asked faster still
_TELLING = 1.2  # times a rate: a change worth telling


class DomainLimit:
    """The pace of one domain: declared, learned or pinned, and what restrains it.

    Args:
        domain: Whose limit it is.
        declared: The pace that its source declares; None is unlimited, or to be learned.
        cells: Where the processes share what is learned.
        is_learning: Whether the limit is to be found out.
        heeds_pins: Whether a pinned pace counts more than the declared one.
    """

    def __init__(
        self,
        domain: str,
        declared: RateLimit | None,
        cells: Cells[Learned],
        *,
        is_learning: bool,
        heeds_pins: bool = True,
    ) -> None:
        self.pace: RateLimit | None = None
        self.rate: float | None = None
        self.is_learning = is_learning
        self._domain = domain
        self._declared = declared
        self._heeds_pins = heeds_pins
        self._cells = cells
        self._learned = learning.begin(None, 0.0) if is_learning else None
        self._published: float | None = None
        self._restraint: float | None = None
        self._accepted: list[float] = []
        self._looked_at = 0.0
        self._told_rate: float | None = None
        self._outstanding = 0
        self._settle()

    async def meet(self, now: float) -> None:
        """Look up what is known; a learning process begins its run with it."""
        self._looked_at = now
        if self.is_learning:
            self._take(await self._change(learning.begin))
            self._told_rate = self.rate
        else:
            state, _now = await self._cells.read(self._domain)
            self._take(state)

    def restrain(self, rate: float) -> bool:
        """Never ask faster than this; False when that is known."""
        if self._restraint is not None and self._restraint <= rate:
            return False
        self._restraint = rate
        self._settle()
        return True

    def accept(self, sent_at: float, outstanding: int) -> None:
        """Note that a request was not refused, while so many others had no answer yet."""
        self._accepted.append(sent_at)
        self._outstanding = max(self._outstanding, outstanding)

    async def share(self, now: float) -> None:
        """Tell the others what was accepted and hear what they know, now and then."""
        if now - self._looked_at < (_FRESHNESS if self.is_learning else _PATIENCE):
            return
        self._looked_at = now  # before waiting, so that nobody else looks meanwhile
        if self.is_learning:
            await self._tell_accepted()
        else:
            state, _now = await self._cells.read(self._domain)
            self._take(state)

    async def refuse(self, sent_at: float, now: float) -> None:
        """Tell everyone at once that a request was refused."""
        if not self.is_learning:
            return
        self._looked_at = now
        sent, self._accepted = self._accepted, []

        def step(state: Learned | None, now: float) -> Learned:
            begun = state or learning.begin(state, now)
            known = learning.accepted(begun, sent, now, is_eager=False)
            return learning.refused(known, sent_at, now)

        self._take(await self._change(step))

    async def publish(self, rate: float) -> bool:
        """Keep a limit that the site declares; True when it had declared none before.

        Some sites declare another limit on every page: of those the slowest is kept.
        """
        if self._published is not None and self._published <= rate:
            return False
        self._published = rate
        is_first = self._learned is None or self._learned.published is None
        self._take(
            await self._change(lambda state, now: learning.published(state or Learned(), rate, now))
        )
        return is_first

    async def remember_restraint(self) -> None:
        """Write down what restrains the domain, for people to see."""
        rate = self._restraint
        if rate is not None:
            self._take(
                await self._change(
                    lambda state, now: learning.restrained(state or Learned(), rate, now)
                )
            )

    def news(self) -> float | None:
        """Return the rate when it has changed by a fifth since this was last asked."""
        rate, told = self.rate, self._told_rate
        if not self.is_learning or rate is None:
            return None
        if told is not None and told / _TELLING < rate < told * _TELLING:
            return None
        self._told_rate = rate
        return rate

    async def _tell_accepted(self) -> None:
        sent, self._accepted = self._accepted, []
        is_eager, self._outstanding = self._outstanding <= _MANY, 0

        def step(state: Learned | None, now: float) -> Learned:
            known = state or learning.begin(state, now)
            return learning.accepted(known, sent, now, is_eager=is_eager)

        self._take(await self._change(step))

    async def _change(self, step: Callable[[Learned | None, float], Learned]) -> Learned:
        def change(state: Learned | None, now: float) -> tuple[Learned, Learned]:
            changed = step(state, now)
            return changed, changed

        return await self._cells.change(self._domain, change)

    def _take(self, state: Learned | None) -> None:
        self._learned = state
        if state is None or state.published is None:
            self._published = None  # somebody had it forgotten: it counts when declared again
        self._settle()

    def _settle(self) -> None:
        """Work out the pace anew, and the rate that people are told of."""
        pace, known = self._declared, self._learned
        rate = pace.rate if pace else math.inf
        if known is not None and self._is_binding(known):
            pace, rate = learning.pace(known), learning.rate(known)
        elif known is not None and known.published:
            # To another process the site may have declared a faster one since.
            published = learning.BELOW * min(known.published, self._published or math.inf)
            if published < rate:
                pace, rate = learning.spaced(published), published
        if self._restraint is not None:
            rate = min(rate, self._restraint)
            pace = learning.slower(pace, rate) if pace else RateLimit(rate, 1)
        self.pace = pace
        self.rate = rate if pace else None

    def _is_binding(self, known: Learned) -> bool:
        return self.is_learning or (known.is_pinned and self._heeds_pins)
