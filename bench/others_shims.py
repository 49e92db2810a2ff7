"""A pytest plugin that puts longline's parts in the place of those that other projects test.

`others_sites.py` runs the published test files of a package with it, in a process of their own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import protego
import pytest
import scrapy.downloadermiddlewares.cookies
import scrapy.robotstxt
import scrapy.utils.sitemap
from protego import RequestRate

from longline.http.messages import Page
from longline.http.robots import Rules, text_of
from longline.sources.html.places import absolute_url
from longline.sources.html.sitemaps import read_sitemap
from longline.sources.spider import Jars

OUTCOMES = "LONGLINE_OTHERS_OUTCOMES"
"""The environment variable that names the file for the outcomes."""
_SITE = "http://site.local"


class _Entry(dict[str, Any]):
    """An entry of a sitemap; longline reads its address only, so only that is compared."""

    __hash__ = None  # type: ignore[assignment]  # a dict has none

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and self["loc"] == other["loc"]


class _Sitemap:
    def __init__(self, body: bytes) -> None:
        self._found = read_sitemap(Page(f"{_SITE}/sitemap.xml", 200, {}, body))
        self.type = "sitemapindex" if self._found.is_index else "urlset"

    def __iter__(self) -> Iterator[_Entry]:
        return iter([_Entry(loc=one) for one in self._found.urls])


def _sitemap_urls_from_robots(text: bytes, base_url: str) -> Iterator[str]:
    listed = Rules(text_of(text)).sitemaps
    return iter([url for one in listed if (url := absolute_url(base_url, one))])


class _Robots:
    """The interface of protego and of Scrapy's robots.txt parsers."""

    def __init__(self, text: str) -> None:
        self._text = text

    @classmethod
    def parse(cls, content: str) -> Self:
        return cls(content)

    @classmethod
    def from_crawler(cls, _crawler: object, robotstxt_body: bytes) -> Self:
        return cls(text_of(robotstxt_body))

    def can_fetch(self, url: str, agent: str) -> bool:
        return Rules(self._text, agent).allows(_SITE + url if url.startswith("/") else url)

    allowed = can_fetch

    def crawl_delay(self, agent: str) -> float | None:
        return Rules(self._text, agent).crawl_delay

    def request_rate(self, agent: str) -> RequestRate | None:
        rate = Rules(self._text, agent).rate
        return None if rate is None else RequestRate(*rate.as_integer_ratio(), None, None)

    @property
    def sitemaps(self) -> Iterator[str]:
        return iter(Rules(self._text).sitemaps)


setattr(protego, "Protego", _Robots)  # noqa: B010  # mypy knows the original as final
setattr(scrapy.robotstxt, "ProtegoRobotParser", _Robots)  # noqa: B010
setattr(scrapy.utils.sitemap, "Sitemap", _Sitemap)  # noqa: B010
setattr(scrapy.utils.sitemap, "sitemap_urls_from_robots", _sitemap_urls_from_robots)  # noqa: B010
setattr(scrapy.downloadermiddlewares.cookies, "CookiesMiddleware", Jars)  # noqa: B010

_outcomes: dict[str, list[str]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how a test ended, and the last line of its error."""
    if report.failed or (report.when == "call" and report.passed):
        lines = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
        name = report.nodeid.partition("::")[2]
        _outcomes[name] = [report.outcome, lines[0][1:].strip() if lines else ""]


def pytest_sessionfinish() -> None:
    """Write the outcomes."""
    Path(os.environ[OUTCOMES]).write_text(json.dumps(_outcomes), "utf-8")
