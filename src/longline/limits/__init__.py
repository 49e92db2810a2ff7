"""Limits: rate limits, retries, circuit breakers, concurrency, budgets, and their backends."""

from longline.limits.breaker import (
    BreakerPolicy,
    BreakerStatistics,
    BreakerStatus,
    CircuitBreaker,
    Phase,
)
from longline.limits.limiter import DomainStatistics, LimiterStatistics, RateLimiter, Token
from longline.limits.rate_limit import RateLimit
from longline.limits.retry import (
    RetryAction,
    RetryDecision,
    RetryHandler,
    RetryPolicy,
    RetryStatistics,
    is_retryable,
)

__all__ = [
    "BreakerPolicy",
    "BreakerStatistics",
    "BreakerStatus",
    "CircuitBreaker",
    "DomainStatistics",
    "LimiterStatistics",
    "Phase",
    "RateLimit",
    "RateLimiter",
    "RetryAction",
    "RetryDecision",
    "RetryHandler",
    "RetryPolicy",
    "RetryStatistics",
    "Token",
    "is_retryable",
]
