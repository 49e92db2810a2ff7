"""How much a job may ask for: requests, bytes and time, in all and of each domain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from longline.core.clock import Clock
from longline.limits.backends.cells import Cells
from longline.limits.errors import BudgetSpent

_PARTS = 64  # into which what is left is divided, to take one of them
_MOST = 32  # requests taken at a time


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits that a user set; None is none. `seconds` are those of one run, pauses not counted."""

    requests: int | None = None
    received_bytes: int | None = None
    seconds: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is limited."""
        return self == Budget()


@dataclass(frozen=True, slots=True)
class Spent:
    """What was used of a budget."""

    requests: int = 0
    received_bytes: int = 0


def exceeded(
    budget: Budget, spent: Spent, seconds: float, *, requests_in_hand: int = 0
) -> str | None:
    """Return which limit another request would break, in words; None when it may go.

    `requests_in_hand` are counted as spent and were not made yet.
    """
    if budget.requests is not None and spent.requests - requests_in_hand >= budget.requests:
        return f"the budget of {budget.requests:,} requests"
    if budget.received_bytes is not None and spent.received_bytes >= budget.received_bytes:
        return f"the budget of {budget.received_bytes:,} bytes"
    if budget.seconds is not None and seconds >= budget.seconds:
        return f"the budget of {budget.seconds:g} s"
    return None


class Budgets:
    """The budgets of one job, shared by all processes that run it.

    While much is left, a process takes requests out by the dozen, so that not each of them has to
    ask the keeper; towards the end one by one, so that the last is not one too many. What a killed
    process has taken and not used counts as spent.

    Args:
        job: whose budgets they are.
        cells: where what was spent is kept.
        clock: what time it is.
        total: for all domains together.
        per_domain: for each domain.
        since: when the run began; now, when it begins with this object.
    """

    def __init__(
        self,
        job: str,
        cells: Cells[Spent],
        clock: Clock,
        *,
        total: Budget,
        per_domain: Budget,
        since: float | None = None,
    ) -> None:
        self._job = job
        self._cells = cells
        self._clock = clock
        self._total = total
        self._per_domain = per_domain
        self._started = clock.now() if since is None else since
        self._purses: dict[str, _Purse] = {}
        self._limits: dict[str, tuple[_Purse, ...]] = {}

    def check(self, domain: str, url: str) -> None:
        """Refuse at once what is known to be over a limit, before anybody waits for a turn.

        Raises:
            BudgetSpent: it is.
        """
        seconds = self._clock.now() - self._started
        for purse in self._of(domain):
            limit = exceeded(purse.budget, purse.seen, seconds, requests_in_hand=purse.in_hand)
            if limit is not None:
                raise BudgetSpent(url, f"{limit}{purse.words}")

    async def spend(self, domain: str, url: str) -> None:
        """Take one request, that was checked before, out of the budgets.

        Raises:
            BudgetSpent: there is none left.
        """
        while not self.spends_at_once(domain):  # what was taken out may be gone to another task
            for purse in self._of(domain):
                if not purse.in_hand:
                    await self._take_more(purse, url)

    def spends_at_once(self, domain: str) -> bool:
        """Take one request if that needs no asking; say whether it was taken."""
        purses = self._of(domain)
        for purse in purses:
            if not purse.in_hand:
                return False
        for purse in purses:
            purse.in_hand -= 1
        return True

    def receive(self, domain: str, size_bytes: int) -> bool:
        """Count the bytes of an answer; say whether it is time to `report` them."""
        is_time = False
        for purse in self._of(domain):
            limit = purse.budget.received_bytes
            if limit is not None:
                purse.unsaid_bytes += size_bytes
                left = limit - purse.seen.received_bytes
                is_time |= purse.unsaid_bytes >= left / _PARTS
        return is_time

    async def report(self, domain: str) -> None:
        """Tell all processes how many bytes were received here."""
        for purse in self._of(domain):
            if purse.unsaid_bytes:
                size_bytes, purse.unsaid_bytes = purse.unsaid_bytes, 0
                purse.seen = await self._cells.change(purse.name, partial(_add, size_bytes))

    async def forget(self) -> None:
        """Remove what was kept, once the job has ended."""
        for name in await self._cells.all():
            if name == self._job or name.startswith(f"{self._job} "):
                await self._cells.forget(name)

    async def _take_more(self, purse: _Purse, url: str) -> None:
        before, taken = await self._cells.change(purse.name, partial(_take, purse.budget))
        purse.seen = Spent(before.requests + taken, before.received_bytes)
        if not taken:
            raise BudgetSpent(url, f"{exceeded(purse.budget, before, 0.0)}{purse.words}")
        purse.in_hand += taken

    def _of(self, domain: str) -> tuple[_Purse, ...]:
        """Return what a request to a domain is taken from."""
        found = self._limits.get(domain)
        if found is None:
            # The domain's first: where the job's own refuses, nothing more will be asked anyway.
            each = self._purse(f"{self._job} {domain}", self._per_domain, f" for {domain}")
            whole = self._purse(self._job, self._total, "")
            found = tuple(one for one in (each, whole) if not one.budget.is_empty)
            self._limits[domain] = found
        return found

    def _purse(self, name: str, budget: Budget, words: str) -> _Purse:
        return self._purses.setdefault(name, _Purse(name, budget, words))


@dataclass(slots=True)
class _Purse:
    """What this process knows of one budget, and has taken out of it.

    `words` follow the name of a limit; `unsaid_bytes` were received and not reported yet.
    """

    name: str
    budget: Budget
    words: str
    seen: Spent = Spent()
    in_hand: int = 0
    unsaid_bytes: int = 0


def _take(budget: Budget, spent: Spent | None, _now: float) -> tuple[Spent, tuple[Spent, int]]:
    """Take some requests; answer with what was spent before, and how many were taken."""
    before = spent or Spent()
    if exceeded(budget, before, 0.0) is not None:
        return before, (before, 0)
    left = _MOST * _PARTS if budget.requests is None else budget.requests - before.requests
    count = min(max(left // _PARTS, 1), _MOST)
    return replace(before, requests=before.requests + count), (before, count)


def _add(size_bytes: int, spent: Spent | None, _now: float) -> tuple[Spent, Spent]:
    before = spent or Spent()
    after = replace(before, received_bytes=before.received_bytes + size_bytes)
    return after, after
