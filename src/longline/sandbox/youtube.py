"""A substitute for the three YouTube URLs that transcripts are read from."""

from __future__ import annotations

from enum import StrEnum
from html import escape
from itertools import chain, count
from typing import Any

from aiohttp import web

from longline.sandbox.seeded import Picks, draw, stream
from longline.sandbox.templates import words

PREFIX = "/youtube"
_KEY = "practice-key-0123456789"
# A transcript client follows this address as it is; the caller rewrites the host.
_TRACK = "https://www.youtube.com/api/timedtext?v={video}&lang={language}"
_LANGUAGES = {"en": "English", "de": "German", "bg": "Bulgarian"}


class VideoOutcome(StrEnum):
    """The result of a request for the transcript of a video."""

    OK = "ok"
    GENERATED = "generated"
    DISABLED = "transcripts disabled"
    UNAVAILABLE = "video unavailable"
    AGE_RESTRICTED = "age restricted"
    UNPLAYABLE = "unplayable"
    NO_ENGLISH = "no English track"
    NEEDS_TOKEN = "needs a token"  # noqa: S105  # a sentence, not a secret
    TOO_MANY = "blocked with 429"
    CAPTCHA = "blocked with a captcha"
    BOT = "blocked as a bot"
    FAILED = "server error"


_LOT = (
    *(VideoOutcome.OK,) * 43,
    *(VideoOutcome.GENERATED,) * 32,
    *(VideoOutcome.DISABLED,) * 8,
    *(VideoOutcome.UNAVAILABLE,) * 5,
    *(VideoOutcome.NO_ENGLISH,) * 5,
    *(VideoOutcome.AGE_RESTRICTED,) * 3,
    *(VideoOutcome.FAILED,) * 2,
    VideoOutcome.UNPLAYABLE,
    VideoOutcome.NEEDS_TOKEN,
)
# Blocks are for those who ask for them: a real site blocks an address, not a video, and a 429
# here must always tell of a limit that was overrun.
_ON_REQUEST = {
    "throttled00": VideoOutcome.TOO_MANY,
    "captcha0000": VideoOutcome.CAPTCHA,
    "robotcheck0": VideoOutcome.BOT,
}
_PLAYABILITY = {
    VideoOutcome.UNAVAILABLE: ("ERROR", "This video is unavailable"),
    VideoOutcome.AGE_RESTRICTED: (
        "LOGIN_REQUIRED",
        "This video may be inappropriate for some users.",
    ),
    VideoOutcome.BOT: (
        "LOGIN_REQUIRED",
        "Sign in to confirm you\N{RIGHT SINGLE QUOTATION MARK}re not a bot",
    ),
    VideoOutcome.UNPLAYABLE: ("UNPLAYABLE", "This video is private"),
}


def outcome_of(video: str) -> VideoOutcome:
    """Return the outcome of this video, which does not depend on the seed."""
    return _ON_REQUEST.get(video) or Picks(draw(0, "video", video)).of(_LOT)


def find_video(outcome: VideoOutcome) -> str:
    """Return the id of a video with this outcome, the same one every time."""
    ids = chain(_ON_REQUEST, (f"practice{number:03d}" for number in count()))
    return next(video for video in ids if outcome_of(video) is outcome)


class YouTube:
    """Responds to a transcript client like www.youtube.com, below `/youtube`."""

    def routes(self) -> list[web.RouteDef]:
        """Return the addresses and who answers there."""
        return [
            web.get(f"{PREFIX}/watch", self._watch),
            web.post(f"{PREFIX}/youtubei/v1/player", self._player),
            web.get(f"{PREFIX}/api/timedtext", self._timedtext),
        ]

    async def _watch(self, request: web.Request) -> web.Response:
        video = request.query.get("v", "")
        outcome = outcome_of(video)
        if outcome is VideoOutcome.FAILED:
            return web.Response(status=500, text="Internal Server Error")
        if outcome is VideoOutcome.TOO_MANY:
            return web.Response(status=429, text="Too Many Requests")
        if outcome is VideoOutcome.CAPTCHA:
            return _html('<form><div class="g-recaptcha" data-sitekey="practice"></div></form>')
        return _html(
            f"<h1>{escape(video)}</h1>"
            f'<script>ytcfg.set({{"INNERTUBE_API_KEY":"{_KEY}","HL":"en"}});</script>'
        )

    async def _player(self, request: web.Request) -> web.Response:
        if request.query.get("key") != _KEY:
            return web.json_response({"error": {"code": 403, "message": "bad key"}}, status=403)
        video = str((await request.json()).get("videoId"))
        return web.json_response(_player_answer(video, outcome_of(video)))

    async def _timedtext(self, request: web.Request) -> web.Response:
        text = _transcript(request.query.get("v", ""))
        return web.Response(text=text, content_type="text/xml", charset="utf-8")


def _player_answer(video: str, outcome: VideoOutcome) -> dict[str, Any]:
    if outcome in _PLAYABILITY:
        status, reason = _PLAYABILITY[outcome]
        return {"playabilityStatus": {"status": status, "reason": reason}}
    answer: dict[str, Any] = {
        "playabilityStatus": {"status": "OK"},
        "videoDetails": {"videoId": video, "title": f"Practice video {video}"},
    }
    if outcome is not VideoOutcome.DISABLED:
        tracks = [_track(video, language, outcome) for language in _languages(outcome)]
        answer["captions"] = {"playerCaptionsTracklistRenderer": {"captionTracks": tracks}}
    return answer


def _languages(outcome: VideoOutcome) -> tuple[str, ...]:
    return ("de", "bg") if outcome is VideoOutcome.NO_ENGLISH else ("en", "de")


def _track(video: str, language: str, outcome: VideoOutcome) -> dict[str, Any]:
    address = _TRACK.format(video=video, language=language)
    track: dict[str, Any] = {
        "baseUrl": address + ("&exp=xpe" if outcome is VideoOutcome.NEEDS_TOKEN else ""),
        "name": {"runs": [{"text": _LANGUAGES[language]}]},
        "languageCode": language,
        "isTranslatable": False,
    }
    if outcome is VideoOutcome.GENERATED:
        track["kind"] = "asr"
    return track


def _transcript(video: str) -> str:
    rng = stream(0, "transcript", video)
    rows, start = [], 0.0
    for sentence in rng.choices(words.SENTENCES, k=rng.randrange(8, 40)):
        length = round(1.5 + rng.random() * 4, 2)
        rows.append(f'<text start="{start:.2f}" dur="{length}">{escape(sentence)}</text>')
        start += length
    return f'<?xml version="1.0" encoding="utf-8" ?><transcript>{"".join(rows)}</transcript>'


def _html(inside: str) -> web.Response:
    return web.Response(
        text=f"<!DOCTYPE html><html><body>{inside}</body></html>", content_type="text/html"
    )
