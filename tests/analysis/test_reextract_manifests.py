"""Manifests extracted again from archived pages: discovery is repeated, no value is taken over."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from longline.analysis.reextract import Reextraction, ReextractStatus
from longline.orchestrator import Orchestrator
from tests.analysis.archived_manifests import (
    ALL,
    GOODS,
    PAGES,
    PER_PAGE,
    QUOTES,
    Past,
    listed,
    past_of,
)
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock


@pytest.fixture
def past(tmp_path: Path, site: ScriptedSite, clock: VirtualClock) -> Past:
    return past_of(tmp_path / "home", site, clock)


def counts(result: Reextraction) -> dict[str, int]:
    return {finding.value: n for finding in ReextractStatus if (n := len(result.of(finding)))}


def keyed(text: str) -> str:
    return text.replace("items: {{", "key: '@id'\nitems: {{")


# ---------------------------------------------------------------- elements


async def test_elements_that_are_read_alike_are_the_same(past: Past) -> None:
    await past.run(QUOTES)

    result = await past.again()

    assert counts(result) == {"same": ALL}
    assert result.exit_code == 0


@pytest.mark.parametrize("text", [QUOTES, keyed(QUOTES)], ids=["unnamed", "keyed"])
async def test_a_changed_selector_of_elements_shows_in_every_item(past: Past, text: str) -> None:
    await past.run(text)

    result = await past.again(text.replace(".author", ".full"))

    assert counts(result) == {"changed": ALL}
    changes = result.as_dict()["changes"].values()
    assert sorted(change["new"] for (change,) in changes) == sorted(
        f"Full name {number}" for number in range(ALL)
    )


async def test_changed_elements_can_be_written_and_are_the_same_then(past: Past) -> None:
    await past.run(keyed(QUOTES))
    changed = keyed(QUOTES).replace(".author", ".full")

    result = await past.again(changed, write=True)

    assert result.written == ALL
    assert (await past.records())["q7"]["author"] == "Full name 7"
    assert counts(await past.again()) == {"same": ALL}


async def test_unnamed_elements_are_written_under_the_key_that_a_run_would_give(
    past: Past,
) -> None:
    await past.run(QUOTES)
    changed = QUOTES.replace(".author", ".full")

    result = await past.again(changed, write=True)

    renamed = result.as_dict()["renamed"]
    assert (len(renamed), result.written) == (ALL, ALL)
    again = await past.again()
    assert (counts(again), again.as_dict()["renamed"]) == ({"same": ALL}, {})
    await past.run(changed)
    assert len(await past.records()) == 2 * ALL  # as many as after two runs, and none twice


async def test_a_changed_key_is_a_change_of_each_item(past: Past) -> None:
    await past.run(keyed(QUOTES))

    result = await past.again(QUOTES.replace("items: {{", "key: .text\nitems: {{"))

    assert counts(result) == {"changed": ALL}
    assert result.as_dict()["renamed"]["q3"] == "Text 3"


async def test_a_narrower_selector_removes_items(past: Past) -> None:
    await past.run(keyed(QUOTES))

    result = await past.again(keyed(QUOTES).replace("div.quote", "div.quote:not(#q2)"))

    assert counts(result) == {"same": ALL - 1, "removed": 1}
    assert list(result.as_dict()["not_found"]) == ["q2"]
    assert result.exit_code == 3


async def test_a_wider_selector_of_items_finds_new_ones(past: Past) -> None:
    await past.run(keyed(QUOTES).replace("div.quote", "div.quote:not(#q2)"))

    result = await past.again(keyed(QUOTES), write=True)

    assert counts(result) == {"same": ALL - 1, "new": 1}
    assert result.exit_code == 0
    assert (await past.records())["q2"]["author"] == "Author 2"
    assert counts(await past.again()) == {"same": ALL}


async def test_a_selector_that_finds_nothing_leaves_nothing_the_same(past: Past) -> None:
    await past.run(QUOTES)

    result = await past.again(QUOTES.replace("div.quote", "div.cite"))

    assert counts(result) == {"failed": ALL}
    assert result.exit_code == 3


async def test_a_required_field_that_is_not_there_fails_each_item(past: Past) -> None:
    await past.run(QUOTES)

    result = await past.again(QUOTES.replace("css: .text", "css: .missing"))

    assert counts(result) == {"failed": ALL}


async def test_pages_that_were_never_fetched_are_named_and_not_passed_over(past: Past) -> None:
    await past.run(keyed(QUOTES).replace("pages: .next a@href\n", ""))

    result = await past.again(keyed(QUOTES))

    assert counts(result) == {"same": PER_PAGE}
    assert "/page1" in (result.discovery_problem or "")
    assert result.exit_code == 3


async def test_elements_on_a_page_that_the_archive_has_lost_cannot_be_compared(
    past: Past,
) -> None:
    await past.run(QUOTES)
    # The start page answers under another address now: the archive does not hold that one.
    result = await past.again(QUOTES.replace("{site}/", "{site}/index"))

    assert counts(result) == {"failed": ALL}
    assert all("/index" in reason for reason in result.as_dict()["failures"].values())


async def test_a_limited_job_has_no_more_items_than_its_limit(past: Past) -> None:
    await past.run(QUOTES, limit=6)

    assert counts(await past.again()) == {"same": 6}
    changed = await past.again(QUOTES.replace(".author", ".full"))
    assert (counts(changed), changed.exit_code) == ({"changed": 6}, 0)


async def test_a_limit_of_the_command_compares_the_first_items(past: Past) -> None:
    await past.run(QUOTES)

    result = await past.again(QUOTES.replace(".author", ".full"), limit=2)

    assert counts(result) == {"changed": 2}


async def test_the_same_element_on_two_pages_is_one_item(past: Past) -> None:
    past.site.says("/page1", listed([3, 4, 5, 6, 7], "/page2"))
    await past.run(QUOTES)

    assert counts(await past.again()) == {"same": ALL}
    assert counts(await past.again(QUOTES.replace(".author", ".full"))) == {"changed": ALL}


async def test_elements_with_one_key_are_distinguished_by_their_content(past: Past) -> None:
    shared = QUOTES.replace("items: {{", "key: '@class'\nitems: {{")
    await past.run(shared)

    assert counts(await past.again()) == {"same": ALL}
    changed = await past.again(shared.replace(".author", ".full"))
    assert counts(changed) == {"changed": ALL}
    values = [change["new"] for one in changed.as_dict()["changes"].values() for change in one]
    assert len(set(values)) == ALL


async def test_the_copy_of_the_job_is_used_when_the_manifest_is_gone(past: Past) -> None:
    await past.run(QUOTES)
    past.manifest.unlink()

    assert counts(await past.again()) == {"same": ALL}


# ---------------------------------------------------------------- elements with pages


LINKED = """
manifest: html
name: quotes
start: {site}/shelf
items:
  elements: li
  link: a
  fields: {{shelf: .place}}
