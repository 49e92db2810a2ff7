"""The YouTube stand-in, requested by the real transcript client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import requests
from requests.adapters import HTTPAdapter
from youtube_transcript_api import (
    AgeRestricted,
    CouldNotRetrieveTranscript,
    FetchedTranscript,
    IpBlocked,
    NoTranscriptFound,
    PoTokenRequired,
    RequestBlocked,
    TranscriptsDisabled,
    VideoUnavailable,
    VideoUnplayable,
    YouTubeRequestFailed,
    YouTubeTranscriptApi,
)

from longline.sandbox.web import PracticeWeb, WebOptions
from longline.sandbox.youtube import VideoOutcome, find_video, outcome_of

pytestmark = pytest.mark.real_time  # the client lives in a thread and waits in its own time


class ElsewhereAdapter(HTTPAdapter):
    """Sends what is meant for YouTube to another address."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> Any:
        assert request.url is not None
        request.url = request.url.replace("https://www.youtube.com", self._address)
        return super().send(request, *args, **options)


async def fetch(video: str) -> FetchedTranscript:
    async with PracticeWeb(WebOptions(items=1)) as web:
        with requests.Session() as session:
            session.trust_env = False
            session.mount("https://www.youtube.com", ElsewhereAdapter(web.youtube_url))
            client = YouTubeTranscriptApi(http_client=session)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, client.fetch, video)


@pytest.mark.parametrize(
    ("outcome", "is_generated"), [(VideoOutcome.OK, False), (VideoOutcome.GENERATED, True)]
)
async def test_most_videos_have_a_transcript(outcome: VideoOutcome, *, is_generated: bool) -> None:
    transcript = await fetch(find_video(outcome))

    assert len(transcript) >= 8
    assert transcript.language_code == "en"
    assert transcript.is_generated is is_generated
    assert transcript[1].start == pytest.approx(transcript[0].duration, abs=0.01)


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (VideoOutcome.DISABLED, TranscriptsDisabled),
        (VideoOutcome.UNAVAILABLE, VideoUnavailable),
        (VideoOutcome.AGE_RESTRICTED, AgeRestricted),
        (VideoOutcome.UNPLAYABLE, VideoUnplayable),
        (VideoOutcome.NO_ENGLISH, NoTranscriptFound),
        (VideoOutcome.NEEDS_TOKEN, PoTokenRequired),
        (VideoOutcome.TOO_MANY, IpBlocked),
        (VideoOutcome.CAPTCHA, IpBlocked),
        (VideoOutcome.BOT, RequestBlocked),
        (VideoOutcome.FAILED, YouTubeRequestFailed),
    ],
)
async def test_each_other_outcome_has_its_error(
    outcome: VideoOutcome, error: type[CouldNotRetrieveTranscript]
) -> None:
    with pytest.raises(CouldNotRetrieveTranscript) as caught:
        await fetch(find_video(outcome))

    assert type(caught.value) is error


BLOCKS = {VideoOutcome.TOO_MANY, VideoOutcome.CAPTCHA, VideoOutcome.BOT}


def test_outcomes_are_stable_and_mostly_successful() -> None:
    videos = [f"video{number:06d}" for number in range(1000)]

    outcomes = [outcome_of(video) for video in videos]

    good = sum(outcome in (VideoOutcome.OK, VideoOutcome.GENERATED) for outcome in outcomes)
    assert outcomes == [outcome_of(video) for video in videos]
    assert 650 <= good <= 790
    assert set(outcomes) == set(VideoOutcome) - BLOCKS


async def test_videos_are_counted_separately() -> None:
    async with PracticeWeb(WebOptions(items=1)) as web:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, requests.get, f"{web.youtube_url}/watch?v=practice000")

        assert web.tally.youtube == 1
        assert web.tally.requests == 0
