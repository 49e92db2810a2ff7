"""longline runs fleets of scrapers politely, durably and visibly.

Names are imported when first used: `longline --help` must not wait for a database library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; at run time `__getattr__` does it
    from longline.config.settings import Settings
    from longline.core.errors import LonglineError, SkipItem
    from longline.core.model import Cursor, Item, JobState, Record
    from longline.engine.progress import Progress, ProgressTracker, SiteProgress, SiteStatus
    from longline.engine.report import BatchResult, ItemResult, JobReport
    from longline.http.messages import Page, Request
    from longline.limits.breaker import CircuitBreaker
    from longline.limits.limiter import RateLimiter
    from longline.limits.retry import RetryHandler, resilient
    from longline.orchestrator import Orchestrator, SiteEnd
    from longline.scraper import Scraper, ScrapeResult
    from longline.sources.base import Options, Source, Visit, layer
    from longline.storage.query import RecordQuery
    from longline.sync import SyncOrchestrator

_HOMES = {
    "BatchResult": "longline.engine.report",
    "CircuitBreaker": "longline.limits.breaker",
    "Cursor": "longline.core.model",
    "Item": "longline.core.model",
    "ItemResult": "longline.engine.report",
    "JobReport": "longline.engine.report",
    "JobState": "longline.core.model",
    "LonglineError": "longline.core.errors",
    "Options": "longline.sources.base",
    "Orchestrator": "longline.orchestrator",
    "Page": "longline.http.messages",
    "Progress": "longline.engine.progress",
    "ProgressTracker": "longline.engine.progress",
    "RateLimiter": "longline.limits.limiter",
    "Record": "longline.core.model",
    "RecordQuery": "longline.storage.query",
    "Request": "longline.http.messages",
    "RetryHandler": "longline.limits.retry",
    "ScrapeResult": "longline.scraper",
    "Scraper": "longline.scraper",
    "Settings": "longline.config.settings",
    "SiteEnd": "longline.orchestrator",
    "SiteProgress": "longline.engine.progress",
    "SiteStatus": "longline.engine.progress",
    "SkipItem": "longline.core.errors",
    "Source": "longline.sources.base",
    "SyncOrchestrator": "longline.sync",
    "Visit": "longline.sources.base",
    "layer": "longline.sources.base",
    "resilient": "longline.limits.retry",
}

__all__ = [
    "BatchResult",
    "CircuitBreaker",
    "Cursor",
    "Item",
    "ItemResult",
    "JobReport",
    "JobState",
    "LonglineError",
    "Options",
    "Orchestrator",
    "Page",
    "Progress",
    "ProgressTracker",
    "RateLimiter",
    "Record",
    "RecordQuery",
    "Request",
    "RetryHandler",
    "ScrapeResult",
    "Scraper",
    "Settings",
    "SiteEnd",
    "SiteProgress",
    "SiteStatus",
    "SkipItem",
    "Source",
    "SyncOrchestrator",
    "Visit",
    "layer",
    "resilient",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        message = f"module 'longline' has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(importlib.import_module(_HOMES[name]), name)
