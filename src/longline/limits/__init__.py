"""How to ask politely and fail well: pace, retry and breaker, and where their state is kept."""

from longline.limits.breaker import BreakerPolicy, Phase
from longline.limits.circuit import BreakerStatistics, Circuit, CircuitBreaker
from longline.limits.limiter import DomainStatistics, Grant, LimiterStatistics, RateLimiter
from longline.limits.rate_limit import Pace
from longline.limits.retry import (
    Decision,
    RetryHandler,
    RetryPolicy,
    RetryStatistics,
    Step,
    is_retryable,
)

__all__ = [
    "BreakerPolicy",
    "BreakerStatistics",
    "Circuit",
    "CircuitBreaker",
    "Decision",
    "DomainStatistics",
    "Grant",
    "LimiterStatistics",
    "Pace",
    "Phase",
    "RateLimiter",
    "RetryHandler",
    "RetryPolicy",
    "RetryStatistics",
    "Step",
    "is_retryable",
]