fields: {{title: h1}}
"""


@pytest.fixture
def shelf(past: Past) -> Past:
    rows = "".join(
        f'<li><a href="/book{n}">b{n}</a><i class="place">p{n}</i><i class="row">r{n}</i></li>'
        for n in range(3)
    )
    past.site.says("/shelf", f"<ul>{rows}</ul>")
    for number in range(3):
        past.site.says(f"/book{number}", f"<h1>Book {number}</h1><h2>Sub {number}</h2>")
    return past


async def test_fields_of_the_list_and_of_the_page_are_both_extracted_again(shelf: Past) -> None:
    await shelf.run(LINKED)

    assert counts(await shelf.again()) == {"same": 3}
    listed = await shelf.again(LINKED.replace(".place", ".row"))
    paged = await shelf.again(LINKED.replace("title: h1", "title: h2"))

    assert counts(listed) == {"changed": 3}
    assert listed.as_dict()["changes"]["/book1"] == [{"field": "shelf", "old": "p1", "new": "r1"}]
    assert counts(paged) == {"changed": 3}
    assert paged.as_dict()["changes"]["/book1"][0]["new"] == "Sub 1"


async def test_a_page_that_was_never_fetched_is_not_the_same(shelf: Past) -> None:
    await shelf.run(LINKED.replace("elements: li", "elements: 'li:first-child'"))

    result = await shelf.again(LINKED)

    assert counts(result) == {"same": 1, "failed": 2}
    assert result.exit_code == 3


async def test_a_changed_key_of_pages_is_found_by_their_address(shelf: Past) -> None:
    await shelf.run(LINKED)

    result = await shelf.again(LINKED.replace("items:", "key: .row\nitems:"))

    assert result.as_dict()["renamed"] == {f"/book{n}": f"r{n}" for n in range(3)}


async def test_pages_can_be_extracted_again_without_their_list(shelf: Past) -> None:
    linked = """
