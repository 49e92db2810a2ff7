"""A source as an object: set up, scraped, torn down, with a status and a result."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.core.errors import BadOption
from longline.core.model import JobState
from longline.scraper import Scraper, ScrapeResult
from tests.sample_sources import PageSource
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock


def scraper(site: ScriptedSite, clock: VirtualClock, home: Path, **spec: object) -> Scraper:
    options = {"site": site.url, "count": 3}
    for number in range(3):
        site.says(f"/item/{number}", f"text {number}")
    return Scraper(f"{PageSource.__module__}:PageSource", options, home=home, clock=clock, **spec)


async def test_a_scraper_that_finds_everything_has_completed(
    site: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    one = scraper(site, clock, tmp_path)
    before = one.status

    async with one:
        result = await one.scrape()

    assert (before, one.status) == (JobState.PENDING, JobState.COMPLETE)
    assert result.success
    assert sorted(item["key"] for item in result.items) == ["0", "1", "2"]
    assert result.stats["stored"] == 3


async def test_errors_are_returned_with_the_records(
    site: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    broken = scraper(site, clock, tmp_path)
    site.says("/item/1", "raise")

    async with broken as one:
        result = await one.scrape()

    assert result.status is JobState.PARTIAL
    assert len(result.items) == 2
    assert "ZeroDivisionError" in result.errors[-1]


async def test_an_unusable_source_is_an_error_before_any_request(
    site: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    wrong = Scraper("n8n", {"no_such": "1"}, home=tmp_path, clock=clock)

    with pytest.raises(BadOption, match="no_such"):
        await wrong.setup()

    assert not site.log


def test_the_metadata_describes_the_source(
    site: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    about = scraper(site, clock, tmp_path).metadata

    assert (about.kind, about.name, about.version) == ("code", "pages", "1")


def test_a_result_is_complete_partial_or_failed() -> None:
    good = ScrapeResult.succeeded([{"a": 1}])
    bad = ScrapeResult.failed(["no answer"])
    half = ScrapeResult.partial([{"a": 1}], ["2: gone"])

    assert [one.success for one in (good, bad, half)] == [True, False, False]
    assert [one.status.value for one in (good, bad, half)] == [
        "complete",
        "failed",
        "partial",
    ]
