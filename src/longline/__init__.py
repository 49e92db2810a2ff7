"""longline runs fleets of scrapers politely, durably and visibly.

Names are imported when first used: `longline --help` must not wait for a database library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; at run time `__getattr__` does it
    from longline.config.settings import Settings
    from longline.core.errors import LonglineError, SkipItem
    from longline.core.model import Cursor, Event, Item, JobState, Quota, Record, RunEvent
    from longline.engine.progress import Progress, ProgressTracker, SiteProgress, SiteStatus
    from longline.engine.report import BatchResult, ItemResult, JobReport
    from longline.http.bodies import FilePart
    from longline.http.messages import Page, Request
    from longline.limits.breaker import CircuitBreaker
    from longline.limits.limiter import RateLimiter
    from longline.limits.retry import RetryHandler, resilient
    from longline.orchestrator import Orchestrator, SiteEnd
    from longline.scheduling.flow import Flow
    from longline.scraper import Scraper, ScrapeResult
    from longline.sources.base import Options, Source, Visit, layer
    from longline.sources.html.crawl import Crawl, CrawlSource, ItemRule, LinkRule
    from longline.storage.query import RecordQuery
    from longline.sync import SyncOrchestrator

_MODULES = {
    "config.settings": "Settings",
    "core.errors": "LonglineError SkipItem",
    "core.model": "Cursor Event Item JobState Quota Record RunEvent",
    "engine.progress": "Progress ProgressTracker SiteProgress SiteStatus",
    "engine.report": "BatchResult ItemResult JobReport",
    "http.bodies": "FilePart",
    "http.messages": "Page Request",
    "limits.breaker": "CircuitBreaker",
    "limits.limiter": "RateLimiter",
    "limits.retry": "RetryHandler resilient",
    "orchestrator": "Orchestrator SiteEnd",
    "scheduling.flow": "Flow",
    "scraper": "ScrapeResult Scraper",
    "sources.base": "Options Source Visit layer",
    "sources.html.crawl": "Crawl CrawlSource ItemRule LinkRule",
    "storage.query": "RecordQuery",
    "sync": "SyncOrchestrator",
}

__all__ = [
    "BatchResult",
    "CircuitBreaker",
    "Crawl",
    "CrawlSource",
    "Cursor",
    "Event",
    "FilePart",
    "Flow",
    "Item",
    "ItemResult",
    "ItemRule",
    "JobReport",
    "JobState",
    "LinkRule",
    "LonglineError",
    "Options",
    "Orchestrator",
    "Page",
    "Progress",
    "ProgressTracker",
    "Quota",
    "RateLimiter",
    "Record",
    "RecordQuery",
    "Request",
    "RetryHandler",
    "RunEvent",
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
    for module, names in _MODULES.items():
        if name in names.split():
            lazy_imports = importlib.import_module("longline.core.lazy_imports")
            return getattr(lazy_imports.import_now(f"longline.{module}"), name)
    message = f"module 'longline' has no attribute {name!r}"
    raise AttributeError(message)
