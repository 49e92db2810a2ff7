"""The page of duplicates: pairs side by side, confirmed and rejected."""

from __future__ import annotations

import pytest

from longline.storage.access import Role
from tests.server.web.conftest import Dashboard
from tests.server.web.filled_home import add_duplicates

PAIR = 'aria-label="Pair"'


def pair_in(page: str) -> str:
    return page.partition('name="pair" value="')[2].partition('"')[0]


async def count(dashboard: Dashboard, view: str) -> int:
    return (await dashboard.get(f"/duplicates?show={view}")).text.count(PAIR)


async def test_an_empty_home_has_a_page_of_duplicates(dashboard: Dashboard) -> None:
    assert (await dashboard.get("/duplicates")).status == 200


async def test_a_pair_is_shown_side_by_side_with_its_evidence(dashboard: Dashboard) -> None:
    await add_duplicates(dashboard.store)

    page = (await dashboard.get("/duplicates")).text

    assert page.count(PAIR) == 1
    assert page.count("left/key0") == page.count("right/key0") == 1
    assert page.count("+5.0") == page.count("+1.0") == 1
    assert "<td>left</td><td>right</td>" in page


@pytest.mark.parametrize("decision", ["confirmed", "rejected"])
async def test_a_decision_is_stored_and_can_be_changed(dashboard: Dashboard, decision: str) -> None:
    await add_duplicates(dashboard.store, 2)
    pair = pair_in((await dashboard.get("/duplicates")).text)
    form = {"kind": "things", "pair": pair, "decision": decision}

    answer = await dashboard.post("/duplicates/decide", form, allow_redirects=False)
    counts = [await count(dashboard, view) for view in ("undecided", decision)]
    other = "rejected" if decision == "confirmed" else "confirmed"
    await dashboard.post("/duplicates/decide", {**form, "decision": other})

    assert answer.status == 303
    assert counts == [1, 1]
    assert [await count(dashboard, view) for view in (decision, other)] == [0, 1]


async def test_pages_show_every_pair_once(dashboard: Dashboard) -> None:
    await add_duplicates(dashboard.store, 23)
    found: list[str] = []
    url = "/duplicates"

    while url:
        text = (await dashboard.get(url)).text
        found += [one.partition(" ")[0] for one in text.split('<span class="dim">left/')[1:]]
        url = text.partition('<p class="more"><a class="button" href="')[2].partition('"')[0]
        url = url.replace("&amp;", "&")

    assert sorted(found) == sorted(f"key{number}" for number in range(23))


@pytest.mark.parametrize(
    "form",
    [
        {"decision": "maybe"},
        {"pair": "x"},
        {"pair": "1-999999"},
        {"kind": "none"},
    ],
)
async def test_an_invalid_decision_is_refused(dashboard: Dashboard, form: dict[str, str]) -> None:
    await add_duplicates(dashboard.store)
    given = {"kind": "things", "pair": "1-2", "decision": "confirmed", **form}

    answer = await dashboard.post("/duplicates/decide", given)

    assert answer.status in (404, 422)
    assert await count(dashboard, "undecided") == 1


@pytest.mark.parametrize("query", ["show=x", "kind=x", "after=x"])
async def test_a_malformed_list_is_refused(dashboard: Dashboard, query: str) -> None:
    await add_duplicates(dashboard.store)

    assert (await dashboard.get(f"/duplicates?{query}")).status in (404, 422)


async def test_a_reader_decides_nothing(dashboard: Dashboard) -> None:
    await add_duplicates(dashboard.store)
    form = {"kind": "things", "pair": "1-2", "decision": "confirmed"}

    answer = await dashboard.api("POST", "/duplicates/decide", role=Role.READ, data=form)

    assert answer.status == 403
    assert await count(dashboard, "undecided") == 1
