"""Extraction from archived answers: what is the same, what changed, what cannot be had."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from longline.analysis.reextract import (
    NothingArchived,
    Reextraction,
    ReextractStatus,
    ReplayClock,
    pair_items,
    reextract,
    source_for,
)
from longline.core.errors import BadOption
from longline.core.model import Item, Job
from longline.http.archive.warc import Archive, open_warc
from longline.sources.base import Source, Visit, layer
from longline.sources.loader import UnknownSource
from longline.storage.jobs import NewJob
from longline.storage.store import Store, open_store
from tests.archived_jobs import collected
from tests.sample_sources import PageSource
from tests.scripted_site import ScriptedSite, drop
from tests.virtual import EPOCH, VirtualClock

COUNT = 6


class Louder(PageSource):
    """Reads the same pages otherwise: one item in capitals, one field more."""

    @layer()
    async def page(self, visit: Visit) -> dict[str, Any]:
        text = (await visit.fetch(visit.item.url)).text
        return {"text": text.upper() if visit.item.key == "2" else text}


class Curious(PageSource):
    """Asks for more than was ever fetched."""

    @layer(optional=True)
    async def more(self, visit: Visit) -> dict[str, Any]:
        return {"extra": (await visit.fetch(f"{visit.item.url}/more")).text}


class Strict(PageSource):
    """Takes no item whose key is odd."""

    @layer()
    async def page(self, visit: Visit) -> dict[str, Any]:
        if int(visit.item.key) % 2:
            raise ZeroDivisionError("odd")
        return await super().page(visit)


class Lenient(PageSource):
    """Makes something of a page that could not be used before."""

    @layer()
    async def page(self, visit: Visit) -> dict[str, Any]:
        return {"text": (await visit.fetch(visit.item.url)).text}


class Remembering(PageSource):
    """Says of each page when it came, and how many came before it."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.seen = 0

    @layer()
    async def page(self, visit: Visit) -> dict[str, Any]:
        page = await visit.fetch(visit.item.url)
        self.seen += 1
        return {"text": f"{page.text} {visit.clock.now():.3f}", "extra": str(self.seen)}

    @layer()
    async def extra(self, visit: Visit) -> dict[str, Any]:
        del visit
        return {}


@dataclass
class Past:
    """A site that was collected from, and what is left of it: the store and the archive."""

    site: ScriptedSite
    store: Store
    archive: Archive
    clock: VirtualClock
    job: Job | None = None

    async def collect(self, reference: str = "tests.sample_sources:PageSource") -> Job:
        options = {"site": self.site.url, "count": COUNT}
        job = await collected(self.store, self.archive, reference, options, self.clock)
        self.job = self.job or job
        return job

    async def again(self, kind: type[PageSource] = PageSource, **options: Any) -> Reextraction:
        assert self.job is not None
        source = kind.with_options(self.job.settings["set"])
        return await reextract(self.store, self.archive, self.job, source, self.clock, **options)

    async def texts(self) -> dict[str, Any]:
        return {
            str(n): (await self.store.records.get(str(n)))["data"]["text"] for n in range(COUNT)
        }


@pytest.fixture
async def past(tmp_path: Path, site: ScriptedSite, clock: VirtualClock) -> AsyncIterator[Past]:
    for number in range(COUNT):
        site.says(f"/item/{number}", f"page {number}")
    with open_store(f"sqlite:///{tmp_path}/longline.sqlite") as store:
        async with open_warc(tmp_path / "archive") as archive:
            yield Past(site, store, archive, clock)


def counts(result: Reextraction) -> dict[str, int]:
    return {finding.value: n for finding in ReextractStatus if (n := len(result.of(finding)))}


async def test_the_same_source_makes_the_same_records(past: Past) -> None:
    await past.collect()
    hits = past.site.hits.total()

    result = await past.again()

    assert counts(result) == {"same": COUNT}
    assert (result.requests, past.site.hits.total()) == (0, hits)
    assert result.exit_code == 0


async def test_a_changed_layer_shows_the_changed_fields(past: Past) -> None:
    await past.collect()

    result = await past.again(Louder)

    assert counts(result) == {"same": COUNT - 1, "changed": 1}
    assert result.as_dict()["changes"] == {
        "2": [{"field": "text", "old": "page 2", "new": "PAGE 2"}]
    }
    assert (await past.texts())["2"] == "page 2"


async def test_changes_can_be_written_as_a_new_version(past: Past) -> None:
    await past.collect()

    result = await past.again(Louder, write=True)

    assert result.written == 1
    assert (await past.texts())["2"] == "PAGE 2"
    versions = await past.store.records.versions("2")
    assert [one["data"]["text"] for one in versions] == ["page 2"]
    assert counts(await past.again(Louder)) == {"same": COUNT}
    events = await past.store.events.list(result.job, types=["job.reextracted"])
    assert [event.data for event in events] == [{"written": 1}]