manifest: html
name: books
start: {site}/shelf
items: li a
fields: {{title: h1}}
"""
    await shelf.run(linked)

    result = await shelf.again(linked.replace("/shelf", "/other").replace("h1", "h2"))

    # What the source would find is unknown; the pages of the items are there.
    assert (counts(result), result.exit_code) == ({"changed": 3}, 3)
    assert "/other" in (result.discovery_problem or "")


# ---------------------------------------------------------------- records of an API


async def test_of_records_with_one_key_the_first_is_kept_and_compared(past: Past) -> None:
    records = [{"id": 1, "name": "first"}, {"id": 1, "name": "second"}, {"id": 2, "name": "b"}]
    past.site.says("/goods", json.dumps({"items": records}))
    await past.run(GOODS)

    result = await past.again()

    assert (await past.records())["1"]["name"] == "first"
    assert counts(result) == {"same": 2}


async def test_a_list_that_was_cut_is_partial_again(past: Past) -> None:
    cut = QUOTES.replace("items: {{", "most_pages: 2\nitems: {{")
    await past.run(cut)

    result = await past.again()

    assert counts(result) == {"same": 2 * PER_PAGE}
    assert (result.discovery_problem is not None, result.exit_code) == (True, 3)


async def test_changed_fields_of_list_records_show(past: Past) -> None:
    await past.run(GOODS)

    assert counts(await past.again()) == {"same": ALL}
    changed = await past.again(GOODS.replace("name: name", "name: title"))

    assert counts(changed) == {"changed": ALL}
    assert changed.as_dict()["changes"]["5"] == [
        {"field": "name", "old": "name 5", "new": "title 5"}
    ]


async def test_a_changed_key_of_records_is_a_change_of_each(past: Past) -> None:
    await past.run(GOODS)

    result = await past.again(GOODS.replace("key: id", "key: sku"))

    assert counts(result) == {"changed": ALL}
    assert result.as_dict()["renamed"]["5"] == "s5"


async def test_another_path_to_the_records_finds_another_set(past: Past) -> None:
    await past.run(GOODS)

    result = await past.again(GOODS.replace("records: items", "records: 'items[?id!=`2`]'"))

    assert counts(result) == {"same": ALL - 1, "removed": 1}
    assert list(result.as_dict()["not_found"]) == ["2"]


async def test_a_list_that_begins_at_a_bookmark_is_repeated_from_there(past: Past) -> None:
    incremental = GOODS.replace(
        "    fields:",
        "    incremental: {{field: id, parameter: since, type: integer, start: 0}}\n    fields:",
    )
    await past.run(incremental)
    job = await past.run(incremental)
    assert job.cursor is not None

    assert counts(await past.again()) == {"same": ALL}
    changed = await past.again(incremental.replace("name: name", "name: title"))
    assert counts(changed) == {"changed": ALL}


async def test_a_record_without_a_key_is_found_under_its_new_one(past: Past) -> None:
    past.site.says("/goods", json.dumps({"items": [{"id": 1, "name": "a"}, {"sku": 2}]}))
    await past.run(GOODS)

    result = await past.again(GOODS.replace("key: id", "key: id || sku"))

    assert counts(result) == {"same": 1, "new": 1}
    assert list(result.as_dict()["renamed"].values()) == ["2"]


# ---------------------------------------------------------------- other sources


async def test_records_that_a_function_made_before_are_never_called_the_same(
    past: Past,
) -> None:
    code = """
        async def quotes(fetch):
            page = await fetch("{site}/")
            for node in page.tree.css("div.quote"):
                yield {{"id": node.attributes["id"], "text": node.css_first("{css}").text()}}
    """
    path = past.home / "functions.py"
    past.home.mkdir()
    path.write_text(dedent(code).format(site=past.site.url, css=".text"))
    async with Orchestrator(
        f"{path}:quotes", home=past.home, clock=past.clock, archive=True, rate="unlimited"
    ) as longline:
        report = await longline.execute()
        past.job = await longline.store.jobs.get(report.job)
    past.site.hits.clear()
    path.write_text(dedent(code).format(site=past.site.url, css=".author"))

    result = await past.again()

    assert counts(result) == {"failed": PER_PAGE}
    assert result.exit_code == 3


LISTED = """
from longline import Item, Options, Source, layer


