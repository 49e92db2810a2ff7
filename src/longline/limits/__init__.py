"""How to ask politely and fail well: pace, retry and breaker, and where their state is kept."""

from longline.limits.breaker import BreakerPolicy, Phase
from longline.limits.circuit import BreakerStatistics, Circuit, CircuitBreaker
from longline.limits.limiter import DomainStatistics, Grant, LimiterStatistics, RateLimiter
from longline.limits.rate_limit import RateLimit
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
    "Phase",
    "RateLimit",
    "RateLimiter",
    "RetryHandler",
    "RetryPolicy",
    "RetryStatistics",
    "Step",
    "is_retryable",
]
