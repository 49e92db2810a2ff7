"""Which of a page's requests are not made: pictures, films, fonts and those who only watch."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from longline.config.manifests.browser import RESOURCE_TYPES, TRACKERS

_WATCHERS = frozenset(
    {
        *("google-analytics.com", "analytics.google.com", "googletagmanager.com"),
        *(
            "doubleclick.net",
            "googlesyndication.com",
            "googleadservices.com",
            "adservice.google.com",
        ),
        *("connect.facebook.net", "pixel.facebook.com", "ads.linkedin.com", "snap.licdn.com"),
        *("analytics.tiktok.com", "ads-twitter.com", "analytics.twitter.com", "bat.bing.com"),
        *("clarity.ms", "hotjar.com", "hotjar.io", "mouseflow.com", "fullstory.com"),
        *("segment.io", "segment.com", "mixpanel.com", "amplitude.com", "heapanalytics.com"),
        *("matomo.cloud", "plausible.io", "statcounter.com", "scorecardresearch.com"),
        *("quantserve.com", "chartbeat.com", "chartbeat.net", "newrelic.com", "nr-data.net"),
        *("criteo.com", "criteo.net", "taboola.com", "outbrain.com", "adnxs.com"),
        *("mc.yandex.ru", "yadro.ru", "top-fwz1.mail.ru", "intercom.io", "branch.io"),
    }
)
"""Hosts that measure visitors or show advertisements; everything below them is meant as well."""


class Blocker:
    """Says of each request of a page whether it is blocked.

    Args:
        words: resource types, hosts (`*.example.com` is everything below) and `trackers`.
    """

    def __init__(self, words: Iterable[str]) -> None:
        words = frozenset(words)
        self._types = words & RESOURCE_TYPES
        self._hosts = words - RESOURCE_TYPES - {TRACKERS}
        self._below = tuple(host[1:] for host in self._hosts if host.startswith("*."))
        self._trackers = _WATCHERS if TRACKERS in words else frozenset()

    def blocks(self, url: str, resource_type: str) -> bool:
        """Return whether this request is not to be made."""
        if resource_type in self._types:
            return True
        parts = urlsplit(url)
        return self._has_host(parts.netloc.lower()) or self._has_host(parts.hostname or "")

    def _has_host(self, host: str) -> bool:
        if host in self._hosts or host.endswith(self._below):
            return True
        labels = host.split(".")
        return any(".".join(labels[first:]) in self._trackers for first in range(len(labels)))
