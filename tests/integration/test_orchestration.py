from __future__ import annotations

import pytest

from longline.core.errors import BadOption
from longline.core.model import Item, JobState
from longline.sandbox.web import PracticeWeb
from longline.storage.query import RecordQuery
from tests.integration.conftest import Collect, Serve

LAYERS = ["metadata", "workflow", "content", "media", "transcripts"]


def items_of(web: PracticeWeb, count: int) -> list[Item]:
    ids = web.catalogue.obtainable[:count]
    return [Item(str(number), f"{web.url}{web.catalogue.path(number)}") for number in ids]


async def test_a_single_item_is_collected_and_stored(serve: Serve, collect: Collect) -> None:
    async with serve(items=5) as web, collect(web) as orchestrator:
        item = items_of(web, 1)[0]

        result = await orchestrator.process_item(item.key, item.url)

        record = await orchestrator.store.records.get(item.key)
    assert (result.success, result.stored, result.error) == (True, True, None)
    assert result.key == item.key
    assert result.quality_score == record["score"]
    assert result.processing_time >= 0


async def test_an_item_that_is_not_there_says_why(serve: Serve, collect: Collect) -> None:
    async with serve(items=5) as web, collect(web) as orchestrator:
        result = await orchestrator.process_item("99999999", f"{web.url}/workflows/99999999")

    assert (result.success, result.stored, result.quality_score) == (False, False, None)
    assert "404" in str(result.error)


async def test_a_batch_of_ten_adds_up(serve: Serve, collect: Collect) -> None:
    async with serve(items=12) as web, collect(web) as orchestrator:
        batch = await orchestrator.process_batch(items_of(web, 10))

    assert (batch.total, batch.processed, batch.successful, batch.failed) == (10, 10, 10, 0)
    assert batch.success_rate == 1.0
    assert len({result.key for result in batch.results}) == 10
    assert batch.statistics["requests"] >= 10


async def test_a_hundred_items_survive_a_web_with_faults(serve: Serve, collect: Collect) -> None:
    async with serve(items=100, faults=0.3) as web, collect(web, rate="unlimited") as orchestrator:
        batch = await orchestrator.process_batch(items_of(web, 100), batch_size=10)

        assert await orchestrator.store.records.count() == 100
    assert (batch.processed, batch.successful) == (100, 100)
    assert batch.statistics["retries"] > 0


async def test_the_error_of_one_item_never_ends_the_batch(serve: Serve, collect: Collect) -> None:
    async with serve(items=12) as web, collect(web) as orchestrator:
        items = items_of(web, 4)
        items.insert(2, Item("not a number", f"{web.url}/nowhere"))

        batch = await orchestrator.process_batch(items)

    assert batch.processed == 5
    assert batch.successful == 4


async def test_a_batch_goes_on_from_a_key(serve: Serve, collect: Collect) -> None:
    async with serve(items=12) as web, collect(web) as orchestrator:
        items = items_of(web, 6)

        batch = await orchestrator.process_batch(items, resume_from=items[4].key)

        with pytest.raises(BadOption, match="'x'"):
            await orchestrator.process_batch(items, resume_from="x")
    assert [result.key for result in batch.results] == [item.key for item in items[4:]]


async def test_all_layers_run_and_say_so(serve: Serve, collect: Collect) -> None:
    options = {"transcripts": True}
    async with (
        serve(items=30) as web,
        collect(web, rate="unlimited", options=options) as orchestrator,
    ):
        await orchestrator.execute()

        rows = [
            await orchestrator.store.records.get(str(number)) for number in web.catalogue.obtainable
        ]
    assert all(list(row["about"]["layers"]) == LAYERS for row in rows)
    assert {state for row in rows for state in row["about"]["layers"].values()} == {"ok"}


async def test_every_null_is_explained(serve: Serve, collect: Collect) -> None:
    async with serve(items=60) as web, collect(web, rate="unlimited") as orchestrator:
        await orchestrator.execute()

        rows = list(orchestrator.store.records.stream(RecordQuery()))
    unexplained = [
        (row["key"], field)
        for row in rows
        for field, value in row["data"].items()
        if value is None and field not in {note["field"] for note in row["about"]["notes"]}
    ]
    assert len(rows) == 60
    assert unexplained == []


