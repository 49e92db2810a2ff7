from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from longline.core.errors import CircuitOpen, ConnectFailed, Throttled
from longline.core.model import Usage
from longline.http.errors import RobotsDisallowed
from longline.http.messages import Page, Request
from longline.sources.base import Visit
from longline.sources.n8n.source import N8n
from longline.sources.n8n.transcripts import FIRST_PAUSE, LONGEST_PAUSE, Transcripts
from tests.sources.scripted import ScriptedWeb, collect, status
from tests.sources.templates import FIRST, ITEM, first_answer
from tests.virtual import VirtualClock

YOUTUBE = "https://www.youtube.com"
VIDEO = "dQw4w9WgXcQ"
WATCH = f"{YOUTUBE}/watch?v={VIDEO}"
PLAYER = f"{YOUTUBE}/youtubei/v1/player?key=a-key"
TRACK = f"{YOUTUBE}/api/timedtext?v={VIDEO}&lang="
WATCH_PAGE = '<script>{"INNERTUBE_API_KEY": "a-key"}</script>'
WORDS = (
    '<transcript><text start="0" dur="1">Hello &amp;amp; welcome</text>'
    '<text start="1">to it</text></transcript>'
)


def playable(*languages: str, kind: str = "", extra: str = "") -> dict[str, Any]:
    tracks = [
        {
            "baseUrl": f"{TRACK}{language}{extra}",
            "name": {"runs": [{"text": language.upper()}]},
            "languageCode": language,
            "kind": kind,
        }
        for language in languages
    ]
    return {
        "playabilityStatus": {"status": "OK"},
        "captions": {"playerCaptionsTracklistRenderer": {"captionTracks": tracks}},
    }


def unplayable(code: str, reason: str) -> dict[str, Any]:
    return {"playabilityStatus": {"status": code, "reason": reason}}


def tube(player: Any = None, *, watch: Any = WATCH_PAGE, words: Any = WORDS) -> ScriptedWeb:
    languages = ("en", "de", "bg")
    return ScriptedWeb(
        {
            WATCH: watch,
            PLAYER: player if player is not None else playable("en", "de"),
            **{f"{TRACK}{language}": words for language in languages},
        }
    )


async def ask(web: ScriptedWeb, clock: VirtualClock) -> dict[str, Any]:
    return await Transcripts(YOUTUBE, "en").fetch(Visit(web, clock), VIDEO)


async def test_a_transcript_is_read_by_the_real_library(clock: VirtualClock) -> None:
    web = tube()

    found = await ask(web, clock)

    assert found == {
        "video_id": VIDEO,
        "outcome": "ok",
        "reason": None,
        "language": "EN",
        "language_code": "en",
        "is_generated": False,
        "snippet_count": 2,
        "text": "Hello & welcome\nto it",
    }
    assert web.addresses == [WATCH, PLAYER, f"{TRACK}en"]


async def test_every_request_goes_through_the_chain_and_is_counted(clock: VirtualClock) -> None:
    web = tube()
    visit = Visit(web, clock)

    await Transcripts(YOUTUBE, "en").fetch(visit, VIDEO)

    assert visit.usage.requests == 3
    player = web.requests[1]
    assert player.method == "POST"
    assert orjson.loads(player.body or b"")["videoId"] == VIDEO
    assert "user-agent" not in {name.lower() for name in player.headers}


async def test_the_address_of_a_stand_in_is_used_for_youtubes(clock: VirtualClock) -> None:
    stand_in = "http://127.0.0.1:9/youtube"
    web = ScriptedWeb(
        {url.replace(YOUTUBE, stand_in): answer for url, answer in tube().script.items()}
    )

    found = await Transcripts(stand_in, "en").fetch(Visit(web, clock), VIDEO)

    assert found["outcome"] == "ok"
    assert all(address.startswith(stand_in) for address in web.addresses)


async def test_the_wanted_language_comes_first(clock: VirtualClock) -> None:
    found = await Transcripts(YOUTUBE, "de").fetch(Visit(tube(), clock), VIDEO)

    assert found["language_code"] == "de"


