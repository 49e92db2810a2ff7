"""The item pipelines of a Scrapy project, and the parts of it that longline does not run."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Iterator
from typing import Any

from itemadapter import ItemAdapter
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem, NotConfigured, ScrapyDeprecationWarning
from scrapy.pipelines import ItemPipelineManager
from scrapy.pipelines.media import MediaPipeline
from scrapy.settings import Settings
from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.python import global_object_name

from longline.errors import BadSource, SkipItem, UnexpectedShape

_log = logging.getLogger(__name__)
_PIPELINES = "ITEM_PIPELINES"
_COMPONENTS = {
    "SPIDER_MIDDLEWARES": "spider middleware",
    "DOWNLOADER_MIDDLEWARES": "downloader middleware",
    "EXTENSIONS": "extension",
}
_REPLACED = {
    "ADDONS": "its add-ons",
    "DOWNLOAD_HANDLERS": "requests go through longline",
    "DOWNLOADER": "requests go through longline",
    "DUPEFILTER_CLASS": "requests are told apart by their fingerprint",
    "FEEDS": "use `longline export`",
    "HTTPCACHE_ENABLED": "use --cache",
    "ITEM_PROCESSOR": "item pipelines run in their order",
    "SCHEDULER": "requests are queued by longline",
}
"""Settings that have no effect, and what there is in their place."""
_DEFAULT = 0  # the priority of a setting that the project does not change


def pipelines_of(settings: Settings, kind: type[Spider]) -> list[type]:
    """Return the classes of the item pipelines that run, in their order.

    Those that download files are left out: they need Scrapy's engine.

    Raises:
        BadSource: one cannot be imported.
    """
    return [one for one in _enabled(settings, kind) if not issubclass(one, MediaPipeline)]


def not_run(settings: Settings, kind: type[Spider]) -> tuple[str, ...]:
    """Return the parts of a project that do not run, each with its kind.

    Raises:
        BadSource: an item pipeline cannot be imported.
    """
    return tuple(_not_run(settings, kind))


def _not_run(settings: Settings, kind: type[Spider]) -> Iterator[str]:
    for name, word in _COMPONENTS.items():
        usual = {_name(one) for one in settings.getdict(f"{name}_BASE")}
        given = settings.getdict(name)
        named = (_name(one) for one, order in given.items() if order is not None)
        yield from (f"{word} {one}" for one in named if one not in usual)
    for one in _enabled(settings, kind):
        if issubclass(one, MediaPipeline):
            yield f"item pipeline {_name(one)}, which needs Scrapy's engine to download files"
    for name, instead in _REPLACED.items():
        if (settings.getpriority(name) or _DEFAULT) > _DEFAULT and settings.get(name):
            yield f"setting {name} ({instead})"
    if getattr(kind, "http_user", None) or getattr(kind, "http_pass", None):
        yield "HTTP authentication by http_user (use `auth` in a job file)"


def _enabled(settings: Settings, kind: type[Spider]) -> list[type]:
    try:
        numbered = settings.get_component_priority_dict_with_base(_PIPELINES)
        return [load_object(one) for one in build_component_list(numbered)]
    except Exception as error:  # modules of the project, which may raise anything
        problem = f"its item pipelines cannot be used: {type(error).__name__}: {error}"
        raise BadSource(kind.__name__, problem) from error


def _name(kind: Any) -> str:
    return kind if isinstance(kind, str) else global_object_name(kind)


class Pipelines:
    """The item pipelines of one spider in one process, opened with the first item.

    Args:
        crawler: what they are built from.
        kinds: their classes, in their order.
    """

    def __init__(self, crawler: Crawler, kinds: list[type]) -> None:
        built = []
        for kind in kinds:
            try:
                built.append(build_from_crawler(kind, crawler))
            except NotConfigured as error:
                _log.warning("item pipeline %s is switched off: %s", _name(kind), error)
        with warnings.catch_warnings():
            # What Scrapy says about older signatures is for `scrapy crawl` to say.
            warnings.simplefilter("ignore", ScrapyDeprecationWarning)
            self._manager = ItemPipelineManager(*built, crawler=crawler)
        self._opening = asyncio.Lock()
        self._is_open = False
        self._failure: Exception | None = None

    async def process(self, item: Any, where: str) -> Any:
        """Return an item as the pipelines leave it.

        Raises:
            SkipItem: a pipeline dropped it.
            UnexpectedShape: they returned something else than an item.
        """
        await self._open()
        try:
            result = await self._manager.process_item_async(item)
        except DropItem as error:
            raise SkipItem(f"dropped by an item pipeline: {error}") from error
        if not ItemAdapter.is_item(result):
            problem = f"the item pipelines returned a {type(result).__name__}, which is not an item"
            raise UnexpectedShape(where, problem)
        return result

    async def close(self) -> None:
        """Close what was opened."""
        if self._is_open:
            self._is_open = False
            await self._manager.close_spider_async()

    async def _open(self) -> None:
        async with self._opening:
            if self._failure is not None:
                raise self._failure  # half of them may be open: not to be opened a second time
            if self._is_open:
                return
            try:
                await self._manager.open_spider_async()
            except Exception as error:
                self._failure = error
                raise
            self._is_open = True