async def test_fields_say_where_they_come_from(serve: Serve, collect: Collect) -> None:
    async with serve(items=3, odd_shapes=False) as web, collect(web) as orchestrator:
        item = items_of(web, 1)[0]
        await orchestrator.process_item(item.key, item.url)

        record = await orchestrator.store.records.get(item.key)
    origin = record["about"]["provenance"]["title"]
    assert origin == f"metadata {web.api_url}/templates/workflows/{item.key}"


async def test_extract_returns_everything_and_stores_nothing(
    serve: Serve, collect: Collect
) -> None:
    async with serve(items=3) as web, collect(web) as orchestrator:
        item = items_of(web, 1)[0]

        extraction = await orchestrator.extract(item.key, item.url)

        assert await orchestrator.store.records.count() == 0
    assert extraction.is_success
    assert list(extraction.results) == LAYERS
    assert extraction.record is not None
    assert extraction.record.quality is not None


async def test_a_whole_catalogue_is_stored_but_for_what_is_gone(
    serve: Serve, collect: Collect
) -> None:
    async with (
        serve(items=120, faults=0.2, missing=0.05) as web,
        collect(web, rate="unlimited", concurrency=16, timeout=5) as orchestrator,
    ):
        report = await orchestrator.execute()

        keys = {row["key"] for row in orchestrator.store.records.stream(RecordQuery())}
    values = report.as_dict()
    assert report.state is JobState.COMPLETE
    assert (values["discovered"], values["stored"], values["skipped"]) == (120, 114, 6)
    assert keys == {str(number) for number in web.catalogue.obtainable}
    assert values["requests"] == web.tally.requests + web.tally.youtube


async def test_the_search_inventory_finds_the_same_templates(
    serve: Serve, collect: Collect
) -> None:
    options = {"inventory": "search", "rows": 20}
    async with (
        serve(items=70) as web,
        collect(web, rate="unlimited", options=options) as orchestrator,
    ):
        report = await orchestrator.execute()

    assert report.as_dict()["stored"] == 70


async def test_a_closed_api_stops_the_job_and_an_override_is_recorded(
    serve: Serve, collect: Collect
) -> None:
    async with serve(items=3, disallow=True) as web, collect(web) as orchestrator:
        blocked = await orchestrator.execute()
        asked_before = web.tally.hits["/api/health"]

        report = await orchestrator.execute(params={"ignore_robots": ["127.0.0.1"]})

        events = await orchestrator.store.events.list(report.job, types=["job.resumed"])
        job = await orchestrator.store.jobs.get(report.job)
    assert (blocked.state, blocked.exit_code, asked_before) == (JobState.PAUSED, 4, 0)
    assert "--ignore-robots" in str(blocked.reason)
    assert "--set detail=pages" in str(blocked.reason)
    assert (report.job, report.state) == (blocked.job, JobState.COMPLETE)
    assert events[-1].data["ignore_robots"] == ["127.0.0.1"]
    assert job.settings["ignore_robots"] == ["127.0.0.1"]


async def test_an_override_can_be_given_when_a_job_is_resumed(
    serve: Serve, collect: Collect
) -> None:
    async with serve(items=3, disallow=True) as web, collect(web) as orchestrator:
        blocked = await orchestrator.execute(params={"ignore_robots": ["elsewhere.test"]})

        report = await orchestrator.resume(blocked.job, ignore_robots=[str(blocked.closed_host)])

        events = await orchestrator.store.events.list(report.job, types=["job.resumed"])
        job = await orchestrator.store.jobs.get(report.job)
    hosts = ["elsewhere.test", web.url.removeprefix("http://")]
    assert (report.job, report.state, report.closed_host) == (blocked.job, JobState.COMPLETE, None)
    assert events[-1].data["ignore_robots"] == hosts
    assert job.settings["ignore_robots"] == hosts


async def test_pages_alone_are_enough_where_the_api_is_closed(
    serve: Serve, collect: Collect
) -> None:
    async with (
        serve(items=5, disallow=True) as web,
        collect(web, options={"detail": "pages"}) as orchestrator,
    ):
        report = await orchestrator.execute()

    assert report.as_dict()["stored"] == 5
