"""Quarantined items of manifests replayed with changed rules, with an archive and without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longline.core.model import JobState
from tests.analysis.archived_manifests import (
    ALL,
    GOODS,
    PER_PAGE,
    QUOTES,
    Past,
    listed,
    past_of,
    quote,
)
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

STRICT = QUOTES.replace("css: .text", "css: .full")
KEYED = "key: '@id'\nitems: {{"
VALID = """
pipeline:
  - validate: {{type: object, properties: {{author: {{type: string, pattern: "{pattern}"}}}}}}
"""


@pytest.fixture
def past(tmp_path: Path, site: ScriptedSite, clock: VirtualClock) -> Past:
    """Quotes of which one has its author and text elsewhere than the others."""
    past = past_of(tmp_path / "home", site, clock)
    odd = quote(5).replace('class="text"', 'class="words"')
    page = listed([4, 6, 7], "/page2").replace("</main>", f"{odd}</main>")
    site.says("/page1", page)
    return past


@pytest.mark.parametrize("items", ["items: {{", KEYED], ids=["unnamed", "keyed"])
async def test_an_element_is_read_again_with_a_fixed_selector(past: Past, items: str) -> None:
    text = QUOTES.replace("items: {{", items)
    job = await past.run(text)
    assert (job.state, len(await past.records())) == (JobState.PARTIAL, ALL - 1)

    result = await past.replayed(text.replace("css: .text", "css: [.text, .words]"))

    assert (result.ends, result.state, result.exit_code) == ({"stored": 1}, JobState.COMPLETE, 0)
    records = await past.records()
    assert len(records) == ALL
    assert "Text 5" in {data["text"] for data in records.values()}


async def test_a_replayed_element_has_the_key_that_a_run_gives(past: Past) -> None:
    await past.run(QUOTES)
    fixed = QUOTES.replace("css: .text", "css: [.text, .words]")

    result = await past.replayed(fixed)
    await past.run(fixed)

    assert len(result.renamed) == 1
    assert set(result.renamed.values()) <= set(await past.records())
    assert len(await past.records()) == ALL


async def test_a_dry_run_reports_the_same_and_changes_nothing(past: Past) -> None:
    await past.run(QUOTES)
    fixed = QUOTES.replace("css: .text", "css: [.text, .words]")

    result = await past.replayed(fixed, dry_run=True)

    assert (result.ends, result.exit_code) == ({"stored": 1}, 0)
    assert len(await past.records()) == ALL - 1
    assert (await past.replayed(fixed)).ends == {"stored": 1}


async def test_an_element_without_a_required_field_stays_quarantined(past: Past) -> None:
    await past.run(QUOTES)

    result = await past.replayed(QUOTES.replace("css: .text", "css: [.text, .nothing]"))

    assert (result.ends, result.exit_code) == ({"quarantined": 1}, 3)
    assert result.items == 1


async def test_an_element_that_is_not_found_any_more_is_left(past: Past) -> None:
    await past.run(QUOTES)

    result = await past.replayed(QUOTES.replace("div.quote", "div.quote:not(#q5)"))

    assert (result.ends, len(result.left), result.exit_code) == ({}, 1, 3)
    assert result.items == 1


async def test_without_an_archive_changed_selectors_are_not_passed_over(past: Past) -> None:
    await past.run(QUOTES, archive=False)

    result = await past.replayed(QUOTES.replace("css: .text", "css: [.text, .words]"))

    assert (result.ends, len(result.left), result.exit_code) == ({}, 1, 3)
    assert "--archive" in next(iter(result.left.values()))


async def test_without_an_archive_old_values_are_not_stored_by_new_rules(past: Past) -> None:
    invalid = QUOTES.replace("css: .text", "css: .author") + VALID.replace("{pattern}", "^Full")
    await past.run(invalid, archive=False)
    fixed = invalid.replace("author: .author", "author: .full")

    result = await past.replayed(fixed)

    assert (result.ends, len(result.left)) == ({}, ALL)
    assert await past.records() == {}


async def test_without_an_archive_a_changed_pipeline_is_enough(past: Past) -> None:
    invalid = QUOTES.replace("css: .text", "css: .author") + VALID.replace("{pattern}", "^Full")
    await past.run(invalid, archive=False)

    result = await past.replayed(invalid.replace("^Full", "^Author"))

    assert (result.ends, result.state) == ({"stored": ALL}, JobState.COMPLETE)


async def test_values_that_broke_a_rule_are_read_again_from_the_archive(past: Past) -> None:
    invalid = QUOTES.replace("css: .text", "css: .author") + VALID.replace("{pattern}", "^Full")
    await past.run(invalid)

    result = await past.replayed(invalid.replace("author: .author", "author: .full"))

    assert (result.ends, result.state) == ({"stored": ALL}, JobState.COMPLETE)
    assert {data["author"][:4] for data in (await past.records()).values()} == {"Full"}


def cut_archive(past: Past) -> None:
    """Lose all that was archived after the first page."""
    (path,) = (past.home / "archive").glob("*.warc.gz")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


async def test_values_are_enough_for_a_changed_pipeline_if_the_archive_is_damaged(
    past: Past,
) -> None:
    invalid = QUOTES.replace("css: .text", "css: .author") + VALID.replace("{pattern}", "^Full")
    await past.run(invalid)
    cut_archive(past)

    result = await past.replayed(invalid.replace("^Full", "^Author"))

    assert (result.ends, result.state) == ({"stored": ALL}, JobState.COMPLETE)


async def test_values_are_not_enough_for_changed_selectors_if_the_archive_is_damaged(
    past: Past,
) -> None:
    invalid = QUOTES.replace("css: .text", "css: .author") + VALID.replace("{pattern}", "^Full")
    await past.run(invalid)
    cut_archive(past)

    result = await past.replayed(invalid.replace("author: .author", "author: .full"))

    assert 0 < len(result.left) < ALL
    assert result.ends == {"stored": ALL - len(result.left)}
    assert (result.items, result.exit_code) == (ALL, 3)
    assert {data["author"][:4] for data in (await past.records()).values()} == {"Full"}


PAGES = """
manifest: html
name: goods
start: {site}/good
fields: {{title: {{css: h1, required: true}}}}
"""


async def test_a_page_is_read_again_from_the_archive(past: Past) -> None:
    past.site.says("/good", "<h2>A good</h2>")
    await past.run(PAGES)

    result = await past.replayed(PAGES.replace("css: h1", "css: h2"))

    assert (result.ends, result.state) == ({"stored": 1}, JobState.COMPLETE)
    assert (await past.records())["/good"] == {"title": "A good"}


async def test_a_record_without_its_key_is_stored_under_the_right_one(past: Past) -> None:
    past.site.says("/goods", json.dumps({"items": [{"id": 1, "name": "a"}, {"sku": 2}]}))
    await past.run(GOODS)

    result = await past.replayed(GOODS.replace("key: id", "key: id || sku"))

    assert (result.ends, result.state) == ({"stored": 1}, JobState.COMPLETE)
    assert sorted(await past.records()) == ["1", "2"]


async def test_a_new_key_that_another_item_has_is_refused(past: Past) -> None:
    past.site.says("/goods", json.dumps({"items": [{"id": 1, "name": "a"}, {"sku": 1}]}))
    await past.run(GOODS)

    result = await past.replayed(GOODS.replace("key: id", "key: id || sku"))

    assert (result.ends, len(result.left), result.exit_code) == ({}, 1, 3)
    assert (await past.records())["1"]["name"] == "a"


async def test_a_field_of_a_record_is_read_again_without_an_archive(past: Past) -> None:
    strict = GOODS.replace("name: name", "name: {{path: label, required: true}}")
    await past.run(strict, archive=False)

    result = await past.replayed(GOODS)

    assert (result.ends, result.state) == ({"stored": ALL}, JobState.COMPLETE)


async def test_other_records_of_the_same_answer_need_the_archive(past: Past) -> None:
    strict = GOODS.replace("name: name", "name: {{path: label, required: true}}")
    await past.run(strict, archive=False)

    result = await past.replayed(GOODS.replace("records: items", "records: 'items[?id>`1`]'"))

    assert (result.ends, len(result.left)) == ({}, ALL)
    assert len(result.left) > PER_PAGE