async def test_another_language_is_better_than_none(clock: VirtualClock) -> None:
    found = await ask(tube(playable("bg", kind="asr")), clock)

    assert (found["outcome"], found["language_code"], found["is_generated"]) == ("ok", "bg", True)


async def test_a_consent_page_is_passed_with_a_cookie(clock: VirtualClock) -> None:
    consent = '<form action="https://consent.youtube.com/s"><input name="v" value="cb"></form>'
    web = tube(watch=[consent, WATCH_PAGE])

    found = await ask(web, clock)

    assert found["outcome"] == "ok"
    assert web.requests[1].headers["Cookie"] == "CONSENT=YES+cb"


ROBOT = "Sign in to confirm you\N{RIGHT SINGLE QUOTATION MARK}re not a bot"
CAPTCHA = '<div class="g-recaptcha"></div>'


@pytest.mark.parametrize(
    ("web", "outcome"),
    [
        (tube({"playabilityStatus": {"status": "OK"}}), "disabled"),
        (tube(playable()), "not_found"),
        (tube(unplayable("ERROR", "This video is unavailable")), "unavailable"),
        (tube(unplayable("UNPLAYABLE", "It is private")), "unplayable"),
        (
            tube(unplayable("LOGIN_REQUIRED", "This video may be inappropriate for some users.")),
            "age_restricted",
        ),
        (tube(playable("en", extra="&exp=xpe")), "token_required"),
        (tube(unplayable("LOGIN_REQUIRED", ROBOT)), "blocked"),
        (tube(watch=status(WATCH, 429)), "blocked"),
        (tube(watch=CAPTCHA), "blocked"),
        (tube(watch=Throttled(WATCH, 503, 60.0)), "blocked"),
        (tube(watch=CircuitOpen(WATCH, 1_900_000_000.0)), "blocked"),
        (tube(watch=RobotsDisallowed(WATCH, "Disallow: /")), "disallowed"),
        (tube(watch=status(WATCH, 500)), "failed"),
        (tube(watch=status(WATCH, 403)), "failed"),
        (tube(watch=ConnectFailed(WATCH, "refused")), "failed"),
        (tube(watch="<html>all new</html>"), "failed"),
        (tube(watch='<form action="https://consent.youtube.com/s"></form>'), "failed"),
        (tube(b"not json"), "failed"),
        (tube({"odd": True}), "failed"),
        (tube(words="<transcript><text"), "failed"),
        (tube(words="<transcript><text>no start</text></transcript>"), "failed"),
        (tube(words='<!DOCTYPE x [<!ENTITY a "b">]><transcript/>'), "failed"),
    ],
)
async def test_an_answer_of_youtube_has_its_outcome(
    web: ScriptedWeb, outcome: str, clock: VirtualClock
) -> None:
    found = await ask(web, clock)

    assert found["outcome"] == outcome
    assert found["reason"]
    assert "\n" not in found["reason"]


async def test_the_reason_of_youtube_is_quoted(clock: VirtualClock) -> None:
    found = await ask(tube(unplayable("UNPLAYABLE", "It is private")), clock)

    assert found["outcome"] == "unplayable"
    assert "It is private" in found["reason"]


@pytest.mark.parametrize(
    "refusal", [status(WATCH, 429), CAPTCHA, RobotsDisallowed(WATCH, "Disallow: /")]
)
async def test_after_a_block_no_request_is_sent_for_a_while(
    refusal: Any, clock: VirtualClock
) -> None:
    web = tube(watch=refusal)
    transcripts = Transcripts(YOUTUBE, "en")
    first = await transcripts.fetch(Visit(web, clock), VIDEO)

    again = await transcripts.fetch(Visit(web, clock), VIDEO)

    assert again["outcome"] == first["outcome"]
    assert again["reason"] != first["reason"]
    assert len(web.requests) == 1


