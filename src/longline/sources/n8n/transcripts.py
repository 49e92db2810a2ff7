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
from longline.sources.n8n.source import TranscriptOutcome
from longline.sources.requests_session import chained_session

YOUTUBE = "https://www.youtube.com"
# The library interprets refusals, 429 above all. The chain retries server errors.
_RETURNED_STATUSES = frozenset(range(400, 600)) - {500, 502, 503, 504}
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 15 * 60.0
"""Seconds without requests after YouTube blocked one; doubled each time."""

_PAUSING = frozenset({TranscriptOutcome.DISALLOWED, TranscriptOutcome.BLOCKED})

# Subclasses come before their bases. The library's own messages are pages of advice.
_OUTCOMES: Mapping[type[Exception], tuple[TranscriptOutcome, str]] = {
    youtube.TranscriptsDisabled: (TranscriptOutcome.DISABLED, "the video has no captions"),
    youtube.NoTranscriptFound: (TranscriptOutcome.NOT_FOUND, "no transcript in any language"),
    youtube.NotTranslatable: (TranscriptOutcome.NOT_FOUND, "no transcript that can be used"),
    youtube.TranslationLanguageNotAvailable: (TranscriptOutcome.NOT_FOUND, "not in this language"),
    youtube.VideoUnavailable: (TranscriptOutcome.UNAVAILABLE, "the video no longer exists"),
    youtube.VideoUnplayable: (TranscriptOutcome.UNPLAYABLE, "the video cannot be played"),
    youtube.AgeRestricted: (TranscriptOutcome.AGE_RESTRICTED, "age-restricted: requires a login"),
    youtube.InvalidVideoId: (TranscriptOutcome.INVALID_ID, "not a video id"),
    youtube.PoTokenRequired: (TranscriptOutcome.TOKEN_REQUIRED, "YouTube requires a browser token"),
    youtube.IpBlocked: (TranscriptOutcome.BLOCKED, "YouTube blocks this IP address"),
    youtube.RequestBlocked: (TranscriptOutcome.BLOCKED, "YouTube blocked the request"),
    youtube.FailedToCreateConsentCookie: (
        TranscriptOutcome.FAILED,
        "the consent page could not be passed",
    ),
    youtube.YouTubeDataUnparsable: (TranscriptOutcome.FAILED, "YouTube's page could not be parsed"),
    youtube.YouTubeRequestFailed: (TranscriptOutcome.FAILED, "YouTube returned an error"),
    RobotsDisallowed: (TranscriptOutcome.DISALLOWED, "robots.txt does not allow it"),
    Throttled: (TranscriptOutcome.BLOCKED, "YouTube throttles requests"),
    CircuitOpen: (TranscriptOutcome.BLOCKED, "the circuit breaker of YouTube is open"),
    Deferred: (TranscriptOutcome.BLOCKED, "YouTube asks to wait long"),
    FetchError: (TranscriptOutcome.FAILED, "YouTube could not be reached"),
    requests.RequestException: (TranscriptOutcome.FAILED, "YouTube returned an invalid response"),
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
        self._pause_outcome = TranscriptOutcome.BLOCKED

    async def fetch(self, visit: Visit, video: str) -> dict[str, Any]:
        """Return the transcript of a video, or the outcome and the reason why there is none."""
        if visit.clock.now() < self._paused_until:
            return _without_transcript(
                video, self._pause_outcome, "not requested: YouTube blocked an earlier request"
            )
        try:
            found = await self._fetch_in_thread(visit, video)
        except (*_OUTCOMES, *_INVALID_RESPONSES) as error:
            outcome, reason = _outcome_of(error)
            if outcome in _PAUSING:
                self._start_pause(outcome, visit.clock.now())
            return _without_transcript(video, outcome, reason)
        self._pause = FIRST_PAUSE
        return _with_transcript(found)

    def _start_pause(self, outcome: TranscriptOutcome, now: float) -> None:
        # robots.txt stays the same; a block may be temporary.
        if outcome is TranscriptOutcome.DISALLOWED:
            self._pause = LONGEST_PAUSE
        self._paused_until = now + self._pause
        self._pause_outcome = outcome
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    async def _fetch_in_thread(self, visit: Visit, video: str) -> youtube.FetchedTranscript:
        fetch = ThreadFetch(visit, asyncio.get_running_loop())
        try:
            return await visit.in_thread(self._fetch_transcript, fetch, video)
        finally:
            fetch.stop()

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


def _outcome_of(error: Exception) -> tuple[TranscriptOutcome, str]:
    for kind, (outcome, sentence) in _OUTCOMES.items():
        if isinstance(error, kind):
            return outcome, _explain(error, sentence)
    return TranscriptOutcome.FAILED, f"YouTube returned an invalid response ({error!r:.200})"


def _explain(error: Exception, sentence: str) -> str:
    own = str(error) if isinstance(error, LonglineError) else getattr(error, "reason", None)
    return f"{sentence} ({own})" if own else sentence


def _with_transcript(found: youtube.FetchedTranscript) -> dict[str, Any]:
    return {
        "video_id": found.video_id,
        "outcome": TranscriptOutcome.OK.value,
        "reason": None,
        "language": found.language,
        "language_code": found.language_code,
        "is_generated": found.is_generated,
        "snippet_count": len(found.snippets),
        "text": "\n".join(snippet.text for snippet in found.snippets),
    }


def _without_transcript(video: str, outcome: TranscriptOutcome, reason: str) -> dict[str, Any]:
    return {"video_id": video, "outcome": outcome.value, "reason": reason}
