"""Plans before runs: what they say on the practice web, and what the run then takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longline.config.settings import load_settings
from longline.core.clock import Clock, SystemClock
from longline.core.errors import DiscoveryFailed
from longline.core.model import JobState
from longline.devtools.plan import Certainty, Plan, make_plan
from longline.devtools.session import open_session, session_spec
from longline.orchestrator import Orchestrator
from longline.sandbox.web import PracticeWeb, WebOptions
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock


def options_for(web: PracticeWeb, **more: Any) -> dict[str, Any]:
    return {
        "site_url": web.site_url,
        "api_url": web.api_url,
        "youtube_url": web.youtube_url,
        "transcripts": False,  # they run in a thread, for which virtual time must wait
        **more,
    }


async def plan_of(home: Path, clock: Clock, source: str, requests: int = 5, **spec: Any) -> Plan:
    settings = load_settings(home=home)
    async with open_session(settings, session_spec(source, spec), clock) as bench:
        return await make_plan(bench, settings, clock, requests=requests)


async def run_of(home: Path, clock: Clock, source: str, **spec: Any) -> tuple[float, int]:
    """Return the seconds and the requests of a real run."""
    async with Orchestrator(home=home, clock=clock) as longline:
        report = await longline.execute(source, spec)
    assert report.state is JobState.COMPLETE
    return report.seconds, int(report.progress.figure("requests"))


@pytest.mark.parametrize(
    ("web", "spec"),
    [
        ({"items": 200, "rate": 2.0, "burst": 5}, {}),
        ({"items": 200, "rate": 2.0, "burst": 5}, {"set": {"inventory": "search", "rows": 100}}),
        ({"items": 200, "latency": 0.3}, {"rate": "unlimited", "concurrency": 4}),
        ({"items": 120, "latency": 0.2}, {"rate": 10.0, "burst": 3, "limit": 100}),
        ({"items": 200, "latency": 0.2}, {"set": {"detail": "pages"}, "rate": 4.0}),
    ],
    ids=["paced", "searched", "unlimited", "limited", "pages"],
)
async def test_the_duration_of_a_run_is_within_a_tenth_of_the_plan(
    tmp_path: Path, clock: VirtualClock, web: dict[str, Any], spec: dict[str, Any]
) -> None:
    async with PracticeWeb(WebOptions(**web), clock=clock) as site:
        spec = {**spec, "set": options_for(site, **spec.get("set", {}))}

        plan = await plan_of(tmp_path, clock, "n8n", **spec)
        seconds, requests = await run_of(tmp_path, clock, "n8n", **spec)

    assert plan.certainty is Certainty.KNOWN
    assert plan.seconds == pytest.approx(seconds, rel=0.1)
    assert plan.requests == pytest.approx(requests, rel=0.1)


@pytest.mark.real_time  # transcripts run in threads, for which virtual time would wait
async def test_a_run_with_transcripts_makes_the_requests_of_the_plan(tmp_path: Path) -> None:
    clock = SystemClock()
    async with PracticeWeb(WebOptions()) as site:
        chosen = options_for(site, transcripts=True)

        plan = await plan_of(tmp_path, clock, "n8n", set=chosen, rate=1000.0)
        _, requests = await run_of(tmp_path, clock, "n8n", set=chosen, rate=1000.0)

    assert 0 < plan.error <= 0.08
    assert plan.requests == pytest.approx(requests, rel=0.1)


async def test_a_list_that_goes_on_is_at_least_as_long_as_what_was_seen(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async with PracticeWeb(WebOptions(items=200), clock=clock) as site:
        chosen = options_for(site, inventory="search", rows=20)

        plan = await plan_of(tmp_path, clock, "n8n", set=chosen)

    told = plan.as_dict()
    assert plan.certainty is Certainty.AT_LEAST
    assert (told["items"], told["seconds"], told["requests"]) == (None, None, None)
    assert told["items_at_least"] == 60  # robots.txt and one question come before three pages
    assert plan.notes
    assert plan.spent == 5 + 30


async def test_a_limit_beyond_what_was_seen_is_planned_for_in_full(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async with PracticeWeb(WebOptions(items=200), clock=clock) as site:
        chosen = options_for(site, inventory="search", rows=20)

        plan = await plan_of(tmp_path, clock, "n8n", set=chosen, limit=150)
        seconds, requests = await run_of(tmp_path, clock, "n8n", set=chosen, limit=150)

    assert (plan.items, plan.certainty) == (150, Certainty.AT_MOST)
    assert plan.seconds == pytest.approx(seconds, rel=0.1)
    assert plan.requests == pytest.approx(requests, rel=0.1)


async def test_more_requests_find_the_end_of_the_list(tmp_path: Path, clock: VirtualClock) -> None:
    async with PracticeWeb(WebOptions(items=100), clock=clock) as site:
        chosen = options_for(site, inventory="search", rows=10)

        plan = await plan_of(tmp_path, clock, "n8n", requests=20, set=chosen)

    assert (plan.items, plan.certainty) == (100, Certainty.KNOWN)


async def test_the_crawl_delay_of_robots_txt_is_the_pace(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite
) -> None:
    site.says("/robots.txt", "User-agent: *\nCrawl-delay: 5\n")
    for number in range(20):
        site.says(f"/item/{number}", "page")

    plan = await plan_of(
        tmp_path, clock, "tests.sample_sources:PageSource", set={"site": site.url, "count": 20}
    )

    (domain,) = plan.domains
    assert (domain.rate, domain.burst) == (0.2, 1)
    assert "site" in domain.rate_origin
    assert plan.seconds == pytest.approx(19 * 5, rel=0.1)
    assert "127.0.0.1" in plan.bound


async def test_an_item_that_fails_is_noted_with_its_reason(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite
) -> None:
    plan = await plan_of(
        tmp_path, clock, "tests.sample_sources:PageSource", set={"site": site.url, "count": 1}
    )

    (note,) = plan.notes
    assert note.startswith("0 ")  # its key
    assert f"{site.url}/item/0" in note
    assert "404" in note


async def test_a_source_without_an_item_has_no_plan(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite
) -> None:
    with pytest.raises(DiscoveryFailed) as failed:
        await plan_of(
            tmp_path, clock, "tests.sample_sources:PageSource", set={"site": site.url, "count": 0}
        )

    assert failed.value.source == "pages"
    assert "--requests" not in failed.value.problem  # more of them would not help
