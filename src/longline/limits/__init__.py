"""Limits: rate limits, retries, circuit breakers, concurrency, budgets, and their backends."""