async def test_after_the_pause_requests_are_sent_again(clock: VirtualClock) -> None:
    web = tube(watch=[status(WATCH, 429), WATCH_PAGE])
    transcripts = Transcripts(YOUTUBE, "en")
    await transcripts.fetch(Visit(web, clock), VIDEO)

    await clock.sleep(FIRST_PAUSE + 1)
    found = await transcripts.fetch(Visit(web, clock), VIDEO)

    assert found["outcome"] == "ok"


async def test_the_pause_doubles_after_another_block(clock: VirtualClock) -> None:
    web = tube(watch=status(WATCH, 429))
    transcripts = Transcripts(YOUTUBE, "en")
    await transcripts.fetch(Visit(web, clock), VIDEO)
    await clock.sleep(FIRST_PAUSE + 1)
    await transcripts.fetch(Visit(web, clock), VIDEO)

    await clock.sleep(FIRST_PAUSE + 1)
    await transcripts.fetch(Visit(web, clock), VIDEO)

    assert len(web.requests) == 2


async def test_a_host_closed_by_robots_has_the_longest_pause(clock: VirtualClock) -> None:
    web = tube(watch=RobotsDisallowed(WATCH, "Disallow: /"))
    transcripts = Transcripts(YOUTUBE, "en")
    await transcripts.fetch(Visit(web, clock), VIDEO)

    await clock.sleep(LONGEST_PAUSE - 1)
    await transcripts.fetch(Visit(web, clock), VIDEO)

    assert len(web.requests) == 1


async def test_other_failures_start_no_pause(clock: VirtualClock) -> None:
    web = tube(watch=[status(WATCH, 500), WATCH_PAGE])
    transcripts = Transcripts(YOUTUBE, "en")

    first = await transcripts.fetch(Visit(web, clock), VIDEO)
    second = await transcripts.fetch(Visit(web, clock), VIDEO)

    assert (first["outcome"], second["outcome"]) == ("failed", "ok")


@pytest.mark.real_time
async def test_a_cancelled_visit_sends_nothing_more(clock: VirtualClock) -> None:
    del clock
    asked, answer = asyncio.Event(), asyncio.Event()
    web = tube()

    class Slow(ScriptedWeb):
        async def __call__(self, request: Request, usage: Usage) -> Page:
            page = await super().__call__(request, usage)
            asked.set()
            await answer.wait()
            return page

    slow = Slow(web.script)
    task = asyncio.create_task(Transcripts(YOUTUBE, "en").fetch(Visit(slow, _Now()), VIDEO))
    await asked.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    answer.set()
    await asyncio.get_running_loop().shutdown_default_executor()

    assert slow.addresses == [WATCH]


class _Now(VirtualClock):
    """Time that stands still, for the one test on a real loop."""

    def now(self) -> float:
        return 0.0


# ---------------------------------------------------------------- as a layer


async def test_each_video_of_a_template_gets_its_outcome(clock: VirtualClock) -> None:
    other = "aaaaaaaaaaa"
    web = tube()
    web.script[FIRST] = first_answer(description=f"https://youtu.be/{VIDEO} youtu.be/{other}")

    data, _visit = await collect(N8n(), web, ITEM, clock)

    outcomes = [(entry["video_id"], entry["outcome"]) for entry in data["transcripts"]]
    assert outcomes == [(VIDEO, "ok"), (other, "failed")]


async def test_without_videos_no_request_is_sent(clock: VirtualClock) -> None:
    web = ScriptedWeb({FIRST: first_answer()})

    data, _visit = await collect(N8n(), web, ITEM, clock)

    assert data["transcripts"] == []
    assert web.addresses == [FIRST]


async def test_transcripts_can_be_switched_off(clock: VirtualClock) -> None:
    web = ScriptedWeb({FIRST: first_answer(description=f"https://youtu.be/{VIDEO}")})

    data, visit = await collect(N8n.with_options({"transcripts": False}), web, ITEM, clock)

    assert data["transcripts"] is None
    assert visit.notes[-1].field == "transcripts"
    assert "transcripts=false" in visit.notes[-1].text
    assert web.addresses == [FIRST]
