"""Transcripts of YouTube videos: what was said, or a typed reason why it cannot be had."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import ParseError

import requests
import youtube_transcript_api as youtube
from defusedxml import DefusedXmlException  # type: ignore[import-untyped]  # ships no types
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from longline.core.errors import FetchError, LonglineError, Throttled
from longline.http.errors import RobotsDisallowed
from longline.http.messages import Page, Request
from longline.limits.errors import CircuitOpen, Deferred
from longline.sources.catalogue.n8n.record import TranscriptOutcome
from longline.sources.visit import Visit

# ---------------- A requests session whose every request goes through our chain, for libraries

YOUTUBE = "https://www.youtube.com"
_OWN_HEADERS = frozenset(
    {"user-agent", "accept", "accept-encoding", "connection", "content-length"}
)
"""Headers that the chain decides on."""

# The library reads meaning from refusals, 429 above all. Failures of the server mean nothing to
# it, and the chain knows how to try those again.
_SEEN_BY_LIBRARY = frozenset(range(400, 600)) - {500, 502, 503, 504}


class ChainAdapter(BaseAdapter):
    """Carries requests from a thread to the chain in the event loop, and answers back."""

    def __init__(self, visit: Visit, loop: asyncio.AbstractEventLoop, youtube_url: str) -> None:
        super().__init__()
        self._visit = visit
        self._loop = loop
        self._youtube_url = youtube_url
        self.is_stopped = threading.Event()
        """Set when nobody waits for the thread any more: it then sends nothing further."""

    def send(
        self, request: requests.PreparedRequest, *_args: object, **_options: object
    ) -> requests.Response:
        """Return the chain's answer; a FetchError of the chain goes through the library."""
        if self.is_stopped.is_set():
            raise requests.ConnectionError("the visit is over", request=request)
        page = self._visit.fetch_from_thread(self._loop, self._translate(request))
        return _answer(page, request)

    def close(self) -> None:
        """Do nothing: the connections are the chain's."""

    def _translate(self, request: requests.PreparedRequest) -> Request:
        url = request.url or ""
        if url.startswith(f"{YOUTUBE}/"):
            url = self._youtube_url + url.removeprefix(YOUTUBE)
        body = request.body.encode() if isinstance(request.body, str) else request.body
        return Request(
            url,
            request.method or "GET",
            _outgoing(request.headers),
            body if isinstance(body, bytes) else None,
            accept=_SEEN_BY_LIBRARY,
        )


def chained_session(adapter: ChainAdapter) -> requests.Session:
    """Return a session that has no other way out than the adapter."""
    session = requests.Session()
    session.trust_env = False  # proxies and passwords of the environment are the chain's matter
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


def _outgoing(headers: Mapping[str, Any]) -> dict[str, str]:
    pairs = ((name, v.decode() if isinstance(v, bytes) else v) for name, v in headers.items())
    return {name: value for name, value in pairs if name.lower() not in _OWN_HEADERS}


def _answer(page: Page, request: requests.PreparedRequest) -> requests.Response:
    response = requests.Response()
    response.status_code = page.status
    response.headers = CaseInsensitiveDict(page.headers)
    response.raw = io.BytesIO(page.text.encode())
    response.encoding = "utf-8"
    response.url = request.url or page.url
    response.request = request
    return response


FIRST_PAUSE, LONGEST_PAUSE = 60.0, 15 * 60.0
"""Seconds for which nobody is asked after YouTube has turned us away; doubled each time."""

_PAUSING = frozenset({TranscriptOutcome.DISALLOWED, TranscriptOutcome.BLOCKED})

