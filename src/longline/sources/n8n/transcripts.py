"""Transcripts of YouTube videos, or a typed reason why there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import ParseError

import requests
import youtube_transcript_api as youtube
from defusedxml import DefusedXmlException  # type: ignore[import-untyped]  # ships no types

from longline.core.errors import CircuitOpen, Deferred, FetchError, LonglineError, Throttled
from longline.http.errors import RobotsDisallowed
from longline.sources.base import Visit
from longline.sources.function import ThreadFetch
from longline.sources.requests_session import chained_session

YOUTUBE = "https://www.youtube.com"
# The library interprets refusals, 429 above all. The chain retries server errors.
_RETURNED_STATUSES = frozenset(range(400, 600)) - {500, 502, 503, 504}
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 15 * 60.0
"""Seconds without requests after YouTube blocked one; doubled each time."""

# Subclasses come before their bases. The library's own messages are pages of advice.
_OUTCOMES: Mapping[type[Exception], tuple[str, str]] = {
    youtube.TranscriptsDisabled: ("disabled", "the video has no captions"),
    youtube.NoTranscriptFound: ("not_found", "no transcript in any language"),
    youtube.VideoUnavailable: ("unavailable", "the video no longer exists"),
    youtube.VideoUnplayable: ("unplayable", "the video cannot be played"),
    youtube.AgeRestricted: ("age_restricted", "age-restricted: requires a login"),
    youtube.InvalidVideoId: ("invalid_id", "not a video id"),
    youtube.PoTokenRequired: ("token_required", "YouTube requires a browser token"),
    youtube.IpBlocked: ("blocked", "YouTube blocks this IP address"),
    youtube.RequestBlocked: ("blocked", "YouTube blocked the request"),
    youtube.CouldNotRetrieveTranscript: ("failed", "YouTube's response could not be used"),
    RobotsDisallowed: ("disallowed", "robots.txt does not allow it"),
    Throttled: ("blocked", "YouTube throttles requests"),
    CircuitOpen: ("blocked", "the circuit breaker of YouTube is open"),
    Deferred: ("blocked", "YouTube asked for a long delay"),
    FetchError: ("failed", "YouTube could not be reached"),
    requests.RequestException: ("failed", "YouTube returned an invalid response"),
}
# The library lets these escape when a response has another shape than it expects.
_INVALID_RESPONSES = (
    ParseError,
    DefusedXmlException,
    LookupError,
    AttributeError,
    TypeError,
    ValueError,
)


class Transcripts:
    """Fetches transcripts, and pauses after YouTube blocked a request."""

    def __init__(self, youtube_url: str, language: str) -> None:
        self._youtube_url = youtube_url
        self._language = language
        self._pause = FIRST_PAUSE
        self._paused_until = 0.0
        self._pause_outcome = "blocked"

    async def fetch(self, visit: Visit, video: str) -> dict[str, Any]:
        """Return the transcript of a video, or the outcome and the reason why there is none."""
        if visit.clock.now() < self._paused_until:
            reason = "not requested: YouTube blocked an earlier request"
            return {"video_id": video, "outcome": self._pause_outcome, "reason": reason}
        try:
            fetch = ThreadFetch(visit, asyncio.get_running_loop())
            try:
                found = await visit.in_thread(self._fetch_transcript, fetch, video)
            finally:
                fetch.stop()
        except (*_OUTCOMES, *_INVALID_RESPONSES) as error:
            outcome, reason = _outcome_of(error)
            if outcome in ("disallowed", "blocked"):
                # robots.txt stays the same; a block may be temporary.
                pause = LONGEST_PAUSE if outcome == "disallowed" else self._pause
                self._paused_until = visit.clock.now() + pause
                self._pause_outcome = outcome
                self._pause = min(2 * pause, LONGEST_PAUSE)
            return {"video_id": video, "outcome": outcome, "reason": reason}
        self._pause = FIRST_PAUSE
        return {
            "video_id": found.video_id,
            "outcome": "ok",
            "reason": None,
            "language": found.language,
            "language_code": found.language_code,
            "is_generated": found.is_generated,
            "snippet_count": len(found.snippets),
            "text": "\n".join(snippet.text for snippet in found.snippets),
        }

    def _fetch_transcript(self, fetch: ThreadFetch, video: str) -> youtube.FetchedTranscript:
        # The library is not thread-safe: each call has its own instance and session.
        session = chained_session(fetch, returned=_RETURNED_STATUSES, rewrite_url=self._rewrite_url)
        with session:
            listed = youtube.YouTubeTranscriptApi(http_client=session).list(video)
            codes = [transcript.language_code for transcript in listed]
            return listed.find_transcript([self._language, *codes]).fetch()

    def _rewrite_url(self, url: str) -> str:
        if url.startswith(f"{YOUTUBE}/"):
            return self._youtube_url + url.removeprefix(YOUTUBE)
        return url


def _outcome_of(error: Exception) -> tuple[str, str]:
    for kind, (outcome, sentence) in _OUTCOMES.items():
        if isinstance(error, kind):
            own = str(error) if isinstance(error, LonglineError) else getattr(error, "reason", None)
            return outcome, f"{sentence} ({own})" if own else sentence
    return "failed", f"YouTube returned an invalid response ({error!r:.200})"
