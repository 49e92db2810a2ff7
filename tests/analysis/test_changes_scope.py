"""Two runs that did not look for the same things, or not as far: what they cannot tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longline.analysis.changes import ChangeKind, compare_runs
from longline.orchestrator import Orchestrator
from longline.sources.loader import read_job_file
from longline.storage.store import Store, open_store
from tests.analysis.two_runs import GONE, Runs, keys
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

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


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'longline.sqlite'}") as store:
        yield store


@pytest.fixture
def run(store: Store) -> Runs:
    return Runs(store)


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
async def test_a_run_that_could_not_see_all_cannot_tell_what_disappeared(
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


async def test_what_appears_with_another_list_may_have_been_there_before(
    store: Store, run: Runs
) -> None:
    first = await run({"a": {"price": 1}}, manifest=LIST)
    second = await run({"b": {"price": 2}}, manifest=LIST | {"start": "/listb"})

    found = await compare_runs(store)

    assert keys(found) == {"appeared": ["b"], "unknown": ["a"]}
    about_newer, about_older = found.caveats
    assert about_newer.index(second) < about_newer.index(first)
    assert about_older.index(first) < about_older.index(second)


async def test_when_most_is_missing_at_once_a_list_that_was_cut_is_suspected(
    store: Store, run: Runs
) -> None:
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


async def test_what_the_site_itself_calls_gone_is_no_sign_of_a_list_that_was_cut(
    store: Store, run: Runs
) -> None:
    await run({str(n): {"price": n} for n in range(30)})
    await run({str(n): GONE for n in range(29)} | {"29": {"price": 29}})

    found = await compare_runs(store)

    assert (found.counts[ChangeKind.DISAPPEARED], found.caveats) == (29, ())


async def test_after_an_edit_of_the_manifest_what_is_missing_is_unknown(
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