# Subclasses stand before their bases. The library's own sentences are whole pages of advice.
_MEANINGS: Mapping[type[Exception], tuple[TranscriptOutcome, str]] = {
    youtube.TranscriptsDisabled: (TranscriptOutcome.DISABLED, "the video has no captions"),
    youtube.NoTranscriptFound: (TranscriptOutcome.NOT_FOUND, "no transcript in any language"),
    youtube.NotTranslatable: (TranscriptOutcome.NOT_FOUND, "no transcript that can be used"),
    youtube.TranslationLanguageNotAvailable: (TranscriptOutcome.NOT_FOUND, "not in this language"),
    youtube.VideoUnavailable: (TranscriptOutcome.UNAVAILABLE, "the video is no longer there"),
    youtube.VideoUnplayable: (TranscriptOutcome.UNPLAYABLE, "the video cannot be played"),
    youtube.AgeRestricted: (TranscriptOutcome.AGE_RESTRICTED, "only for grown-ups who sign in"),
    youtube.InvalidVideoId: (TranscriptOutcome.INVALID_ID, "not the id of a video"),
    youtube.PoTokenRequired: (TranscriptOutcome.TOKEN_REQUIRED, "YouTube wants a browser's token"),
    youtube.IpBlocked: (TranscriptOutcome.BLOCKED, "YouTube turns this address away"),
    youtube.RequestBlocked: (TranscriptOutcome.BLOCKED, "YouTube takes us for a robot"),
    youtube.FailedToCreateConsentCookie: (TranscriptOutcome.FAILED, "the consent page won't go"),
    youtube.YouTubeDataUnparsable: (TranscriptOutcome.FAILED, "YouTube's page has changed"),
    youtube.YouTubeRequestFailed: (TranscriptOutcome.FAILED, "YouTube answered with an error"),
    RobotsDisallowed: (TranscriptOutcome.DISALLOWED, "robots.txt does not allow it"),
    Throttled: (TranscriptOutcome.BLOCKED, "YouTube asks for a pause"),
    CircuitOpen: (TranscriptOutcome.BLOCKED, "YouTube failed too often and rests"),
    Deferred: (TranscriptOutcome.BLOCKED, "YouTube asks for a long pause"),
    FetchError: (TranscriptOutcome.FAILED, "YouTube could not be reached"),
    requests.RequestException: (TranscriptOutcome.FAILED, "an answer of YouTube is broken"),
}
# The library lets these escape when an answer has not the shape it knows.
_BROKEN_ANSWERS = (
    ParseError,
    DefusedXmlException,
    LookupError,
    AttributeError,
    TypeError,
    ValueError,
)


class Transcripts:
    """Asks for transcripts, and stops asking for a while once it was turned away."""

    def __init__(self, youtube_url: str, language: str) -> None:
        self._youtube_url = youtube_url
        self._language = language
        self._pause = FIRST_PAUSE
        self._closed_until = 0.0
        self._closed_as = TranscriptOutcome.BLOCKED

    async def fetch(self, visit: Visit, video: str) -> dict[str, Any]:
        """Return the transcript of a video, or the outcome and the reason why there is none."""
        if visit.clock.now() < self._closed_until:
            return _without(video, self._closed_as, "not asked: turned away a short while ago")
        try:
            found = await self._ask(visit, video)
        except (*_MEANINGS, *_BROKEN_ANSWERS) as error:
            outcome, reason = _meaning(error)
            if outcome in _PAUSING:
                self._close(outcome, visit.clock.now())
            return _without(video, outcome, reason)
        self._pause = FIRST_PAUSE
        return _with(found)

    def _close(self, outcome: TranscriptOutcome, now: float) -> None:
        # robots.txt will say the same tomorrow; a block may have been a passing mood.
        if outcome is TranscriptOutcome.DISALLOWED:
            self._pause = LONGEST_PAUSE
        self._closed_until = now + self._pause
        self._closed_as = outcome
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    async def _ask(self, visit: Visit, video: str) -> youtube.FetchedTranscript:
        adapter = ChainAdapter(visit, asyncio.get_running_loop(), self._youtube_url)
        try:
            return await visit.in_thread(_fetch, adapter, video, self._language)
        finally:
            adapter.is_stopped.set()  # a thread cannot be cancelled, only kept from the network


def _fetch(adapter: ChainAdapter, video: str, language: str) -> youtube.FetchedTranscript:
    # The library is not safe to share between threads: an instance and a session for each call.
    with chained_session(adapter) as session:
        listed = youtube.YouTubeTranscriptApi(http_client=session).list(video)
        codes = [transcript.language_code for transcript in listed]
        return listed.find_transcript([language, *codes]).fetch()


def _meaning(error: Exception) -> tuple[TranscriptOutcome, str]:
    for kind, (outcome, sentence) in _MEANINGS.items():
        if isinstance(error, kind):
            return outcome, _explain(error, sentence)
    return TranscriptOutcome.FAILED, f"an answer of YouTube is broken ({error!r:.200})"


def _explain(error: Exception, sentence: str) -> str:
    own = str(error) if isinstance(error, LonglineError) else getattr(error, "reason", None)
    return f"{sentence} ({own})" if own else sentence


def _with(found: youtube.FetchedTranscript) -> dict[str, Any]:
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


def _without(video: str, outcome: TranscriptOutcome, reason: str) -> dict[str, Any]:
    return {"video_id": video, "outcome": outcome.value, "reason": reason}