async def test_a_new_field_differs_from_an_empty_one(past: Past) -> None:
    await past.collect()
    record = await past.store.records.get("3")
    await past.store.records.update("3", {"more": None}, at=EPOCH)

    result = await past.again()

    assert record["data"] == {"text": "page 3", "extra": None}
    assert result.as_dict()["changes"] == {"3": [{"field": "more", "old": None}]}


async def test_equal_values_of_other_types_are_a_change(past: Past) -> None:
    await past.collect()
    await past.store.records.update("3", {"number": 1}, at=EPOCH)
    await past.store.records.update("4", {"text": "page 4"}, at=EPOCH)

    class Numbered(Lenient):
        Record = None  # type: ignore[assignment]  # anything goes

        def compose(self, item: Item, layers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
            number = {"number": True} if item.key == "3" else {}
            return {**super().compose(item, layers), **number}

    result = await past.again(Numbered)

    changes = result.as_dict()["changes"]
    assert changes == {"3": [{"field": "number", "old": 1, "new": True}]}


async def test_an_item_that_fails_now_has_a_reason(past: Past) -> None:
    await past.collect()

    result = await past.again(Strict)

    assert counts(result) == {"same": 3, "failed": 3}
    assert result.exit_code == 3
    assert "ZeroDivisionError: odd" in result.as_dict()["failures"]["1"]


async def test_a_missing_response_is_named(past: Past) -> None:
    await past.collect()

    result = await past.again(Curious)

    # The layer is optional and its field is empty as before, but a run might have filled it.
    assert (counts(result), result.exit_code) == ({"failed": COUNT}, 3)
    failed = result.as_dict()["failures"]
    assert "GET" in failed["1"]
    assert "/item/1/more" in failed["1"]


async def test_a_failed_item_may_succeed_now(past: Past) -> None:
    past.site.says("/item/4", "raise")
    await past.collect()

    result = await past.again(Lenient, write=True)

    assert counts(result) == {"same": COUNT - 1, "new": 1}
    assert (await past.texts())["4"] == "raise"


async def test_an_item_that_was_gone_is_skipped_again(past: Past) -> None:
    past.site.says("/item/4", status=404)
    await past.collect()

    result = await past.again()

    assert counts(result) == {"same": COUNT - 1, "skipped": 1}
    assert result.exit_code == 0


async def test_an_unreachable_item_fails_again(past: Past) -> None:
    past.site.answers["/item/4"] = drop
    job = await past.collect()
    rows = await past.store.queue.finished(job.id)

    result = await past.again()

    reasons = {row["key"]: row["reason"] for row in rows if row["reason"]}
    assert list(reasons) == ["4"]
    assert result.as_dict()["failures"] == reasons


async def test_a_limit_selects_the_first_items(past: Past) -> None:
    await past.collect()

    result = await past.again(limit=2)

    assert [one.key for one in result.comparisons] == ["0", "1"]


async def test_records_of_later_jobs_are_compared_and_not_replaced(past: Past) -> None:
    await past.collect()
    past.site.says("/item/5", "news")
    await past.clock.sleep(60)
    await past.collect()

    result = await past.again(Louder, write=True)

    assert counts(result) == {"same": COUNT - 2, "changed": 2}
    shown = result.as_dict()
    assert (shown["superseded"], shown["written"]) == (COUNT, 0)
    assert shown["changes"]["5"] == [{"field": "text", "old": "news", "new": "page 5"}]
    assert (await past.texts())["5"] == "news"


async def test_time_and_state_of_a_source_are_as_in_the_run(past: Past) -> None:
    # Earlier items answer later, so that they end in another order than they began.
    for number in range(COUNT):
        past.site.answers[f"/item/{number}"] = slow(past, f"page {number}", COUNT - number)
    await past.collect("tests.analysis.test_reextract:Remembering")
    await past.clock.sleep(1000)

    result = await past.again(Remembering)

    assert [(await past.texts())[key] for key in ("0", "5")] == [
        f"page 0 {EPOCH + 6:.3f}",
        f"page 5 {EPOCH + 1:.3f}",
    ]
    assert counts(result) == {"same": COUNT}


def slow(past: Past, text: str, seconds: float) -> Any:
    async def answer(_request: web.Request) -> web.StreamResponse:
        await past.clock.sleep(seconds)
        return web.Response(text=text)

    return answer


async def test_a_job_without_an_archive_is_an_error(past: Past) -> None:
    past.job = await past.store.jobs.create(NewJob("pages", {"set": {"site": "x"}}, {}, EPOCH))

    with pytest.raises(NothingArchived, match="--archive"):
        await past.again()


# ---------------------------------------------------------------- which source


@pytest.fixture
def job() -> Job:
    settings = {
        "source": "tests.sample_sources:PageSource",
        "set": {"site": "https://a.test", "count": 3},
    }
    return Job("pages-1", "pages", "complete", settings, EPOCH)  # type: ignore[arg-type]  # a test's shorthand


def test_the_source_of_a_job_has_its_settings(job: Job) -> None:
    source = source_for(job, None, {})

    assert (type(source).__name__, source.options.site) == ("PageSource", "https://a.test")


def test_another_source_has_the_settings_of_the_job_and_the_given_ones(job: Job) -> None:
    source = source_for(job, "tests.analysis.test_reextract:Louder", {"count": "9"})

    assert type(source).__name__ == "Louder"
    assert (source.options.site, source.options.count) == ("https://a.test", 9)


def test_a_job_file_has_its_own_settings(job: Job, tmp_path: Path) -> None:
    path = tmp_path / "new.yaml"
    path.write_text("source: tests.analysis.test_reextract:Louder\nset: {site: https://b.test}\n")

    source = source_for(job, str(path), {})

    assert type(source).__name__ == "Louder"
    assert (source.options.site, source.options.count) == ("https://b.test", 10)


def test_a_source_that_does_not_exist_or_does_not_fit_is_refused(job: Job) -> None:
    with pytest.raises(UnknownSource):
        source_for(job, "nobody", {})
    with pytest.raises(BadOption) as refused:
        source_for(job, "n8n", {})

    assert refused.value.option in {"--set site", "--set count"}


PAGE = "https://quotes.test/"


class Elements(Source):
    """Items that carry the identity of their element, unless an older version queued them."""

    name = "elements"

    def identity_of(self, item: Item) -> str | None:
        identity: str | None = item.data.get("element")
        return identity


def item(key: str, element: str | None = None, url: str = PAGE) -> Item:
    return Item(key, url, data={} if element is None else {"element": element})


def row(key: str, element: str | None = None, url: str = PAGE) -> dict[str, Any]:
    one = item(key, element, url)
    return {"key": key, "url": url, "priority": 0, "data": one.data}


def pairs(
    rows: list[dict[str, Any]], found: list[Item], limit: int | None = None
) -> tuple[dict[str, str], list[str]]:
    """Return the new key of each row, and the keys of the new items."""
    paired = pair_items(Elements(), rows, found, limit)
    return {old: new.key for old, new in paired.items.items()}, [one.key for one in paired.new]


def test_an_element_is_known_again_under_another_key() -> None:
    found = [item("x", "2"), item("y", "1")]

    assert pairs([row("a", "1"), row("b", "2")], found) == ({"a": "y", "b": "x"}, [])


def test_an_element_counts_more_than_a_key() -> None:
    # The keys have moved on by one: each row is still its own element.
    found = [item("b", "1"), item("c", "2")]

    assert pairs([row("a", "1"), row("b", "2")], found) == ({"a": "b", "b": "c"}, [])


def test_equal_elements_keep_their_keys() -> None:
    found = [item("b", "1"), item("a", "1")]

    assert pairs([row("a", "1"), row("b", "1")], found) == ({"a": "a", "b": "b"}, [])


def test_a_key_is_enough_where_the_element_differs() -> None:
    assert pairs([row("a", "1")], [item("a", "9")]) == ({"a": "a"}, [])


def test_items_of_older_versions_are_known_by_their_place_on_the_page() -> None:
    found = [item("x", "1"), item("y", "2"), item("z", "3", f"{PAGE}2")]

    assert pairs([row("a"), row("b")], found) == ({"a": "x", "b": "y"}, ["z"])


def test_places_are_ignored_if_the_number_of_items_differs() -> None:
    found = [item("x", "1"), item("y", "2")]

    assert pairs([row("a"), row("b"), row("c")], found) == ({}, ["x", "y"])


def test_a_limited_job_has_no_new_items_beyond_its_limit() -> None:
    found = [item("a", "1"), item("x", "2"), item("y", "3")]

    assert pairs([row("a", "1")], found, limit=2) == ({"a": "a"}, ["x"])


async def test_the_time_of_a_replay_does_not_go_back() -> None:
    clock = ReplayClock(5)

    await clock.wait_until(9)
    await clock.wait_until(3)
    await clock.sleep(2)

    assert clock.now() == 11
