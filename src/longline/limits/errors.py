"""Errors of requests that a limit does not allow now."""

from __future__ import annotations

from longline.core.clock import utc_datetime
from longline.core.errors import FailureKind, FetchError, StoreUnreachable


class RedisUnreachable(StoreUnreachable):
    message = "Redis at {address} does not answer, so no request is sent: {problem}"
    hint = "Requests need the limits that workers share on Redis."


class BudgetSpent(FetchError):
    kind = FailureKind.BUDGET
    limit: str
    message = "not requested: {limit} is exhausted"


class CircuitOpen(FetchError):
    """The circuit breaker of the domain is open until `until`, in seconds since the epoch.

    `kind` is blocked for a ban, and `reason` its evidence.
    """

    until: float
    reason: str = ""
    kind: FailureKind = FailureKind.NETWORK  # type: ignore[misc]  # each error has its own
    message = "{domain} {problem}; its circuit breaker is open until {until_utc}"

    @property
    def domain(self) -> str:
        return self.host or self.url

    @property
    def problem(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        is_ban = self.kind is FailureKind.BLOCKED
        return f"{'blocks us' if is_ban else 'failed too often'}{reason}"

    @property
    def until_utc(self) -> str:
        return utc_datetime(self.until).isoformat(timespec="seconds")


class Deferred(FetchError):
    """The item is deferred until `until`, in seconds since the epoch.

    `kind` is that of the failure behind it; `is_for_domain` says that every other request to
    this host would fail until then, too.
    """

    until: float
    problem: str
    kind: FailureKind  # type: ignore[misc]  # each error has its own
    is_for_domain: bool = False
    message = "{problem}; deferred until {until_utc}"

    @property
    def until_utc(self) -> str:
        return utc_datetime(self.until).isoformat(timespec="seconds")


class NotNow(Deferred):
    """The same where there is no job that could fetch the page later."""

    message = "{problem}; try again later"
