"""Plans before runs: what they say on the practice web, and what the run then takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from longline.config.settings import load_settings
from longline.core.clock import Clock, SystemClock
from longline.core.errors import DiscoveryFailed
from longline.core.model import Item, JobState, Outcome, OutcomeAction
from longline.devtools.plan import (
    MAX_SAMPLES,
    MIN_SAMPLES,
    Certainty,
    Plan,
    Sample,
    is_precise,
    make_plan,
    spread_items,
    uncertainty,
)
from longline.devtools.session import Exchange, open_session, session_spec
from longline.http.messages import Page, Request
from longline.orchestrator import Orchestrator
from longline.sandbox.templates.generated import GeneratedShelf
from longline.sandbox.web import PracticeWeb, WebOptions
from longline.sandbox.youtube import VideoOutcome, outcome_of
from longline.sources.n8n.content import find_videos
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
    return report.seconds, int(report.progress.statistic("requests"))


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


async def test_a_list_that_continues_is_a_lower_bound(tmp_path: Path, clock: VirtualClock) -> None:
    async with PracticeWeb(WebOptions(items=200), clock=clock) as site:
        chosen = options_for(site, inventory="search", rows=20)

        plan = await plan_of(tmp_path, clock, "n8n", set=chosen)

    shown = plan.as_dict()
    assert plan.certainty is Certainty.AT_LEAST
    assert (shown["items"], shown["seconds"], shown["requests"]) == (None, None, None)
    assert shown["items_at_least"] == 60  # robots.txt and one question come before three pages
    assert plan.notes
    assert plan.spent == 5 + 30


async def test_a_limit_beyond_the_discovered_items_is_planned_in_full(
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


ITEMS = [Item(str(number), f"https://a.test/{number}") for number in range(300)]
PAGE = Page("https://a.test/", 200, {}, b"")


def costing(requests: Sequence[int], host: str = "a.test") -> list[Sample]:
    outcome = Outcome(OutcomeAction.STORE)
    return [
        Sample(
            ITEMS[0],
            outcome,
            [Exchange(Request(f"https://{host}/"), PAGE, 0.0, 0.0, count)],
        )
        for count in requests
    ]


def rate_of(domain: str) -> float | None:
    return {"a.test": 2.0}.get(domain)


@pytest.mark.parametrize("most", [1, 12, 50, 1000])
def test_samples_are_different_and_no_more_than_half(most: int) -> None:
    taken = [item.key for item in spread_items(ITEMS, most)]

    assert len(set(taken)) == len(taken) == min(most, 150)


def test_a_dozen_samples_come_from_all_parts_of_the_list() -> None:
    taken = sorted(int(item.key) for item in spread_items(ITEMS, 12))

    gaps = [after - before for before, after in zip([0, *taken], [*taken, 300], strict=True)]
    assert max(gaps) < 60


def test_a_short_list_is_tried_whole() -> None:
    assert len(list(spread_items(ITEMS[:8], 100))) == 8


def test_a_dozen_that_cost_the_same_do_not_prove_that_all_others_do() -> None:
    assert not is_precise(costing([1] * MIN_SAMPLES), 300, rate_of)
    assert is_precise(costing([1] * 50), 300, rate_of)


def test_items_that_differ_need_more() -> None:
    assert not is_precise(costing([1, 4] * 25), 300, rate_of)
    assert is_precise(costing([1, 4] * 75), 300, rate_of)


def test_a_list_that_was_tried_whole_is_certain() -> None:
    assert uncertainty(costing([1, 4] * 4), 8, rate_of) == 0


def test_requests_to_an_unlimited_domain_add_no_uncertainty() -> None:
    assert uncertainty(costing([1, 9] * 6, "free.test"), 300, rate_of) == 0


SEEDS = 20
_PAGE = Page("https://a.test/", 200, {}, b"")
_ENDS_EARLY = {
    VideoOutcome.FAILED: 1,
    VideoOutcome.DISABLED: 2,
    VideoOutcome.UNAVAILABLE: 2,
    VideoOutcome.AGE_RESTRICTED: 2,
    VideoOutcome.UNPLAYABLE: 2,
    VideoOutcome.NEEDS_TOKEN: 2,
}


def requests_of_each(seed: int) -> dict[str, int]:
    """Return what each template of a practice catalogue takes: itself, and three a transcript."""
    items = WebOptions().items
    shelf = GeneratedShelf(items, seed, odd_shapes=True, site=lambda: "https://a.test")
    costs = {}
    for number in shelf.ids:
        template = shelf.template(number)
        notes = [node.get("parameters", {}) for node in template.workflow["nodes"]]
        texts = [template.detail["description"], *(str(note.get("content", "")) for note in notes)]
        videos = [outcome_of(video) for video in find_videos("\n".join(texts))]
        costs[str(number)] = 1 + sum(_ENDS_EARLY.get(outcome, 3) for outcome in videos)
    return costs


def tried(costs: Mapping[str, int]) -> Iterator[int]:
    """Yield what the items cost that a plan would try."""
    samples: list[Sample] = []
    for item in spread_items([Item(key, f"https://a.test/{key}") for key in costs], MAX_SAMPLES):
        exchange = Exchange(Request(item.url), _PAGE, 0.0, 0.0, costs[item.key])
        samples.append(Sample(item, Outcome(OutcomeAction.STORE), [exchange]))
        yield costs[item.key]
        if is_precise(samples, len(costs), lambda _domain: 2.0):
            return


def test_nineteen_of_twenty_plans_are_within_a_tenth() -> None:
    catalogues = [requests_of_each(seed) for seed in range(SEEDS)]

    off = [fmean(tried(costs)) / fmean(costs.values()) - 1 for costs in catalogues]

    assert sum(abs(share) <= 0.1 for share in off) >= SEEDS - 1
