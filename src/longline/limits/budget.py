"""Budgets of a job: maximum requests, bytes and time, in total and per domain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from longline.config.job_spec import BudgetSpec
from longline.core.clock import Clock
from longline.core.errors import BudgetSpent
from longline.limits.backends.state import StateBackend, returning

_SHARE = 64  # one part in this many of what is left is reserved at a time
_MOST_RESERVED = 32  # requests reserved at a time


@dataclass(frozen=True, slots=True)
class BudgetUsage:
    """The used part of a budget. Stored as JSON."""

    requests: int = 0
    received_bytes: int = 0


def exceeded_limit(
    budget: BudgetSpec, usage: BudgetUsage, seconds: float, *, reserved_requests: int = 0
) -> str | None:
    """Return the limit that another request would exceed, in words; None when it may go.

    `reserved_requests` are counted as used and were not sent yet.
    """
    if budget.requests is not None and usage.requests - reserved_requests >= budget.requests:
        return f"the budget of {budget.requests:,} requests"
    if budget.bytes is not None and usage.received_bytes >= budget.bytes:
        return f"the budget of {budget.bytes:,} bytes"
    if budget.seconds is not None and seconds >= budget.seconds:
        return f"the budget of {budget.seconds:g} s"
    return None


class Budgets:
    """The budgets of one job, shared by all processes that run it.

    While much is left, a process reserves several requests with one call to the backend; near the
    end it reserves them one by one, so that the limit is exact. Requests that a killed process had
    reserved count as used.

    Args:
        job: the job's id.
        backend: where the usage is shared.
        clock: the clock.
        total: for all domains together.
        per_domain: for each domain.
        since: when the run started; by default now.
    """

    def __init__(
        self,
        job: str,
        backend: StateBackend[BudgetUsage],
        clock: Clock,
        *,
        total: BudgetSpec,
        per_domain: BudgetSpec,
        since: float | None = None,
    ) -> None:
        self._job = job
        self._backend = backend
        self._clock = clock
        self._per_domain = per_domain
        self._started = clock.now() if since is None else since
        self._whole = _Account(job, total, "")
        self._by_domain: dict[str, tuple[_Account, ...]] = {}

    def check(self, domain: str, url: str) -> None:
        """Refuse a request that is known to exceed a budget, before it waits for anything.

        Raises:
            BudgetSpent: it does.
        """
        seconds = self._clock.now() - self._started
        for account in self._accounts_of(domain):
            limit = exceeded_limit(
                account.budget, account.seen, seconds, reserved_requests=account.reserved
            )
            if limit is not None:
                raise BudgetSpent(url, f"{limit}{account.suffix}")

    async def spend(self, domain: str, url: str) -> None:
        """Use one request, which was checked before.

        Raises:
            BudgetSpent: none is left.
        """
        while not self.try_spend(domain):  # another task may use what was reserved
            for account in self._accounts_of(domain):
                if not account.reserved:
                    reserve = partial(_reserve_requests, account.budget)
                    before, count = await self._backend.change(account.name, reserve)
                    account.seen = BudgetUsage(before.requests + count, before.received_bytes)
                    if not count:
                        limit = exceeded_limit(account.budget, before, 0.0)
                        raise BudgetSpent(url, f"{limit}{account.suffix}")
                    account.reserved += count

    def try_spend(self, domain: str) -> bool:
        """Use one request if the backend need not be called; return whether it was used."""
        accounts = self._accounts_of(domain)
        for account in accounts:
            if not account.reserved:
                return False
        for account in accounts:
            account.reserved -= 1
        return True

    def receive(self, domain: str, size_bytes: int) -> bool:
        """Count the bytes of a response; return whether it is time to `report` them."""
        is_due = False
        for account in self._accounts_of(domain):
            limit = account.budget.bytes
            if limit is not None:
                account.unreported_bytes += size_bytes
                left = limit - account.seen.received_bytes
                is_due |= account.unreported_bytes >= left / _SHARE
        return is_due

    async def report(self, domain: str) -> None:
        """Share the number of received bytes with all processes."""
        for account in self._accounts_of(domain):
            if account.unreported_bytes:
                size_bytes, account.unreported_bytes = account.unreported_bytes, 0
                add = returning(partial(_add_bytes, size_bytes))
                account.seen = await self._backend.change(account.name, add)

    async def forget(self) -> None:
        """Delete the stored usage, once the job has ended."""
        for name in await self._backend.all():
            if name == self._job or name.startswith(f"{self._job} "):
                await self._backend.forget(name)

    def _accounts_of(self, domain: str) -> tuple[_Account, ...]:
        """Return the accounts that a request to a domain is charged to."""
        found = self._by_domain.get(domain)
        if found is None:
            # The domain's first: when the job's own refuses, no more requests are sent anyway.
            own = _Account(f"{self._job} {domain}", self._per_domain, f" for {domain}")
            found = tuple(one for one in (own, self._whole) if one.budget != BudgetSpec())
            self._by_domain[domain] = found
        return found


@dataclass(slots=True)
class _Account:
    """One budget in this process: its usage as last seen, and the requests reserved from it.

    `suffix` follows the name of a limit in messages.
    """

    name: str
    budget: BudgetSpec
    suffix: str
    seen: BudgetUsage = BudgetUsage()
    reserved: int = 0
    unreported_bytes: int = 0


def _reserve_requests(
    budget: BudgetSpec, usage: BudgetUsage | None, _now: float
) -> tuple[BudgetUsage, tuple[BudgetUsage, int]]:
    """Reserve some requests; the result is the usage before, and how many were reserved."""
    before = usage or BudgetUsage()
    if exceeded_limit(budget, before, 0.0) is not None:
        return before, (before, 0)
    left = _MOST_RESERVED * _SHARE
    if budget.requests is not None:
        left = budget.requests - before.requests
    count = min(max(left // _SHARE, 1), _MOST_RESERVED)
    return replace(before, requests=before.requests + count), (before, count)


def _add_bytes(size_bytes: int, usage: BudgetUsage | None, _now: float) -> BudgetUsage:
    before = usage or BudgetUsage()
    return replace(before, received_bytes=before.received_bytes + size_bytes)
