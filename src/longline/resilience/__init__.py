"""How to ask politely and fail well: pace, retry and breaker, and where their state is kept."""

from longline.resilience.breaker import BreakerPolicy, Phase
from longline.resilience.circuit import BreakerStatistics, Circuit, CircuitBreaker
from longline.resilience.handler import RetryHandler, RetryStatistics
from longline.resilience.limiter import DomainStatistics, Grant, LimiterStatistics, RateLimiter
from longline.resilience.pace import Pace
from longline.resilience.retry import Decision, RetryPolicy, Step, is_retryable

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
