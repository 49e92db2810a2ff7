"""The n8n source against the practice web: real requests, real answers, on virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from longline.core.errors import Gone
from longline.http.errors import RobotsDisallowed
from longline.http.messages import Middleware
from longline.http.middleware.status import StatusMiddleware
from longline.http.robots import RobotsMiddleware
from longline.http.transport import HttpOptions, HttpTransport
from longline.sandbox.templates.catalogue import Form
from longline.sandbox.web import PracticeWeb, WebOptions
from longline.sandbox.youtube import VideoOutcome, find_video
from longline.sources.base import Visit
from longline.sources.n8n.source import N8n
from longline.sources.n8n.transcripts import Transcripts
from tests.pipeline.drafts import score_of
from tests.sources.scripted import collect, discovered, unexplained
from tests.virtual import VirtualClock

ITEMS = 60


@asynccontextmanager
async def practice(
    clock: VirtualClock, **options: Any
) -> AsyncIterator[tuple[PracticeWeb, Middleware, dict[str, str]]]:
    """Serve a practice web; give it, the way to it, and the settings that point there."""
    transport = HttpTransport(HttpOptions(), clock)
    chain = RobotsMiddleware(StatusMiddleware(transport, clock), clock)
    async with PracticeWeb(WebOptions(items=ITEMS, **options), clock=clock) as web:
        addresses = {
            "site_url": web.site_url,
            "api_url": web.api_url,
            "youtube_url": web.youtube_url,
        }
        yield web, chain, addresses
        await transport.close()


async def everything(
    source: N8n, chain: Middleware, clock: VirtualClock
) -> tuple[list[tuple[dict[str, Any], Visit]], set[int]]:
    """Collect every item there is; return the records and the ids that are gone."""
    items, _cursors = await discovered(source, chain, clock)
    found, gone = [], set()
    for item in items:
        try:
            found.append(await collect(source, chain, item, clock))
        except Gone:
            gone.add(int(item.key))
    return found, gone


def made(values: Mapping[str, Any]) -> N8n:
    source = N8n.with_options(values)
    assert isinstance(source, N8n)
    return source


@pytest.mark.parametrize("inventory", ["sitemap", "search"])
async def test_every_template_that_can_be_had_becomes_a_sound_record(
    inventory: str, clock: VirtualClock
) -> None:
    async with practice(clock) as (web, chain, addresses):
        source = made({**addresses, "inventory": inventory, "rows": 7})

        found, gone = await everything(source, chain, clock)

        assert {data["id"] for data, _visit in found} == set(web.catalogue.obtainable)
        assert gone == set()
        assert [unexplained(*one) for one in found] == [[]] * ITEMS
        assert all(N8n.Record.model_validate(data) for data, _visit in found)


async def test_the_answers_that_are_missing_somewhere_are_found_elsewhere(
    clock: VirtualClock,
) -> None:
    async with practice(clock) as (web, chain, addresses):
        found, _gone = await everything(made(addresses), chain, clock)

        asked = {
            data["id"] for data, _visit in found if data["endpoint"] != "/templates/workflows/{id}"
        }
        assert asked == {n for n in web.catalogue.ids if Form.DETAIL in web.catalogue.gaps(n)}


async def test_what_is_missing_everywhere_is_gone(clock: VirtualClock) -> None:
    async with practice(clock, missing=0.1) as (web, chain, addresses):
        found, gone = await everything(made(addresses), chain, clock)

        assert gone == web.catalogue.missing
        assert len(found) == ITEMS - len(gone)


async def test_records_of_the_practice_web_are_good(clock: VirtualClock) -> None:
    async with practice(clock) as (_web, chain, addresses):
        source = made({**addresses, "transcripts": False})
        ends = dict.fromkeys((layer.name for layer in source.layers()), "ok")

        found, _gone = await everything(source, chain, clock)

        points = [score_of(source, data, ends, visit.notes).score for data, visit in found]
        assert min(points) >= 60.0
        assert sum(points) / len(points) >= 90.0


async def test_a_closed_api_stops_the_job_and_its_pages_stay_open(clock: VirtualClock) -> None:
    async with practice(clock, disallow=True) as (_web, chain, addresses):
        with pytest.raises(RobotsDisallowed, match="--set detail=pages"):
            await made(addresses).prepare(Visit(chain, clock))

        source = made({**addresses, "detail": "pages", "transcripts": False})
        await source.prepare(Visit(chain, clock))
        found, _gone = await everything(source, chain, clock)

        assert len(found) == ITEMS
        assert [unexplained(*one) for one in found] == [[]] * ITEMS


async def test_a_page_and_the_api_tell_the_same_title(clock: VirtualClock) -> None:
    async with practice(clock) as (_web, chain, addresses):
        quiet = {**addresses, "transcripts": False}
        from_api, _gone = await everything(made(quiet), chain, clock)
        from_pages, _gone = await everything(made({**quiet, "detail": "pages"}), chain, clock)

        titles = {data["id"]: data["title"].strip() for data, _visit in from_api}
        assert {data["id"]: data["title"] for data, _visit in from_pages} == titles


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (VideoOutcome.OK, "ok"),
        (VideoOutcome.GENERATED, "ok"),
        (VideoOutcome.NO_ENGLISH, "ok"),
        (VideoOutcome.DISABLED, "disabled"),
        (VideoOutcome.UNAVAILABLE, "unavailable"),
        (VideoOutcome.AGE_RESTRICTED, "age_restricted"),
        (VideoOutcome.UNPLAYABLE, "unplayable"),
        (VideoOutcome.NEEDS_TOKEN, "token_required"),
        (VideoOutcome.TOO_MANY, "blocked"),
        (VideoOutcome.CAPTCHA, "blocked"),
        (VideoOutcome.BOT, "blocked"),
        (VideoOutcome.FAILED, "failed"),
    ],
)
async def test_every_outcome_of_a_video_is_recognised(
    given: VideoOutcome, expected: str, clock: VirtualClock
) -> None:
    async with practice(clock) as (web, chain, _addresses):
        transcripts = Transcripts(web.youtube_url, "en")

        found = await transcripts.fetch(Visit(chain, clock), find_video(given))

        assert found["outcome"] == expected