class SiteOptions(Options):
    site: str


class Listed(Source):
    name = "listed"
    rate = None
    Options = SiteOptions
    css = None

    async def prepare(self, visit):
        self.css = "{css}"

    async def discover(self, visit):
        page = await visit.fetch(self.options.site + "/")
        for node in page.tree.css("div.quote"):
            key = node.attributes["id"]
            author = node.css_first(self.css).text()
            yield Item(key, self.options.site + "/#" + key, data={{"author": author}})

    @layer()
    async def page(self, visit):
        data = visit.item.data
        if "author" in data:
            copy = {{"copy": data["author"]}}
            visit.add(Item("copy " + visit.item.key, visit.item.url, data=copy))
        return dict(data)
"""


async def test_discovery_in_python_is_repeated_if_items_carry_its_data(past: Past) -> None:
    path = past.home / "listed.py"
    past.home.mkdir()
    path.write_text(LISTED.format(css=".author"))
    async with Orchestrator(
        str(path), {"site": past.site.url}, home=past.home, clock=past.clock, archive=True
    ) as longline:
        report = await longline.execute()
        past.job = await longline.store.jobs.get(report.job)
    past.site.hits.clear()

    assert counts(await past.again()) == {"same": 2 * PER_PAGE}
    path.write_text(LISTED.format(css=".full"))
    changed = await past.again()

    assert (counts(changed), changed.exit_code) == ({"changed": 2 * PER_PAGE}, 0)
    path.write_text(LISTED.format(css=".full").replace('+ "/")', '+ "/elsewhere")'))
    lost = await past.again()
    assert (counts(lost), lost.exit_code) == ({"failed": 2 * PER_PAGE}, 3)


SPIDER = """
import scrapy


class Quotes(scrapy.Spider):
    name = "spider"

    def __init__(self, site, **more):
        super().__init__(**more)
        self.start_urls = [site + "/"]

    def parse(self, response):
        for one in response.css("div.quote"):
            yield {{"id": one.attrib["id"], "author": one.css("{css}::text").get()}}
        for link in response.css(".next a"):
            yield response.follow(link)
"""


async def test_items_of_a_spider_are_parsed_again(past: Past) -> None:
    path = past.home / "spider.py"
    past.home.mkdir()
    path.write_text(SPIDER.format(css=".author"))
    async with Orchestrator(
        f"{path}:Quotes", {"site": past.site.url}, home=past.home, clock=past.clock, archive=True
    ) as longline:
        report = await longline.execute()
        past.job = await longline.store.jobs.get(report.job)
    past.site.hits.clear()

    assert counts(await past.again()) == {"same": ALL, "skipped": PAGES}
    path.write_text(SPIDER.format(css=".full"))
    assert counts(await past.again()) == {"changed": ALL, "skipped": PAGES}
    path.write_text(SPIDER.format(css=".full").replace('"id": one.attrib["id"], ', ""))
    unnamed = await past.again()
    assert counts(unnamed) == {"failed": ALL, "skipped": PAGES}
    assert unnamed.exit_code == 3


PIPELINE = (
    SPIDER.replace(
        'name = "spider"',
        'name = "spider"\n    custom_settings = {{"ITEM_PIPELINES": {{"{module}.Writing": 1}}}}',
    )
    + """

class Writing:
    def process_item(self, item, spider):
        with open({file!r}, "a") as file:
            file.write("once\\n")
        return item
"""
)


async def test_the_pipelines_of_a_scrapy_project_are_not_run_again(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    past.home.mkdir()
    path, written = past.home / "piped_spider.py", past.home / "written"
    path.write_text(PIPELINE.format(css=".author", module="piped_spider", file=str(written)))
    monkeypatch.syspath_prepend(past.home)
    async with Orchestrator(
        "piped_spider:Quotes",
        {"site": past.site.url},
        home=past.home,
        clock=past.clock,
        archive=True,
    ) as longline:
        report = await longline.execute()
        past.job = await longline.store.jobs.get(report.job)
    past.site.hits.clear()

    result = await past.again()

    assert (counts(result), result.exit_code) == ({"failed": ALL, "skipped": PAGES}, 3)
    assert len(written.read_text().splitlines()) == ALL
