"""From whatever a reference names to a source: a Source, a Scrapy spider, or a function."""

from __future__ import annotations

import sys
from typing import Any

from longline.core.errors import BadSource
from longline.sources.base import Source


def as_source(reference: str, found: Any) -> type[Source]:
    """Return the source that something is, or can be taken for.

    Raises:
        BadSource: it is none of those.
    """
    if isinstance(found, type) and issubclass(found, Source):
        return found
    if is_spider(found):
        # Only now: whoever has a spider has Scrapy, and nobody else needs it.
        from longline.sources.adapters.scrapy.source import scrapy_source  # noqa: PLC0415

        return scrapy_source(found)
    if callable(found) and not isinstance(found, type):
        from longline.sources.adapters.function import function_source  # noqa: PLC0415  # the same

        return function_source(found)
    problem = "it names neither a subclass of longline.Source, nor a function, nor a Scrapy spider"
    raise BadSource(reference, problem)


def is_spider(found: Any) -> bool:
    """Say whether this is the class of a Scrapy spider; Scrapy is not imported to find out."""
    scrapy = sys.modules.get("scrapy")
    return scrapy is not None and isinstance(found, type) and issubclass(found, scrapy.Spider)
