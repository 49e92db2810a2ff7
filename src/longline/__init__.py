"""longline runs fleets of scrapers politely, durably and visibly.

Names are imported when first used: `longline --help` must not wait for a database library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; at run time `__getattr__` does it
    from longline.config.settings import Settings
    from longline.errors import LonglineError
    from longline.fetching.messages import Page, Request
    from longline.fleet import SiteEnd
    from longline.jobs.progress import Progress, ProgressTracker
    from longline.jobs.report import JobReport
    from longline.jobs.results import BatchResult, ItemResult
    from longline.jobs.sites import SiteProgress, SiteStatus
    from longline.model import Cursor, Item, Record
    from longline.orchestrator import Orchestrator
    from longline.resilience.circuit import CircuitBreaker
    from longline.resilience.decorator import resilient
    from longline.resilience.handler import RetryHandler
    from longline.resilience.limiter import RateLimiter
    from longline.scraper import Scraper, ScrapeResult, ScrapeStatus
    from longline.sources.base import Options, Source, layer
    from longline.sources.visit import Visit

_HOMES = {
    "BatchResult": "longline.jobs.results",
    "CircuitBreaker": "longline.resilience.circuit",
    "Cursor": "longline.model",
    "Item": "longline.model",
    "ItemResult": "longline.jobs.results",
    "JobReport": "longline.jobs.report",
    "LonglineError": "longline.errors",
    "Options": "longline.sources.base",
    "Orchestrator": "longline.orchestrator",
    "Page": "longline.fetching.messages",
    "Progress": "longline.jobs.progress",
    "ProgressTracker": "longline.jobs.progress",
    "RateLimiter": "longline.resilience.limiter",
    "Record": "longline.model",
    "Request": "longline.fetching.messages",
    "RetryHandler": "longline.resilience.handler",
    "ScrapeResult": "longline.scraper",
    "ScrapeStatus": "longline.scraper",
    "Scraper": "longline.scraper",
    "Settings": "longline.config.settings",
    "SiteEnd": "longline.fleet",
    "SiteProgress": "longline.jobs.sites",
    "SiteStatus": "longline.jobs.sites",
    "Source": "longline.sources.base",
    "Visit": "longline.sources.visit",
    "layer": "longline.sources.base",
    "resilient": "longline.resilience.decorator",
}

__all__ = [
    "BatchResult",
    "CircuitBreaker",
    "Cursor",
    "Item",
    "ItemResult",
    "JobReport",
    "LonglineError",
    "Options",
    "Orchestrator",
    "Page",
    "Progress",
    "ProgressTracker",
    "RateLimiter",
    "Record",
    "Request",
    "RetryHandler",
    "ScrapeResult",
    "ScrapeStatus",
    "Scraper",
    "Settings",
    "SiteEnd",
    "SiteProgress",
    "SiteStatus",
    "Source",
    "Visit",
    "layer",
    "resilient",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        message = f"module 'longline' has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(importlib.import_module(_HOMES[name]), name)
