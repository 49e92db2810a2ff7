"""Between two runs: what appeared, changed and disappeared, and what is unknown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from longline.analysis.changes import ChangeKind, compare_runs
from longline.core.errors import BadOption, UnknownJob
from longline.core.model import CUT, Item, ItemState, Outcome
from longline.orchestrator import Orchestrator
from longline.sources.base import Options, Source, Visit, layer
from longline.sources.loader import read_job_file
from longline.storage.events.events import event_row
from longline.storage.jobs import NewJob
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.quarantine import ReprocessedItem
from longline.storage.queue.queue import Claim
from longline.storage.store import Store, open_store
from tests.analysis.two_runs import FAILED, FILTERED, GONE, STEP, UNPAID, WRONG, Runs, keys, outcome
from tests.scripted_site import ScriptedSite
from tests.storage.given import attempt, complete
from tests.virtual import VirtualClock


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'longline.sqlite'}") as store:
        yield store


@pytest.fixture
def run(store: Store) -> Runs:
    return Runs(store)


async def test_two_runs_are_compared_record_by_record(store: Store, run: Runs) -> None:
    first = await run({"a": {"price": 1}, "b": {"price": 2}, "c": {"price": 3}})
    second = await run({"d": {"price": 4}, "b": {"price": 9}, "a": {"price": 1}})

    found = await compare_runs(store, "shop")

    assert (found.older, found.newer) == (first, second)
    assert keys(found) == {"appeared": ["d"], "changed": ["b"], "disappeared": ["c"]}
    assert found.counts[ChangeKind.UNCHANGED] == 1
    assert found.as_dict()["changed"] == {"b": [{"field": "price", "old": 2, "new": 9}]}
    assert found.caveats == ()


async def test_of_the_first_run_everything_appeared(store: Store, run: Runs) -> None:
    await run({"a": {"price": 1}, "b": FAILED})

    found = await compare_runs(store, "shop")

    assert found.older is None
    assert keys(found) == {"appeared": ["a"], "unknown": ["b"]}


@pytest.mark.parametrize(
    ("end", "state"),
    [(FAILED, "failed"), (WRONG, "quarantined"), (UNPAID, "skipped"), (STEP, "skipped")],
)
async def test_an_unreadable_record_has_not_disappeared(
    store: Store, run: Runs, end: Outcome, state: str
) -> None:
    await run({"a": {"price": 1}, "b": {"price": 2}})
    await run({"a": end, "b": {"price": 2}})

    found = await compare_runs(store)

    unknown = found.as_dict()["unknown"]
    assert list(unknown) == ["a"]
    assert state in unknown["a"]
    assert str(end.reason) in unknown["a"]
    assert found.counts[ChangeKind.DISAPPEARED] == 0


async def test_a_record_that_is_gone_has_disappeared(store: Store, run: Runs) -> None:
    await run({"a": {"price": 1}, "b": {"price": 2}, "never": GONE})
    await run({"a": GONE, "b": {"price": 2}, "never": GONE})

    assert keys(await compare_runs(store)) == {"disappeared": ["a"]}


async def test_an_item_that_the_older_run_skipped_has_not_appeared(store: Store, run: Runs) -> None:
    await run({"known": {"price": 1}, "same": {"price": 1}})
    await run({"known": FILTERED, "same": FILTERED, "new": FILTERED, "c": {"price": 1}})
    await run({key: {"price": 1 + (key == "known")} for key in ("known", "same", "new", "c")})

    found = await compare_runs(store)

    assert keys(found) == {"changed": ["known"], "unknown": ["new"]}
    reason = found.of(ChangeKind.UNKNOWN)[0].reason or ""
    assert "skipped" in reason
    assert str(FILTERED.reason) in reason


async def test_a_record_that_was_gone_and_is_back_has_appeared(store: Store, run: Runs) -> None:
    await run({"a": {"price": 1}, "b": {"price": 1}})
    await run({"a": GONE, "new": GONE, "b": {"price": 1}})
    await run({"a": {"price": 1}, "new": {"price": 1}, "b": {"price": 1}})

    assert keys(await compare_runs(store)) == {"appeared": ["a", "new"]}


async def test_a_limit_that_was_not_reached_hides_nothing(store: Store, run: Runs) -> None:
    await run({"a": {"price": 1}, "b": {"price": 2}})
    await run({"a": {"price": 1}}, limit=2)

    assert keys(await compare_runs(store)) == {"disappeared": ["b"]}


async def test_records_after_the_cut_of_a_list_are_unknown(store: Store, run: Runs) -> None:
    await run({"a": {"price": 1}, "b": {"price": 2}})
    job = await run({"a": {"price": 1}}, is_finished=False)
    text = "there is more after 5 index pages, where most_pages ends it"
    await store.events.append(event_row(job, run.at, CUT, reason=text))
    await store.jobs.finish(job, run.at)

    found = await compare_runs(store)

    assert keys(found) == {"unknown": ["b"]}


async def test_a_run_that_was_given_its_items_cannot_tell(store: Store, run: Runs) -> None:
    await run({"a": {"price": 1}, "b": {"price": 2}})
    job = await store.jobs.create(NewJob("shop", {}, {}, run.at + 10))
    await store.queue.enqueue(
        Discovered(job.id, [Item("a", "https://shop.test/a")], run.at, is_last=True)
    )
    await store.jobs.start(job.id, run.at + 11)
    (lease,) = await store.queue.lease(Claim(job.id, "me", 1, run.at + 11, run.at + 60))
    changed = outcome("shop", lease.item, {"price": 5})
    await complete(store, attempt(lease, changed, run.at + 12))
    await store.jobs.finish(job.id, run.at + 13)

    found = await compare_runs(store)

    assert keys(found) == {"changed": ["a"], "unknown": ["b"]}


async def test_an_unfinished_run_is_compared_as_far_as_it_came(store: Store, run: Runs) -> None:
    first = await run({"a": {"price": 1}, "b": {"price": 2}, "c": {"price": 3}})
    second = await run({"a": {"price": 7}, "b": None}, is_finished=False)

    found = await compare_runs(store, newer_job=second)

    assert found.older == first
    unknown = found.as_dict()["unknown"]
    assert list(unknown) == ["b", "c"]
    assert unknown["b"] != unknown["c"]  # one is still queued, the other was not found again
    assert keys(found)["changed"] == ["a"]
    assert second in found.caveats[0]
    assert "running" in found.caveats[0]


async def test_a_page_that_leads_to_others_hides_them_when_it_fails(
    store: Store, run: Runs
) -> None:
    await run({"page 1": STEP, "a": {"price": 1}, "b": {"price": 2}})
    second = await run({"page 1": FAILED, "a": {"price": 1}})

    found = await compare_runs(store)

    assert keys(found) == {"unknown": ["page 1", "b"]}
    (caveat,) = found.caveats
    assert second in caveat
    assert "1" in caveat.replace(second, "").split()


async def test_a_record_the_older_run_failed_to_read_is_compared_with_its_last_version(
    store: Store, run: Runs
) -> None:
    await run({"a": {"price": 1}, "b": {"price": 1}})
    await run({"a": FAILED, "b": FAILED, "new": FAILED, "c": {"price": 1}})
    await run({"a": {"price": 1}, "b": {"price": 2}, "new": {"price": 3}, "c": {"price": 1}})

    found = await compare_runs(store)

    assert keys(found) == {"changed": ["b"], "unknown": ["new"]}
    assert found.counts[ChangeKind.UNCHANGED] == 2


async def test_after_a_short_run_nothing_known_appears_again(store: Store, run: Runs) -> None:
    await run({"a": {"price": 1}, "b": {"price": 2}})
    second = await run({"a": {"price": 1}}, limit=1)
    third = await run({"a": {"price": 1}, "b": {"price": 9}, "c": {"price": 3}})

    found = await compare_runs(store)

    assert keys(found) == {"appeared": ["c"], "changed": ["b"]}
    (caveat,) = found.caveats
    assert second in caveat
    assert third not in caveat


async def test_a_replay_without_changes_does_not_change_the_comparison(
    store: Store, run: Runs
) -> None:
    older = await run({"a": WRONG, "b": {"price": 1}})
    newer = await run({"a": {"price": 2}, "b": {"price": 1}})
    before = await compare_runs(store, "shop", older, newer)
    (held,) = await store.quarantine.held(older)
    fixed = ReprocessedItem(held, outcome("shop", held.item, {"price": 3}))

    ends = await store.quarantine.complete([fixed], run.at + 60)
    after = await compare_runs(store, "shop", older, newer)

    assert ends == [ItemState.SKIPPED]
    assert keys(before) == keys(after) == {"unknown": ["a"]}


async def test_a_returned_record_has_appeared(store: Store, run: Runs) -> None:
    await run({"a": {"price": 1}, "b": {"price": 2}})
    await run({"b": {"price": 2}})
    await run({"a": {"price": 1}, "b": {"price": 2}})

    assert keys(await compare_runs(store)) == {"appeared": ["a"]}


async def test_runs_with_others_between_them_are_compared(store: Store, run: Runs) -> None:
    first = await run({"a": {"price": 1}, "b": {"price": 1}})
    second = await run({"a": {"price": 2}, "b": {"price": 2}})
    third = await run({"a": {"price": 3}, "b": {"price": 1}})

    across = await compare_runs(store, None, first, third)
    before = await compare_runs(store, "shop", first, second)
    one_before = await compare_runs(store, newer_job=second)

    assert across.as_dict()["changed"] == {"a": [{"field": "price", "old": 1, "new": 3}]}
    assert across.counts[ChangeKind.UNCHANGED] == 1
    assert keys(before) == {"changed": ["a", "b"]}
    assert one_before == before


async def test_a_later_run_that_failed_is_not_passed_over_in_silence(
    store: Store, run: Runs
) -> None:
    await run({"a": {"price": 1}})
    second = await run({"a": {"price": 1}})
    third = await run({"a": FAILED})

    found = await compare_runs(store)

    assert found.newer == second
    (caveat,) = found.caveats
    assert third in caveat
    assert "failed" in caveat


async def test_a_limit_applies_to_the_list_and_not_to_the_counts(store: Store, run: Runs) -> None:
    await run({})
    await run({key: {"price": 1} for key in "abcde"})

    found = await compare_runs(store, most=2)

    assert (len(found.of(ChangeKind.APPEARED)), found.counts[ChangeKind.APPEARED]) == (2, 5)


async def test_runs_that_cannot_be_compared_are_refused(store: Store, run: Runs) -> None:
    with pytest.raises(BadOption, match="shop"):
        await compare_runs(store, "shop")
    first = await run({"a": {"price": 1}})
    second = await run({"a": {"price": 1}})
    other = await run({"a": {"price": 1}}, source="market")

    with pytest.raises(BadOption) as foreign:
        await compare_runs(store, "shop", first, other)
    with pytest.raises(BadOption) as same:
        await compare_runs(store, "shop", first, first)
    with pytest.raises(BadOption) as reverse:
        await compare_runs(store, "shop", second, first)
    with pytest.raises(UnknownJob):
        await compare_runs(store, "shop", "nothing")

    jobs = (first, second, other)
    assert "market" in foreign.value.problem
    assert [job in foreign.value.problem for job in jobs] == [False, False, True]
    assert [job in same.value.problem for job in jobs] == [True, False, False]
    assert [job in reverse.value.problem for job in jobs] == [True, True, False]


# ---------------------------------------------------------------- through the whole engine


class AdsOptions(Options):
    site: str


class Ads(Source):
    """The ads that an index page names."""

    name = "ads"
    Options = AdsOptions

    async def discover(self, visit: Visit) -> AsyncIterator[Item]:
        for number in (await visit.fetch(f"{self.options.site}/index")).json:
            yield Item(str(number), f"{self.options.site}/ad/{number}")

    @layer()
    async def page(self, visit: Visit) -> dict[str, Any]:
        data: dict[str, Any] = (await visit.fetch(visit.item.url)).json
        return data


def publish(site: ScriptedSite, prices: Mapping[int, int]) -> None:
    site.says("/index", orjson.dumps(list(prices)).decode())
    for number, price in prices.items():
        site.says(f"/ad/{number}", orjson.dumps({"title": f"Ad {number}", "price": price}).decode())


async def test_changes_of_400_ads_are_reported_exactly(
    site: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    prices = {number: 1000 + number for number in range(400)}
    raised = {number: price + 50 for number, price in prices.items() if number % 20 == 1}  # 5 %
    vanished = {number for number in prices if number % 50 == 2}  # 2 %
    fresh = dict.fromkeys(range(400, 412), 1)  # 3 %
    later = {n: p for n, p in (prices | raised | fresh).items() if n not in vanished}
    source = f"{__name__}:Ads"
    options = {"site": site.url}
    async with Orchestrator(
        source, options, home=tmp_path, clock=clock, rate="unlimited"
    ) as longline:
        publish(site, prices)
        await longline.execute(source)
        await clock.sleep(3600)
        publish(site, later)
        await longline.execute(source)

        found = await compare_runs(longline.store, "ads")
        versions = await longline.store.history.timeline("1", "price")
        count = await longline.store.records.count()

    assert {int(one.key) for one in found.of(ChangeKind.APPEARED)} == set(fresh)
    assert {int(one.key) for one in found.of(ChangeKind.DISAPPEARED)} == vanished
    assert found.as_dict()["changed"] == {
        str(number): [{"field": "price", "old": price - 50, "new": price}]
        for number, price in raised.items()
    }
    assert (found.counts[ChangeKind.UNCHANGED], found.counts[ChangeKind.UNKNOWN]) == (
        400 - 20 - 8,
        0,
    )
    assert [point.value for point in versions] == [1001, 1051]
    assert (count, found.caveats) == (412, ())


LIST: dict[str, Any] = {
    "manifest": "html",
    "start": "/list",
    "items": {"links": "a", "fields": {"price": "b"}},
    "fields": {"price": "i"},
    "parameters": {"rate": {"default": 1}},
}
MANIFEST = """
manifest: html
name: shop
rate: unlimited
start: {start}
items: h3 a
key: {{url: "/p/(.+)"}}
fields: {{title: h1}}
"""


@pytest.mark.parametrize(
    ("settings", "caveat"),
    [
        ({"limit": 1}, "limited"),
        ({"shortfall": "discovery ended early"}, "discovery ended early"),
        ({"set": {"city": "Bern"}}, "--set"),
        ({"params": {"city": "Bern"}}, "--param"),
        ({"manifest": LIST | {"start": "/listb"}}, "`start`"),
        ({"manifest": LIST | {"items": {"links": "b"}}}, "`items`"),
        ({"manifest": LIST | {"most_pages": 1}}, "`most_pages`"),
        ({"manifest": LIST | {"parameters": {"rate": {"default": 2}}}}, "`parameters`"),
        ({"manifest": {"endpoints": {"ads": {"incremental": {"field": "at"}}}}}, "incremental"),
    ],
)
async def test_an_incomplete_run_reports_missing_records_as_unknown(
    store: Store, run: Runs, settings: dict[str, Any], caveat: str
) -> None:
    await run({"a": {"price": 1}, "b": {"price": 2}}, manifest=LIST)
    second = await run({"a": {"price": 1}}, **({"manifest": LIST} | settings))

    found = await compare_runs(store)

    assert keys(found) == {"unknown": ["b"]}
    assert second in found.caveats[0]
    assert caveat in found.caveats[0]


@pytest.mark.parametrize(
    "edit",
    [
        {"fields": {"price": "i", "title": "h1"}},
        {"items": {"links": "a", "fields": {"price": "u"}}},
        {"rate": 5, "about": "slower", "version": "2"},
        {"retry": {"attempts": 5}, "max_in_flight": 2},
        {"schedule": {"every": "1d"}, "fresh": 90_000},
        {"parameters": {"rate": {"default": 1, "about": "a word"}}},
    ],
)
async def test_a_manifest_that_finds_the_same_items_hides_nothing(
    store: Store, run: Runs, edit: dict[str, Any]
) -> None:
    await run({"a": {"price": 1}, "b": {"price": 2}}, manifest=LIST)
    await run({"a": {"price": 1}}, manifest=LIST | edit)

    found = await compare_runs(store)

    assert (keys(found), found.caveats) == ({"disappeared": ["b"]}, ())


async def test_where_keys_are_made_of_fields_other_fields_find_other_items(
    store: Store, run: Runs
) -> None:
    elements = {"manifest": "html", "items": {"elements": "p"}, "fields": {"text": "b"}}
    await run({"1f": {"text": "x"}}, manifest=elements)
    await run({"2e": {"text": "x"}}, manifest=elements | {"fields": {"text": "i"}})

    assert keys(await compare_runs(store)) == {"appeared": ["2e"], "unknown": ["1f"]}


async def test_records_of_another_list_may_not_be_new(store: Store, run: Runs) -> None:
    first = await run({"a": {"price": 1}}, manifest=LIST)
    second = await run({"b": {"price": 2}}, manifest=LIST | {"start": "/listb"})

    found = await compare_runs(store)

    assert keys(found) == {"appeared": ["b"], "unknown": ["a"]}
    about_newer, about_older = found.caveats
    assert about_newer.index(second) < about_newer.index(first)
    assert about_older.index(first) < about_older.index(second)


async def test_many_missing_records_cause_a_caveat(store: Store, run: Runs) -> None:
    first = await run({f"{n} €": {"price": n} for n in range(20)})
    second = await run({f"{n} €": {"price": n} for n in range(9)})

    found = await compare_runs(store)

    (caveat,) = found.caveats
    assert found.counts[ChangeKind.DISAPPEARED] == 11
    assert {"11", "20", first} <= set(caveat.split())
    assert f"longline jobs {second}" in caveat
    assert "'shop/9 €'" in caveat


@pytest.mark.parametrize(("before", "after"), [(20, 10), (19, 1)])
async def test_when_half_is_missing_or_there_were_few_nothing_is_suspected(
    store: Store, run: Runs, before: int, after: int
) -> None:
    await run({str(n): {"price": n} for n in range(before)})
    await run({str(n): {"price": n} for n in range(after)})

    found = await compare_runs(store)

    assert (found.counts[ChangeKind.DISAPPEARED], found.caveats) == (before - after, ())


async def test_records_that_are_gone_cause_no_caveat(store: Store, run: Runs) -> None:
    await run({str(n): {"price": n} for n in range(30)})
    await run({str(n): GONE for n in range(29)} | {"29": {"price": 29}})

    found = await compare_runs(store)

    assert (found.counts[ChangeKind.DISAPPEARED], found.caveats) == (29, ())


async def test_missing_records_are_unknown_after_an_edit_of_the_manifest(
    site: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    for number in (1, 2):
        site.says(f"/list{number}", f"<h3><a href='/p/{number}'>x</a></h3>")
        site.says(f"/p/{number}", f"<h1>Item {number}</h1>")
    path = tmp_path / "shop.yaml"
    path.write_text(MANIFEST.format(start=f"{site.url}/list1"))
    async with Orchestrator(**read_job_file(path), home=tmp_path, clock=clock) as longline:
        await longline.execute()
    await clock.sleep(3600)
    path.write_text(MANIFEST.format(start=f"{site.url}/list2"))
    async with Orchestrator(**read_job_file(path), home=tmp_path, clock=clock) as longline:
        await longline.execute()

        found = await compare_runs(longline.store, "shop")

    assert keys(found) == {"appeared": ["2"], "unknown": ["1"]}
    assert "`start`" in found.caveats[0]
